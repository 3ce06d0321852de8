//! A cluster of one: the same trials, where the only node is the majority.

use anyhow::Result;
use cluster_tests::cluster::net::End;
use cluster_tests::cluster::{ENDS_MAX, Plan, trial};
use std::time::Duration;

/// [K5], [L4]: a silo that is killed, that nobody sees and that loses packets goes on where it was.
#[test]
fn a_silo_alone_that_is_killed_and_cut_off_loses_nothing() -> Result<()> {
    let plan = Plan { nodes: 1, workers: 2, ..Plan::cutting("alone") };
    trial(plan, async |t| {
        t.pace.restart();
        t.fleet.node(0).kill()?;
        t.fleet.boot_ready(0)?;
        t.gap_of("a kill").await?;
        t.pace.restart();
        t.fleet.net_mut().cut(End::Us, End::Node(0))?;
        t.spend(Duration::from_secs(4)).await;
        t.fleet.net_mut().heal()?;
        t.gap_of("a cut of 4 s").await?;
        t.fleet.net_mut().lose(10)?;
        t.progress(60, ENDS_MAX).await
    })
}

/// [FR-017], [L4]: the same for a disk that takes its time and for a clock that was wrong until the last start.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn a_silo_alone_with_a_slow_disk_and_a_wrong_clock_loses_nothing() -> Result<()> {
    let plan = Plan { nodes: 1, workers: 2, clocks_are_wrong: true, ..Plan::new("alone-slow") };
    trial(plan, async |t| {
        t.fleet.node(0).slow_disk(Duration::from_millis(100))?;
        t.spend(Duration::from_secs(5)).await;
        t.gap_of("syncs of 100 ms").await?;
        t.fleet.node(0).fast_disk();
        for skew in [-120, 0] {
            t.fleet.node(0).kill()?;
            t.fleet.node(0).skew_seconds = skew;
            t.fleet.boot_ready(0)?;
            t.progress(60, ENDS_MAX).await?;
        }
        Ok(())
    })
}
