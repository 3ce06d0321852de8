//! The pinned meaning, as tables.

use super::*;
use serde_json::{Value, json};

struct Data(Value);

impl View for Data {
    fn root(&self, name: &str) -> Option<Value> {
        self.0.get(name).cloned()
    }
}

fn eval(rule: Value, data: Value) -> Result<Value, String> {
    let expression = Expression::compile(&rule).map_err(|error| format!("refused: {error}"))?;
    expression.evaluate(&Data(data)).map_err(|error| format!("failed: {error}"))
}

fn check(cases: Vec<(Value, Value, Value)>) {
    for (rule, data, wanted) in cases {
        assert_eq!(eval(rule.clone(), data.clone()), Ok(wanted), "{rule} on {data}");
    }
}

fn refused(rule: Value) -> String {
    match Expression::compile(&rule) {
        Ok(_) => panic!("{rule} was taken"),
        Err(error) => error.to_string(),
    }
}

fn failed(rule: Value, data: Value) -> String {
    match eval(rule.clone(), data.clone()) {
        Err(message) if message.starts_with("failed: ") => message,
        other => panic!("{rule} on {data} gave {other:?}"),
    }
}

/// [R4] The public JsonLogic table holds without exception: 275 of 275, none refused.
#[test]
fn the_public_table_holds() {
    let table: Vec<Value> = serde_json::from_str(include_str!("testdata/public-table.json")).unwrap();
    let cases: Vec<&Vec<Value>> = table.iter().filter_map(Value::as_array).collect();
    assert_eq!(cases.len(), 275);
    let mut by_expression = 0;
    for case in cases {
        let [rule, data, wanted] = case.as_slice() else { panic!("a case has three parts: {case:?}") };
        let checked = guard::Guard::check_on_any_data(rule).unwrap_or_else(|error| panic!("{rule}: {error}"));
        assert_eq!(evaluate::apply(&checked, data).as_ref(), Ok(wanted), "{rule} on {data}");
        // The same by the road of the engine, where the rule can take it: constant paths, named roots.
        if let Ok(expression) = Expression::compile(rule)
            && (data.is_object() || expression.roots().is_empty())
        {
            assert_eq!(expression.evaluate(&Data(data.clone())).as_ref(), Ok(wanted), "{rule} on {data}");
            by_expression += 1;
        }
    }
    assert!(by_expression > 240, "only {by_expression} cases took the road of the engine");
}

/// [R4] [FR-087] What is not there is in no range; the other values are compared as the evaluator has it, and that is pinned.
#[test]
fn range_test_of_odd_values_is_pinned() {
    let rule = || json!({"<=": [0, {"var": "a.score"}, 1]});
    check(vec![
        (rule(), json!({"a": {"score": null}}), json!(false)),
        (rule(), json!({"a": {}}), json!(false)),
        (rule(), json!({}), json!(false)),
        (rule(), json!({"a": {"score": 0}}), json!(true)),
        (rule(), json!({"a": {"score": "0"}}), json!(true)),
        (rule(), json!({"a": {"score": [0]}}), json!(true)),
        (rule(), json!({"a": {"score": true}}), json!(true)),
        (rule(), json!({"a": {"score": "x"}}), json!(false)),
        (rule(), json!({"a": {"score": {}}}), json!(false)),
        (rule(), json!({"a": {"score": 1.5}}), json!(false)),
    ]);
    for operator in ["<", "<=", ">", ">="] {
        for data in [json!({"a": {"score": null}}), json!({})] {
            check(vec![
                (json!({operator: [{"var": "a.score"}, 1]}), data.clone(), json!(false)),
                (json!({operator: [-1, {"var": "a.score"}]}), data.clone(), json!(false)),
                (json!({operator: [null, 1]}), data.clone(), json!(false)),
                (json!({operator: [{"var": ["a.score", 0]}, 0]}), data, json!(operator.ends_with('='))),
            ]);
        }
    }
    let each = json!({"filter": [{"var": "input.l"}, {"<": [{"var": "n"}, 5]}]});
    check(vec![(each, json!({"input": {"l": [{"n": 1}, {}, {"n": null}]}}), json!([{"n": 1}]))]);
}

