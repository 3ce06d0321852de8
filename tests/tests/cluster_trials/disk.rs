//! Disks that take their time.

use anyhow::Result;
use cluster_tests::cluster::{ENDS_MAX, Plan, trial};
use std::time::Duration;

/// [K7], [K9], [L4]: one silo's syncs take a tenth of a second, then half a second; the others do not wait for it longer than it
/// leads.
#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn a_silo_with_a_slow_disk_loses_nothing() -> Result<()> {
    trial(Plan::new("slow-disk"), async |t| {
        for millis in [100, 500] {
            let victim = t.busiest().await?;
            t.pace.restart();
            t.fleet.node(victim).slow_disk(Duration::from_millis(millis))?;
            t.spend(Duration::from_secs(20)).await;
            t.gap_of(&format!("syncs of {millis} ms at the busiest silo")).await?;
            t.fleet.node(victim).fast_disk();
            t.progress(60, ENDS_MAX).await?;
        }
        Ok(())
    })
}
