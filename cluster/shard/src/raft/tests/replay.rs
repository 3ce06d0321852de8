//! Replay against a model: crashes in the middle of a writer's round, at any row, again and again; every entry must be
//! decided as it was the first time. This is the argument in `state::head`, tried out.

use super::*;
use crate::raft::heads::Heads;
use crate::raft::machine::{Machine, Told};
use crate::raft::snapshot::SnapshotFolder;
use crate::raft::types::{Applied, Entry, LeaderTerm, LogId, Proposal};
use crate::state::memory::MemoryStore;
use crate::state::overlay::{Mark, Overlay};
use crate::state::store::{StateStore, wipe_shard};
use crate::state::writer::{Bell, Checkpoints, write_row, write_stamp};
use crate::state::{Stop, keys};
use bytes::Bytes;
use granary_proto::storage::{self, CursorPut, HousekeepingEntry, OutboxPut, ReminderPut, RowPut, TurnEntry};
use openraft::EntryPayload;
use prost::Message;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use tokio::sync::watch;

struct NoCheckpoints;

impl Checkpoints for NoCheckpoints {
    fn keep(&self, _: Vec<(u32, Option<Mark>)>) -> Result<(), Error> {
        Ok(())
    }
}

fn machine(store: &Arc<MemoryStore>, mark: Mark, log_end: Option<u64>) -> Machine {
    let (bell, stop) = (Bell::new(), Stop::default());
    Machine {
        stage: Default::default(),
        overlay: Arc::new(Overlay::new(0, store.clone(), mark, bell, stop)),
        checkpoints: Arc::new(NoCheckpoints),
        folder: SnapshotFolder::new(Path::new("unused"), 0),
        told: Told {
            term: watch::channel(0).0,
            outbox: watch::channel(0).0,
            snapshots: watch::channel(0).0,
            counters: Arc::default(),
        },
        heads: Heads::default(),
        replay_until: log_end,
    }
}

/// A log of turns of four grains, decided on right and on wrong revisions, under right and wrong epochs.
fn log(random: &mut SmallRng, length: u64) -> Vec<Entry> {
    let mut term = 1;
    let mut revisions = [0u64; 4];
    (0..length)
        .map(|index| {
            if random.random_ratio(1, 25) {
                term += 1;
            }
            let id = LogId { leader_id: LeaderTerm::new(term), index };
            let body = match random.random_range(0..12) {
                0 => return Entry { log_id: id, payload: EntryPayload::Blank },
                1 => housekeeping(random, term, index),
                _ => turn(random, term, &mut revisions),
            };
            let entry = storage::Entry { format: 1, body: Some(body) };
            Entry { log_id: id, payload: EntryPayload::Normal(Proposal(Bytes::from(entry.encode_to_vec()))) }
        })
        .collect()
}

fn housekeeping(random: &mut SmallRng, term: u64, index: u64) -> storage::entry::Body {
    storage::entry::Body::Housekeeping(HousekeepingEntry {
        epoch: term,
        calls_done: (0..random.random_range(0..index + 1)).collect(),
        cursors: vec![CursorPut { name: "c".into(), sequence: index, delete: random.random_ratio(1, 3) }],
        trim_events_below: random.random_range(0..index + 1),
    })
}

fn turn(random: &mut SmallRng, term: u64, revisions: &mut [u64; 4]) -> storage::entry::Body {
    let n = random.random_range(0..4);
    let wrong_epoch = random.random_ratio(1, 15);
    // A turn behind its time, as from a frozen owner, or ahead, as after a lost one.
    let expected_revision = match random.random_range(0..6) {
        0 => revisions[n].saturating_sub(random.random_range(1..4)),
        1 => revisions[n] + random.random_range(1..3),
        _ => revisions[n],
    };
    if !wrong_epoch && expected_revision == revisions[n] {
        revisions[n] += 1;
    }
    let value: u64 = random.random();
    let reminders = (0..random.random_range(0..3)).map(|_| ReminderPut {
        name: ["wake", "stuck"][random.random_range(0..2)].into(),
        due_ms: random.random_range(0..9),
        clear: random.random_ratio(1, 3),
    });
    let reminders = reminders.collect();
    let call_target = if random.random() { grain("t").storage_bytes() } else { vec![] };
    storage::entry::Body::Turn(TurnEntry {
        grain: grain(&n.to_string()).storage_bytes(),
        epoch: if wrong_epoch { term - 1 } else { term },
        expected_revision,
        puts: vec![RowPut { table: 1, key: vec![random.random_range(0..3)], value: value.to_be_bytes().to_vec() }],
        deletes: vec![storage::RowDelete { table: 1, key: vec![random.random_range(0..3)] }],
        reminders,
        outbox: vec![OutboxPut { event: value.to_be_bytes().to_vec(), call_target, ..OutboxPut::default() }],
        command_id: value.to_be_bytes()[..1].to_vec(),
        reply: value.to_be_bytes().to_vec(),
        ..TurnEntry::default()
    })
}

