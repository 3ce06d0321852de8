//! Who watches a run sees when a worker is at a step.

use crate::plans::line;
use crate::world::{START, World, run_id, submit};
use grain_contract::{GrainId, Timestamp};
use grains::kinds::RunMode;
use grains::kinds::methods::run;
use granary_proto::{calls, v1};
use uuid::Uuid;

fn started(places: usize) -> (World, GrainId) {
    let mut world = World::new(RunMode::Bundled).knows(line("line", &["a", "b"])).places(places);
    let run = run_id(1);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("line@1", "1")).expect("accepted");
    (world, run)
}

fn step(world: &mut World, run: &GrainId, id: &str) -> v1::StepRun {
    world.graph(run).step_runs.into_iter().find(|step| step.step_id == id).expect("the step")
}

fn claim(world: &mut World, run: &GrainId, attempt: Uuid, token: u8) -> bool {
    let claim =
        calls::Claim { attempt_id: attempt.to_string(), worker: "w2".into(), token: vec![token; 16], held: false };
    world.call::<calls::ClaimReply>(run, run::CLAIM, &claim).expect("an answer").claimed
}

fn reprojects_to_the_same(world: &mut World, run: &GrainId) {
    let (stored, events) = (world.stored.clone(), world.events.len());
    let graph = world.graph(run);
    let entries = world.journal(run);
    let again: v1::RunGraph =
        world.call(run, run::REPROJECT, &v1::ReadJournalResponse { entries, next_after: 0 }).expect("projected again");
    assert_eq!(again, graph);
    assert_eq!((&world.stored, world.events.len()), (&stored, events));
}

/// [R1] [C3] A free place at the commit: Ready and Running are one turn, StepReady between them.
#[test]
fn a_step_that_is_claimed_at_once_runs_at_once() {
    let (mut world, run) = started(9);
    assert_eq!(world.turns.len(), 1);
    assert_eq!(world.published(&run), ["started", "a Ready", "ready a 1", "a Running"]);
    let seen = step(&mut world, &run, "a");
    assert_eq!((seen.state.as_str(), seen.started_at.map(|at| at.millis())), ("Running", Some(START)));
    reprojects_to_the_same(&mut world, &run);
    let (attempt, before) = (world.attempt_of("a"), world.turns.len());
    world.report(attempt, "Succeeded", "1").expect("taken");
    assert_eq!(world.published(&run)[4..], ["a Succeeded", "b Ready", "ready b 1", "b Running"]);
    assert_eq!(world.turns.len(), before + 1, "one commit a step");
}

/// [R1] [C3] [R14] A later claim, a worker that never got it, another claim: each is seen, and is there again after a
/// re-projection.
#[test]
fn a_later_claim_and_its_loss_are_seen() {
    let (mut world, run) = started(0);
    let attempt = world.attempt_of("a");
    let seen = step(&mut world, &run, "a");
    assert_eq!((seen.state.as_str(), seen.started_at), ("Ready", None));
    assert_eq!(world.graph(&run).active_step_runs, 1);
    world.now = Timestamp(START + 700);
    assert!(claim(&mut world, &run, attempt, 1));
    assert!(claim(&mut world, &run, attempt, 1), "the same answer again");
    let seen = step(&mut world, &run, "a");
    assert_eq!((seen.state.as_str(), seen.started_at.map(|at| at.millis())), ("Running", Some(START + 700)));
    assert_eq!(seen.waiting.expect("why").text, "worker w2 of queue tool:a to report");
    reprojects_to_the_same(&mut world, &run);

    let lost = calls::LeaseExpired {
        attempt_id: attempt.to_string(),
        worker: "w2".into(),
        never_started: true,
        token: vec![1; 16],
    };
    let _: () = world.call(&run, run::LEASE_EXPIRED, &lost).expect("taken");
    let _: () = world.call(&run, run::LEASE_EXPIRED, &lost).expect("moot");
    let seen = step(&mut world, &run, "a");
    assert_eq!((seen.state.as_str(), seen.waiting.expect("why").text.as_str()), ("Ready", "worker for queue tool:a"));
    reprojects_to_the_same(&mut world, &run);

    assert!(claim(&mut world, &run, attempt, 2));
    assert_eq!(
        world.published(&run),
        ["started", "a Ready", "ready a 1", "a Running", "a Ready", "a Running"],
        "each move once"
    );
    reprojects_to_the_same(&mut world, &run);
}