/// [FR-104] `missing` counts null and empty text as missing, as the reference does.
#[test]
fn missing_counts_null_and_empty_text() {
    let rule = || json!({"if": [{"missing": ["input.note"]}, "A", "B"]});
    check(vec![
        (rule(), json!({"input": {"note": ""}}), json!("A")),
        (rule(), json!({"input": {"note": null}}), json!("A")),
        (rule(), json!({"input": {}}), json!("A")),
        (rule(), json!({}), json!("A")),
        (rule(), json!({"input": {"note": "x"}}), json!("B")),
        (rule(), json!({"input": {"note": 0}}), json!("B")),
        (json!({"missing": ["input.a", "input.b"]}), json!({"input": {"b": 1}}), json!(["input.a"])),
        (json!({"missing_some": [1, ["input.a", "input.b"]]}), json!({"input": {"b": 1}}), json!([])),
        (json!({"missing_some": [2, ["input.a", "input.b"]]}), json!({"input": {"b": 1}}), json!(["input.a"])),
    ]);
    assert!(Expression::compile(&rule()).unwrap().uses("missing"));
    assert_eq!(Expression::compile(&rule()).unwrap().roots(), ["input"]);
}

/// [FR-106] On null the list operators have an answer; on what is no list they fail with a reason and never panic.
#[test]
fn list_operators_on_null_and_on_numbers() {
    let is_vip = || json!({"==": [{"var": ""}, "vip"]});
    for data in [json!({"a": {"tags": null}}), json!({"a": {}}), json!({})] {
        check(vec![
            (json!({"in": ["vip", {"var": "a.tags"}]}), data.clone(), json!(false)),
            (json!({"some": [{"var": "a.tags"}, is_vip()]}), data.clone(), json!(false)),
            (json!({"all": [{"var": "a.tags"}, is_vip()]}), data.clone(), json!(false)),
            (json!({"none": [{"var": "a.tags"}, is_vip()]}), data, json!(true)),
        ]);
    }
    for operator in ["some", "all", "none"] {
        let message = failed(json!({operator: [{"var": "a.tags"}, is_vip()]}), json!({"a": {"tags": 7}}));
        assert!(message.contains("must evaluate to an array"), "{message}");
    }
    let message = failed(json!({"in": ["vip", {"var": "a.tags"}]}), json!({"a": {"tags": 7}}));
    assert!(message.contains("must be an array or a string"), "{message}");
}

/// [FR-108] An evaluation that would cost too much is refused before it runs, and one in bounds is not.
#[test]
fn cost_is_bounded() {
    let nested = || json!({"map": [{"var": "input.list"}, {"map": [{"var": ""}, {"*": [{"var": ""}, 2]}]}]});
    let list = |outer: usize, inner: usize| json!({"input": {"list": vec![vec![1; inner]; outer]}});
    assert_eq!(eval(nested(), list(2, 2)), Ok(json!([[2, 2], [2, 2]])));
    assert!(eval(nested(), list(100, 20)).is_ok());
    let started = std::time::Instant::now();
    assert!(failed(nested(), list(2_000, 200)).contains("costs at most"));
    assert!(
        failed(json!({"map": [{"var": "input.list"}, 1]}), json!({"input": {"list": vec![0; 10_001]}}))
            .contains("elements")
    );
    assert!(
        eval(json!({"map": [{"var": "input.list"}, {"var": ""}]}), json!({"input": {"list": vec![0; 10_000]}})).is_ok()
    );
    assert!(started.elapsed().as_secs() < 20);
    // Text that doubles with each element, and text that grows by a large literal.
    assert!(
        refused(
            json!({"reduce": [{"var": "input.list"}, {"cat": [{"var": "accumulator"}, {"var": "accumulator"}]}, "x"]})
        )
        .contains("at most once")
    );
    let long = "x".repeat(20_000);
    let grows = json!({"reduce": [{"var": "input.list"}, {"cat": [{"var": "accumulator"}, long]}, ""]});
    assert!(failed(grows, json!({"input": {"list": vec![0; 10_000]}})).contains("costs at most"));
    let sum = json!({"reduce": [{"var": "input.list"}, {"+": [{"var": "accumulator"}, {"var": "current"}]}, 0]});
    assert_eq!(eval(sum, json!({"input": {"list": vec![2; 10_000]}})), Ok(json!(20_000)));
}

