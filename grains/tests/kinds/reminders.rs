//! Time: late, early, lost, and racing with messages.

use crate::plans::{flow, timer, tool};
use crate::world::{START, World, run_id, submit};
use grain_contract::{GrainId, Message, Timestamp};
use grains::definition::FailurePolicy;
use grains::engine::EngineOptions;
use grains::kinds::RunMode;
use grains::kinds::methods::run;
use granary_proto::{calls, v1};

const LONG: u64 = 3_600_000;

fn napping() -> (World, GrainId) {
    let plan = flow("nap").step("nap", timer(5_000)).step("b", tool("b")).edge("nap", "b").plan();
    let mut world = World::new(RunMode::Bundled).knows(plan);
    let run = run_id(1);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("nap@1", "1")).expect("accepted");
    (world, run)
}

fn late_by(world: &World) -> Vec<u64> {
    let late = |e: &v1::Event| match &e.payload {
        Some(v1::event::Payload::TimerFired(fired)) => Some(fired.late_ms),
        _ => None,
    };
    world.events.iter().filter_map(late).collect()
}

/// [R7] [FR-006] An overdue wake fires at once, once, and says how late it was.
#[test]
fn an_overdue_wake_fires_once() {
    let (mut world, run) = napping();
    assert_eq!(world.stored[&run].reminders["wake"], Timestamp(START + 5_000));
    world.now = Timestamp(START + 12_000);
    let due = Timestamp(START + 5_000);
    for _ in 0..3 {
        world.send(&run, &Message::Reminder { name: "wake", due }).expect("taken");
    }
    assert_eq!(late_by(&world), [7_000]);
    assert_eq!(world.open_steps(), ["b"]);
}

/// A wake that comes early does nothing but set itself again.
#[test]
fn an_early_wake_is_set_again() {
    let (mut world, run) = napping();
    world.now = Timestamp(START + 4_999);
    world.send(&run, &Message::Reminder { name: "wake", due: Timestamp(START + 4_999) }).expect("taken");
    let turn = world.turns.last().expect("a turn");
    assert!(turn.puts.is_empty() && turn.outbox.is_empty(), "{turn:?}");
    assert_eq!(world.stored[&run].reminders["wake"], Timestamp(START + 5_000));
    assert!(late_by(&world).is_empty());
}

/// [R15] A lost reminder: the sweep of the shard and the run's own stuck check each find the due timer.
#[test]
fn a_lost_wake_is_found() {
    for by_sweep in [true, false] {
        let (mut world, run) = napping();
        world.stored.get_mut(&run).expect("the run").reminders.remove("wake");
        if by_sweep {
            world.now = Timestamp(START + 6_000);
            let _: () = world.call(&run, run::SWEEP, &()).expect("swept");
        } else {
            assert!(world.next_reminder(), "the stuck check");
        }
        assert_eq!(late_by(&world).len(), 1);
        assert_eq!(world.open_steps(), ["b"]);
        assert!(world.stored[&run].reminders.contains_key("stuck"), "set again while the run goes on");
    }
}

/// [R15] The sweep tells again of what waits in a queue and of what a worker has, and asks for nothing twice.
#[test]
fn the_sweep_tells_of_open_work() {
    for free in [0, 1] {
        let plan = flow("one").step("a", tool("a")).plan();
        let mut world = World::new(RunMode::Bundled).knows(plan).places(free);
        let run = run_id(1);
        let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("one@1", "1")).expect("accepted");
        let a = world.attempt_of("a");
        world.work.clear();
        world.now = Timestamp(START + 400_000);
        let (stored, events) = (world.stored.clone(), world.events.len());
        for _ in 0..3 {
            let _: () = world.call(&run, run::SWEEP, &()).expect("swept");
        }
        assert_eq!(world.attempt_of("a"), a, "the same attempt");
        assert_eq!(world.work[&a].lease.is_some(), free == 1);
        assert_eq!((world.stored.clone(), world.events.len()), (stored, events));
    }
}

fn timed(policy: FailurePolicy, attempts: u32) -> (World, GrainId) {
    let plan = flow("timed")
        .step_with("a", tool("a"), |s| {
            s.timeout_ms = Some(5_000);
            s.failure_policy = policy;
            s.max_attempts = attempts;
        })
        .plan();
    let mut world = World::new(RunMode::Bundled).knows(plan);
    let run = run_id(1);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("timed@1", "1")).expect("accepted");
    (world, run)
}

/// [FR-095] A deadline a year ahead stands while the run goes on; whatever ends the run takes every reminder with it.
#[test]
fn a_far_deadline_leaves_with_the_run() {
    const YEAR_MS: u64 = 365 * 86_400_000;
    for (end, state) in [("Succeeded", "Completed"), ("Failed", "Failed"), ("", "Cancelled")] {
        let plan = flow("far").step("a", tool("a")).step("b", tool("b")).edge("a", "b").deadline_ms(YEAR_MS).plan();
        let mut world = World::new(RunMode::Bundled).knows(plan);
        for number in 0..50 {
            let run = run_id(number);
            let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("far@1", "1")).expect("accepted");
            assert_eq!(world.stored[&run].reminders["wake"], Timestamp(START).plus_ms(YEAR_MS));
            let first = world.attempt_of("a");
            world.report(first, "Succeeded", "1").expect("taken");
            let second = world.attempt_of("b");
            if end.is_empty() {
                let request =
                    v1::CancelRunRequest { run_id: run.key.to_string(), reason: "enough".into(), ..Default::default() };
                let _: v1::Run = world.call(&run, run::CANCEL, &request).expect("cancelled");
            } else {
                world.report(second, end, "").expect("taken");
            }
            assert_eq!(world.get(&run).expect("the run").state, state);
        }
        let left: usize = world.stored.values().map(|stored| stored.reminders.len()).sum();
        assert_eq!(left, 0, "{state}");
    }
}

