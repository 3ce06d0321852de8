//! (in work) openraft, wrapped: the only module family that names it.

pub mod types;

use crate::Error;
use crate::api::*;
use grain_contract::{CommandId, GrainId, IndexEntry, Row, Table, TenantId, Timestamp};
use std::sync::Arc;
use tokio::sync::watch;

pub struct HostInner {}
pub struct ShardInner {}

// Bodies are in work; the face in `api.rs` stands.
impl HostInner {
    pub async fn open(_: HostOptions) -> Result<Self, Error> {
        Err(Error::Closed)
    }
    pub fn shards(&self) -> u32 {
        0
    }
    pub fn shard(&self, _: ShardId) -> Option<Arc<ShardInner>> {
        None
    }
    pub async fn close(&self) -> Result<(), Error> {
        Ok(())
    }
    pub fn stopped(&self) -> Option<String> {
        None
    }
}

impl ShardInner {
    pub fn id(&self) -> ShardId {
        ShardId(0)
    }
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        watch::channel(Leadership::default()).1
    }
    pub async fn commit(&self, _: Commit) -> Result<Committed, Error> {
        Err(Error::Closed)
    }
    pub async fn housekeeping(&self, _: Housekeeping) -> Result<(), Error> {
        Err(Error::Closed)
    }
    pub fn grain(&self, _: &GrainId) -> Result<GrainRows, Error> {
        Err(Error::Closed)
    }
    pub fn rows(&self, _: &GrainId, _: Table, _: Option<&[u8]>, _: usize) -> Result<Vec<Row>, Error> {
        Err(Error::Closed)
    }
    pub fn stored_reply(&self, _: &GrainId, _: &CommandId) -> Result<Option<Vec<u8>>, Error> {
        Err(Error::Closed)
    }
    pub fn index(&self, _: &str, _: &TenantId, _: Option<&IndexEntry>, _: usize) -> Result<Vec<IndexEntry>, Error> {
        Err(Error::Closed)
    }
    pub fn index_all(&self, _: &str, _: Option<&IndexEntry>, _: usize) -> Result<Vec<IndexEntry>, Error> {
        Err(Error::Closed)
    }
    pub fn reminders(&self, _: Timestamp, _: Option<&ReminderRecord>, _: usize) -> Result<Vec<ReminderRecord>, Error> {
        Err(Error::Closed)
    }
    pub fn outbox(&self, _: u64, _: usize) -> Result<Vec<OutboxRecord>, Error> {
        Err(Error::Closed)
    }
    pub fn open_calls(&self, _: u64, _: usize) -> Result<Vec<OutboxRecord>, Error> {
        Err(Error::Closed)
    }
    pub fn outbox_bounds(&self) -> (u64, u64) {
        (1, 1)
    }
    pub fn cursors(&self) -> Result<Vec<Cursor>, Error> {
        Err(Error::Closed)
    }
    pub fn outbox_watch(&self) -> watch::Receiver<u64> {
        watch::channel(1).1
    }
}