/// [FR-153] A dotted key is reached by the escape; what cannot be meant is refused, never a silent null.
#[test]
fn dotted_keys_have_an_escape() {
    let data = || json!({"probe": {"cpu.total": 0.5, "0": "zero", "back\\slash": 1}, "a-b": {"x": 2}});
    check(vec![
        (json!({"var": "probe.cpu\\.total"}), data(), json!(0.5)),
        (json!({">": [{"var": "probe.cpu\\.total"}, 0.4]}), data(), json!(true)),
        (json!({"var": "probe.0"}), data(), json!("zero")),
        (json!({"var": "probe.back\\\\slash"}), data(), json!(1)),
        (json!({"var": "a-b.x"}), data(), json!(2)),
        (json!({"var": ["probe.nothing", 9]}), data(), json!(9)),
    ]);
    for path in ["probe..x", ".probe", "probe.", "probe.x\\"] {
        refused(json!({"var": path}));
    }
}

/// [FR-164] Whole numbers beyond 2^53 are never compared as floats; they pass through untouched.
#[test]
fn great_numbers_are_not_compared() {
    assert!(
        refused(json!({"==": [{"var": "input.id"}, 9007199254740993u64]})).contains("compare such a number as text")
    );
    let rule = || json!({"==": [{"var": "input.id"}, {"var": "input.other"}]});
    for id in [
        json!(9007199254740992u64),
        json!(9007199254740993u64),
        json!(9007199254740993.0),
        json!(u64::MAX),
        json!(-1e200),
    ] {
        assert!(failed(rule(), json!({"input": {"id": id, "other": 1}})).contains("input.id"));
    }
    check(vec![
        (rule(), json!({"input": {"id": "9007199254740993", "other": "9007199254740993"}}), json!(true)),
        (rule(), json!({"input": {"id": "9007199254740993", "other": "9007199254740992"}}), json!(false)),
        (rule(), json!({"input": {"id": 9007199254740991u64, "other": 9007199254740991u64}}), json!(true)),
        (json!({"var": "input.id"}), json!({"input": {"id": 9007199254740993u64}}), json!(9007199254740993u64)),
        (
            json!({"if": [true, {"var": "input"}, 0]}),
            json!({"input": {"id": 9007199254740993u64}}),
            json!({"id": 9007199254740993u64}),
        ),
    ]);
    let any = json!({"some": [{"var": "input.list"}, {"==": [{"var": "id"}, 5]}]});
    assert!(failed(any, json!({"input": {"list": [{"id": 9007199254740993u64}]}})).contains("input.list"));
    assert!(
        failed(json!({"*": [{"var": "input.a"}, 9007199254740991u64]}), json!({"input": {"a": 1000}}))
            .contains("the result")
    );
}

