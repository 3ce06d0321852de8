//! kill -9 of a real process that commits, at random moments.
//!
//! The child is this test binary again: the test `child` with the folder in its environment. It prints a line for every
//! acknowledged commit by one raw write, so that what the pipe holds is what was acknowledged.

use super::*;
use crate::OutboxItem;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

const FOLDER: &str = "GRANARY_CRASH_FOLDER";
const BACKEND: &str = "GRANARY_CRASH_BACKEND";
const GRAINS: u64 = 12;
const ROUNDS: u64 = 10;

fn crashing(dir: &Path, state: StateBackend) -> HostOptions {
    // Checkpoints and snapshots all the time, so that kills meet them.
    HostOptions { checkpoint_every: Duration::from_millis(5), snapshot_log_bytes: 32 << 10, ..options(dir, state) }
}

/// The turn that brings a grain to `revision`: six rows, a reminder and an index entry that must agree, one event, one call.
fn step(key: &str, revision: u64) -> Turn {
    let value = revision.to_be_bytes();
    Turn {
        puts: (0..6).map(|n| row(1, &n.to_string(), value)).collect(),
        reminders: vec![set("wake", revision as i64)],
        index: vec![
            IndexChange::Delete { index: "runs", sort: (revision - 1).to_be_bytes().to_vec() },
            IndexChange::Put { index: "runs", sort: value.to_vec(), value: value.to_vec() },
        ],
        outbox: vec![event(format!("{key}:{revision}")), call(key)],
        reply: value.to_vec(),
        ..Turn::default()
    }
}

/// Commits until it is killed. Does nothing when it is run as a test of its own.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(FOLDER) else { return };
    let state = if std::env::var(BACKEND).unwrap() == "sled" { StateBackend::Sled } else { StateBackend::Fjall };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let host = Host::open(crashing(Path::new(&dir), state)).await.unwrap();
        let owner = Arc::new(Owner::of(&host, 0).await);
        let grains = (0..GRAINS).map(|n| {
            let owner = owner.clone();
            tokio::spawn(async move { commit_for_ever(&owner, &format!("g{n}")).await })
        });
        futures::future::join_all(grains).await;
    });
}

async fn commit_for_ever(owner: &Owner, key: &str) {
    let mut revision = owner.shard.grain(&grain(key)).unwrap().revision.0;
    loop {
        let command = Some(CommandId::new("last"));
        let commit = Commit { command, ..owner.turn(key, revision, step(key, revision + 1)) };
        // Beside each turn one that must be fenced, now and at every replay.
        let wrong = Turn { outbox: vec![event("wrong")], ..step(key, revision + 1) };
        let (done, fenced) = tokio::join!(owner.shard.commit(commit), owner.commit(key, revision, wrong));
        assert!(matches!(fenced, Err(Error::Fenced { .. })), "{fenced:?}");
        revision = done.unwrap().revision.0;
        let line = format!("ack {key} {revision}\n");
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
}

/// Runs a child until it has acknowledged `acks` commits, kills it, and reads what else the pipe holds.
fn killed_child(dir: &Path, backend: &str, acks: usize, acknowledged: &mut BTreeMap<String, u64>) -> usize {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["raft::tests::crash::child", "--exact", "--nocapture"])
        .env(FOLDER, dir)
        .env(BACKEND, backend)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut seen = 0;
    let mut take = |line: String| {
        // The last line may be cut; libtest's own lines are none of ours.
        let words: Vec<_> = line.split(' ').collect();
        if let ["ack", key, revision] = words[..]
            && let Ok(revision) = revision.parse()
        {
            acknowledged.insert(key.to_string(), revision);
        }
    };
    while seen < acks {
        match lines.next() {
            Some(Ok(line)) => take(line),
            _ => break,
        }
        seen += 1;
    }
    child.kill().unwrap();
    for line in lines.map_while(Result::ok) {
        take(line);
        seen += 1;
    }
    child.wait().unwrap();
    seen
}

async fn check(dir: &Path, state: StateBackend, acknowledged: &BTreeMap<String, u64>) {
    let host = Host::open(crashing(dir, state)).await.unwrap();
    let owner = Owner::of(&host, 0).await;
    let shard = &owner.shard;
    let mut revisions = BTreeMap::new();
    for n in 0..GRAINS {
        let key = format!("g{n}");
        let found = shard.grain(&grain(&key)).unwrap();
        let revision = found.revision.0;
        let acked = acknowledged.get(&key).copied().unwrap_or(0);
        assert!(revision == acked || revision == acked + 1, "{key}: {acked} acknowledged, {revision} found");
        if revision > 0 {
            assert_eq!(found.rows, step(&key, revision).puts, "{key}: rows disagree");
            assert_eq!(found.reminders, [("wake".to_string(), Timestamp(revision as i64))]);
            let reply = shard.stored_reply(&grain(&key), &CommandId::new("last")).unwrap();
            assert_eq!(reply, Some(revision.to_be_bytes().to_vec()));
            revisions.insert(key, revision);
        }
    }
    let due = shard.reminders(Timestamp(i64::MAX), None, 1_000).unwrap();
    assert_eq!(due.len(), revisions.len(), "reminder ghosts");
    let index = shard.index_all("runs", None, 1_000).unwrap();
    let index: BTreeMap<_, _> = index.into_iter().map(|entry| (entry.grain.key.to_string(), entry.sort)).collect();
    let expected: BTreeMap<_, _> = revisions.iter().map(|(key, r)| (key.clone(), r.to_be_bytes().to_vec())).collect();
    assert_eq!(index, expected);
    check_outbox(shard, &revisions);
    // This process ends in order every time; the next child must cope with that, too.
    host.close().await.unwrap();
}

/// Numbers without a gap, revisions of each grain in a chain, nothing fenced.
fn check_outbox(shard: &Shard, revisions: &BTreeMap<String, u64>) {
    let records = shard.outbox(0, usize::MAX).unwrap();
    let mut chain: BTreeMap<String, u64> = BTreeMap::new();
    for (expected, record) in (1..).zip(&records) {
        assert_eq!(record.sequence, expected, "a gap in the outbox");
        if let OutboxItem::Event(body) = &record.item {
            let body = String::from_utf8(body.clone()).unwrap();
            let (key, revision) = body.split_once(':').unwrap_or_else(|| panic!("a fenced turn's event: {body}"));
            let last = chain.entry(key.to_string()).or_default();
            *last += 1;
            assert_eq!(*last, revision.parse::<u64>().unwrap(), "{key}: revisions do not chain");
        }
    }
    assert_eq!(&chain, revisions);
    assert_eq!(shard.outbox_bounds(), (records.len() as u64 + 1, 1));
}

async fn rounds(backend: &str, state: StateBackend) {
    let dir = tempfile::tempdir().unwrap();
    let mut random = SmallRng::seed_from_u64(7);
    let (mut acknowledged, mut seen) = (BTreeMap::new(), 0);
    for _ in 0..ROUNDS {
        let acks = random.random_range(0..600);
        seen += killed_child(dir.path(), backend, acks, &mut acknowledged);
        check(dir.path(), state, &acknowledged).await;
    }
    assert!(seen > 500, "the children acknowledged too little to prove anything: {seen}");
}

/// [K3] [FR-083]
#[tokio::test]
async fn nothing_acknowledged_is_lost_by_a_kill_on_sled() {
    rounds("sled", StateBackend::Sled).await;
}

/// [K3] [FR-083]
#[tokio::test]
async fn nothing_acknowledged_is_lost_by_a_kill_on_fjall() {
    rounds("fjall", StateBackend::Fjall).await;
}
