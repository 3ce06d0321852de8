//! Reading, canonical form, and the plan.

use super::*;
use crate::condition::{View, truthy};
use serde_json::json;
use std::time::Instant;

/// S1's example, exactly as printed there.
pub(super) const S1_EXAMPLE: &str = r#"workflow: repository-assessment
version: 2.1.0
input: schemas/assessment-input.json
output: schemas/assessment-report.json
steps:
  - id: classify
    kind: Agent
    agent: triage-agent
    failurePolicy: Retry
    maxAttempts: 2
  - id: retrieve
    kind: Tool
    tool: knowledge-search
    actionClass: read
  - id: analyse
    kind: Agent
    agent: repository-assessor
    failurePolicy: Escalate
    timeoutMinutes: 45
  - id: confident
    kind: Condition
    expression: "{ \">=\": [ { \"var\": \"analyse.confidence\" }, 0.8 ] }"
  - id: review
    kind: Human
    actionClass: shared-write
  - id: propose
    kind: Agent
    agent: change-proposer
    actionClass: shared-write
    compensation: retract-proposal
edges:
  - { from: classify, to: retrieve }
  - { from: retrieve, to: analyse }
  - { from: analyse, to: confident }
  - { from: confident, to: propose, guard: "true" }
  - { from: confident, to: review, guard: "false" }
  - { from: review, to: propose }
"#;

pub(super) fn findings(text: &str, mode: Mode) -> Vec<String> {
    load(text, mode, &Environment::default()).findings.iter().map(ToString::to_string).collect()
}

pub(super) fn codes(text: &str, mode: Mode) -> Vec<(&'static str, u32)> {
    load(text, mode, &Environment::default()).findings.iter().map(|finding| (finding.code, finding.spot.line)).collect()
}

fn plan_of(text: &str) -> Plan {
    let loaded = load(text, Mode::Draft, &Environment::default());
    loaded.plan.unwrap_or_else(|| panic!("{:#?}", loaded.findings))
}

fn ids(plan: &Plan, steps: &[StepIx]) -> Vec<String> {
    steps.iter().map(|ix| plan.step(*ix).id.clone()).collect()
}

struct Data(Value);
impl View for Data {
    fn root(&self, name: &str) -> Option<Value> {
        self.0.get(name).cloned()
    }
}

/// [D4] S1's example, as printed: a draft with warnings, and refused with the same list as errors when published.
#[test]
fn the_printed_example_is_a_draft_and_no_publication() {
    let wanted = [
        ("unknown-schema", 3),
        ("unknown-schema", 4),
        ("undeclared-action-class", 7),
        ("undeclared-failure-policy", 12),
        ("undeclared-action-class", 16),
        ("undeclared-failure-policy", 24),
        ("undeclared-failure-policy", 27),
        ("undeclared-compensation", 30),
    ];
    let draft = load(S1_EXAMPLE, Mode::Draft, &Environment::default());
    let publish = load(S1_EXAMPLE, Mode::Publish, &Environment::default());
    let of = |loaded: &Loaded| loaded.findings.iter().map(|f| (f.code, f.spot.line)).collect::<Vec<_>>();
    assert_eq!(of(&draft), wanted);
    assert_eq!(of(&publish), wanted);
    assert!(draft.findings.iter().all(|finding| finding.severity == Severity::Warning));
    assert!(publish.findings.iter().all(|finding| finding.severity == Severity::Error));
    assert!(publish.plan.is_none());
    assert_eq!(draft.graph_hash, publish.graph_hash);
    assert_eq!(
        (draft.definition_id.as_str(), draft.version.as_str(), draft.step_count),
        ("repository-assessment", "2.1.0", 6)
    );
    let plan = draft.plan.unwrap();
    assert!(plan.draft);
    assert_eq!(ids(&plan, &plan.entries), ["classify"]);
    assert_eq!(ids(&plan, &plan.terminals), ["propose"]);
    let step = |id: &str| plan.step(plan.by_id[id]);
    let undo = step("propose").compensation.unwrap();
    assert_eq!(plan.step(undo).kind.queue().as_deref(), Some("tool:retract-proposal"));
    assert_eq!(
        (step("classify").action_class.as_str(), step("classify").failure_policy),
        ("read", FailurePolicy::Retry)
    );
    assert_eq!((step("retrieve").failure_policy, step("analyse").timeout_ms), (FailurePolicy::Fail, Some(45 * 60_000)));
    assert_eq!((step("retrieve").timeout_ms, step("review").timeout_ms), (Some(3_600_000), None));
    let StepKind::Condition { expression } = &step("confident").kind else { panic!("no condition") };
    for (confidence, wanted) in [(json!(0.8), true), (json!(0.79), false), (json!(null), false)] {
        let value = expression.evaluate(&Data(json!({"analyse": {"confidence": confidence}}))).unwrap();
        assert_eq!(truthy(&value), wanted);
    }
}

