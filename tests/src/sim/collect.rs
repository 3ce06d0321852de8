//! What is read at the end: the state of all replicas, and of all runs and tallies by their owners.

use super::doors::Doors;
use super::load::TENANTS;
use super::machine::Machine;
use super::net::Slot;
use super::tally::{self, number};
use grain_contract::{GrainId, Row};
use grains::kinds::methods::run;
use granary_proto::{storage, v1};
use prost::Message as _;
use shard::ShardId;
use shard::testing::{Digest, digest};
use std::time::Duration;
use tokio::time::Instant;

const WITHIN: Duration = Duration::from_secs(3);
const TRIES: u32 = 10;
const JOURNAL_ROWS_MAX: usize = 10_000;

pub type Journaled = Vec<(GrainId, Option<(v1::Run, Vec<v1::JournalEntry>)>)>;

/// Each shard's replicas.
pub fn digests(machines: &[Machine]) -> Vec<(u32, Vec<(Slot, Digest)>)> {
    let shards = machines.iter().filter_map(Machine::host).map(|host| host.shards()).max().unwrap_or(0);
    let of_shard = |shard: u32| {
        let of_machine = |machine: &Machine| Some((machine.slot, digest(&machine.host()?, ShardId(shard)).ok()??));
        (shard, machines.iter().filter_map(of_machine).collect())
    };
    (0..shards).map(of_shard).collect()
}

/// Whether every replica has applied what the others have.
pub fn replicas_agree(machines: &[Machine]) -> bool {
    let is_one = |(_, replicas): &(u32, Vec<(Slot, Digest)>)| {
        !replicas.is_empty() && replicas.windows(2).all(|pair| pair[0].1.applied == pair[1].1.applied)
    };
    digests(machines).iter().all(is_one)
}

/// Every run with its journal, and every tally's sum.
pub async fn read(doors: Doors, runs: Vec<GrainId>) -> (Journaled, Vec<(GrainId, i64)>) {
    let mut found = Vec::new();
    for id in runs {
        let get = v1::GetRunRequest { run_id: id.key.to_string() }.encode_to_vec();
        let state = ask(&doors, &id, run::GET, get).await.and_then(|reply| v1::Run::decode(&*reply).ok());
        let journal = journal(&doors, &id).await;
        found.push((id, state.map(|state| (state, journal))));
    }
    let mut sums = Vec::new();
    for tenant in TENANTS {
        for key in (0..5).map(|n| format!("tally-{n}")).chain((0..2).map(|n| format!("meter-{n}"))) {
            let id = tally::id(tenant, &key);
            if let Some(sum) = ask(&doors, &id, tally::GET, Vec::new()).await {
                sums.push((id, number(&sum)));
            }
        }
    }
    (found, sums)
}

async fn ask(doors: &Doors, id: &GrainId, method: grain_contract::Method, body: Vec<u8>) -> Option<Vec<u8>> {
    for n in 0..TRIES {
        let all = doors.all();
        let door = all.get(n as usize % all.len().max(1))?;
        match door.call(id.clone(), method, body.clone(), None, WITHIN).await {
            Ok(reply) => return Some(reply),
            Err(trouble) if trouble.is_final() => return None,
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    None
}

async fn journal(doors: &Doors, id: &GrainId) -> Vec<v1::JournalEntry> {
    for n in 0..TRIES {
        let all = doors.all();
        let Some(door) = all.get(n as usize % all.len().max(1)) else { continue };
        let id = id.clone();
        let rows = door.at(WITHIN, move |inside| async move {
            inside.silo.rows(&id, run::table::JOURNAL, None, JOURNAL_ROWS_MAX, Instant::now() + WITHIN).await
        });
        if let Some(Ok(rows)) = rows.await {
            return rows.iter().flat_map(entries).collect();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Vec::new()
}

/// A journal's row.
pub fn entries(row: &Row) -> Vec<v1::JournalEntry> {
    storage::JournalRow::decode(&*row.value).map(|row| row.entries).unwrap_or_default()
}
