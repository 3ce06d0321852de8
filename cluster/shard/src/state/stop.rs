//! Why a node has stopped acknowledging, said once.

use crate::Error;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long one part of a close may take: what waits is still written.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same when the node has stopped: nothing more gets to the disk, so there is nothing to wait for but the store's own
/// code, which may have lost a thread to the fault and wait for it for ever.
const PATIENCE_STOPPED: Duration = Duration::from_millis(500);

#[derive(Clone, Default)]
pub struct Stop(Arc<OnceLock<String>>);

impl Stop {
    /// The first reason stays.
    pub fn because(&self, why: impl Into<String>) {
        let why = why.into();
        tracing::error!(%why, "the store has stopped");
        self.0.set(why).ok();
    }

    pub fn why(&self) -> Option<String> {
        self.0.get().cloned()
    }

    pub fn check(&self) -> Result<(), Error> {
        self.0.get().map_or(Ok(()), |why| Err(Error::Storage(why.clone())))
    }

    /// How long an end waits for a part that should end by itself.
    pub fn patience(&self) -> Duration {
        if self.0.get().is_some() { PATIENCE_STOPPED } else { PATIENCE }
    }
}