/// [FR-165] Data stays data: it is compared by value and never parsed again.
#[test]
fn data_never_becomes_a_rule() {
    let long = "x".repeat(10_000);
    for lane in ["a-b", "a/b", "it's", "{{x}}", r#"{"var":"input.secret"}"#, long.as_str()] {
        check(vec![
            (json!({"==": [{"var": "input.lane"}, lane]}), json!({"input": {"lane": lane}}), json!(true)),
            (json!({"==": [{"var": "input.lane"}, "other"]}), json!({"input": {"lane": lane}}), json!(false)),
        ]);
    }
    let injected = || json!({"secret": "top", "input": {"items": [{"var": "secret"}], "rule": {"var": "secret"}}});
    check(vec![
        (json!({"some": [{"var": "input.items"}, {"==": [{"var": ""}, "top"]}]}), injected(), json!(false)),
        (json!({"all": [{"var": "input.items"}, {"==": [{"var": ""}, "top"]}]}), injected(), json!(false)),
        (json!({"none": [{"var": "input.items"}, {"==": [{"var": ""}, "top"]}]}), injected(), json!(true)),
        (json!({"if": [true, {"var": "input.rule"}]}), injected(), json!({"var": "secret"})),
        (json!({"map": [{"var": "input.items"}, {"var": ""}]}), injected(), json!([{"var": "secret"}])),
    ]);
}

/// [FR-203] Unary operators and lists of one, as the evaluator of this version has them.
#[test]
fn unary_operators_are_pinned() {
    let data = || json!({"a": 1});
    check(vec![
        (json!({"!": 0}), data(), json!(true)),
        (json!({"!": [0]}), data(), json!(true)),
        (json!({"!": [[0]]}), data(), json!(false)),
        (json!({"!!": [[]]}), data(), json!(false)),
        (json!({"!!": [[0]]}), data(), json!(true)),
        (json!({"var": ["a"]}), data(), json!(1)),
        (json!({"-": [3]}), data(), json!(-3)),
        (json!({"+": "2"}), data(), json!(2)),
    ]);
}

/// [FR-204] `all` sees falsy elements as they are.
#[test]
fn all_of_falsy_elements_is_pinned() {
    let rule = || json!({"all": [{"var": "input.t"}, {"!==": [{"var": ""}, ""]}]});
    let data = |t: Value| json!({"input": {"t": t}});
    check(vec![
        (rule(), data(json!([""])), json!(false)),
        (rule(), data(json!(["x"])), json!(true)),
        (rule(), data(json!([])), json!(false)),
        (rule(), data(json!([0])), json!(true)),
        (rule(), data(json!([null])), json!(true)),
    ]);
}

#[test]
fn where_the_evaluator_leaves_the_reference_the_guard_mends() {
    check(vec![
        // A null value takes the default, as an absent one does.
        (json!({"var": ["input.a", 7]}), json!({"input": {"a": null}}), json!(7)),
        (json!({"var": ["input.a", 7]}), json!({"input": {"a": false}}), json!(false)),
        (json!({"cat": ["a", {"var": "input.no"}, "b", null]}), json!({}), json!("ab")),
        (json!({"in": [{"var": "input.n"}, [1, 2]]}), json!({"input": {"n": 1.0}}), json!(true)),
        (json!({"in": [1.0, {"var": "input.l"}]}), json!({"input": {"l": [1]}}), json!(true)),
        (json!({"substr": [{"var": "input.t"}, -2]}), json!({"input": {"t": "abc"}}), json!("bc")),
        (json!({"substr": [{"var": "input.t"}, 1, 1]}), json!({"input": {"t": "äöü"}}), json!("ö")),
    ]);
    assert!(failed(json!({"substr": [{"var": "input.t"}, -2]}), json!({"input": {"t": "äöü"}})).contains("ASCII"));
    // A missing value cannot be added: an error, not a number.
    failed(json!({"+": [{"var": "input.no"}, 1]}), json!({}));
}

