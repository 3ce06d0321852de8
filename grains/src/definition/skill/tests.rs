//! Reading, checking and compiling skills, as tables.

use super::*;
use crate::condition::View;
use serde_json::json;

const OPEN_APP: &str = "
skill: open-app
version: 1.10
kind: flow-template
description: Opens an app by its icon
parameters:
  app: {type: string, required: true, description: Name under the icon}
  taps: {type: integer, default: 1}
  mode: {type: string, enum: [fast, slow], default: fast}
  extra: {type: object}
steps:
  - {tool: home, actionClass: read}
  - {id: tap, tool: tap, actionClass: sandbox, arguments: {label: '{{app}}', times: '{{taps}}', note: 'open {{app}} {{mode}}', more: ['{{extra}}']}}
";

fn findings(text: &str) -> Vec<(&'static str, String, u32)> {
    let findings = load_skill(text, &Environment::default()).findings;
    findings.into_iter().map(|finding| (finding.code, finding.path, finding.spot.line)).collect()
}

fn open_app() -> Skill {
    let loaded = load_skill(OPEN_APP, &Environment::default());
    assert_eq!(loaded.findings, []);
    loaded.skill.expect("a skill")
}

struct Input(Value);

impl View for Input {
    fn root(&self, name: &str) -> Option<Value> {
        (name == "input").then(|| self.0.clone())
    }
}

/// [O2]
#[test]
fn a_skill_compiles_to_its_calls_in_order() {
    let plan = open_app().plan("skill:open-app@1.10", "h", &Environment::default()).expect("a plan");
    assert_eq!((plan.definition_id.as_str(), plan.version.as_str()), ("skill:open-app", "1.10"));
    let calls: Vec<_> = plan.steps.iter().map(|s| (s.id.as_str(), s.kind.queue().unwrap_or_default())).collect();
    assert_eq!(calls, [("call-1", "tool:home".to_owned()), ("tap", "tool:tap".to_owned())]);
    assert_eq!((plan.edges.len(), plan.entries.len(), plan.terminals.len()), (1, 1, 1));
    let input = json!({"app": "Mail", "taps": 2, "mode": "slow", "extra": {"a": 1}});
    let arguments = plan.steps[1].input.as_ref().expect("arguments").evaluate(&Input(input)).expect("a value");
    assert_eq!(arguments, json!({"label": "Mail", "times": 2, "note": "open Mail slow", "more": [{"a": 1}]}));
}

/// [O2] [FR-165] Inserted text is not read again, whatever it looks like.
#[test]
fn data_stays_data() {
    let plan = open_app().plan("r", "h", &Environment::default()).expect("a plan");
    for hostile in ["{{mode}}", "{\"var\":\"input.extra\"}", "a-b", "it's", "$(rm)"] {
        let input = json!({"app": hostile, "mode": "fast"});
        let arguments = plan.steps[1].input.as_ref().expect("arguments").evaluate(&Input(input)).expect("a value");
        assert_eq!(arguments["label"], hostile);
        assert_eq!(arguments["note"], format!("open {hostile} fast"));
    }
}

/// [O2] Before any call: what is missing or wrong is named, and what was left out has its default.
#[test]
fn arguments_are_checked_against_the_declared_parameters() {
    let parameters = open_app().parameters;
    let check = |arguments: Value| {
        let checked = parameters.check(arguments.to_string().as_bytes());
        checked.map(|text| serde_json::from_slice::<Value>(&text).expect("JSON")).map_err(|failure| failure.class)
    };
    let full = |app: &str| json!({"app": app, "taps": 1, "mode": "fast", "extra": null});
    let table = [
        (json!({"app": "Mail"}), Ok(full("Mail"))),
        (json!({"app": "Mail", "taps": null}), Ok(full("Mail"))),
        (json!({}), Err("missing-parameter")),
        (json!({"app": null}), Err("missing-parameter")),
        (json!({"app": 5}), Err("wrong-argument")),
        (json!({"app": "Mail", "taps": 1.5}), Err("wrong-argument")),
        (json!({"app": "Mail", "mode": "other"}), Err("wrong-argument")),
        (json!({"app": "Mail", "pap": 1}), Err("wrong-argument")),
        (json!([1]), Err("wrong-argument")),
    ];
    for (arguments, wanted) in table {
        assert_eq!(check(arguments.clone()), wanted.map_err(str::to_owned), "{arguments}");
    }
    assert_eq!(parameters.check(b"").expect_err("nothing").class, "missing-parameter");
    let wrong = json!({"app": 5, "mode": "other", "pap": 1}).to_string();
    assert_eq!(
        parameters.check(wrong.as_bytes()).expect_err("three faults").message,
        "Expected arguments that the skill declares, but found \"pap\", which is none of its parameters; app: 5, which is not \
         of type string; mode: \"other\", which is none of \"fast\", \"slow\"."
    );
}

