//! Where a trial takes place: its turn, its network, its threads, its folder; and what is kept of a failure.

use super::net::Net;
use super::trial::{Plan, Trial};
use super::{Fleet, serial};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Runs `faults` under load on a fresh fleet, then proves that nothing was lost or doubled.
///
/// # Errors
/// What the trial itself says; the fleet does not heal; the proof fails. The logs are kept then, and their place is told.
pub fn trial<F>(plan: Plan, faults: F) -> Result<()>
where
    F: AsyncFnOnce(&mut Trial<'_>) -> Result<()> + Send,
{
    bare(plan, async |fleet, plan| {
        fleet.boot_all()?;
        let mut trial = Trial::new(plan, fleet).await?;
        faults(&mut trial).await.context("while things were being broken")?;
        trial.prove().await.map(drop)
    })
}

/// Gives a fleet of which nothing runs yet, and no load.
///
/// # Errors
/// What the trial itself says. The logs are kept then, and their place is told.
pub fn bare<F>(plan: Plan, act: F) -> Result<()>
where
    F: AsyncFnOnce(&mut Fleet, Plan) -> Result<()> + Send,
{
    // A thread of its own: it moves to the trial's network and never comes back.
    std::thread::scope(|scope| scope.spawn(|| run(plan, act)).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn run<F>(plan: Plan, act: F) -> Result<()>
where
    F: AsyncFnOnce(&mut Fleet, Plan) -> Result<()>,
{
    let _turn = serial::turn()?;
    let net = if plan.cuts { Net::of_namespaces()? } else { Net::of_any_kind() };
    let entrance = net.entrance();
    entrance.enter()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        // A thread that stays outside would only find nobody there: the calls fail, and the trial says so.
        .on_thread_start(move || {
            let _ = entrance.enter();
        })
        .build()?;
    let folder = tempfile::Builder::new().prefix("granary-chaos-").tempdir()?;
    let name = plan.name;
    let mut fleet = Fleet::prepare(folder.path(), net, plan.nodes, plan.shape.clone())?;
    let outcome = runtime.block_on(act(&mut fleet, plan));
    runtime.shutdown_timeout(Duration::from_secs(2));
    drop(fleet);
    outcome.map_err(|error| match keep_logs(folder.path(), name) {
        Ok(kept) => error.context(format!("logs of the nodes: {}", kept.display())),
        Err(_) => error,
    })
}

/// Copies the logs to where they outlive the trial.
fn keep_logs(folder: &Path, name: &str) -> Result<PathBuf> {
    let binary = crate::process::binary()?;
    let kept = binary.parent().context("a binary lies in a folder")?.join("chaos").join(name);
    std::fs::create_dir_all(&kept)?;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log" || extension == "yaml") {
            std::fs::copy(&path, kept.join(path.file_name().context("a file has a name")?))?;
        }
    }
    Ok(kept)
}
