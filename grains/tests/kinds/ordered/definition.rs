//! Requirement: workflow definition as an ordered, branchable list of typed steps.

use super::plan;
use grains::definition::{Environment, Finding, Guard, Mode, StepKind, load};

const FOUR: &str = "
  - {id: open, kind: SkillInvocation, skill: open-app, arguments: {app: Mail}}
  - {id: find, kind: PlannedGoal, agent: phone, goal: Find the newest mail, actionClass: read, failurePolicy: Fail}
  - {id: wait, kind: WaitForCondition, condition: {kind: scene_contains_text, text: Inbox}, timeout: 30, pollInterval: 1}
  - {id: ask, kind: Branch, condition: {kind: world_variable_equals, variable: unread, value: 0}, onTrue: rest, onFalse: find}
  - {id: rest, kind: PlannedGoal, agent: phone, goal: Rest}
";

fn findings(steps: &str) -> Vec<Finding> {
    load(&format!("workflow: list\nversion: '1'\nsteps:\n{steps}"), Mode::Draft, &Environment::default()).findings
}

fn errors(steps: &str) -> Vec<(&'static str, String, u32)> {
    let errors = findings(steps).into_iter().filter(Finding::is_error);
    errors.map(|finding| (finding.code, finding.path, finding.spot.line)).collect()
}

/// [O1] [O4] Scenario: Workflow with heterogeneous step kinds is constructed
#[test]
fn workflow_with_heterogeneous_step_kinds_is_constructed() {
    let plan = plan(FOUR);
    let declared: Vec<_> = plan.steps.iter().map(|step| (step.id.as_str(), step.declared)).collect();
    let wanted = [
        ("open", "SkillInvocation"),
        ("find", "PlannedGoal"),
        ("wait", "WaitForCondition"),
        ("ask", "Branch"),
        ("rest", "PlannedGoal"),
    ];
    assert_eq!(declared, wanted);
    assert!(
        matches!(&plan.steps[0].kind, StepKind::SubWorkflow { definition_id, version: None } if definition_id == "skill:open-app")
    );
    assert!(matches!(&plan.steps[1].kind, StepKind::Agent { agent } if agent == "phone"));
    assert_eq!(plan.steps[2].timeout_ms, Some(30_000));
    let edges: Vec<_> = plan.edges.iter().map(|edge| (edge.from.0, edge.to.0, edge.loop_back.is_some())).collect();
    assert_eq!(edges, [(0, 1, false), (1, 2, false), (2, 3, false), (3, 4, false), (3, 1, true)]);
    assert!(matches!(plan.edges[3].guard, Guard::IsTrue) && matches!(plan.edges[4].guard, Guard::IsFalse));
}

/// [O1] [O4] Scenario: Duplicate step id is rejected
#[test]
fn duplicate_step_id_is_rejected() {
    let steps = "
  - {id: a, kind: PlannedGoal, agent: phone, goal: One}
  - {id: a, kind: PlannedGoal, agent: phone, goal: Two}
";
    assert_eq!(errors(steps), [("doubled-step", "steps[1].id".to_owned(), 6)]);
}

/// [O1] What each kind takes and needs, with line and path.
#[test]
fn fields_of_another_kind_and_missing_ones_are_refused() {
    let table = [
        ("{id: a, kind: PlannedGoal, agent: phone, goal: X, skill: s}", ("wrong-field", "steps[0].skill")),
        ("{id: a, kind: PlannedGoal, agent: phone}", ("missing-field", "steps[0].goal")),
        ("{id: a, kind: PlannedGoal, goal: X}", ("missing-field", "steps[0].agent")),
        ("{id: a, kind: SkillInvocation, skill: s, goal: X}", ("wrong-field", "steps[0].goal")),
        ("{id: a, kind: SkillInvocation}", ("missing-field", "steps[0].skill")),
        ("{id: a, kind: SkillInvocation, skill: 's@'}", ("bad-name", "steps[0].skill")),
        ("{id: a, kind: SkillInvocation, skill: s, arguments: [1]}", ("wrong-type", "steps[0].arguments")),
        ("{id: a, kind: WaitForCondition, timeout: 1}", ("missing-field", "steps[0].condition")),
        (
            "{id: a, kind: WaitForCondition, condition: {kind: elapsed_seconds, seconds: 1}}",
            ("missing-field", "steps[0].timeout"),
        ),
        (
            "{id: a, kind: WaitForCondition, condition: {text: X}, timeout: 1}",
            ("missing-field", "steps[0].condition.kind"),
        ),
        (
            "{id: a, kind: WaitForCondition, condition: {kind: scene_contains_text}, timeout: 1}",
            ("bad-condition", "steps[0].condition.text"),
        ),
        (
            "{id: a, kind: WaitForCondition, condition: {kind: elapsed_seconds, seconds: 1}, timeout: 1, pollInterval: 0.01}",
            ("bad-time", "steps[0].pollInterval"),
        ),
        (
            "{id: a, kind: Branch, condition: {kind: step_result_success, step: zz}, onTrue: a, onFalse: a}",
            ("unknown-step", "steps[0].condition.step"),
        ),
        (
            "{id: a, kind: Branch, condition: {kind: elapsed_seconds, seconds: 1}, onTrue: a}",
            ("missing-field", "steps[0].onFalse"),
        ),
        (
            "{id: a, kind: Branch, condition: {kind: elapsed_seconds, seconds: 1}, onTrue: zz, onFalse: a}",
            ("unknown-step", "steps[0].onTrue"),
        ),
        ("{id: a, kind: Agent, agent: phone, goal: X}", ("wrong-field", "steps[0].goal")),
    ];
    for (step, (code, path)) in table {
        let errors = errors(&format!("  - {step}\n"));
        assert!(errors.contains(&(code, path.to_owned(), 4)), "{step}: {errors:?}");
    }
}