/// [D4] With everything declared the same workflow publishes without a finding.
#[test]
fn a_completed_definition_publishes() {
    let text = S1_EXAMPLE
        .replace("    failurePolicy: Retry\n", "    failurePolicy: Retry\n    actionClass: read\n")
        .replace("    tool: knowledge-search\n", "    tool: knowledge-search\n    failurePolicy: Fail\n")
        .replace("    failurePolicy: Escalate\n", "    failurePolicy: Escalate\n    actionClass: read\n")
        .replace("    kind: Human\n", "    kind: Human\n    failurePolicy: Fail\n")
        .replace("    agent: change-proposer\n", "    agent: change-proposer\n    failurePolicy: Compensate\n")
        .replace("edges:\n", "  - id: retract-proposal\n    kind: Compensation\n    tool: retract\n    actionClass: shared-write\nedges:\n");
    let schema = r#"{"type":"object"}"#.to_owned();
    let env = Environment {
        schemas: ["schemas/assessment-input.json", "schemas/assessment-report.json"]
            .map(|name| (name.to_owned(), schema.clone()))
            .into(),
        ..Environment::default()
    };
    let loaded = load(&text, Mode::Publish, &env);
    assert_eq!(loaded.findings, []);
    let stored =
        compile_stored(&loaded.canonical, "repository-assessment@2.1.0", false, &Environment::default()).unwrap();
    let plan = loaded.plan.unwrap();
    assert_eq!(
        (stored.graph_hash.as_str(), stored.release_id.as_str()),
        (loaded.graph_hash.as_str(), "repository-assessment@2.1.0")
    );
    assert_eq!(format!("{:?}", stored.steps), format!("{:?}", plan.steps));
    assert_eq!(format!("{:?}", stored.edges), format!("{:?}", plan.edges));
}

/// [D5] The hash does not see key order, comments, spacing, YAML or JSON, an expression as text or native.
#[test]
fn hash_is_of_the_meaning() {
    let hash = |text: &str| {
        let loaded = load(text, Mode::Draft, &Environment::default());
        assert_eq!(loaded.graph_hash.len(), 64, "{:?}", loaded.findings);
        loaded.graph_hash
    };
    let first = hash(S1_EXAMPLE);
    let same = [
        S1_EXAMPLE.replace("edges:", "# a comment\n\nedges:"),
        S1_EXAMPLE.replace(
            r#""{ \">=\": [ { \"var\": \"analyse.confidence\" }, 0.8 ] }""#,
            "{ \">=\": [ {var: analyse.confidence}, 0.80 ] } # native",
        ),
        S1_EXAMPLE.replace("  - id: classify\n    kind: Agent\n", "  - kind: Agent\n    id: classify\n"),
        S1_EXAMPLE.replace("guard: \"true\"", "guard: true, isLoopBack: false"),
        String::from_utf8(load(S1_EXAMPLE, Mode::Draft, &Environment::default()).canonical).unwrap(),
        serde_json::to_string_pretty(
            &serde_json::from_slice::<Value>(&load(S1_EXAMPLE, Mode::Draft, &Environment::default()).canonical)
                .unwrap(),
        )
        .unwrap(),
    ];
    for text in same {
        assert_eq!(hash(&text), first, "{text}");
    }
    let other = [
        S1_EXAMPLE.replace("0.8", "0.81"),
        S1_EXAMPLE.replace("2.1.0", "2.1.1"),
        S1_EXAMPLE.replace("    timeoutMinutes: 45\n", ""),
        S1_EXAMPLE.replace("    maxAttempts: 2\n", "    maxAttempts: 3\n"),
        S1_EXAMPLE.replace("  - { from: review, to: propose }\n", ""),
    ];
    for text in other {
        assert_ne!(hash(&text), first, "{text}");
    }
    // The bytes are part of what is stored: a change of them is a change of format.
    assert_eq!(hash("workflow: w\nversion: \"1\"\nsteps: [{id: a, kind: Timer, delay: 2s}]"), HASH_OF_ONE_TIMER);
}

