//! The words to stop.

use tokio_util::sync::CancellationToken;

/// Cancelled by the first ctrl-C or SIGTERM. The second one ends the process at once, for whoever cannot wait.
pub fn stop() -> CancellationToken {
    let token = CancellationToken::new();
    let told = token.clone();
    tokio::spawn(async move {
        one().await;
        told.cancel();
        one().await;
        std::process::exit(130);
    });
    token
}

async fn one() {
    let terminate = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminate => {}
    }
}
