//! Disks that are gone.

use anyhow::Result;
use cluster_tests::cluster::check::agree;
use cluster_tests::cluster::{Plan, trial};
use std::time::Duration;

/// [K3], [K8], [FR-122]: one of three volumes is lost; the silo comes back empty under its old name and is filled again.
#[test]
fn a_silo_that_lost_its_volume_is_filled_again() -> Result<()> {
    trial(Plan::new("volume"), async |t| {
        let victim = t.busiest().await?;
        t.pace.restart();
        t.fleet.node(victim).kill()?;
        t.fleet.lose_volume(victim)?;
        t.fleet.boot_ready(victim)?;
        t.gap_of("the loss of a volume").await?;
        t.until("three voters of each shard", Duration::from_secs(120), |status| {
            let mut open = agree::unsettled(status, 3);
            // Under load a replica is always a little behind.
            open.retain(|line| !line.contains("lags"));
            open
        })
        .await
    })
}

/// [FR-122]: all are killed, one has lost its volume; and so in turn for each.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn a_full_restart_with_one_lost_volume_heals_whoever_lost_it() -> Result<()> {
    let plan = Plan { settle: Duration::from_secs(240), ..Plan::new("volume-long") };
    trial(plan, async |t| {
        for victim in 0..3 {
            t.pace.restart();
            t.fleet.power_loss()?;
            t.fleet.lose_volume(victim)?;
            t.fleet.boot_all()?;
            t.gap_of("a full restart with a lost volume").await?;
            t.until("three voters of each shard", Duration::from_secs(120), |status| {
                let mut open = agree::unsettled(status, 3);
                open.retain(|line| !line.contains("lags"));
                open
            })
            .await?;
        }
        Ok(())
    })
}
