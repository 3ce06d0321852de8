//! Counters that count once.

use anyhow::Result;
use cluster_tests::cluster::definitions::Kind;
use cluster_tests::cluster::{ENDS_MAX, Plan, Trial, trial};
use std::time::Duration;

/// Sum of `granary_runs_total` of one event over all nodes.
fn total(t: &Trial<'_>, event: &str) -> f64 {
    let label = format!("event=\"{event}\"");
    let texts = t.fleet.nodes().iter().filter_map(|node| node.probe("/metrics"));
    texts
        .flat_map(|(_, text)| {
            let lines = text.lines().filter(|line| line.starts_with("granary_runs_total") && line.contains(&label));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).collect::<Vec<_>>()
        })
        .sum()
}

/// [FR-155]: summed over all silos, each run is counted once, not once a replica; a restart counts nothing again.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn counters_count_each_run_once_over_all_silos() -> Result<()> {
    let plan = Plan { rate: 0.0, ..Plan::new("counts") };
    trial(plan, async |t| {
        let runs = t.submit(Kind::Line, 200).await?;
        t.ends_of(&runs, ENDS_MAX).await?;
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while total(t, "completed") < 200.0 && std::time::Instant::now() < deadline {
            t.spend(Duration::from_millis(200)).await;
        }
        assert_eq!((total(t, "started"), total(t, "completed")), (200.0, 200.0));
        for place in 0..3 {
            t.fleet.stop(place)?;
            t.fleet.boot_ready(place)?;
        }
        t.spend(Duration::from_secs(6)).await;
        let (started, completed) = (total(t, "started"), total(t, "completed"));
        assert!(started <= 200.0 && completed <= 200.0, "{started} started, {completed} completed");
        Ok(())
    })
}
