//! kill -9 and the loss of power.

use anyhow::Result;
use cluster_tests::cluster::{ENDS_MAX, Plan, trial};
use std::time::Duration;

/// [K6], [K7], [L4], [C1], [V1], [V2]: the busiest silo is killed, twice, and started again.
#[test]
fn the_busiest_silo_is_killed_and_nothing_is_lost_or_done_twice() -> Result<()> {
    trial(Plan::new("kill"), async |t| {
        for _ in 0..2 {
            let busiest = t.busiest().await?;
            t.pace.restart();
            t.fleet.node(busiest).kill()?;
            t.gap_of("a kill of the busiest silo").await?;
            t.fleet.boot_ready(busiest)?;
        }
        Ok(())
    })
}

/// [K5], [K7], [L4], [FR-189]: all lose their power at once and come back; cursors lose little, timers nothing.
#[test]
fn all_silos_lose_their_power_at_once_and_nothing_is_lost() -> Result<()> {
    trial(Plan::new("power"), async |t| {
        t.pace.restart();
        t.fleet.power_loss()?;
        t.spend(Duration::from_secs(4)).await;
        t.fleet.boot_all()?;
        t.gap_of("a loss of power of 4 s").await?;
        Ok(())
    })
}

/// [K7], [L4]: a kill every few seconds, of one silo or of two at once.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn kills_without_end_lose_nothing() -> Result<()> {
    let plan = Plan { rate: 10.0, ..Plan::new("kill-long") };
    trial(plan, async |t| {
        for round in 0..10 {
            let busiest = t.busiest().await?;
            t.pace.restart();
            t.fleet.node(busiest).kill()?;
            t.gap_of("a kill of the busiest silo").await?;
            if round % 3 == 2 {
                // The majority is gone; then the first comes back alone, and only with the second there is one again.
                t.fleet.node((busiest + 1) % 3).kill()?;
                t.spend(Duration::from_secs(3)).await;
            }
            t.fleet.boot_all()?;
        }
        for _ in 0..5 {
            t.fleet.power_loss()?;
            t.fleet.boot_all()?;
            t.progress(40, ENDS_MAX).await?;
        }
        Ok(())
    })
}

/// [FR-038]: the takeover of a killed silo's runs is itself interrupted.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn a_takeover_that_is_interrupted_leaves_no_run_behind() -> Result<()> {
    trial(Plan { rate: 10.0, ..Plan::cutting("takeover-cut") }, async |t| {
        for _ in 0..4 {
            let victim = t.busiest().await?;
            let others: Vec<usize> = (0..3).filter(|n| *n != victim).collect();
            t.fleet.node(victim).kill()?;
            t.spend(Duration::from_millis(1_700)).await;
            t.fleet.cut_from_peers(others[0])?;
            t.spend(Duration::from_secs(3)).await;
            t.fleet.net_mut().heal()?;
            t.progress(40, ENDS_MAX).await?;
            t.fleet.boot_ready(victim)?;
        }
        Ok(())
    })
}
