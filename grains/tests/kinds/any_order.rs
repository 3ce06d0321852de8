//! Anything in any order: outcomes, repetitions, expiries, decisions, cancels, reminders, sweeps, re-projections. What must
//! hold does hold, whatever comes.

use crate::every_kind::started;
use crate::world::World;
use grain_contract::{GrainId, Message};
use grains::kinds::methods::{index, run};
use granary_proto::{calls, v1};
use std::collections::BTreeMap;
use uuid::Uuid;

/// A few numbers that look random and are the same every time (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % sides as u64) as usize
    }
}

const SEEDS: u64 = 150;
const MOVES_MAX: usize = 400;

/// [C1] [C3] [R2] [R12] [R14] [V1] Every run ends once, every attempt has one outcome, no number is missing, nothing stays open.
#[test]
fn whatever_comes_every_run_ends_once() {
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    for seed in 0..SEEDS {
        let (mut world, run) = started(seed % 2 == 0);
        let mut dice = Dice(seed);
        let mut reports: Vec<(GrainId, v1::Report)> = Vec::new();
        let mut moves = 0;
        while !is_quiet(&mut world, &run) {
            moves += 1;
            assert!(moves < MOVES_MAX, "seed {seed}: the run does not end; open are {:?}", world.open_steps());
            one_move(&mut world, &run, &mut dice, &mut reports);
        }
        for (id, report) in reports {
            let before = world.stored.clone();
            let _ = world.call::<v1::ReportResult>(&id, run::REPORT, &calls::ReportCall { report: Some(report) });
            assert_eq!(world.stored, before, "seed {seed}: nothing fits any more");
        }
        check_journals(&world, seed);
        assert!(world.index_of(index::OPEN_RUNS).is_empty(), "seed {seed}");
        assert!(world.index_of(index::PENDING_APPROVALS).is_empty(), "seed {seed}");
        assert!(world.stored.values().all(|s| s.reminders.is_empty()), "seed {seed}");
        assert!(world.work.is_empty(), "seed {seed}");
        *ends.entry(world.get(&run).expect("the run").state).or_default() += 1;
    }
    assert_eq!(ends.len(), 3, "the dice reach every end: {ends:?}");
}

fn is_quiet(world: &mut World, run: &GrainId) -> bool {
    world.calls.is_empty() && world.get(run).is_ok_and(|seen| seen.ended_at.is_some()) && world.work.is_empty()
}

fn one_move(world: &mut World, run: &GrainId, dice: &mut Dice, reports: &mut Vec<(GrainId, v1::Report)>) {
    let open: Vec<Uuid> = world.work.keys().copied().collect();
    let grains: Vec<GrainId> = world.stored.keys().cloned().collect();
    let any = grains[dice.roll(grains.len())].clone();
    match dice.roll(40) {
        0..=15 if !open.is_empty() => report(world, open[dice.roll(open.len())], dice, reports),
        16 | 17 if !open.is_empty() => {
            let attempt = open[dice.roll(open.len())];
            let owner = world.work[&attempt].run.clone();
            let never_started = dice.roll(2) == 0;
            let worker = world.work[&attempt].lease.as_ref().map_or("w1".into(), |l| l.worker.clone());
            let expired =
                calls::LeaseExpired { attempt_id: attempt.to_string(), worker, never_started, token: Vec::new() };
            let _: () = world.call(&owner, run::LEASE_EXPIRED, &expired).expect("an expiry is taken");
        }
        18..=20 => {
            if let Some((owner, report)) = reports.last().cloned() {
                let _ =
                    world.call::<v1::ReportResult>(&owner, run::REPORT, &calls::ReportCall { report: Some(report) });
            }
        }
        21..=25 => world.deliver(1 + dice.roll(2)),
        26..=28 => {
            world.decide_all(run, if dice.roll(4) == 0 { "reject" } else { "approve" });
        }
        29..=31 => {
            world.next_reminder();
        }
        32 => {
            let now = world.now;
            let name = if dice.roll(2) == 0 { "wake" } else { "stuck" };
            world.send(&any, &Message::Reminder { name, due: now }).expect("a reminder is taken");
        }
        33 => {
            let _: () = world.call(&any, run::SWEEP, &()).expect("a sweep is taken");
        }
        34 => {
            world.send(&any, &Message::Wake).expect("woken");
        }
        35 if dice.roll(6) == 0 => {
            let _ = world.call::<v1::Run>(run, run::CANCEL, &v1::CancelRunRequest::default());
        }
        36 => reproject(world, &any),
        37 => world.now = world.now.plus_ms(dice.roll(3_000) as u64),
        _ => {}
    }
}

fn report(world: &mut World, attempt: Uuid, dice: &mut Dice, reports: &mut Vec<(GrainId, v1::Report)>) {
    let outcome =
        ["Succeeded", "Succeeded", "Succeeded", "Succeeded", "Succeeded", "Failed", "Uncertain"][dice.roll(7)];
    let output = if outcome == "Succeeded" { format!("{{\"risk\":{}}}", dice.roll(10)) } else { String::new() };
    let work = world.work[&attempt].clone();
    let Some(lease) = work.lease.or_else(|| world.claim(attempt)) else { return };
    reports.push((
        work.run,
        v1::Report {
            attempt_id: attempt.to_string(),
            run_id: work.assignment.run_id,
            lease_token: lease.token.to_vec(),
            outcome: outcome.into(),
            output: (!output.is_empty()).then(|| granary_proto::wire::Json::new(output.as_str())),
            ..Default::default()
        },
    ));
    let result = world.report(attempt, outcome, &output);
    assert!(result.is_ok(), "{result:?}");
}

fn reproject(world: &mut World, run: &GrainId) {
    // A timer that is due fires first when it may, so the comparison is made when none is.
    let _: () = world.call(run, run::SWEEP, &()).expect("a sweep is taken");
    let (entries, stored, events) = (world.journal(run), world.stored.clone(), world.events.len());
    let body = v1::ReadJournalResponse { entries, next_after: 0 };
    let _: v1::RunGraph = world.call(run, run::REPROJECT, &body).expect("projected again");
    assert_eq!(world.events.len(), events);
    for (id, before) in &stored {
        assert_eq!(&world.stored[id], before, "{id}");
    }
}

/// Each attempt is made once and ends once; each run has one end, as its last entry but for what it closed.
fn check_journals(world: &World, seed: u64) {
    for id in world.stored.keys() {
        let entries = world.journal(id);
        let count = |kind: &str| {
            let mut by_attempt: BTreeMap<&str, usize> = BTreeMap::new();
            for entry in entries.iter().filter(|e| e.r#type == kind) {
                *by_attempt.entry(entry.attempt_id.as_str()).or_default() += 1;
            }
            by_attempt
        };
        let (made, ended) = (count("AttemptCreated"), count("AttemptOutcomeRecorded"));
        assert!(made.values().all(|n| *n == 1), "seed {seed}: {made:?}");
        assert_eq!(made, ended, "seed {seed}: every attempt of {id} has one outcome");
        let is_end = |e: &&v1::JournalEntry| matches!(e.r#type.as_str(), "RunCompleted" | "RunFailed" | "RunCancelled");
        assert_eq!(entries.iter().filter(is_end).count(), 1, "seed {seed}: {id} ends once");
        assert!(entries.last().as_ref().is_some_and(is_end), "seed {seed}: nothing follows the end of {id}");
    }
}