/// [O1] Compensation steps stand outside of the list, and a Branch has no other edges than its own.
#[test]
fn a_branch_leads_to_its_targets_only() {
    let branch = "{id: b, kind: Branch, condition: {kind: elapsed_seconds, seconds: 1}, onTrue: c, onFalse: undo}";
    let steps = format!(
        "
  - {{id: a, kind: Tool, tool: t, compensation: undo}}
  - {branch}
  - {{id: undo, kind: Compensation, tool: u}}
  - {{id: c, kind: Tool, tool: t}}
"
    );
    assert_eq!(errors(&steps), [("compensation-edge", "steps[1].onFalse".to_owned(), 6)]);
    let written = format!("{}\nedges: [{{from: b, to: c}}]", steps.replace("onFalse: undo", "onFalse: c"));
    assert!(errors(&written).iter().any(|(code, ..)| *code == "branch-edge"), "{:?}", errors(&written));
}

/// [O1] Publishing asks a PlannedGoal for its class and policy, like other work on the world.
#[test]
fn a_goal_must_declare_what_it_may_do() {
    let text = "workflow: w\nversion: '1'\nsteps:\n  - {id: a, kind: PlannedGoal, agent: phone, goal: X}\n";
    let codes: Vec<_> = load(text, Mode::Publish, &Environment::default()).findings.iter().map(|f| f.code).collect();
    assert!(codes.contains(&"undeclared-action-class") && codes.contains(&"undeclared-failure-policy"), "{codes:?}");
}

/// [O1] [D5] The hash is of the list as it is written; a stored list compiles to the same plan.
#[test]
fn a_stored_list_compiles_again() {
    let text = format!("workflow: list\nversion: '1'\nsteps:\n{FOUR}");
    let loaded = load(&text, Mode::Draft, &Environment::default());
    let stored =
        grains::definition::compile_stored(&loaded.canonical, "r", true, &Environment::default()).expect("a plan");
    assert_eq!(stored.graph_hash, loaded.graph_hash);
    assert_eq!(format!("{:?}", stored.edges), format!("{:?}", loaded.plan.expect("a plan").edges));
}

/// [O1] A step that a Branch leads past would run beside the first one; nobody means that.
#[test]
fn a_step_that_nothing_leads_to_is_refused() {
    let list = |on_true: &str, on_false: &str| {
        format!(
            "
  - {{id: ask, kind: Branch, condition: {{kind: jsonlogic, rule: {{var: input.x}}}}, onTrue: {on_true}, onFalse: {on_false}}}
  - {{id: past, kind: PlannedGoal, agent: phone, goal: One}}
  - {{id: last, kind: PlannedGoal, agent: phone, goal: Two}}
"
        )
    };
    assert_eq!(errors(&list("last", "last")), [("unreachable-step", "steps[1]".to_owned(), 6)]);
    assert_eq!(errors(&list("past", "last")), []);
    // The target that was meant may be misspelt: that is told, and not its consequence too.
    assert_eq!(errors(&list("last", "passt")), [("unknown-step", "steps[0].onFalse".to_owned(), 5)]);
    // One that was stored before this was looked at goes on running.
    let loaded = load(
        &format!("workflow: list\nversion: '1'\nsteps:\n{}", list("past", "last")),
        Mode::Draft,
        &Environment::default(),
    );
    let older = String::from_utf8(loaded.canonical).expect("JSON").replace(r#""onTrue":"past""#, r#""onTrue":"last""#);
    let stored = grains::definition::compile_stored(older.as_bytes(), "r", true, &Environment::default());
    assert!(stored.is_ok(), "{stored:?}");
}

/// [O3] [D1] [D5] The rule of a condition is JSON text or native YAML, as every other expression, with one hash.
#[test]
fn a_rule_is_json_text_or_native() {
    let loaded = |rule: &str| {
        let text = format!(
            "workflow: list\nversion: '1'\nsteps:\n  - {{id: a, kind: WaitForCondition, timeout: 1, condition: {{rule: {rule}, kind: jsonlogic}}}}\n"
        );
        load(&text, Mode::Draft, &Environment::default())
    };
    let native = loaded("{'>': [{var: world.unread}, 3]}");
    let text = loaded(r#"'{">": [{"var": "world.unread"}, 3]}'"#);
    assert!(native.plan.is_some() && text.plan.is_some(), "{:?}", text.findings);
    assert_eq!((native.graph_hash, native.canonical), (text.graph_hash, text.canonical));
    for (rule, code, says) in [
        ("'x >'", "bad-expression", "JSON text or as native YAML"),
        (r#"'{"var": "a", "var": "b"}'"#, "doubled-key", "inside the text"),
        ("'5'", "bad-condition", "but found 5"),
        ("{nonsense: []}", "bad-condition", "operators"),
        ("{var: nobody.x}", "unknown-root", "scene, world or the id of a step"),
    ] {
        let found = loaded(rule).findings;
        let found: Vec<_> = found.iter().filter(|finding| finding.is_error()).collect();
        let [finding] = found.as_slice() else { panic!("{rule}: {found:?}") };
        assert_eq!((finding.code, finding.path.as_str()), (code, "steps[0].condition.rule"), "{rule}");
        assert!(finding.message.contains(says), "{rule}: {}", finding.message);
        assert!(finding.spot.line == 4 && finding.spot.column > 60, "{rule}: {:?}", finding.spot);
    }
}