const HASH_OF_ONE_TIMER: &str = "664bcd1dcbd89cefae82ede2cc1f2a7bd2889589669649fe5cd30c749f374ea5";

/// [D1] Everything the document could hold comes through.
#[test]
fn every_field_reaches_the_plan() {
    let plan = plan_of(
        r#"
workflow: all.fields
version: 1.10
input: builtin:any
output: builtin:object
variables: {limit: 3, on: no, list: [1, 2.5, null]}
maxLoopIterations: 7
deadlineMinutes: 0.5
steps:
  - {id: a, kind: Agent, name: First, agent: one, actionClass: read, failurePolicy: Retry, maxAttempts: 4, timeoutMinutes: 0.25,
     retry: {initial: 250ms, factor: 3, max: PT10S}, inputMapping: {q: {var: input.q}, fixed: x}}
  - {id: ask, kind: Human, ask: input, actionClass: read, failurePolicy: Escalate}
  - {id: nap, kind: Timer, delay: PT2S}
  - {id: till, kind: Timer, until: "2026-12-24T18:00:00Z"}
  - {id: wait, kind: Timer, delay: {var: a.seconds}}
  - {id: child, kind: SubWorkflow, workflow: other@2.0, compensation: undo}
  - {id: undo, kind: Compensation, agent: fixer, actionClass: sandbox}
  - {id: spread, kind: Fanout, items: {var: input.items}}
  - {id: each, kind: Tool, tool: echo, actionClass: read, failurePolicy: Route, inputMapping: {i: {var: index}, v: {var: item}}}
  - {id: meet, kind: Join, quorum: 2, losers: keep}
  - {id: ok, kind: Condition, expression: {"==": [{var: vars.limit}, 3]}}
edges:
  - {from: a, to: ask}
  - {from: ask, to: nap}
  - {from: nap, to: till}
  - {from: till, to: wait}
  - {from: wait, to: child}
  - {from: child, to: spread}
  - {from: spread, to: each}
  - {from: each, to: meet}
  - {from: meet, to: ok}
  - {from: ok, to: a, guard: "false", isLoopBack: true}
"#,
    );
    assert_eq!((plan.definition_id.as_str(), plan.version.as_str()), ("all.fields", "1.10"));
    assert_eq!(Value::Object(plan.variables.clone()), json!({"limit": 3, "on": "no", "list": [1, 2.5, null]}));
    assert_eq!((plan.deadline_ms, plan.max_loop_iterations), (Some(30_000), 7));
    assert_eq!((plan.input_schema_ref.as_str(), plan.output_schema_ref.as_str()), ("builtin:any", "builtin:object"));
    let step = |id: &str| plan.step(plan.by_id[id]);
    let a = step("a");
    assert_eq!((a.name.as_str(), a.max_attempts, a.timeout_ms), ("First", 4, Some(15_000)));
    assert_eq!(a.backoff, Backoff { initial_ms: 250, factor: 3.0, max_ms: 10_000 });
    let input = a.input.as_ref().unwrap().evaluate(&Data(json!({"input": {"q": 5}}))).unwrap();
    assert_eq!(input, json!({"q": 5, "fixed": "x"}));
    assert!(matches!(step("ask").kind, StepKind::Human { ask: Ask::Input }));
    assert!(matches!(step("nap").kind, StepKind::Timer { wait: Wait::For(2_000) }));
    assert!(matches!(step("till").kind, StepKind::Timer { wait: Wait::Until(1_798_135_200_000) }));
    assert!(matches!(step("wait").kind, StepKind::Timer { wait: Wait::Computed(_) }));
    let StepKind::SubWorkflow { definition_id, version } = &step("child").kind else { panic!("no sub-workflow") };
    assert_eq!((definition_id.as_str(), version.as_deref()), ("other", Some("2.0")));
    assert_eq!(step("child").compensation, Some(plan.by_id["undo"]));
    assert_eq!(step("undo").kind.queue().as_deref(), Some("agent:fixer"));
    let StepKind::Fanout(fanout) = &step("spread").kind else { panic!("no fanout") };
    assert_eq!((fanout.items.is_some(), fanout.join), (true, Some(plan.by_id["meet"])));
    let StepKind::Join(join) = &step("meet").kind else { panic!("no join") };
    assert_eq!((join.fanout, join.quorum, join.losers), (Some(plan.by_id["spread"]), Quorum::Count(2), Losers::Keep));
    assert_eq!(ids(&plan, &step("each").scope), ["spread"]);
    assert_eq!(ids(&plan, &step("meet").scope), Vec::<String>::new());
    assert_eq!(plan.loops.len(), 1);
    assert_eq!((plan.loops[0].head, plan.loops[0].max_iterations, plan.loops[0].body.len()), (plan.by_id["a"], 7, 10));
    assert_eq!(step("each").loops, [0]);
    assert_eq!(plan.edge(plan.loops[0].back).loop_back, Some(0));
    assert_eq!(ids(&plan, &plan.entries), ["a"]);
    assert_eq!(ids(&plan, &plan.terminals), ["ok"]);
}

