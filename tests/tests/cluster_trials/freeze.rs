//! A process that stands still and does not know it.

use anyhow::Result;
use cluster_tests::cluster::definitions::Kind;
use cluster_tests::cluster::{ENDS_MAX, Plan, Trial, trial};
use std::time::{Duration, Instant};

/// Freezes the busiest silo; the others take over and end runs; on waking it says nothing old.
async fn freeze(t: &mut Trial<'_>, time: Duration) -> Result<()> {
    let frozen = t.busiest().await?;
    t.pace.restart();
    t.fleet.node(frozen).freeze();
    t.gap_of("a freeze of the busiest silo").await?;
    // It owned many of these when it stopped: it may believe that it still does.
    let ended = t.submit(Kind::Line, 20).await?;
    t.ends_of(&ended, ENDS_MAX).await?;
    t.spend(time).await;
    t.fleet.node(frozen).thaw();
    // Its first seconds count: it finds answers of before its sleep, and its old connections end one after the other.
    let (woken, mut looks) = (Instant::now(), 0);
    while looks == 0 || woken.elapsed() < Duration::from_secs(3) {
        t.is_honest(frozen, &ended).await?;
        looks += 1;
    }
    t.note(format!("{looks} looks at 20 runs each through the woken silo"));
    t.progress(60, ENDS_MAX).await
}

/// [FR-001], [K4], [K7], [L4]: it wakes after 20 s, owns nothing any more, commits nothing and gives no old answer.
#[test]
fn a_silo_frozen_for_20_seconds_wakes_up_harmless() -> Result<()> {
    trial(Plan::new("freeze"), async |t| freeze(t, Duration::from_secs(20)).await)
}

/// [FR-001], [FR-020]: for 60 s, longer than any lease; then it gets its shards back, with nothing in memory from before.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn a_silo_frozen_for_60_seconds_gets_its_runs_back_and_knows_nothing_old() -> Result<()> {
    let plan = Plan { rate: 10.0, ..Plan::new("freeze-long") };
    trial(plan, async |t| {
        let names: Vec<String> = t.fleet.nodes().iter().map(|node| node.name.clone()).collect();
        for _ in 0..2 {
            let due = t.submit(Kind::Nap(10), 100).await?;
            let frozen = t.busiest().await?;
            freeze(t, Duration::from_secs(60)).await?;
            for shard in 0..t.plan.shape.shards {
                // A replica that is still behind may be refused as a leader; what counts is that most come back.
                if let Err(error) = t.transfer(shard, &names[frozen]).await {
                    t.note(format!("{error:#}"));
                }
            }
            t.ends_of(&due, ENDS_MAX).await?;
            t.is_honest(frozen, &due).await?;
            t.progress(60, ENDS_MAX).await?;
        }
        Ok(())
    })
}

/// [K7]: short stops, one silo after the other, below and above the time of an election.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn stuttering_silos_lose_nothing() -> Result<()> {
    trial(Plan::new("stutter"), async |t| {
        for round in 0..30_u64 {
            let victim = t.busiest().await?;
            t.fleet.node(victim).freeze();
            t.spend(Duration::from_millis(200 + 150 * (round % 15))).await;
            t.fleet.node(victim).thaw();
            t.progress(20, ENDS_MAX).await?;
        }
        Ok(())
    })
}
