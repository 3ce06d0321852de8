//! Why a node has stopped acknowledging, said once.

use crate::Error;
use std::sync::{Arc, OnceLock};

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
}