/// [FR-158] [FR-085] Fanouts inside one another find their own Joins, wherever these stand in the text.
#[test]
fn nested_fanouts_find_their_joins() {
    let plan = plan_of(
        r#"
workflow: nested
version: "1"
steps:
  - {id: outer-join, kind: Join}
  - {id: inner-join, kind: Join}
  - {id: work, kind: Timer, delay: 0}
  - {id: inner, kind: Fanout, items: {var: item}}
  - {id: outer, kind: Fanout, items: {var: input}}
  - {id: apart, kind: Fanout}
  - {id: x, kind: Timer, delay: 0}
  - {id: y, kind: Timer, delay: 0}
  - {id: last, kind: Join, quorum: any}
edges:
  - {from: outer, to: inner}
  - {from: inner, to: work}
  - {from: work, to: inner-join}
  - {from: inner-join, to: outer-join}
  - {from: outer-join, to: apart}
  - {from: apart, to: x}
  - {from: apart, to: y}
  - {from: x, to: last}
  - {from: y, to: last}
"#,
    );
    let join_of = |id: &str| match &plan.step(plan.by_id[id]).kind {
        StepKind::Fanout(fanout) => fanout.join.map(|join| plan.step(join).id.as_str()),
        _ => None,
    };
    assert_eq!(
        (join_of("outer"), join_of("inner"), join_of("apart")),
        (Some("outer-join"), Some("inner-join"), Some("last"))
    );
    let scope = |id: &str| ids(&plan, &plan.step(plan.by_id[id]).scope);
    assert_eq!(scope("work"), ["outer", "inner"]);
    assert_eq!(scope("inner-join"), ["outer"]);
    assert_eq!(scope("outer-join"), Vec::<String>::new());
    assert_eq!(scope("y"), ["apart"]);
}

/// [FR-154] Booleans are those of YAML 1.2; `on`, `no`, `yes` and `010` are text, and a null is no id.
#[test]
fn words_stay_words() {
    let text = |id: &str| {
        format!("workflow: w\nversion: 1\nvariables: {{v: {id}}}\nsteps:\n  - {{id: {id}, kind: Timer, delay: 1}}\n")
    };
    for id in ["on", "no", "y", "off", "Yes", "010", "1_000", "'null'", "\"~\"", "'7'"] {
        let loaded = load(&text(id), Mode::Draft, &Environment::default());
        let plain = id.trim_matches(['\'', '"']);
        let canonical = String::from_utf8(loaded.canonical).unwrap();
        assert!(canonical.contains(&format!(r#""v":"{plain}""#)), "{canonical}");
        if plain != "~" {
            assert_eq!(loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.findings)).steps[0].id, plain);
        }
    }
    for id in ["null", "~", "", "''", "true", "7", "[a]", "{a: b}"] {
        assert!(
            codes(&text(id), Mode::Draft).contains(&("wrong-type", 5)),
            "{id}: {:?}",
            findings(&text(id), Mode::Draft)
        );
    }
    for id in ["v1.2", "a b", "ä", &"x".repeat(129)] {
        assert!(codes(&text(id), Mode::Draft).contains(&("bad-name", 5)), "{id}");
    }
    for id in ["input", "vars", "item", "index"] {
        assert!(codes(&text(id), Mode::Draft).contains(&("reserved-id", 5)), "{id}");
    }
}

/// [D1] [FR-074] Documents made to blow up are refused at once.
#[test]
fn bombs_are_refused_at_once() {
    let mut laughs = String::from("workflow: w\nx0: &x0 [lol]\n");
    for level in 1..=9 {
        let aliases = vec![format!("*x{}", level - 1); 9].join(",");
        laughs.push_str(&format!("x{level}: &x{level} [{aliases}]\n"));
    }
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(1_000_000), vec!["*a"; 1_000].join(","));
    let nested_anchors: String =
        (0..60).map(|n| format!("{}- &n{n}\n", " ".repeat(n))).collect::<String>() + &" ".repeat(60) + "- x";
    let cases = [
        (laughs, "too-large"),
        (long, "too-large"),
        ("a: &a [*a]".to_owned(), "alias"),
        ("[".repeat(10_000), "too-deep"),
        (format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)), "too-deep"),
        ("{a: ".repeat(10_000), "too-deep"),
        ("- ".repeat(10_000), "too-deep"),
        (format!("a: {}", "[1,".repeat(200_000)), "too-deep"),
        (format!("a: [{}]", "1,".repeat(60_000)), "too-large"),
        ("x".repeat(2_000_000), "too-large"),
    ];
    for (text, wanted) in cases {
        let started = Instant::now();
        let found = codes(&text, Mode::Draft);
        assert!(found.len() == 1 && found[0].0 == wanted, "{}: {found:?}", &text[..text.len().min(40)]);
        assert!(started.elapsed().as_millis() < 2_000, "{} took {:?}", &text[..40], started.elapsed());
    }
    assert!(!findings(&nested_anchors, Mode::Draft).is_empty());
}

