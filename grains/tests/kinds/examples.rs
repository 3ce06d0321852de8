//! The shipped examples, from their text to the end of a run.

use crate::world::{World, run_id, submit};
use grain_contract::GrainId;
use grains::definition::{Environment, Mode, Plan, load};
use grains::kinds::RunMode;
use grains::kinds::methods::run;
use granary_proto::v1;
use serde_json::{Value, json};
use std::sync::Arc;

const PRINTED: &str = include_str!("../../../examples/repository-assessment-draft.yaml");
const ASSESSMENT: &str = include_str!("../../../examples/repository-assessment.yaml");
const TOUR: &str = include_str!("../../../examples/feature-tour.yaml");
const LEAFLET: &str = include_str!("../../../examples/feature-tour-leaflet.yaml");

fn draft(text: &str) -> Arc<Plan> {
    let loaded = load(text, Mode::Draft, &Environment::default());
    let mut plan = loaded.plan.unwrap_or_else(|| panic!("a draft without errors: {:?}", loaded.findings));
    plan.release_id = format!("{}@{}", plan.definition_id, plan.version);
    Arc::new(plan)
}

fn started(plan: &Arc<Plan>, input: &str) -> (World, GrainId) {
    let mut world = World::new(RunMode::Bundled).knows(plan.clone()).knows(draft(LEAFLET));
    let run = run_id(1);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit(&plan.release_id, input)).expect("accepted");
    (world, run)
}

fn play(
    world: &mut World,
    run: &GrainId,
    decision: &str,
    answer: impl Fn(&v1::Assignment) -> (&'static str, String),
) -> v1::Run {
    for _ in 0..200 {
        // A decision is for the test to make; everything else goes by itself.
        let pending = world.work.is_empty() && world.calls.is_empty();
        if pending && world.decide_all(run, decision) > 0 {
            continue;
        }
        if !world.step(run, &answer) {
            return world.get(run).expect("the run");
        }
    }
    panic!("the run does not end; open are {:?}", world.open_steps());
}

fn assessor(confidence: f64) -> impl Fn(&v1::Assignment) -> (&'static str, String) {
    move |assignment| ("Succeeded", json!({ "by": assignment.name, "confidence": confidence }).to_string())
}

fn ready(world: &World, run: &GrainId) -> Vec<String> {
    let published = world.published(run).into_iter();
    published.filter(|e| e.starts_with("ready") || e.starts_with("ask")).collect()
}

/// [D4] [R3] S1's example, exactly as printed: `propose` runs after `confident = true` with `review` skipped, and after
/// `review` otherwise.
#[test]
fn the_printed_example_runs_as_a_draft() {
    let plan = draft(PRINTED);
    let (mut world, run) = started(&plan, "{}");
    assert_eq!(play(&mut world, &run, "approve", assessor(0.9)).state, "Completed");
    assert_eq!(ready(&world, &run), ["ready classify 1", "ready retrieve 1", "ready analyse 1", "ready propose 1"]);
    let review = world.graph(&run).step_runs.into_iter().find(|s| s.step_id == "review").expect("it is shown");
    assert_eq!((review.state.as_str(), review.skipped_by.as_slice()), ("Skipped", &["confident".to_owned()][..]));
    let (mut world, run) = started(&plan, "{}");
    assert_eq!(play(&mut world, &run, "approve", assessor(0.5)).state, "Completed");
    let told = ready(&world, &run);
    assert_eq!(told[3..], ["ask review approval 1", "ready propose 1"], "{told:?}");
}

/// [R8] [R11] A rejection undoes what was written: the policy of the step that asked.
#[test]
fn a_rejected_assessment_is_undone() {
    let (mut world, run) = started(&draft(ASSESSMENT), r#"{"repository":".","outputDirectory":"out"}"#);
    let seen = play(&mut world, &run, "reject", assessor(0.5));
    assert_eq!((seen.state.as_str(), seen.failed_step_id.as_str(), seen.compensated), ("Failed", "review", true));
    assert_eq!(seen.failure.map(|f| f.class), Some("rejected".into()));
    assert_eq!(ready(&world, &run).last().map(|e| e.starts_with("ready discard-draft")), Some(true));
}

/// [R5] [R6] [R7] [R9] Fan-out over a list, join, timer, loop and sub-workflow in one definition.
#[test]
fn the_feature_tour_goes_round() {
    let plan = draft(TOUR);
    let (mut world, run) = started(&plan, r#"{"words":["granary","silo","grain"],"rounds":3}"#);
    let seen = play(&mut world, &run, "approve", |assignment| {
        let input: Value = assignment.input.as_ref().and_then(|i| i.value().ok()).unwrap_or_default();
        let output = match assignment.step_id.as_str() {
            "measure" => json!({ "word": input["word"], "place": input["place"] }),
            "polish" => json!({ "round": input["round"].as_u64().unwrap_or(0) + 1, "text": input["words"] }),
            _ => input,
        };
        ("Succeeded", output.to_string())
    });
    assert_eq!(seen.state, "Completed", "{:?}", seen.failure);
    let words = json!([
        { "word": "granary", "place": 0 },
        { "word": "silo", "place": 1 },
        { "word": "grain", "place": 2 }
    ]);
    assert_eq!(seen.output.and_then(|o| o.value().ok()), Some(json!({ "text": words })), "in the order of the list");
    let rounds = ready(&world, &run).iter().filter(|e| e.starts_with("ready polish")).count();
    assert_eq!(rounds, 3);
}
