//! A second writer: it does at an owner what a broken activation would do. One kind decides on rows that were read a while ago,
//! another reads them anew but believes in a leadership that was a while ago. The store must take a turn whole or refuse it.

use super::{TENANTS, Yard, pause};
use crate::sim::chance::Chance;
use crate::sim::doors::Inside;
use crate::sim::tally;
use cluster::placement::shard_of;
use grain_contract::{Row, RowKey, Table, Timestamp, Turn};
use shard::Commit;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Rows of its own, in a table that tallies do not look at.
const TABLE: Table = Table(130);
const WRITES_AT_ONCE_MAX: usize = 16;

pub struct Twin {
    pub yard: Yard,
    pub chance: Chance,
}

impl Twin {
    pub async fn run(mut self) {
        let mut number = 0u64;
        let mut writes = JoinSet::new();
        while self.yard.is_working() {
            pause(&mut self.chance, 50..600).await;
            number += 1;
            let Some(door) = self.yard.doors.any(&mut self.chance) else { continue };
            let grain = tally::id(self.chance.pick::<&str>(&TENANTS), &format!("tally-{}", self.chance.below(5)));
            let waits = Duration::from_millis(self.chance.below(400));
            let reads_anew = self.chance.permille(500);
            let waits = if reads_anew && self.chance.permille(500) { waits * 10 } else { waits };
            let write = move |inside: Arc<Inside>| async move {
                let host = &inside.host;
                let shard = host.shard(shard_of(&grain, host.shards()))?;
                let epoch = shard.leadership().borrow().epoch?;
                let mut expected = shard.grain(&grain).ok()?.revision;
                tokio::time::sleep(waits).await;
                if reads_anew {
                    expected = shard.grain(&grain).ok()?.revision;
                }
                let row = Row { key: RowKey { table: TABLE, key: number.to_be_bytes().to_vec() }, value: vec![1] };
                let turn = Turn { puts: vec![row], ..Turn::default() };
                shard.commit(Commit { grain, epoch, expected, turn, command: None, at: Timestamp(0) }).await.ok()
            };
            while writes.len() >= WRITES_AT_ONCE_MAX {
                writes.join_next().await;
            }
            // Whether it was taken is for the checkers to judge.
            writes.spawn(async move { door.at(Duration::from_secs(5), write).await });
        }
        while writes.join_next().await.is_some() {}
    }
}
