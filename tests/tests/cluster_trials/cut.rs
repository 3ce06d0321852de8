//! A network that is broken between the silos.

use anyhow::Result;
use cluster_tests::cluster::definitions::Kind;
use cluster_tests::cluster::net::End;
use cluster_tests::cluster::{ENDS_MAX, Plan, trial};
use std::time::Duration;

/// [FR-063], [FR-091], [K6], [K7]: the busiest silo is alone on its side, and clients still ask it; it says nothing old, denies no
/// run, and takes its place again afterwards.
#[test]
fn a_silo_cut_off_from_the_others_says_nothing_old() -> Result<()> {
    trial(Plan::cutting("cut-one"), async |t| {
        let alone = t.busiest().await?;
        t.pace.restart();
        t.fleet.cut_from_peers(alone)?;
        t.gap_of("a cut of the busiest silo").await?;
        let ended = t.submit(Kind::Line, 20).await?;
        t.ends_of(&ended, ENDS_MAX).await?;
        t.is_honest(alone, &ended).await?;
        t.fleet.net_mut().heal()?;
        t.progress(60, ENDS_MAX).await
    })
}

/// [K7], [P6]: workers at a silo that is cut off are sent to another one and not taken until it is back; their work goes on.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn workers_of_a_silo_that_is_cut_off_go_elsewhere() -> Result<()> {
    trial(Plan::cutting("cut-workers"), async |t| {
        let alone = t.busiest().await?;
        t.fleet.cut_from_peers(alone)?;
        t.fleet.node(alone).wait_probe("/metrics", ENDS_MAX, |_, body| body.contains("\ngranary_workers 0\n"))?;
        t.until_worker_is(alone, false).await?;
        let ended = t.submit(Kind::Line, 20).await?;
        t.ends_of(&ended, ENDS_MAX).await?;
        t.fleet.net_mut().heal()?;
        t.until_worker_is(alone, true).await
    })
}

/// [K7], [FR-147]: nobody has a majority for a while; then the network is whole, and cut again, many times.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn cuts_of_one_and_of_all_heal_every_time() -> Result<()> {
    trial(Plan::cutting("cut-many"), async |t| {
        for round in 0..12 {
            let alone = t.busiest().await?;
            t.pace.restart();
            t.fleet.cut_from_peers(alone)?;
            if round % 4 == 3 {
                // Each for itself.
                t.fleet.cut_from_peers((alone + 1) % 3)?;
                t.spend(Duration::from_secs(10)).await;
            } else {
                t.gap_of("a cut of the busiest silo").await?;
                t.spend(Duration::from_secs(10)).await;
            }
            t.fleet.net_mut().heal()?;
            t.pace.restart();
            t.gap_of("the healing of a cut").await?;
        }
        Ok(())
    })
}

/// [FR-197]: the links of the leader come and go faster than an election takes.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn links_that_flap_leave_a_leader_that_works() -> Result<()> {
    trial(Plan::cutting("cut-flap"), async |t| {
        for round in 0..50_u64 {
            let victim = t.busiest().await?;
            t.fleet.cut_from_peers(victim)?;
            t.spend(Duration::from_millis(300 + 97 * (round % 20))).await;
            t.fleet.net_mut().heal()?;
            t.progress(10, ENDS_MAX).await?;
        }
        Ok(())
    })
}

/// [K7], [L4]: what a silo sends arrives, but it hears nothing; and the other way round; towards one, and towards both.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn connections_that_work_one_way_lose_nothing() -> Result<()> {
    trial(Plan::cutting("cut-one-way"), async |t| {
        for (deaf, both) in [(true, false), (false, false), (true, true), (false, true)] {
            let victim = t.busiest().await?;
            let others = if both { vec![(victim + 1) % 3, (victim + 2) % 3] } else { vec![(victim + 1) % 3] };
            t.pace.restart();
            for other in others {
                let (from, to) = if deaf { (other, victim) } else { (victim, other) };
                t.fleet.net_mut().cut_one_way(End::Node(from), End::Node(to))?;
            }
            let what = if deaf { "a busiest silo that hears less" } else { "a busiest silo that is heard less" };
            t.spend(Duration::from_secs(15)).await;
            t.gap_of(what).await?;
            t.fleet.net_mut().heal()?;
            t.progress(40, ENDS_MAX).await?;
        }
        Ok(())
    })
}

/// [K7], [L4]: a silo and all its clients see nothing of the rest, and the rest nothing of it.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn a_silo_that_nobody_sees_and_bad_lines_lose_nothing() -> Result<()> {
    trial(Plan::cutting("cut-off-and-loss"), async |t| {
        let victim = t.busiest().await?;
        t.pace.restart();
        t.fleet.isolate(victim)?;
        t.gap_of("the isolation of the busiest silo").await?;
        t.spend(Duration::from_secs(30)).await;
        t.fleet.net_mut().heal()?;
        t.progress(60, ENDS_MAX).await?;
        t.pace.restart();
        t.fleet.net_mut().lose(10)?;
        t.spend(Duration::from_secs(40)).await;
        t.gap_of("a loss of every tenth packet").await?;
        Ok(())
    })
}
