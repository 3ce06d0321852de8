//! A store that can be closed while handles to it are still about: sled and fjall lock their folder until the last handle
//! is gone, and a closed host must be able to open again at once.

use super::store::{Change, StateStore};
use crate::Error;
use parking_lot::RwLock;
use std::sync::Arc;

pub struct Closable(RwLock<Option<Arc<dyn StateStore>>>);

impl Closable {
    pub fn new(store: Arc<dyn StateStore>) -> Self {
        Self(RwLock::new(Some(store)))
    }

    /// Waits for calls in progress and lets the store go. Later calls answer [`Error::Closed`].
    pub fn close(&self) {
        let store = self.0.write().take();
        drop(store);
    }

    fn with<T>(&self, call: impl FnOnce(&dyn StateStore) -> Result<T, Error>) -> Result<T, Error> {
        self.0.read().as_deref().map_or(Err(Error::Closed), call)
    }
}

impl StateStore for Closable {
    fn write(&self, changes: &[Change<'_>]) -> Result<(), Error> {
        self.with(|store| store.write(changes))
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.with(|store| store.get(key))
    }

    fn scan(&self, from: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), Error> {
        self.with(|store| store.scan(from, end, visit))
    }

    fn sync(&self) -> Result<(), Error> {
        self.with(|store| store.sync())
    }

    fn verify(&self) -> Result<u64, Error> {
        self.with(|store| store.verify())
    }
}
