//! Requirement: skill-invocation step resolves parameters and executes a flow-template skill.

use super::plan;
use crate::world::{World, run_id, submit};
use grain_contract::{Code, GrainId, Need, Rejection};
use grains::definition::Environment;
use grains::definition::skill::load_skill;
use grains::kinds::RunMode;
use grains::kinds::methods::{NEED_RELEASE_OF, run};
use granary_proto::v1;
use serde_json::{Value, json};
use std::sync::Arc;

const OPEN_APP: &str = "
skill: open-app
version: 1
kind: flow-template
parameters:
  app: {type: string, required: true}
  taps: {type: integer, default: 1}
steps:
  - {tool: home, actionClass: read}
  - {tool: tap, actionClass: sandbox, arguments: {label: '{{app}}', times: '{{taps}}'}}
";

const LIST: &str = "
  - {id: open, kind: SkillInvocation, skill: open-app, arguments: ARGUMENTS}
  - {id: after, kind: PlannedGoal, agent: phone, goal: Go on}
";

/// A run of the list, delivered as far as it goes by itself. The child's id, if there is one.
fn invoked(arguments: &str, change: impl FnOnce(World) -> World) -> (World, GrainId) {
    let env = Environment::default();
    let loaded = load_skill(OPEN_APP, &env);
    let skill = loaded.skill.expect("a skill").plan("skill:open-app@1", &loaded.hash, &env).expect("a plan");
    let world = World::new(RunMode::Bundled).knows(plan(&LIST.replace("ARGUMENTS", arguments)));
    let mut world = change(world.knows(Arc::new(skill)));
    let run = run_id(1);
    let _: v1::SubmitRunResponse =
        world.call(&run, run::SUBMIT, &submit("list@1", r#"{"name":"Mail"}"#)).expect("accepted");
    world.deliver(1);
    (world, run)
}

fn input_of(world: &World, step: &str) -> Value {
    let work = &world.work[&world.attempt_of(step)];
    serde_json::from_slice(&work.assignment.input.clone().expect("an input").text).expect("JSON")
}

/// [O2] [O4] Scenario: Skill invocation with valid parameters executes resolved tool calls
#[test]
fn skill_invocation_with_valid_parameters_executes_resolved_tool_calls() {
    let (mut world, run) = invoked("{app: {var: input.name}}", |world| world);
    assert_eq!(world.open_steps(), ["call-1"]);
    assert_eq!(input_of(&world, "call-1"), json!({}));
    world.ends("call-1", "Succeeded", "");
    // Between the calls the owner may be another one: only the second call is open then.
    assert_eq!(world.open_steps(), ["call-2"]);
    assert_eq!(input_of(&world, "call-2"), json!({"label": "Mail", "times": 1}));
    world.ends("call-2", "Succeeded", r#"{"opened":true}"#);
    world.deliver(2);
    assert_eq!(world.state_of(&run, "open"), "Succeeded");
    assert_eq!(world.open_steps(), ["after"]);
    let shown = world.shown(&run).step_runs.remove(0);
    assert_eq!(
        (shown.kind.as_str(), shown.output.expect("of its last call").text),
        ("SkillInvocation", br#"{"opened":true}"#.to_vec())
    );
}

/// [O2] A call that fails ends the invocation with its reason.
#[test]
fn a_failed_call_fails_the_step() {
    let (mut world, run) = invoked("{app: Mail}", |world| world);
    world.ends("call-1", "Failed", "");
    world.deliver(1);
    assert_eq!((world.state(&run), world.failure(&run).0), ("Failed".to_owned(), "tool".to_owned()));
    assert!(world.open_steps().is_empty(), "the second call is never made");
}

/// [O2] [O4] Scenario: Skill invocation with a missing required parameter fails without executing any tool call
#[test]
fn skill_invocation_with_a_missing_required_parameter_fails_without_executing_any_tool_call() {
    for (arguments, class, named) in [
        ("{taps: 2}", "missing-parameter", "app"),
        ("{app: {var: input.nothing}}", "missing-parameter", "app"),
        ("{app: Mail, taps: many}", "wrong-argument", "taps"),
        ("{app: Mail, more: 1}", "wrong-argument", "more"),
    ] {
        let (mut world, run) = invoked(arguments, |world| world);
        world.deliver(1);
        assert!(world.open_steps().is_empty(), "{arguments}: no call was made");
        assert!(!world.events.iter().any(|event| matches!(event.payload, Some(v1::event::Payload::StepReady(_)))));
        let (found, message) = world.failure(&run);
        assert_eq!((world.state(&run), found.as_str()), ("Failed".to_owned(), class), "{arguments}");
        assert!(message.contains(named), "{message}");
    }
}

/// [O2] [O4] Scenario: Skill invocation referencing a non-flow-template skill is rejected
#[test]
fn skill_invocation_referencing_a_non_flow_template_skill_is_rejected() {
    let need = || Need { kind: NEED_RELEASE_OF, key: "skill:open-app".into() };
    for code in [Code::Invalid, Code::NotFound] {
        let why = Rejection::new(code, "Expected a skill of kind flow-template, but open-app is a learned-policy.");
        let (mut world, run) = invoked("{app: Mail}", |world| world.refuses_definition(need(), why));
        world.deliver(1);
        let (class, message) = world.failure(&run);
        assert_eq!((world.state(&run), class.as_str()), ("Failed".to_owned(), "step-definition"));
        assert!(message.contains("flow-template"), "{message}");
        assert!(world.open_steps().is_empty());
    }
}
