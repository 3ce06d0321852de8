//! Whatever the text is, a definition is judged: nothing panics, and what is accepted is consistent.

use grains::condition::{Expression, View};
use grains::definition::{Environment, Mode, Plan, StepIx, StepKind, compile_stored, load};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::HashSet;

const SEED: &str = r#"workflow: seed
version: 1
input: builtin:any
steps:
  - {id: a, kind: Tool, tool: x, actionClass: read, failurePolicy: Retry, retry: {initial: 1s, factor: 2, max: 1m}, compensation: u}
  - {id: u, kind: Compensation, tool: y, actionClass: read}
  - {id: c, kind: Condition, expression: "{\"==\": [{\"var\": \"a.ok\"}, true]}"}
  - {id: f, kind: Fanout, items: {var: input.items}}
  - {id: b, kind: Human, ask: input, actionClass: read, failurePolicy: Fail, inputMapping: {v: {var: item}, n: &n [1, 2]}}
  - {id: j, kind: Join, quorum: 1, losers: keep}
  - {id: t, kind: Timer, delay: PT2S}
edges:
  - {from: a, to: c}
  - {from: c, to: f, guard: "true"}
  - {from: f, to: b}
  - {from: b, to: j}
  - {from: c, to: t, guard: "false"}
  - {from: t, to: a, isLoopBack: true, guard: {">": [{var: a.n}, 3]}}
"#;

/// Words that mean something, put in anywhere.
const WORDS: [&str; 24] = [
    "null",
    "~",
    "*n",
    "&n",
    "<<:",
    "{",
    "}",
    "[",
    "]",
    ":",
    "- ",
    "\n",
    "\t",
    "\"",
    "'",
    "isLoopBack: true",
    "9007199254740993",
    "id: a",
    "kind: Join",
    "{var: b.x}",
    "\u{feff}",
    "!x",
    "|",
    "---",
];

fn mutated() -> impl Strategy<Value = String> {
    let change = (any::<prop::sample::Index>(), 0..12usize, prop::sample::select(WORDS.to_vec()));
    prop::collection::vec(change, 1..6).prop_map(|changes| {
        let mut text: Vec<char> = SEED.chars().collect();
        for (at, remove, insert) in changes {
            let at = at.index(text.len());
            let end = (at + remove).min(text.len());
            text.splice(at..end, insert.chars());
        }
        text.into_iter().collect()
    })
}

/// A document of timers and the edges given, each with its loop-back mark.
fn of_edges(steps: usize, edges: &[(usize, usize, bool)]) -> String {
    let mut text = String::from("workflow: w\nversion: 1\ninput: builtin:any\noutput: builtin:any\nsteps:\n");
    for step in 0..steps {
        text.push_str(&format!("  - {{id: s{step}, kind: Condition, expression: {{var: input.x}}}}\n"));
    }
    text.push_str("edges:\n");
    for (from, to, back) in edges {
        text.push_str(&format!("  - {{from: s{from}, to: s{to}, guard: \"true\", isLoopBack: {back}}}\n"));
    }
    text
}

fn has_cycle(steps: usize, edges: &[(usize, usize)]) -> bool {
    let mut left: HashSet<usize> = (0..steps).collect();
    while let Some(free) =
        left.iter().copied().find(|step| !edges.iter().any(|(from, to)| to == step && left.contains(from)))
    {
        left.remove(&free);
    }
    !left.is_empty()
}

