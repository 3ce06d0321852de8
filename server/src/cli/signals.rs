//! The words to stop.

use super::Failure;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Cancelled by the first ctrl-C or SIGTERM. The second one ends the process at once, for whoever cannot wait.
pub fn stop() -> CancellationToken {
    let token = CancellationToken::new();
    let told = token.clone();
    tokio::spawn(async move {
        let Ok(mut stops) = Stops::new() else { return };
        stops.next().await;
        told.cancel();
        stops.next().await;
        std::process::exit(130);
    });
    token
}

/// Each ctrl-C and SIGTERM, for a command that does something of its own at the second one.
pub struct Stops {
    interrupt: Signal,
    terminate: Signal,
}

impl Stops {
    pub fn new() -> Result<Self, Failure> {
        let wrong =
            |error: std::io::Error| Failure::no("internal", format!("the signals to stop cannot be heard: {error}"));
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(wrong)?,
            terminate: signal(SignalKind::terminate()).map_err(wrong)?,
        })
    }

    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
