//! A whole host in a temporary folder, asked through the crate's face.

mod cluster;
mod commit;
mod crash;
mod damage;
mod full;
mod picture;
mod quarantine;
mod reopen;
mod replay;
mod snapshots;
mod suite;

use crate::{Commit, Committed, Error, Host, HostOptions, Shard, ShardId, StateBackend};
use grain_contract::*;
use std::path::Path;
use std::time::Duration;

pub const BACKENDS: [StateBackend; 3] = [StateBackend::Sled, StateBackend::Fjall, StateBackend::Memory];

/// Small, and with checkpoints often enough to meet them.
pub fn options(dir: &Path, state: StateBackend) -> HostOptions {
    HostOptions {
        state,
        segment_bytes: 256 << 10,
        cache_bytes: 8 << 20,
        checkpoint_every: Duration::from_millis(50),
        ..HostOptions::new(dir, 2)
    }
}

pub async fn open(dir: &Path, state: StateBackend) -> (Host, Owner) {
    let host = Host::open(options(dir, state)).await.unwrap();
    let owner = Owner::of(&host, 0).await;
    (host, owner)
}

/// A shard and the epoch under which this process owns it.
pub struct Owner {
    pub shard: Shard,
    pub epoch: Epoch,
}

impl Owner {
    pub async fn of(host: &Host, shard: u32) -> Self {
        let shard = host.shard(ShardId(shard)).unwrap();
        let mut leadership = shard.leadership();
        let leads = leadership.wait_for(|now| now.epoch.is_some());
        let epoch = tokio::time::timeout(Duration::from_secs(20), leads).await.unwrap().unwrap().epoch.unwrap();
        Self { shard, epoch }
    }

    pub fn turn(&self, key: &str, expected: u64, turn: Turn) -> Commit {
        Commit {
            grain: grain(key),
            epoch: self.epoch,
            expected: Revision(expected),
            turn,
            command: None,
            at: Timestamp(7),
        }
    }

    pub async fn commit(&self, key: &str, expected: u64, turn: Turn) -> Result<Committed, Error> {
        self.shard.commit(self.turn(key, expected, turn)).await
    }
}

pub fn grain(key: &str) -> GrainId {
    GrainId::new(&"acme".into(), &"run".into(), key)
}

pub fn row(table: u8, key: &str, value: impl AsRef<[u8]>) -> Row {
    Row { key: RowKey { table: Table(table), key: key.into() }, value: value.as_ref().to_vec() }
}

pub fn puts(rows: impl IntoIterator<Item = Row>) -> Turn {
    Turn { puts: rows.into_iter().collect(), ..Turn::default() }
}

pub fn event(body: impl AsRef<[u8]>) -> OutboxMessage {
    OutboxMessage::Event { body: body.as_ref().to_vec() }
}

pub fn call(target: &str) -> OutboxMessage {
    OutboxMessage::Call { target: grain(target), method: Method(3), body: b"b".to_vec(), on_rejected: Some(Method(0)) }
}

pub fn set(name: &str, due: i64) -> ReminderChange {
    ReminderChange::Set { name: name.into(), due: Timestamp(due) }
}
