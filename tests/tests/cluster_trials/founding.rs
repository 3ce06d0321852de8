//! The beginning of a cluster.

use anyhow::{Result, ensure};
use cluster_tests::cluster::{Plan, bare};
use std::time::{Duration, Instant};

/// [FR-015], [K1]: the first silo is alive while it waits for the others, and is ready only with them; at the founding and after a
/// stop of all.
#[test]
fn the_first_silo_is_alive_while_it_waits_for_the_others() -> Result<()> {
    bare(Plan::new("founding"), async |fleet, _| {
        for _ in 0..2 {
            fleet.boot(0)?;
            let deadline = Instant::now() + Duration::from_secs(30);
            while !matches!(fleet.node(0).probe("/healthz"), Some((200, _))) {
                ensure!(Instant::now() < deadline, "it does not live alone\n{}", fleet.node(0).last_words());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            ensure!(matches!(fleet.node(0).probe("/readyz"), Some((503, _))), "it is ready without a majority");
            fleet.boot_all()?;
            for place in 0..3 {
                fleet.stop(place)?;
            }
        }
        Ok(())
    })
}
