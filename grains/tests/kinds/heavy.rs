//! Turns that would be too large for an entry.

use crate::world::{World, run_id, submit};
use grain_contract::limits::ENTRY_BYTES_MAX;
use grain_contract::{GrainId, OutboxMessage, Turn};
use grains::definition::{Environment, Mode, Plan, load};
use grains::engine::EngineOptions;
use grains::kinds::RunMode;
use grains::kinds::methods::run;
use granary_proto::v1;
use std::sync::Arc;

fn plan(text: &str) -> Arc<Plan> {
    let loaded = load(text, Mode::Draft, &Environment::default());
    let mut plan = loaded.plan.unwrap_or_else(|| panic!("a draft without errors: {:?}", loaded.findings));
    plan.release_id = format!("{}@{}", plan.definition_id, plan.version);
    Arc::new(plan)
}

fn bytes(turn: &Turn) -> usize {
    let rows = turn.puts.iter().map(|row| row.key.key.len() + row.value.len() + 16);
    let messages = turn.outbox.iter().map(|message| match message {
        OutboxMessage::Event { body } | OutboxMessage::Call { body, .. } => body.len(),
    });
    rows.chain(messages).sum::<usize>() + turn.reply.len()
}

fn approve_one(world: &mut World, run: &GrainId) {
    let list: v1::ListApprovalsResponse =
        world.call(run, run::APPROVALS, &v1::ListApprovalsRequest::default()).expect("a list");
    let approval = list.approvals.iter().find(|approval| approval.kind == "approval").expect("some fit");
    let request = v1::DecideApprovalRequest {
        approval_id: approval.approval_id.clone(),
        decision: "approve".into(),
        proposal_version: approval.proposal_version,
        decided_by: "ann".into(),
        ..Default::default()
    };
    let _: v1::Approval = world.call(run, run::DECIDE, &request).expect("decided");
}

/// [FR-125] Whatever the input's size and the number of branches that copy it: no turn passes the bound of an entry, in
/// which the shard would refuse it for ever, and the run ends.
#[test]
fn no_turn_is_too_large_for_an_entry() {
    for kind in [
        "kind: Tool, tool: echo, actionClass: read, failurePolicy: Fail",
        "kind: Human, actionClass: read, failurePolicy: Escalate",
    ] {
        let plan = plan(&format!(
            "
workflow: copying
version: '1'
steps:
  - {{ id: spread, kind: Fanout, items: [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16] }}
  - {{ id: body, {kind}, inputMapping: {{ copy: {{ var: input }} }} }}
  - {{ id: meet, kind: Join, quorum: any }}
edges: [ {{ from: spread, to: body }}, {{ from: body, to: meet }} ]
"
        ));
        for size in [1_000, 400_000, 1_000_000] {
            let mut world = World::new(RunMode::Bundled).knows(plan.clone());
            let run = run_id(1);
            let input = format!("\"{}\"", "x".repeat(size));
            let _: v1::SubmitRunResponse =
                world.call(&run, run::SUBMIT, &submit("copying@1", &input)).expect("accepted");
            if kind.contains("Tool") {
                let attempt = *world.work.keys().next().expect("some fit");
                world.report(attempt, "Succeeded", "1").expect("taken");
            } else {
                approve_one(&mut world, &run);
            }
            assert_eq!(world.get(&run).expect("the run").state, "Completed", "{kind} {size}");
            let largest = world.turns.iter().map(bytes).max().expect("turns");
            assert!(largest < ENTRY_BYTES_MAX, "{kind} {size}: {largest}");
        }
    }
}

/// [R5] Ten thousand branches are still one turn; thirteen thousand are refused where they would not fit, and say so.
#[test]
fn a_fan_out_is_as_wide_as_an_entry_holds() {
    let plan = plan(
        "
workflow: wide
version: '1'
steps:
  - { id: spread, kind: Fanout, items: { var: input.items } }
  - { id: body, kind: Tool, tool: echo, actionClass: read, failurePolicy: Fail }
  - { id: meet, kind: Join }
edges: [ { from: spread, to: body }, { from: body, to: meet } ]
",
    );
    for (branches, state) in [(10_000, "Running"), (13_000, "Failed")] {
        let options = EngineOptions { max_fanout: 13_000, ..EngineOptions::default() };
        let mut world = World::with(RunMode::Bundled, options).knows(plan.clone());
        let run = run_id(1);
        let items: Vec<u32> = (0..branches).collect();
        let input = serde_json::json!({ "items": items }).to_string();
        let reply: v1::SubmitRunResponse = world.call(&run, run::SUBMIT, &submit("wide@1", &input)).expect("accepted");
        let seen = reply.run.expect("the run");
        assert_eq!(seen.state, state, "{:?}", seen.failure);
        let largest = world.turns.iter().map(bytes).max().expect("turns");
        assert!(largest < ENTRY_BYTES_MAX, "{branches}: {largest}");
    }
}