/// [D1] [FR-093] What YAML lets pass and nobody means is refused, with its place.
#[test]
fn surprises_of_yaml_are_refused() {
    let cases = [
        ("", ("syntax", 0)),
        ("# nothing\n", ("syntax", 0)),
        ("a: b: c", ("syntax", 1)),
        ("workflow: 'x", ("syntax", 1)),
        ("workflow: w\n---\nworkflow: x\n", ("syntax", 2)),
        ("workflow: w\nworkflow: x\n", ("doubled-key", 2)),
        ("base: &b {x: 1}\nuse:\n  <<: *b\n", ("merge-key", 3)),
        ("workflow: !foo x\n", ("tag", 1)),
        ("workflow: !!python/object:os.system x\n", ("tag", 1)),
        ("? [a]\n: b\n", ("syntax", 1)),
        ("~: b\n", ("syntax", 1)),
        ("variables: {n: 9007199254740993}\n", ("number-range", 1)),
        ("variables: {n: -9007199254740993.0}\n", ("number-range", 1)),
        ("variables: {n: .nan}\n", ("number-range", 1)),
        ("variables: {n: 1e400}\n", ("number-range", 1)),
        ("variables: {n: 0xFFFFFFFFFFFFFFFFFF}\n", ("number-range", 1)),
        ("a: *nothing\n", ("syntax", 1)),
        ("[1, 2]", ("wrong-type", 1)),
        ("just text", ("wrong-type", 1)),
    ];
    for (text, wanted) in cases {
        let found = codes(text, Mode::Draft);
        assert!(found.contains(&wanted), "{text}: {:?}", findings(text, Mode::Draft));
    }
    let doubled =
        findings("workflow: w\nsteps:\n  - id: a\n    kind: Timer\n    delay: 1\n    delay: 2\n", Mode::Draft);
    assert!(
        doubled.iter().any(|line| line.contains("6:5 error doubled-key") && line.contains("line 5")),
        "{doubled:?}"
    );
    let inside =
        "workflow: w\nversion: 1\nsteps: [{id: a, kind: Condition, expression: '{\"==\": [1, 1], \"==\": [2, 2]}'}]";
    assert!(codes(inside, Mode::Draft).contains(&("doubled-key", 3)));
}

/// JSON is the same model, with what JSON has and YAML has not.
#[test]
fn json_is_read_as_well() {
    let text = "{\n\t\"workflow\": \"w\", \"version\": \"1\",\n\t\"variables\": {\"t\": \"\\ud83d\\ude00\\/\\u0085\", \"n\": 1E2},\n\t\"steps\": [{\"id\": \"a\", \"kind\": \"Timer\", \"delay\": 0.5}]\n}";
    let loaded = load(text, Mode::Draft, &Environment::default());
    let plan = loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.findings));
    assert_eq!(Value::Object(plan.variables), json!({"t": "😀/\u{85}", "n": 100}));
    let stored = compile_stored(&loaded.canonical, "r", true, &Environment::default()).unwrap();
    assert_eq!(stored.graph_hash, loaded.graph_hash);
}

