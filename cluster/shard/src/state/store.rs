//! What a shard's machinery asks of a key-value store, whoever makes it.
//!
//! A store here may lose or garble what was not synced, and even refuse to open: the log and the snapshot files are the
//! truth, and everything in a store can be made again from them. It may not lie about `sync`, and it may not give back
//! other bytes than were written without saying so (hence the checksums in `value`).

use crate::Error;

/// One change; a batch is a list of them, in order.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    Put(&'a [u8], &'a [u8]),
    Delete(&'a [u8]),
}

/// All calls block. One thread writes; any thread reads.
pub trait StateStore: Send + Sync {
    /// In order, neither atomic nor durable.
    fn write(&self, changes: &[Change<'_>]) -> Result<(), Error>;

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error>;

    /// Visits keys in `from..end`, in order, until `visit` says false.
    fn scan(&self, from: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), Error>;

    /// Everything written before is on disk when this returns.
    fn sync(&self) -> Result<(), Error>;

    /// Reads every row and every hidden part of a row, and checks them all. Gives their number.
    fn verify(&self) -> Result<u64, Error>;
}

/// Removes all rows of one shard, a page at a time.
pub fn wipe_shard(store: &dyn StateStore, shard: u32) -> Result<(), Error> {
    const PAGE: usize = 1_000;
    for (from, end) in super::keys::shard_ranges(shard) {
        loop {
            let mut keys = Vec::new();
            store.scan(&from, &end, &mut |key, _| {
                keys.push(key.to_vec());
                keys.len() < PAGE
            })?;
            let deletes: Vec<_> = keys.iter().map(|key| Change::Delete(key)).collect();
            store.write(&deletes)?;
            if keys.len() < PAGE {
                break;
            }
        }
    }
    Ok(())
}
