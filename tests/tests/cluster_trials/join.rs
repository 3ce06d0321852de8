//! Silos that come, go and are taken out.

use anyhow::Result;
use cluster_tests::cluster::check::agree;
use cluster_tests::cluster::{ENDS_MAX, Plan, Trial, trial};
use granary_proto::v1;
use std::time::Duration;

const MOVES_MAX: Duration = Duration::from_secs(300);

/// How many replicas a node has.
fn replicas(status: &v1::GetClusterResponse, name: &str) -> usize {
    status.shards.iter().flat_map(|shard| &shard.replicas).filter(|replica| replica.node == name).count()
}

/// Waits until every shard has its three voters, all at the same place but for what is being written, and `name` has as many
/// replicas as `wanted` likes.
async fn settled(t: &Trial<'_>, name: &str, wanted: fn(usize) -> bool) -> Result<()> {
    t.until(&format!("the place of {name}"), MOVES_MAX, |status| {
        let mut open = agree::unsettled(status, 3);
        // Under load a replica is always a little behind.
        open.retain(|line| !line.contains("lags"));
        let found = replicas(status, name);
        if !wanted(found) {
            open.push(format!("{name} has {found} replicas"));
        }
        open
    })
    .await
}

/// [K8], [FR-152]: a fourth silo joins under load and gets its part; then it is taken out and leaves nothing behind.
#[test]
fn a_fourth_silo_joins_and_leaves_under_load() -> Result<()> {
    trial(Plan::new("join"), async |t| {
        t.pace.restart();
        let place = t.join()?;
        let name = t.fleet.node(place).name.clone();
        settled(t, &name, |found| found > 0).await?;
        t.gap_of("a join").await?;
        t.pace.restart();
        t.remove(&name).await?;
        settled(t, &name, |found| found == 0).await?;
        t.gap_of("a removal").await?;
        t.fleet.retire(place)
    })
}

/// [K8], [FR-002]: a fourth and a fifth join while one of the old ones has a slow disk; then one of the old ones is drained, comes
/// back, and another one is killed and taken out for good.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn silos_join_and_leave_while_one_is_slow() -> Result<()> {
    let plan = Plan { rate: 10.0, settle: Duration::from_secs(240), ..Plan::new("join-long") };
    trial(plan, async |t| {
        t.fleet.node(0).slow_disk(Duration::from_millis(100))?;
        let fourth = t.join()?;
        let fifth = t.join()?;
        for place in [fourth, fifth] {
            let name = t.fleet.node(place).name.clone();
            settled(t, &name, |found| found > 0).await?;
        }
        t.fleet.node(0).fast_disk();
        let drained = t.fleet.node(1).name.clone();
        t.drain(&drained, false).await?;
        settled(t, &drained, |found| found == 0).await?;
        t.drain(&drained, true).await?;
        settled(t, &drained, |found| found > 0).await?;
        // [FR-121]: nobody waits for the dead.
        t.pace.restart();
        t.fleet.node(2).kill()?;
        let dead = t.fleet.node(2).name.clone();
        t.remove(&dead).await?;
        settled(t, &dead, |found| found == 0).await?;
        t.gap_of("a kill and removal").await?;
        t.fleet.retire(2)
    })
}

/// [FR-031]: one silo comes and goes, again and again; afterwards every timer fires.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn a_membership_that_flaps_leaves_every_timer_working() -> Result<()> {
    trial(Plan::new("flap"), async |t| {
        for round in 0..20 {
            let victim = round % 3;
            t.fleet.node(victim).kill()?;
            t.spend(Duration::from_secs(1)).await;
            t.fleet.boot_ready(victim)?;
            t.spend(Duration::from_secs(1)).await;
        }
        let naps = t.submit(cluster_tests::cluster::definitions::Kind::Nap(10), 100).await?;
        let after = t.ends_of(&naps, ENDS_MAX).await?;
        t.note(format!("100 timers of 10 s had fired {after:.1?} after they were set"));
        Ok(())
    })
}

/// [K8]: a dead silo's replicas are made again elsewhere after the grace time, and not before anybody asked.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn a_dead_silo_is_replaced_after_its_grace_time() -> Result<()> {
    let mut plan = Plan::new("grace");
    plan.shape.dead_node_grace_seconds = 15;
    trial(plan, async |t| {
        let fourth = t.join()?;
        let name = t.fleet.node(fourth).name.clone();
        settled(t, &name, |found| found > 0).await?;
        let dead = t.busiest().await?;
        let dead_name = t.fleet.node(dead).name.clone();
        t.fleet.node(dead).kill()?;
        t.until("the replacement of the dead", MOVES_MAX, |status| {
            let left = replicas(status, &dead_name);
            if left == 0 { Vec::new() } else { vec![format!("{dead_name} still has {left} replicas")] }
        })
        .await?;
        // It is still a member: when it comes back, it gets its part again.
        t.fleet.boot_ready(dead)?;
        settled(t, &dead_name, |found| found > 0).await
    })
}