/// [FR-070] What is stored and no plan gives findings, never a panic.
#[test]
fn poisoned_releases_are_refused() {
    let cases: [&[u8]; 9] = [
        b"",
        b"\xff",
        b"null",
        b"{}",
        br#"{"workflow":"w","version":"1","steps":[null]}"#,
        br#"{"workflow":"w","version":"1","steps":[{"id":"a","kind":"Nothing"}]}"#,
        br#"{"workflow":"w","version":"1","steps":[{"id":"a","kind":"Timer"}]}"#,
        br#"{"workflow":"w","version":"1","steps":[{"id":"a","kind":"Timer","delay":1}],"edges":[{"from":"a","to":"b"}]}"#,
        br#"{"workflow":"w","version":"1","steps":[{"id":"a","kind":"Condition","expression":{"=>":1}}]}"#,
    ];
    for stored in cases {
        let findings = compile_stored(stored, "r", false, &Environment::default()).unwrap_err();
        assert!(findings.iter().any(Finding::is_error), "{}", String::from_utf8_lossy(stored));
    }
    assert!(compile_stored(&[b'['; 100_000], "r", false, &Environment::default()).is_err());
}

/// [FR-208] Diamonds are no cycles, however many share their tails; 2,000 steps are judged quickly.
#[test]
fn large_graphs_are_judged_quickly() {
    let mut diamonds = String::from("workflow: w\nversion: 1\nsteps:\n");
    let mut edges = String::from("edges:\n");
    for level in 0..10 {
        for side in ["top", "left", "right"] {
            diamonds.push_str(&format!("  - {{id: {side}-{level}, kind: Timer, delay: 1}}\n"));
        }
        edges.push_str(&format!(
            "  - {{from: top-{level}, to: left-{level}}}\n  - {{from: top-{level}, to: right-{level}}}\n"
        ));
        if level > 0 {
            let before = level - 1;
            edges.push_str(&format!(
                "  - {{from: left-{before}, to: top-{level}}}\n  - {{from: right-{before}, to: top-{level}}}\n"
            ));
        }
    }
    let started = Instant::now();
    assert_eq!(codes(&format!("{diamonds}{edges}"), Mode::Draft), [("undeclared-schema", 0), ("undeclared-schema", 0)]);
    assert!(started.elapsed().as_millis() < 1_000);

    let mut chain = String::from("workflow: w\nversion: 1\nsteps:\n");
    let mut edges = String::from("edges:\n");
    for n in 0..2_000 {
        let reads = if n == 0 { "{var: input.x}".to_owned() } else { format!("{{var: s{}}}", n / 2) };
        chain.push_str(&format!("  - {{id: s{n}, kind: Condition, expression: {reads}}}\n"));
        if n > 0 {
            edges.push_str(&format!("  - {{from: s{}, to: s{n}}}\n", n - 1));
        }
    }
    let started = Instant::now();
    let loaded = load(&format!("{chain}{edges}"), Mode::Draft, &Environment::default());
    assert_eq!(loaded.plan.unwrap().steps.len(), 2_000);
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

/// The worst that fits the limits, still judged in bounded time: all loop-backs, all edges, an expression everywhere.
#[test]
fn dense_graphs_are_judged_in_bounded_time() {
    let mut steps = String::from("workflow: w\nversion: 1\nsteps:\n");
    let mut edges = String::from("edges:\n");
    for n in 0..2_000usize {
        let kind = if n % 3 == 1 {
            "kind: Fanout".to_owned()
        } else {
            format!("kind: Condition, expression: {{var: s{}}}", n / 2)
        };
        steps.push_str(&format!("  - {{id: s{n}, {kind}}}\n"));
        for back in 1..=4usize {
            if n >= back {
                edges.push_str(&format!("  - {{from: s{}, to: s{n}}}\n", n - back));
            }
        }
        if n % 8 == 0 {
            edges.push_str(&format!("  - {{from: s{n}, to: s0, isLoopBack: true, guard: {{var: s{n}.x{n}}}}}\n"));
        }
    }
    let started = Instant::now();
    let found = codes(&format!("{steps}{edges}"), Mode::Publish);
    assert!(
        found.iter().any(|(code, _)| *code == "branches-meet") && found.len() == FINDINGS_MAX + 1,
        "{}",
        found.len()
    );
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
    let cyclic: String =
        (0..1_500usize).map(|n| format!("  - {{from: s{n}, to: s{}}}\n", (n * 7 + 3) % 2_000)).collect();
    let started = Instant::now();
    let found = findings(&format!("{steps}{edges}{cyclic}"), Mode::Publish);
    assert!(found.iter().any(|finding| finding.contains(" cycle ")), "{:?}", found.first());
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
}
