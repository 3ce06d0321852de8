//! A store that can be closed while handles to it are still about: sled and fjall lock their folder until the last handle
//! is gone, and a closed host must be able to open again at once.
//!
//! It is also where damage met at a read stops the node: the next start is an unclean one, reads everything, finds the
//! damage again and makes the store anew.

use super::Stop;
use super::store::{Change, StateStore};
use crate::Error;
use parking_lot::RwLock;
use std::sync::Arc;

pub struct Closable {
    store: RwLock<Option<Arc<dyn StateStore>>>,
    stop: Stop,
}

impl Closable {
    pub fn new(store: Arc<dyn StateStore>, stop: Stop) -> Self {
        Self { store: RwLock::new(Some(store)), stop }
    }

    /// Waits for calls in progress and lets the store go. Later calls answer [`Error::Closed`].
    pub fn close(&self) {
        let store = self.store.write().take();
        drop(store);
    }

    fn with<T>(&self, call: impl FnOnce(&dyn StateStore) -> Result<T, Error>) -> Result<T, Error> {
        let done = self.store.read().as_deref().map_or(Err(Error::Closed), call);
        if let Err(error @ Error::Damaged { .. }) = &done {
            self.stop.because(error.to_string());
        }
        done
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
