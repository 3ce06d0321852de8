//! A store that can be closed while handles to it are still about: sled and fjall lock their folder until the last handle
//! is gone, and a closed host must be able to open again at once.
//!
//! It is also where damage met at a read stops the node: the next start is an unclean one, reads everything, finds the
//! damage again and makes the store anew. sled panics on much of what it cannot read, so a panic in the store's code is
//! damage like any other; it must not end in whatever task or thread happened to ask.

use super::Stop;
use super::store::{Change, StateStore};
use crate::Error;
use parking_lot::RwLock;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
    ///
    /// # Errors
    /// [`Error::Storage`] if a call or the store's own end does not come to an end: then its files stay locked by this
    /// process.
    pub fn close(&self) -> Result<(), Error> {
        let patience = self.stop.patience();
        let Some(mut store) = self.store.try_write_for(patience) else {
            return Err(Error::Storage(format!("a call of the state store did not end within {patience:?}")));
        };
        let Some(store) = store.take() else { return Ok(()) };
        // sled's end waits for its own threads, also for one that has panicked: for ever.
        let (ended, told) = std::sync::mpsc::sync_channel(1);
        let work = move || {
            let done = catch_unwind(AssertUnwindSafe(|| drop(store)));
            ended.try_send(done.map_err(|panic| panicked(&*panic))).ok();
        };
        let thread = std::thread::Builder::new().name("state-close".into()).spawn(work);
        thread.map_err(|error| Error::Storage(error.to_string()))?;
        let late = |_| Err(Error::Storage(format!("the state store did not end within {patience:?}")));
        told.recv_timeout(patience).unwrap_or_else(late)
    }

    fn with<T>(&self, call: impl FnOnce(&dyn StateStore) -> Result<T, Error>) -> Result<T, Error> {
        let store = self.store.read();
        let Some(store) = store.as_deref() else { return Err(Error::Closed) };
        let done = catch_unwind(AssertUnwindSafe(|| call(store))).unwrap_or_else(|panic| Err(panicked(&*panic)));
        if let Err(error @ Error::Damaged { .. }) = &done {
            self.stop.because(error.to_string());
        }
        done
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    let what = format!("it panicked: {}", text.unwrap_or("without a word"));
    Error::Damaged { file: "state store".into(), offset: 0, what }
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
