//! The power goes at any moment: what comes back is what some moment not before the last acknowledgement had.

use super::driver::{self, GROUPS, acked, entries, entry, id, open, options, put};
use super::model::{Model, ModelGroup, Op, found};
use super::random::op;
use crate::log::Wal;
use crate::testing::Double;
use parking_lot::Mutex;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

const SEEDS: u64 = 50;
const CUTS_A_SEED: usize = 4;
const OPS: usize = 80;
/// Operations that are not waited for at once.
const IN_FLIGHT: usize = 4;

/// [K3] [FR-083] Fifty seeds, four cuts one after the other each, 30 % of the unsynced pages kept.
#[test]
fn no_power_cut_loses_or_tears_what_was_acknowledged() {
    let (mut acknowledged, mut mid_way) = (0, 0);
    for seed in 0..SEEDS {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut ops = operations(seed);
        let (mut disk, mut model) = (Double::default(), Model::new());
        for cut in 0..CUTS_A_SEED {
            let run = run_until_cut(&disk, model, ops.split_off(ops.len() - OPS), &mut rng);
            acknowledged += run.acknowledged;
            mid_way += usize::from(run.acknowledged < OPS);
            disk = disk.after_cut(&mut |n| rng.random_range(0..n));
            let wal = Wal::open_on(Arc::new(disk.clone()), options())
                .unwrap_or_else(|error| panic!("seed {seed}, cut {cut}: {error}"));
            let found: Vec<_> = (0..GROUPS).map(|group| found(&wal, group)).collect();
            let moment = run.history[run.acknowledged..]
                .iter()
                .find(|groups| groups.iter().zip(&found).all(|(group, found)| group.hard() == *found));
            let Some(moment) = moment else {
                panic!("seed {seed}, cut {cut}: no moment from {} on had\n{found:#?}", run.acknowledged);
            };
            model = Model { groups: moment.clone() };
            for (group, model) in (0..).zip(&mut model.groups) {
                let log = wal.group(group);
                assert!(log.committed().map(|id| id.index) <= model.last().map(|id| id.index));
                (model.committed, model.checkpoint) = (log.committed(), log.checkpoint());
                model.term += 100;
            }
        }
    }
    assert!(acknowledged > 2_000, "{acknowledged}");
    assert!(mid_way > 100, "{mid_way} cuts in the middle");
}

/// A recycled file must have its new name for good before anything in it is acknowledged.
#[test]
fn no_power_cut_loses_what_lies_in_a_recycled_file() {
    let disk = Double::default();
    let mut rng = SmallRng::seed_from_u64(3);
    let wal = open(&disk);
    let log = wal.group(0);
    for i in 0..400 {
        put(&log, entry(0, 1, i, 500));
        if i % 5 == 4 {
            driver::purge(&log, id(1, i - 4)).unwrap();
        }
        if i % 7 == 6 {
            let found = entries(&open(&disk.after_cut(&mut |n| rng.random_range(0..n))).group(0));
            assert_eq!(found.last(), Some(&entry(0, 1, i, 500)), "entry {i} is gone");
        }
    }
}

struct Run {
    /// The groups before the first operation and after each.
    history: Vec<Vec<ModelGroup>>,
    /// How many operations were acknowledged at the cut.
    acknowledged: usize,
}

fn run_until_cut(disk: &Double, mut model: Model, ops: Vec<Op>, rng: &mut SmallRng) -> Run {
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let at_cut = Arc::new(Mutex::new(None));
    let (told, seen) = (acknowledged.clone(), at_cut.clone());
    let from = disk.operations();
    disk.cut_at(from + rng.random_range(0..140), move || *seen.lock() = Some(told.load(SeqCst)));
    let wal = open(disk);
    let mut history = vec![model.groups.clone()];
    let mut waiting = VecDeque::new();
    for (done, op) in (1..).zip(&ops) {
        let pending = model.run(&wal, op);
        history.push(model.groups.clone());
        match pending {
            Some(pending) => waiting.push_back((done, pending)),
            // One queue: whoever is told vouches for all before. Pointers and purges are not waited for.
            None if matches!(op, Op::Vote { .. } | Op::Truncate { .. }) => acknowledged.store(done, SeqCst),
            None => {}
        }
        while waiting.len() > IN_FLIGHT {
            let Some((done, pending)) = waiting.pop_front() else { break };
            acked(pending).unwrap();
            acknowledged.fetch_max(done, SeqCst);
        }
    }
    for (done, pending) in waiting {
        acked(pending).unwrap();
        acknowledged.fetch_max(done, SeqCst);
    }
    drop(wal);
    let acknowledged = at_cut.lock().unwrap_or_else(|| acknowledged.load(SeqCst));
    Run { history, acknowledged }
}

fn operations(seed: u64) -> Vec<Op> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = op();
    (0..OPS * CUTS_A_SEED).map(|_| strategy.new_tree(&mut runner).expect("no filter").current()).collect()
}