/// All rows as readers see them, heads without what belongs to the store alone.
fn picture(overlay: &Overlay) -> Vec<(Vec<u8>, Vec<u8>)> {
    let applied = overlay.applied().map_or(0, |id| id.index);
    let mut all = Vec::new();
    for (from, end) in keys::shard_ranges(0) {
        for (key, value) in overlay.scan(from, end, usize::MAX).unwrap() {
            if keys::is_head(&key) {
                let head = crate::state::head::at(storage::GrainHead::decode(value).unwrap(), applied);
                all.extend(head.map(|head| (key, head.encode_to_vec())));
            } else if !keys::is_stamp(&key) {
                all.push((key, value.to_vec()));
            }
        }
    }
    all
}

/// One life: applies from the checkpoint on, writes now and then, and is cut off somewhere. Gives the durable checkpoint.
fn live(
    random: &mut SmallRng,
    store: &Arc<MemoryStore>,
    from: Option<Mark>,
    log: &[Entry],
    first: &[Applied],
) -> Option<Mark> {
    let mut durable = from.clone();
    if from.is_none() {
        wipe_shard(&**store, 0).unwrap();
    }
    let mut machine = machine(store, from.unwrap_or_else(Mark::origin), log.last().map(|entry| entry.log_id.index));
    let start = machine.overlay.applied().map_or(0, |id| id.index as usize + 1);
    for at in start..log.len() {
        assert_eq!(machine.apply_one(log[at].clone()).unwrap(), first[at], "entry {at} was decided another way");
        if random.random_ratio(1, 8) {
            let frozen = machine.overlay.freeze().unwrap();
            let cut = random.random_ratio(1, 4);
            // The rows of a cut round may reach the disk in any choice; the stamp, too.
            for (key, slot) in &frozen.rows {
                if !cut || random.random() {
                    write_row(&**store, key, slot, machine.overlay.durable()).unwrap();
                }
            }
            if !cut || random.random() {
                write_stamp(&**store, 0, &frozen.mark).unwrap();
            }
            if cut {
                return durable;
            }
            durable = Some(frozen.mark.clone());
            machine.overlay.done();
        }
        if random.random_ratio(1, 40) {
            return durable;
        }
    }
    durable
}

/// [K3] 300 logs, a dozen crashes each.
#[test]
fn every_entry_is_decided_again_as_it_was() {
    for seed in 0..300 {
        let mut random = SmallRng::seed_from_u64(seed);
        let log = log(&mut random, 120);
        let mut whole = machine(&Arc::default(), Mark::origin(), None);
        let first: Vec<_> = log.iter().map(|entry| whole.apply_one(entry.clone()).unwrap()).collect();
        let store = Arc::new(MemoryStore::default());
        let mut durable = None;
        for _ in 0..12 {
            durable = live(&mut random, &store, durable, &log, &first);
        }
        // The last life goes to the end.
        let from = durable.unwrap_or_else(|| {
            wipe_shard(&*store, 0).unwrap();
            Mark::origin()
        });
        let mut last = machine(&store, from, log.last().map(|entry| entry.log_id.index));
        let start = last.overlay.applied().map_or(0, |id| id.index as usize + 1);
        for at in start..log.len() {
            assert_eq!(last.apply_one(log[at].clone()).unwrap(), first[at], "seed {seed}, entry {at}");
        }
        assert_eq!(picture(&last.overlay), picture(&whole.overlay), "seed {seed}");
        assert_eq!(last.overlay.mark(), whole.overlay.mark(), "seed {seed}");
        assert!(store.verify().is_ok());
    }
}
