//! What all parts of one mesh share.

use super::Error;
use super::answering::Answering;
use super::me::Me;
use super::options::MeshTiming;
use super::proof::Secret;
use super::quiet::Quiet;
use super::raft::RaftTarget;
use super::roster::Roster;
use super::tls::Credentials;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(super) struct Shared {
    pub me: Me,
    pub roster: Roster,
    pub credentials: Arc<Credentials>,
    pub secret: Secret,
    pub timing: MeshTiming,
    pub raft: Arc<dyn RaftTarget>,
    pub answering: Arc<Answering>,
    /// Ends everything.
    pub stop: CancellationToken,
    pub tasks: TaskTracker,
    pub barred: watch::Sender<Option<Error>>,
    pub quiet: Quiet,
}

impl Shared {
    /// This process must end.
    pub(super) fn bar(&self, error: Error) {
        self.barred.send_if_modified(|barred| {
            let is_first = barred.is_none();
            barred.get_or_insert(error);
            is_first
        });
    }

    pub(super) fn warn(&self, what: &str) {
        if self.quiet.is_due(what, Instant::now()) {
            tracing::warn!("{what}");
        }
    }
}
