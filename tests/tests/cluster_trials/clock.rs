//! Clocks that are wrong by minutes.

use anyhow::{Result, ensure};
use cluster_tests::cluster::definitions::Kind;
use cluster_tests::cluster::fleet::READY_MAX;
use cluster_tests::cluster::{ENDS_MAX, Plan, Trial, bare, trial};
use granary_proto::v1::ClusterNode;

/// Silos that stay ready whatever their clocks say.
fn careless(name: &'static str) -> Plan {
    let mut plan = Plan { clocks_are_wrong: true, ..Plan::new(name) };
    plan.shape.more = "  clockSkewMaxMs: 0\n".to_owned();
    plan
}

/// [FR-017]: a silo whose clock differs from the others' says so and is not ready until it is right again; the others are well.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn a_silo_whose_clock_is_wrong_is_not_ready_and_says_so() -> Result<()> {
    bare(Plan::new("clock-off"), async |fleet, plan| {
        fleet.boot_all()?;
        fleet.stop(1)?;
        fleet.node(1).skew_seconds = 120;
        fleet.boot(1)?;
        fleet.node(1).wait_probe("/readyz", READY_MAX, |code, body| code == 503 && body.contains("its clock is 1"))?;
        fleet.node(0).wait_probe("/readyz", READY_MAX, |code, _| code == 200)?;
        let t = Trial::new(Plan { rate: 0.0, workers: 0, ..plan }, fleet).await?;
        t.until("what all know of their clocks", READY_MAX, |status| {
            let off = |node: &ClusterNode| node.clock_off_ms.unwrap_or(i64::MAX);
            let wanted = |node: &ClusterNode| if node.name == "silo-2" { 119_000..121_000 } else { -1_000..1_000 };
            let odd = status.nodes.iter().filter(|node| !wanted(node).contains(&off(node)));
            odd.map(|node| format!("{} is said to be off by {} ms", node.name, off(node))).collect()
        })
        .await?;
        let metric = "granary_clock_offset_seconds{peer=\"silo-2\"} 1";
        t.fleet.node(0).wait_probe("/metrics", READY_MAX, |_, body| body.contains(metric))?;
        t.fleet.stop(1)?;
        t.fleet.node(1).skew_seconds = 0;
        t.fleet.boot_ready(1)
    })
}

/// [FR-017]: one silo is a minute ahead, one a minute behind, two minutes apart. Nobody is declared dead for it, no call is refused as
/// expired, no timer fires before its time while its shard stays where it is.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn clocks_that_are_wrong_by_minutes_harm_nobody() -> Result<()> {
    let plan = careless("clocks");
    bare(plan, async |fleet, plan| {
        fleet.node(0).skew_seconds = 60;
        fleet.node(1).skew_seconds = -60;
        fleet.boot_all()?;
        let mut t = Trial::new(plan, fleet).await?;
        let naps = t.submit(Kind::Nap(5), 100).await?;
        t.ends_of(&naps, ENDS_MAX).await?;
        let status = t.status().await?;
        ensure!(status.nodes.iter().all(|node| node.reachable && node.state == "up"), "{:?}", status.nodes);
        t.prove().await.map(drop)
    })
}

/// [FR-148]: the leader dies, and the follower that takes over has another clock; it drops no timer.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn a_takeover_by_a_silo_with_another_clock_drops_no_timer() -> Result<()> {
    let plan = careless("clocks-takeover");
    trial(plan, async |t| {
        // The others lag: what the first sets is due later for them, by no more than the difference.
        let naps = t.submit(Kind::Nap(5), 60).await?;
        let victim = t.busiest().await?;
        t.fleet.node(victim).kill()?;
        t.fleet.node(victim).skew_seconds = 20;
        t.fleet.boot_ready(victim)?;
        t.ends_of(&naps, ENDS_MAX).await?;
        let naps = t.submit(Kind::Nap(5), 60).await?;
        t.fleet.node(victim).kill()?;
        t.ends_of(&naps, ENDS_MAX).await?;
        t.fleet.node(victim).skew_seconds = 0;
        t.fleet.boot_ready(victim)
    })
}
