//! Properties: lists drawn at random end the same way whether the grain stays in memory or is read anew for each message, and
//! whether or not its projection is thrown away in between.

use super::plan;
use crate::world::{World, run_id, submit};
use grains::kinds::RunMode;
use grains::kinds::methods::run;
use granary_proto::v1;
use proptest::prelude::*;

/// One step of the list, by kind and a number.
fn step(ix: usize, count: usize, kind: u8, n: usize) -> String {
    let target = |n: usize| format!("s{}", (ix + 1 + n % 3).min(count - 1));
    match kind {
        0 | 1 => format!("  - {{id: s{ix}, kind: PlannedGoal, agent: phone, goal: G{n}}}\n"),
        // One of its roads leads to the next step: one that nothing leads to would be refused.
        2 if ix > 0 && ix + 1 < count => format!(
            "  - {{id: s{ix}, kind: Branch, condition: {{kind: step_result_success, step: s{}}}, onTrue: {}, onFalse: {}}}\n",
            ix - 1,
            target(n / 2 * (n % 2)),
            target(n / 2 * (1 - n % 2))
        ),
        3 => format!(
            "  - {{id: s{ix}, kind: WaitForCondition, condition: {{kind: world_variable_equals, variable: v, value: {}}}, timeout: {}}}\n",
            n % 3,
            n % 5
        ),
        _ => format!(
            "  - {{id: s{ix}, kind: WaitForCondition, condition: {{kind: elapsed_seconds, seconds: {}}}, timeout: {}}}\n",
            n % 4,
            n % 6
        ),
    }
}

/// How it ends: the run's state, its failure, and each step's state.
fn ended(steps: &str, outcomes: &[bool], reload: bool, reproject: bool) -> (String, String, Vec<(String, String)>) {
    let mut world = World::new(RunMode::Bundled).knows(plan(steps));
    world.reload = reload;
    let run = run_id(1);
    let _: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("list@1", "")).expect("accepted");
    let mut at = 0;
    for _ in 0..200 {
        if world.get(&run).is_ok_and(|seen| seen.ended_at.is_some()) {
            break;
        }
        if let Some(step) = world.open_steps().first().cloned() {
            let good = outcomes[at % outcomes.len()];
            at += 1;
            world.observes(&run, &step, "world", &format!(r#"{{"v":{}}}"#, at % 3));
            world.ends(&step, if good { "Succeeded" } else { "Failed" }, "");
        } else if !world.next_reminder() {
            break;
        }
        if reproject {
            let entries = world.journal(&run);
            let journal = v1::ReadJournalResponse { entries, ..Default::default() };
            let _: v1::RunGraph = world.call(&run, run::REPROJECT, &journal).expect("projected again");
        }
    }
    let graph = world.shown(&run);
    let failure = graph.failure.clone().map(|failure| failure.class).unwrap_or_default();
    (graph.state, failure, graph.step_runs.into_iter().map(|step| (step.step_id, step.state)).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// [O1] [R14] [O4]
    #[test]
    fn a_restart_changes_nothing(
        kinds in prop::collection::vec((0u8..5, 0usize..60), 2..9),
        outcomes in prop::collection::vec(prop::bool::weighted(0.8), 1..6),
    ) {
        let count = kinds.len();
        let steps: String = kinds.iter().enumerate().map(|(ix, (kind, n))| step(ix, count, *kind, *n)).collect();
        let stayed = ended(&steps, &outcomes, false, false);
        prop_assert!(matches!(stayed.0.as_str(), "Completed" | "Failed"), "{stayed:?}\n{steps}");
        prop_assert_eq!(&ended(&steps, &outcomes, true, false), &stayed, "read anew\n{}", steps);
        prop_assert_eq!(&ended(&steps, &outcomes, true, true), &stayed, "projected again\n{}", steps);
    }
}