#[test]
fn refusals_say_what_and_where() {
    let deep = (0..40).fold(json!(true), |rule, _| json!({"!": [rule]}));
    let wide = json!({"+": vec![1; 600]});
    let multiplies = (0..28).fold(json!({"var": "input.l"}), |list, _| json!({"all": [list, true]}));
    let nested = (0..3).fold(json!({"var": ""}), |body, _| json!({"map": [{"var": "l"}, body]}));
    let cases = [
        (json!({}), "empty object"),
        (json!({"=>": [1, 2]}), "`=>`"),
        (json!({"eq": [1, 2]}), "`eq`"),
        (json!({"log": [1]}), "`log`"),
        (json!({"==": [1, 2], "!=": [1, 2]}), "`!=` and `==`"),
        (json!({"==": [1]}), "Expected 2 arguments"),
        (json!({"==": 1}), "list of arguments"),
        (json!({"in": [5, [{"var": "input.x"}]]}), "(at in[1][0])"),
        (json!({"var": {"cat": ["input", ".a"]}}), "constant path"),
        (json!({"var": ""}), "empty one"),
        (json!({"var": 1.5}), "found 1.5"),
        (json!({"var": ["input.a", {"var": "input.b"}]}), "plain value as the default"),
        (json!({"missing": [{"var": "input.a"}]}), "constant path"),
        (json!({"var": "input.t.-9223372036854775808"}), "index within"),
        (json!({"if": [true, 9007199254740992u64]}), "(at if[1])"),
        (json!(1e300), "within"),
        (deep, "32 levels"),
        (wide, "500 values"),
        (multiplies, "multiply"),
        (nested, "inside one another"),
    ];
    for (rule, wanted) in cases {
        let message = refused(rule.clone());
        assert!(message.contains(wanted), "{rule}: {message}");
    }
}

#[test]
fn roots_are_sorted_and_do_not_repeat() {
    let rule =
        json!({"and": [{"var": "b.x"}, {"var": "a.x"}, {"var": "b.y"}, {"map": [{"var": "vars.l"}, {"var": "x"}]}]});
    assert_eq!(Expression::compile(&rule).unwrap().roots(), ["a", "b", "vars"]);
    assert!(Expression::compile(&json!(true)).unwrap().roots().is_empty());
}

#[test]
fn templates_mix_literals_and_rules() {
    let template = json!({
        "claim": {"var": "claim"},
        "flag": {">": [{"var": "input.n"}, 3]},
        "fixed": {"a": 1, "list": [1, {"var": "index"}]},
        "empty": {},
    });
    let expression = Expression::compile_template(&template).unwrap();
    assert_eq!(expression.roots(), ["claim", "index", "input"]);
    assert_eq!(
        expression.evaluate(&Data(json!({"claim": {"v": 1}, "index": 4, "input": {"n": 9}}))),
        Ok(json!({"claim": {"v": 1}, "flag": true, "fixed": {"a": 1, "list": [1, 4]}, "empty": {}}))
    );
    assert_eq!(Expression::compile_template(&json!({"a": [1, "x"]})).unwrap().literal(), Some(&json!({"a": [1, "x"]})));
    let error = Expression::compile_template(&json!({"a": {"b": [0, {"=>": [1, 2]}]}})).unwrap_err();
    assert_eq!(error.path, "a.b[1].=>");
    Expression::compile_template(&json!({"a": {"==": [1]}})).unwrap_err();
}

#[test]
fn result_is_bounded() {
    let big = "x".repeat(600 * 1024);
    let template = Expression::compile_template(&json!({"a": {"var": "input"}, "b": {"var": "input"}})).unwrap();
    assert!(template.evaluate(&Data(json!({"input": big}))).unwrap_err().message.contains("bytes"));
    // A mapping that names one large value ten thousand times, and one of a thousand costly rules.
    let copies: Vec<Value> = (0..10_000).map(|_| json!({"var": "input"})).collect();
    let template = Expression::compile_template(&json!({ "copies": copies })).unwrap();
    assert!(template.evaluate(&Data(json!({"input": big}))).unwrap_err().message.contains("bytes"));
    let rules: Vec<Value> = (0..1_000).map(|_| json!({"some": [{"var": "input"}, {"==": [{"var": ""}, 1]}]})).collect();
    let template = Expression::compile_template(&Value::from(rules)).unwrap();
    let started = std::time::Instant::now();
    assert!(template.evaluate(&Data(json!({"input": vec![0; 9_000]}))).unwrap_err().message.contains("costs at most"));
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}
