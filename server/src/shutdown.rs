//! When to stop: SIGTERM or SIGINT.

use tokio::signal::unix::{SignalKind, signal};

/// Ends at the first SIGTERM or SIGINT and says which.
///
/// # Errors
/// The operating system does not give the signals.
pub async fn signalled() -> std::io::Result<&'static str> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(tokio::select! {
        _ = term.recv() => "SIGTERM",
        _ = int.recv() => "SIGINT",
    })
}
