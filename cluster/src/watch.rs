//! Tells watchers that a grain changed.

use tokio::sync::watch;

/// One watcher of one grain. A change that happens between two looks is never missed; several may be told as one.
pub struct Watch {
    pub(crate) changes: watch::Receiver<u64>,
}

impl Watch {
    /// Ends once the grain changed since the last time this was asked (or since the watch began). Never ends after the silo
    /// is gone.
    pub async fn changed(&mut self) {
        if self.changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