/// [FR-116] Every attempt has its timeout; one reminder stands at a time and none is left.
#[test]
fn each_attempt_times_out() {
    let (mut world, run) = timed(FailurePolicy::Retry, 3);
    let mut stood = Vec::new();
    while world.get(&run).expect("the run").ended_at.is_none() {
        stood.push(world.stored[&run].reminders["wake"].0 - START);
        assert!(world.next_reminder());
    }
    assert_eq!(stood, [5_000, 6_000, 11_000, 13_000, 18_000], "timeout, backoff 1 s, timeout, backoff 2 s, timeout");
    assert!(world.stored[&run].reminders.is_empty());
    assert_eq!(world.withdrawn.len(), 3);
    let seen = world.get(&run).expect("the run");
    assert_eq!((seen.state.as_str(), seen.failure.map(|f| f.class)), ("Failed", Some("timeout".into())));
}

/// A turn costs the same however long the run is: the 190th attempt as much as the 100th.
#[test]
fn a_late_attempt_costs_no_more_than_an_early_one() {
    let (mut world, run) = timed(FailurePolicy::Retry, 200);
    let mut costs = Vec::new();
    for _ in 0..190 {
        let attempt = world.attempt_of("a");
        world.report(attempt, "Failed", "").expect("taken");
        let turn = world.turns.last().expect("a turn");
        costs.push((turn.puts.len(), turn.puts.iter().map(|r| r.value.len() + r.key.key.len()).sum::<usize>()));
        while world.open_steps().is_empty() {
            assert!(world.next_reminder());
        }
    }
    let (early, late) = (costs[99], costs[189]);
    assert_eq!(early.0, late.0, "rows");
    assert!(late.1 <= early.1 + 32, "bytes: {early:?} {late:?}");
    assert_eq!(world.journal(&run).iter().filter(|e| e.r#type == "AttemptCreated").count(), 191);
}

/// The outcome comes when the timeout is due but its reminder was not delivered yet: the clock decides, not the delivery.
/// What the timer did is committed, and the reporter is told that it was too late.
#[test]
fn a_due_timeout_comes_before_a_report() {
    let (mut world, run) = timed(FailurePolicy::Fail, 1);
    let a = world.attempt_of("a");
    world.now = Timestamp(START + 5_000);
    let result = world.report(a, "Succeeded", "1").expect("an answer that can be committed");
    assert_eq!((result.accepted, result.code.as_str(), result.retry), (false, "wrong-state", false));
    let seen = world.get(&run).expect("the run");
    assert_eq!((seen.state.as_str(), seen.failure.map(|f| f.class)), ("Failed", Some("timeout".into())));
    let facts = world.journal(&run).into_iter().filter(|e| e.sequence > 0).count();
    assert_eq!(facts, 1, "the outcome was not recorded");
}

/// [C3] [R10] An expired lease of class read: another attempt. The former worker's report finds the newer one.
#[test]
fn an_expired_lease_leads_to_another_attempt() {
    let plan = flow("one").step("a", tool("a")).plan();
    let mut world = World::new(RunMode::Bundled).knows(plan);
    let run = run_id(1);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("one@1", "1")).expect("accepted");
    let first = world.attempt_of("a");
    let held = world.work[&first].clone();
    world.now = Timestamp(START + 45_000);
    let expired = calls::LeaseExpired { attempt_id: first.to_string(), worker: "w1".into(), ..Default::default() };
    for _ in 0..2 {
        let _: () = world.call(&run, run::LEASE_EXPIRED, &expired).expect("taken");
    }
    while world.open_steps().is_empty() {
        assert!(world.next_reminder(), "the retry's delay");
    }
    let second = world.attempt_of("a");
    assert_ne!(first, second);
    world.work.insert(first, held);
    assert!(world.report(first, "Succeeded", "1").is_err(), "superseded");
    world.report(second, "Succeeded", "2").expect("taken");
    let seen = world.get(&run).expect("the run");
    assert_eq!((seen.state.as_str(), seen.output.map(|o| o.text)), ("Completed", Some(b"2".to_vec())));
}

/// The options are read anew each turn.
#[test]
fn the_stuck_check_follows_its_option() {
    let engine = EngineOptions { stuck_after_ms: LONG, ..EngineOptions::default() };
    let plan = flow("one").step("a", tool("a")).plan();
    let mut world = World::with(RunMode::Bundled, engine).knows(plan);
    let run = run_id(1);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("one@1", "1")).expect("accepted");
    assert_eq!(world.stored[&run].reminders["stuck"], Timestamp(START).plus_ms(LONG));
}
