//! A store that forgets: for tests. Its shards are rebuilt from snapshot and log at each start.

use super::store::{Change, StateStore};
use crate::Error;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};

#[derive(Default)]
pub struct MemoryStore {
    rows: RwLock<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl StateStore for MemoryStore {
    fn write(&self, changes: &[Change<'_>]) -> Result<(), Error> {
        let mut rows = self.rows.write();
        for change in changes {
            match *change {
                Change::Put(key, value) => rows.insert(key.to_vec(), value.to_vec()),
                Change::Delete(key) => rows.remove(key),
            };
        }
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.rows.read().get(key).cloned())
    }

    fn scan(&self, from: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), Error> {
        if from >= end {
            return Ok(());
        }
        let rows = self.rows.read();
        for (key, value) in rows.range::<[u8], _>((Included(from), Excluded(end))) {
            if !visit(key, value) {
                break;
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), Error> {
        Ok(())
    }

    fn verify(&self) -> Result<u64, Error> {
        Ok(self.rows.read().len() as u64)
    }
}
