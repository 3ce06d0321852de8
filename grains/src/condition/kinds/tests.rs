//! The built-in kinds as a table: facts and condition in, answer out.

use super::*;
use serde_json::json;

#[derive(Default)]
struct Known {
    now: i64,
    scene: Option<Value>,
    world: Option<Value>,
    ended: BTreeMap<&'static str, bool>,
}

impl Facts for Known {
    fn now(&self) -> Timestamp {
        Timestamp(self.now)
    }
    fn run_started(&self) -> Timestamp {
        Timestamp(0)
    }
    fn step_started(&self) -> Timestamp {
        Timestamp(1_000)
    }
    fn scene(&self) -> Option<Value> {
        self.scene.clone()
    }
    fn world(&self) -> Option<Value> {
        self.world.clone()
    }
    fn succeeded(&self, step: &str) -> Option<bool> {
        self.ended.get(step).copied()
    }
    fn evaluate(&self, rule: &Expression) -> Result<Value, String> {
        struct Roots<'a>(&'a Known);
        impl super::super::View for Roots<'_> {
            fn root(&self, name: &str) -> Option<Value> {
                match name {
                    "scene" => self.0.scene.clone(),
                    "world" => self.0.world.clone(),
                    _ => None,
                }
            }
        }
        rule.evaluate(&Roots(self)).map_err(|error| error.message)
    }
}

fn look(condition: Value, facts: &Known) -> Result<Verdict, String> {
    let mut parameters = condition.as_object().expect("an object").clone();
    let kind = parameters.remove("kind").expect("a kind");
    match ConditionKinds::default().condition(kind.as_str().expect("a name"), &parameters).expect("good parameters") {
        How::Here(condition) => condition.look(facts),
        other => panic!("{other:?}"),
    }
}

const YES: Result<Verdict, String> = Ok(Verdict::Satisfied);
const NO: Result<Verdict, String> = Ok(Verdict::NotYet { again_at: None });

/// [O3]
#[test]
fn the_scene_contains_a_text_wherever_it_stands() {
    let inbox = json!({"kind": "scene_contains_text", "text": "Inbox"});
    let table = [
        (None, NO),
        (Some(json!("Inbox (3)")), YES),
        (Some(json!("inbox")), NO),
        (Some(json!({"text": "Settings"})), NO),
        (Some(json!({"nodes": [{"label": "Menu"}, {"label": "Inbox"}]})), YES),
        (Some(json!({"Inbox": 1})), NO),
        (Some(json!(null)), NO),
    ];
    for (scene, answer) in table {
        let facts = Known { scene: scene.clone(), ..Known::default() };
        assert_eq!(look(inbox.clone(), &facts), answer, "{scene:?}");
    }
    let facts = Known { scene: Some(json!("INBOX")), ..Known::default() };
    assert_eq!(look(json!({"kind": "scene_contains_text", "text": "inbox", "ignoreCase": true}), &facts), YES);
}

/// [O3]
#[test]
fn a_world_variable_equals_exactly_or_is_not_satisfied() {
    let table = [
        (None, json!(80), NO),
        (Some(json!({})), json!(80), NO),
        (Some(json!({"battery": 80})), json!(80), YES),
        (Some(json!({"battery": 80.0})), json!(80), YES),
        (Some(json!({"battery": "80"})), json!(80), NO),
        (Some(json!({"battery": null})), json!(null), YES),
        (Some(json!({"other": 1})), json!(null), NO),
        (Some(json!({"battery": 9007199254740993_i64})), json!(9007199254740992_i64), NO),
    ];
    for (world, value, answer) in table {
        let facts = Known { world: world.clone(), ..Known::default() };
        let condition = json!({"kind": "world_variable_equals", "variable": "battery", "value": value});
        assert_eq!(look(condition, &facts), answer, "{world:?} {value}");
    }
}

/// [O3] It says when it is worth looking again, and is never early.
#[test]
fn time_has_elapsed_since_the_step_or_the_run_began() {
    let again = |at| Ok(Verdict::NotYet { again_at: Some(Timestamp(at)) });
    for (now, since, answer) in [
        (1_000, "step", again(31_000)),
        (30_999, "step", again(31_000)),
        (31_000, "step", YES),
        (30_000, "run", YES),
        (29_999, "run", again(30_000)),
    ] {
        let facts = Known { now, ..Known::default() };
        let condition = json!({"kind": "elapsed_seconds", "seconds": 30, "since": since});
        assert_eq!(look(condition, &facts), answer, "{now} {since}");
    }
}

/// [O3]
#[test]
fn only_a_success_is_a_success() {
    let facts = Known { ended: BTreeMap::from([("good", true), ("bad", false)]), ..Known::default() };
    for (step, answer) in [("good", YES), ("bad", NO), ("open", NO)] {
        assert_eq!(look(json!({"kind": "step_result_success", "step": step}), &facts), answer, "{step}");
    }
}

/// [O3]
#[test]
fn a_rule_reads_scene_and_world() {
    let rule = json!({"kind": "jsonlogic", "rule": {">": [{"var": "world.unread"}, 3]}});
    assert_eq!(look(rule.clone(), &Known::default()), NO, "no world state is not satisfied");
    let facts = Known { world: Some(json!({"unread": 4})), ..Known::default() };
    assert_eq!(look(rule, &facts), YES);
}

#[test]
fn wrong_parameters_are_all_named() {
    let table = [
        ("scene_contains_text", json!({}), vec!["text"]),
        ("scene_contains_text", json!({"text": 5, "txet": 1}), vec!["text", "txet"]),
        ("world_variable_equals", json!({"variable": ""}), vec!["value", "variable"]),
        ("elapsed_seconds", json!({"seconds": -1}), vec!["seconds"]),
        ("elapsed_seconds", json!({"seconds": "5", "since": "day"}), vec!["seconds", "since"]),
        ("step_result_success", json!({"id": "a"}), vec!["id", "step"]),
        ("jsonlogic", json!({"rule": {"nonsense": []}}), vec!["rule"]),
        ("jsonlogic", json!({}), vec!["rule"]),
    ];
    for (kind, parameters, wrong) in table {
        let parameters = parameters.as_object().expect("an object");
        let faults = ConditionKinds::default().condition(kind, parameters).expect_err(kind);
        let mut fields: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
        fields.sort_unstable();
        assert_eq!(fields, wrong, "{kind}: {faults:?}");
        assert!(faults.iter().all(|fault| fault.message.contains("xpected")), "{faults:?}");
    }
}

/// [O3]
#[test]
fn a_name_that_nobody_registered_is_unknown_and_a_served_one_is_served() {
    let kinds = ConditionKinds::default().serve("ocr_matches");
    assert!(matches!(kinds.condition("ocr_matches", &Map::new()), Ok(How::Served)));
    assert!(matches!(kinds.condition("ocr_matched", &Map::new()), Ok(How::Unknown)));
    assert!(kinds.names().contains(&"ocr_matches"));
}
