//! sled 0.34.7, used so that its known faults do not reach us.
//!
//! - Its `flush` does not sync on Linux, so `sync` follows it with `sync_data` on a handle of our own.
//! - Values above 128 KiB leak disk without bound, so a value above [`PART_BYTES`] is cut into parts. The parts lie under
//!   keys that hold the value's checksum: overwriting a large value never touches the parts of the old one before the row
//!   itself points to the new ones, so a crash between the inserts leaves the old or the new value and never a mixture.
//! - `apply_batch` takes one lock for the whole process and costs three times the CPU; single inserts are enough, since
//!   the log is replayed over whatever was written.
//! - It may panic at open after a crash: [`super::guard`] opens it.
//! - It gives old rows for what is damaged in the middle of its log: [`super::sled_file`] reads the file first.
//!
//! The calls that must not be used (`flush_async`, `apply_batch`, `transaction`, `watch_prefix`, `generate_id`) are
//! refused by `clippy.toml`.

use super::store::{Change, StateStore};
use super::{keys, value};
use crate::Error;
use sled::IVec;
use std::fs::File;
use std::path::Path;

/// The largest value that sled is given.
pub const PART_BYTES: usize = 32 * 1024;

const NAME: &str = "sled state store";
const WHOLE: u8 = 0;
const PARTED: u8 = 1;

pub struct SledStore {
    db: ::sled::Db,
    file: File,
}

impl SledStore {
    pub fn open(dir: &Path, cache_bytes: u64) -> Result<Self, Error> {
        super::sled_file::check(dir)?;
        let db = ::sled::Config::new()
            .path(dir)
            .cache_capacity(cache_bytes)
            // Its space is reclaimed in that thread; durability does not depend on it.
            .flush_every_ms(Some(500))
            .open()
            .map_err(storage)?;
        let file = File::open(dir.join("db")).map_err(|error| Error::Storage(format!("{NAME}: {error}")))?;
        Ok(Self { db, file })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let row = if value.len() <= PART_BYTES {
            let mut row = Vec::with_capacity(value.len() + 5);
            row.push(WHOLE);
            row.extend_from_slice(&value::seal(value));
            row
        } else {
            let parts = Parts::of(value);
            for (number, part) in value.chunks(PART_BYTES).enumerate() {
                self.db.insert(parts.key(key, number as u32), value::seal(part)).map_err(storage)?;
            }
            parts.row()
        };
        let old = self.db.insert(key, row).map_err(storage)?;
        let new = Parts::of(value);
        self.drop_parts(key, old, |old| value.len() > PART_BYTES && *old == new)
    }

    /// Removes what the replaced row pointed to, unless the new row points to the same.
    fn drop_parts(&self, key: &[u8], old: Option<IVec>, same: impl Fn(&Parts) -> bool) -> Result<(), Error> {
        let Some(parts) = old.as_deref().and_then(Parts::read) else { return Ok(()) };
        if !same(&parts) {
            for number in 0..parts.count {
                self.db.remove(parts.key(key, number)).map_err(storage)?;
            }
        }
        Ok(())
    }

    fn whole(&self, key: &[u8], row: &[u8]) -> Result<Vec<u8>, Error> {
        match row.first() {
            Some(&WHOLE) => Ok(value::open(NAME, key, &row[1..])?.to_vec()),
            Some(&PARTED) => {
                let parts = Parts::read(row).ok_or_else(|| value::damaged(NAME, key, "a parted row cannot be read"))?;
                let mut whole = Vec::with_capacity(parts.bytes as usize);
                for number in 0..parts.count {
                    let part = self.db.get(parts.key(key, number)).map_err(storage)?;
                    let part = part.ok_or_else(|| value::damaged(NAME, key, "a part of a row is missing"))?;
                    whole.extend_from_slice(value::open(NAME, key, &part)?);
                }
                if Parts::of(&whole) != parts {
                    return Err(value::damaged(NAME, key, "the parts of a row do not fit together"));
                }
                Ok(whole)
            }
            _ => Err(value::damaged(NAME, key, "a row has an unknown form")),
        }
    }
}

impl StateStore for SledStore {
    fn write(&self, changes: &[Change<'_>]) -> Result<(), Error> {
        for change in changes {
            match *change {
                Change::Put(key, value) => self.put(key, value)?,
                Change::Delete(key) => {
                    let old = self.db.remove(key).map_err(storage)?;
                    self.drop_parts(key, old, |_| false)?;
                }
            }
        }
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let row = self.db.get(key).map_err(storage)?;
        row.map(|row| self.whole(key, &row)).transpose()
    }

    fn scan(&self, from: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), Error> {
        if from >= end {
            return Ok(());
        }
        for row in self.db.range(from..end) {
            let (key, row) = row.map_err(storage)?;
            let value = self.whole(&key, &row)?;
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), Error> {
        self.db.flush().map_err(storage)?;
        self.file.sync_data().map_err(|error| Error::Storage(format!("{NAME}: {error}")))
    }

    fn verify(&self) -> Result<u64, Error> {
        let mut rows = 0;
        for row in self.db.iter() {
            let (key, row) = row.map_err(storage)?;
            if key.first() == Some(&keys::HIDDEN) {
                value::open(NAME, &key, &row)?;
            } else {
                self.whole(&key, &row)?;
            }
            rows += 1;
        }
        Ok(rows)
    }
}

/// Where the parts of a large value lie.
#[derive(PartialEq, Eq)]
struct Parts {
    crc: u32,
    count: u32,
    bytes: u32,
}

impl Parts {
    fn of(value: &[u8]) -> Self {
        let bytes = value.len() as u32;
        Self { crc: crc32c::crc32c(value), count: bytes.div_ceil(PART_BYTES as u32), bytes }
    }

    fn row(&self) -> Vec<u8> {
        let mut row = vec![PARTED];
        for number in [self.crc, self.count, self.bytes] {
            row.extend_from_slice(&number.to_be_bytes());
        }
        row
    }

    fn read(row: &[u8]) -> Option<Self> {
        let rest = row.strip_prefix(&[PARTED])?;
        let number = |at: usize| Some(u32::from_be_bytes(rest.get(at..at + 4)?.try_into().ok()?));
        Some(Self { crc: number(0)?, count: number(4)?, bytes: number(8)? })
    }

    fn key(&self, key: &[u8], number: u32) -> Vec<u8> {
        let mut part = Vec::with_capacity(key.len() + 9);
        part.push(keys::HIDDEN);
        part.extend_from_slice(key);
        part.extend_from_slice(&self.crc.to_be_bytes());
        part.extend_from_slice(&number.to_be_bytes());
        part
    }
}

fn storage(error: ::sled::Error) -> Error {
    match error {
        ::sled::Error::Corruption { .. } => {
            Error::Damaged { file: NAME.to_string(), offset: 0, what: error.to_string() }
        }
        other => Error::Storage(format!("{NAME}: {other}")),
    }
}
