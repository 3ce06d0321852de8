//! Stops in order, starts, and starts that must be refused.

use anyhow::{Context, Result, ensure};
use cluster_tests::cluster::definitions::Kind;
use cluster_tests::cluster::{ENDS_MAX, Plan, Trial, bare, trial};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Connections that say nothing hold up no stop.
fn silent_connections(t: &Trial<'_>, place: usize) -> Result<Vec<TcpStream>> {
    let address = SocketAddr::from((t.fleet.nodes()[place].ip, cluster_tests::cluster::node::CLIENT_PORT));
    (0..20).map(|_| TcpStream::connect(address).context("a connection that says nothing")).collect()
}

async fn roll(t: &mut Trial<'_>) -> Result<()> {
    for place in 0..t.fleet.size() {
        let silent = silent_connections(t, place)?;
        t.pace.restart();
        t.fleet.stop(place)?;
        drop(silent);
        t.gap_of("a stop in order").await?;
        t.fleet.boot_ready(place)?;
        t.progress(40, ENDS_MAX).await?;
    }
    Ok(())
}

/// [K8], [P6], [FR-096], [FR-097]: each silo in turn gets SIGTERM and is started again; with the documented retry no call fails, and
/// no attempt becomes uncertain.
#[test]
fn a_rolling_restart_fails_no_call() -> Result<()> {
    trial(Plan::new("rolling"), async |t| roll(t).await)
}

/// [K8], [FR-184]: the same while the disk of the silo that stops is slow.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn rolling_restarts_with_slow_disks_fail_no_call() -> Result<()> {
    let plan = Plan { rate: 10.0, ..Plan::new("rolling-long") };
    trial(plan, async |t| {
        roll(t).await?;
        for place in 0..t.fleet.size() {
            t.fleet.node(place).slow_disk(Duration::from_millis(300))?;
            t.spend(Duration::from_secs(3)).await;
            t.fleet.stop(place)?;
            t.fleet.boot_ready(place)?;
            t.progress(40, ENDS_MAX).await?;
        }
        roll(t).await
    })
}

/// [K1], [K8]: a second process on a folder in use, and a silo with another cluster's data, are refused and say why; the cluster
/// goes on.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn a_folder_in_use_and_the_data_of_another_cluster_are_refused() -> Result<()> {
    bare(Plan::new("refused"), async |fleet, _| {
        fleet.boot_all()?;
        let second = fleet.try_double(0, Duration::from_secs(30))?;
        ensure!(second.contains("in use"), "a second process on one folder said: {second}");
        // Another cluster of the same names, made of nothing.
        fleet.power_loss()?;
        let old = fleet.set_aside(0)?;
        fleet.lose_volume(1)?;
        fleet.lose_volume(2)?;
        fleet.boot_all()?;
        fleet.stop(0)?;
        fleet.lose_volume(0)?;
        fleet.put_back(0, &old)?;
        fleet.boot(0)?;
        let status = fleet.node(0).wait_end(Duration::from_secs(60))?;
        let words = fleet.node(0).last_words();
        ensure!(!status.success() && words.contains("cluster"), "it ended with {status} and said: {words}");
        ensure!(matches!(fleet.node(1).probe("/readyz"), Some((200, _))), "the cluster is not well any more");
        Ok(())
    })
}

/// [K1], [FR-122], [FR-098]: all are killed and come back under other addresses with their old volumes.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn all_silos_come_back_under_other_addresses() -> Result<()> {
    trial(Plan::cutting("moved-house"), async |t| {
        let before = t.submit(Kind::Nap(20), 20).await?;
        t.pace.restart();
        t.fleet.power_loss()?;
        let urls = t.fleet.move_house()?;
        t.clients.replace(&urls)?;
        t.fleet.boot_all()?;
        t.gap_of("a restart under other addresses").await?;
        t.ends_of(&before, ENDS_MAX).await.map(drop)
    })
}