#[test]
fn faults_of_a_skill_are_all_named_with_their_places() {
    let text = "
skill: open app
version: 1
kind: flow-template
other: 1
parameters:
  a-b: {type: string}
  n: {type: int}
  d: {type: string, default: 5}
  o: {type: object}
steps:
  - {tool: t, actionClass: danger, arguments: {x: '{{nobody}}'}}
  - {tool: t, actionClass: read, arguments: {x: 'a {{o}}'}}
  - {actionClass: read}
  - {tool: t}
";
    let wanted = [
        ("bad-name", "skill", 2),
        ("unknown-key", "other", 5),
        ("bad-name", "parameters.a-b", 7),
        ("unknown-word", "parameters.n.type", 8),
        ("wrong-type", "parameters.d.default", 9),
        ("bad-placeholder", "steps[0].arguments.x", 12),
        ("unknown-action-class", "steps[0].actionClass", 12),
        ("bad-placeholder", "steps[1].arguments.x", 13),
        ("missing-field", "steps[2].tool", 14),
        ("missing-field", "steps[3].actionClass", 15),
    ];
    let mut found = findings(text);
    found.sort_by_key(|(_, path, line)| (*line, path.clone()));
    let mut wanted: Vec<_> = wanted.map(|(code, path, line)| (code, path.to_owned(), line)).into();
    wanted.sort_by_key(|(_, path, line)| (*line, path.clone()));
    assert_eq!(found, wanted);
}

/// [O2] One fault does not hide another, and each is shown where it stands: in the text that holds the placeholder.
#[test]
fn one_fault_does_not_hide_another() {
    let text = "
skill: a
version: 1
kind: flow-template
parameters:
  n: {type: int, required: maybe, colour: red, enum: []}
steps:
  - {id: a, tool: t, actionClass: read, failurePolicy: Never, maxAttempts: 0, arguments: {x: '{{o}}', y: ['{{p']}}
  - {id: a, tool: t, actionClass: read}
";
    let wanted = [
        ("unknown-key", "parameters.n.colour", (6, 35)),
        ("unknown-word", "parameters.n.type", (6, 13)),
        ("wrong-type", "parameters.n.enum", (6, 54)),
        ("wrong-type", "parameters.n.required", (6, 28)),
        ("bad-placeholder", "steps[0].arguments.x", (8, 94)),
        ("bad-placeholder", "steps[0].arguments.y[0]", (8, 107)),
        ("unknown-word", "steps[0].failurePolicy", (8, 56)),
        ("wrong-type", "steps[0].maxAttempts", (8, 76)),
        ("doubled-step", "steps[1].id", (9, 10)),
    ];
    let found = load_skill(text, &Environment::default()).findings;
    let mut found: Vec<_> = found.iter().map(|f| (f.code, f.path.as_str(), (f.spot.line, f.spot.column))).collect();
    found.sort_by_key(|(_, path, (line, _))| (*line, *path));
    let mut wanted = wanted.to_vec();
    wanted.sort_by_key(|(_, path, (line, _))| (*line, *path));
    assert_eq!(found, wanted);
    let calls = |calls: &str| findings(&format!("skill: a\nversion: 1\nkind: flow-template\nsteps: {calls}\n"));
    assert_eq!(calls("[]"), [("no-steps", "steps".to_owned(), 4)]);
    let many = format!("[{}]", vec!["{tool: t, actionClass: read}"; CALLS_MAX + 1].join(", "));
    assert_eq!(calls(&many), [("too-large", "steps".to_owned(), 4)]);
    assert_eq!(calls("{}"), [("wrong-type", "steps".to_owned(), 4)]);
}

/// [O2] Another kind can be kept, whatever it holds, but there is no plan for it.
#[test]
fn another_kind_is_kept_and_not_run() {
    let text = "skill: swipe\nversion: '2'\nkind: learned-policy\nweights: [1, 2]\n";
    let loaded = load_skill(text, &Environment::default());
    let skill = loaded.skill.expect("kept");
    assert!(skill.plan("r", &loaded.hash, &Environment::default()).is_none());
    let again = stored_skill(&loaded.canonical, &Environment::default()).expect("read back");
    assert_eq!((again.kind.as_str(), again.version.as_str()), ("learned-policy", "2"));
}

/// [O2] [D5] The hash does not depend on form, and a stored skill is the same skill.
#[test]
fn the_hash_is_of_the_content() {
    let loaded = load_skill(OPEN_APP, &Environment::default());
    let json: Value = serde_json::from_slice(&loaded.canonical).expect("JSON");
    let again = load_skill(&json.to_string(), &Environment::default());
    assert_eq!(again.hash, loaded.hash);
    let stored = stored_skill(&loaded.canonical, &Environment::default()).expect("read back");
    assert_eq!((stored.parameters.clone(), stored.call_count()), (open_app().parameters, 2));
}
