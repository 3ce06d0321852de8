//! A cluster of one: the same trials, where the only node is the majority.

use anyhow::Result;
use cluster_tests::cluster::net::End;
use cluster_tests::cluster::{Plan, Trial, trial};
use std::time::Duration;

fn alone(name: &'static str) -> Plan {
    Plan { nodes: 1, workers: 2, ..Plan::new(name) }
}

/// [K5], [K7], [L4]: what is due while nobody runs fires after the start; nothing is lost or doubled by kills and freezes.
#[test]
fn a_silo_that_is_killed_and_frozen_loses_nothing() -> Result<()> {
    trial(alone("alone-killed"), async |t: &mut Trial| {
        for _ in 0..2 {
            t.pace.restart();
            t.fleet.node(0).kill()?;
            t.fleet.boot_ready(0)?;
            t.gap_of("a kill").await?;
        }
        t.fleet.node(0).freeze();
        t.spend(Duration::from_secs(5)).await;
        t.fleet.node(0).thaw();
        t.gap_of("a freeze of 5 s").await?;
        Ok(())
    })
}

/// [L4]: a silo that its clients and workers lose sight of goes on where it was once they see it again.
#[test]
fn a_silo_that_is_cut_off_from_clients_and_loses_packets_loses_no_run() -> Result<()> {
    trial(Plan { cuts: true, ..alone("alone-cut") }, async |t: &mut Trial| {
        t.fleet.net_mut().cut(End::Us, End::Node(0))?;
        t.spend(Duration::from_secs(5)).await;
        t.fleet.net_mut().heal()?;
        t.gap_of("a cut of 5 s").await?;
        t.fleet.net_mut().lose(10)?;
        t.spend(Duration::from_secs(5)).await;
        t.fleet.net_mut().heal()?;
        Ok(())
    })
}