fn consistent(plan: &Plan) {
    for (ix, step) in plan.steps.iter().enumerate() {
        let ix = StepIx(ix as u32);
        assert_eq!(plan.by_id[&step.id], ix);
        assert!(step.incoming.iter().all(|edge| plan.edge(*edge).to == ix));
        assert!(step.outgoing.iter().all(|edge| plan.edge(*edge).from == ix));
        assert!(step.loops.iter().all(|each| plan.loops[*each as usize].body.contains(&ix)));
        assert!(step.max_attempts >= 1);
        match &step.kind {
            StepKind::Fanout(fanout) => {
                if let Some(join) = fanout.join {
                    let StepKind::Join(found) = &plan.step(join).kind else { panic!("the Join of a Fanout is a Join") };
                    assert_eq!(found.fanout, Some(ix));
                    assert_eq!(plan.step(join).scope, step.scope);
                }
            }
            StepKind::Compensation { .. } => assert!(step.incoming.is_empty() && step.outgoing.is_empty()),
            _ => {}
        }
    }
    for (ix, each) in plan.loops.iter().enumerate() {
        let back = plan.edge(each.back);
        assert_eq!((back.to, back.loop_back), (each.head, Some(ix as u32)));
        assert!(each.body.contains(&back.from) && each.body.contains(&back.to));
        assert!(each.max_iterations >= 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// [D3] Broken text gives findings; unbroken text gives a plan that its stored form gives again.
    #[test]
    fn any_text_is_judged(text in mutated()) {
        let env = Environment::default();
        for mode in [Mode::Draft, Mode::Publish] {
            let loaded = load(&text, mode, &env);
            let errors = loaded.findings.iter().any(|finding| finding.is_error());
            prop_assert_eq!(loaded.plan.is_none(), errors, "{:?}", loaded.findings);
            prop_assert!(loaded.findings.iter().all(|finding| finding.message.starts_with("Expected ") && finding.code != "internal"));
            if let Some(plan) = loaded.plan {
                consistent(&plan);
                let stored = compile_stored(&loaded.canonical, "r", plan.draft, &env).expect("what was accepted can be stored");
                prop_assert_eq!(&stored.graph_hash, &loaded.graph_hash);
                prop_assert_eq!(format!("{:?}{:?}", stored.steps, stored.edges), format!("{:?}{:?}", plan.steps, plan.edges));
            }
        }
    }

    /// [D3] Exactly the graphs with a forward cycle are refused for one.
    #[test]
    fn cycles_are_found(steps in 1..12usize, ends in prop::collection::vec((0..12usize, 0..12usize), 0..20)) {
        let edges: HashSet<(usize, usize)> = ends.iter().map(|(from, to)| (from % steps, to % steps)).collect();
        let edges: Vec<(usize, usize)> = edges.into_iter().collect();
        let marked: Vec<(usize, usize, bool)> = edges.iter().map(|(from, to)| (*from, *to, false)).collect();
        let loaded = load(&of_edges(steps, &marked), Mode::Publish, &Environment::default());
        let told = loaded.findings.iter().any(|finding| finding.code == "cycle");
        prop_assert_eq!(told, has_cycle(steps, &edges));
    }

    /// [D3] A loop-back is accepted exactly if every way from an entry to its source passes its target.
    #[test]
    fn loop_backs_lead_back(steps in 1..9usize, ends in prop::collection::vec((0..9usize, 0..9usize), 0..14), from in 0..9usize, to in 0..9usize) {
        let (from, to) = (from % steps, to % steps);
        // Forward edges lead from the lower to the higher number: no cycle.
        let forward: HashSet<(usize, usize)> = ends
            .iter()
            .map(|(a, b)| (a % steps, b % steps))
            .filter(|(a, b)| a != b)
            .map(|(a, b)| (a.min(b), a.max(b)))
            .collect();
        let mut marked: Vec<(usize, usize, bool)> = forward.iter().map(|(a, b)| (*a, *b, false)).collect();
        marked.push((from, to, true));
        // Without the target, can the source still be reached?
        let mut open: Vec<usize> = (0..steps).filter(|step| *step != to && !forward.iter().any(|(_, b)| b == step)).collect();
        let mut seen = HashSet::new();
        while let Some(step) = open.pop() {
            if seen.insert(step) {
                open.extend(forward.iter().filter(|(a, b)| *a == step && *b != to).map(|(_, b)| *b));
            }
        }
        let leads_back = from == to || !seen.contains(&from);
        let loaded = load(&of_edges(steps, &marked), Mode::Publish, &Environment::default());
        let refused = loaded.findings.iter().any(|finding| finding.code == "loop-not-back");
        prop_assert_eq!(refused, !leads_back, "{:?}", loaded.findings);
    }

    /// [R4] Any rule on any data: refused, failed or evaluated, never a panic, and twice the same.
    #[test]
    fn any_rule_is_bounded(rule in rules(), data in values()) {
        if let Ok(expression) = Expression::compile(&rule) {
            let view = Roots(json!({"input": data}));
            prop_assert_eq!(expression.evaluate(&view), expression.evaluate(&view));
        }
    }
}

struct Roots(Value);

impl View for Roots {
    fn root(&self, name: &str) -> Option<Value> {
        self.0.get(name).cloned()
    }
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-5i64..5).prop_map(Value::from),
        (-1e3..1e3f64).prop_map(Value::from),
        "[a-zäß.]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[ab]", inner, 0..3).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn rules() -> impl Strategy<Value = Value> {
    const OPERATORS: [&str; 34] = [
        "==",
        "!=",
        "===",
        "!==",
        "!",
        "!!",
        "<",
        "<=",
        ">",
        ">=",
        "+",
        "-",
        "*",
        "/",
        "%",
        "max",
        "min",
        "merge",
        "in",
        "cat",
        "substr",
        "var",
        "missing",
        "missing_some",
        "if",
        "?:",
        "or",
        "and",
        "map",
        "filter",
        "reduce",
        "all",
        "some",
        "none",
    ];
    let paths = prop::sample::select(vec![
        "input",
        "input.a",
        "input.b.a",
        "input.0",
        "input.-1",
        "",
        "a",
        "current",
        "accumulator",
    ]);
    let leaf = prop_oneof![paths.prop_map(|path| json!({"var": path})), values()];
    leaf.prop_recursive(4, 32, 3, |inner| {
        (prop::sample::select(OPERATORS.to_vec()), prop::collection::vec(inner, 0..4))
            .prop_map(|(operator, arguments)| json!({operator: arguments}))
    })
}
