//! Timers in masses, and over stops.

use anyhow::Result;
use cluster_tests::cluster::definitions::Kind;
use cluster_tests::cluster::{ENDS_MAX, Plan, trial};
use std::time::Duration;

/// [FR-032], [FR-006], [K5]: timers that come due while nobody runs fire after the start, each once, none dropped.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn timers_due_while_all_are_down_fire_after_the_start() -> Result<()> {
    trial(Plan::new("timers-down"), async |t| {
        let naps = t.submit(Kind::Nap(15), 50).await?;
        t.spend(Duration::from_secs(5)).await;
        for place in 0..3 {
            // The last ones have no majority left to hand anything over to; they end in order all the same.
            t.fleet.stop(place)?;
        }
        t.spend(Duration::from_secs(30)).await;
        t.fleet.boot_all()?;
        let after = t.ends_of(&naps, ENDS_MAX).await?;
        t.note(format!("50 overdue timers and the steps behind them were done {after:.1?} after the start"));
        Ok(())
    })
}

/// [FR-186]: thousands of overdue timers, and the silos come up one after the other; the first takes no more than its part for
/// long.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn overdue_timers_in_masses_are_spread_over_silos_that_come_later() -> Result<()> {
    let plan = Plan { settle: Duration::from_secs(300), ..Plan::new("timers-mass") };
    trial(plan, async |t| {
        let naps = t.submit(Kind::Nap(40), 1_500).await?;
        t.fleet.power_loss()?;
        t.spend(Duration::from_secs(45)).await;
        t.fleet.boot(0)?;
        t.fleet.boot(1)?;
        t.fleet.node(0).wait_ready(Duration::from_secs(90))?;
        t.spend(Duration::from_secs(25)).await;
        t.fleet.boot_all()?;
        let after = t.ends_of(&naps, Duration::from_secs(240)).await?;
        t.note(format!("1,500 overdue timers were done {after:.1?} after the last silo was ready"));
        t.until("leaders spread over all", Duration::from_secs(120), |status| {
            let lazy: Vec<_> = status.nodes.iter().filter(|node| node.leads == 0).collect();
            lazy.iter().map(|node| format!("{} leads nothing", node.name)).collect()
        })
        .await
    })
}

/// [FR-101], [FR-027]: an election in the middle of many fires.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn an_election_in_the_middle_of_many_fires_loses_none() -> Result<()> {
    trial(Plan::new("timers-election"), async |t| {
        let naps = t.submit(Kind::Nap(12), 200).await?;
        t.spend(Duration::from_secs(11)).await;
        let busiest = t.busiest().await?;
        t.fleet.stop(busiest)?;
        let after = t.ends_of(&naps, ENDS_MAX).await?;
        t.note(format!(
            "200 timers and the steps behind them were done {after:.1?} after the stop of the busiest silo"
        ));
        t.fleet.boot_ready(busiest)
    })
}
