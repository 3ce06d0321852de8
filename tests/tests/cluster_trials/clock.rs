//! Clocks that are wrong by minutes.

use anyhow::{Result, ensure};
use cluster_tests::cluster::definitions::Kind;
use cluster_tests::cluster::{Plan, Trial, bare, trial};
use std::time::Duration;

/// [FR-017]: one silo is five minutes ahead, one is five minutes behind. Nobody is declared dead for it, no call is refused as
/// expired, no timer fires before its time while its shard stays where it is.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn clocks_that_are_wrong_by_minutes_harm_nobody() -> Result<()> {
    let plan = Plan { clocks_are_wrong: true, ..Plan::new("clocks") };
    bare(plan, async |fleet, plan| {
        fleet.node(0).skew_seconds = 300;
        fleet.node(1).skew_seconds = -300;
        fleet.boot_all()?;
        let mut t = Trial::new(plan, fleet).await?;
        let naps = t.submit(Kind::Nap(5), 100).await?;
        t.ends_of(&naps, Duration::from_secs(60)).await?;
        let status = t.status().await?;
        ensure!(status.nodes.iter().all(|node| node.reachable && node.state == "up"), "{:?}", status.nodes);
        t.prove().await.map(drop)
    })
}

/// [FR-148]: the leader dies, and the follower that takes over has another clock; it drops no timer.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn a_takeover_by_a_silo_with_another_clock_drops_no_timer() -> Result<()> {
    let plan = Plan { clocks_are_wrong: true, ..Plan::new("clocks-takeover") };
    trial(plan, async |t| {
        // The others lag: what the first sets is due later for them, by no more than the difference.
        let naps = t.submit(Kind::Nap(5), 60).await?;
        let victim = t.busiest().await?;
        t.fleet.node(victim).kill()?;
        t.fleet.node(victim).skew_seconds = 20;
        t.fleet.boot_ready(victim)?;
        t.ends_of(&naps, Duration::from_secs(90)).await?;
        let naps = t.submit(Kind::Nap(5), 60).await?;
        t.fleet.node(victim).kill()?;
        t.ends_of(&naps, Duration::from_secs(90)).await?;
        t.fleet.node(victim).skew_seconds = 0;
        t.fleet.boot_ready(victim)
    })
}
