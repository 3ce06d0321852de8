//! Each rule as a table: the faulty part of a document, and all findings with their lines.

use crate::definition::tests::{codes, findings};
use crate::definition::{Environment, Mode, load};

/// Lines 1-4 are the head; the steps begin in line 5.
fn document(steps: &str, edges: &str) -> String {
    let edges = if edges.is_empty() { "edges: []\n".to_owned() } else { format!("edges:\n{edges}\n") };
    format!("workflow: w\nversion: 1\ninput: builtin:any\noutput: builtin:any\nsteps:\n{steps}\n{edges}")
}

/// `a -> b`, `a -> b [guard]`, `a => b [guard]` (loop-back), in lines of their own.
fn edges(text: &str) -> String {
    text.split(", ")
        .map(|edge| {
            let (ends, guard) =
                edge.split_once(" [").map_or((edge, None), |(ends, guard)| (ends, Some(guard.trim_end_matches(']'))));
            let (from, to, back) = match ends.split_once(" => ") {
                Some((from, to)) => (from, to, ", isLoopBack: true"),
                None => ends.split_once(" -> ").map(|(from, to)| (from, to, "")).expect("an edge"),
            };
            let guard = guard.map(|guard| format!(", guard: {guard}")).unwrap_or_default();
            format!("  - {{from: {from}, to: {to}{guard}{back}}}")
        })
        .collect::<Vec<_>>()
        .join("\n")
}

/// One line each: `id kind rest`.
fn steps(text: &str) -> String {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| {
            let mut words = line.splitn(3, ' ');
            let (id, kind, rest) = (words.next().unwrap_or_default(), words.next().unwrap_or("t"), words.next());
            let (kind, fixed) = match kind {
                "t" => ("Timer", "delay: 1"),
                "c" => ("Condition", "expression: {var: input.x}"),
                "d" => ("Fanout", "items: {var: input.list}"),
                "f" => ("Fanout", ""),
                "j" => ("Join", ""),
                other => (other, ""),
            };
            let fields: Vec<&str> =
                [fixed, rest.unwrap_or_default()].into_iter().filter(|part| !part.is_empty()).collect();
            format!(
                "  - {{id: {id}, kind: {kind}{}}}",
                fields.iter().map(|field| format!(", {field}")).collect::<String>()
            )
        })
        .collect::<Vec<_>>()
        .join("\n")
}

type Case<'a> = (&'a str, &'a str, &'a [(&'a str, u32)]);

fn check(cases: &[Case<'_>]) {
    for (step_lines, edge_line, wanted) in cases {
        let edges = if edge_line.is_empty() { String::new() } else { edges(edge_line) };
        let text = document(&steps(step_lines), &edges);
        assert_eq!(&codes(&text, Mode::Publish), wanted, "{text}\n{:#?}", findings(&text, Mode::Publish));
    }
}

/// [D3]
#[test]
fn ids_and_kinds() {
    check(&[
        ("a t", "", &[]),
        ("a t\na t", "a -> a", &[("cycle", 6), ("doubled-step", 7)]),
        ("a Loop", "", &[("unknown-kind", 6)]),
        ("a agent", "", &[("unknown-kind", 6)]),
        ("vars t", "", &[("reserved-id", 6)]),
        ("a Tool tool: 'x y', actionClass: read, failurePolicy: Fail", "", &[("bad-name", 6)]),
    ]);
    assert_eq!(codes("workflow: a b\nversion: 1\nsteps: []\n", Mode::Stored), [("bad-name", 1), ("no-steps", 3)]);
    let message =
        findings(&document("  - {id: a, kind: Timer, delay: 1}\n  - {id: a, kind: Timer, delay: 1}", ""), Mode::Stored)
            .join("\n");
    assert!(message.contains("7:10 error doubled-step (steps[1].id)") && message.contains("line 6"), "{message}");
}

/// [D3]
#[test]
fn fields_belong_to_kinds() {
    check(&[
        ("a Agent actionClass: read, failurePolicy: Fail", "", &[("missing-field", 6)]),
        ("a Tool agent: x, actionClass: read, failurePolicy: Fail", "", &[("missing-field", 6), ("wrong-field", 6)]),
        ("a Timer", "", &[("missing-field", 6)]),
        ("a t until: '2026-12-24T18:00:00Z'", "", &[("missing-field", 6)]),
        ("a Timer delay: tomorrow", "", &[("bad-time", 6)]),
        ("a Timer until: 5", "", &[("wrong-type", 6)]),
        ("a Condition", "", &[("missing-field", 6)]),
        ("a SubWorkflow workflow: 'x@'", "", &[("bad-name", 6)]),
        ("a c tool: x", "", &[("wrong-field", 6)]),
        ("a t maxAttempts: 2", "", &[("wrong-field", 6)]),
        ("a Human actionClass: read, failurePolicy: Fail, ask: nicely", "", &[("unknown-word", 6)]),
        ("a Tool tool: x, actionClass: read, failurePolicy: retry", "", &[("unknown-word", 6)]),
        ("a Tool tool: x, actionClass: read, failurePolicy: Fail, maxAttempts: 0", "", &[("number-range", 6)]),
        ("a Tool tool: x, actionClass: read, failurePolicy: Fail, timeoutMinutes: -1", "", &[("number-range", 6)]),
        ("a Tool tool: x, actionClass: read, failurePolicy: Fail, timeOutMinutes: 1", "", &[("unknown-key", 6)]),
        (
            "a Tool tool: x, actionClass: read, failurePolicy: Retry, retry: {initial: 2m, max: 1m}",
            "",
            &[("number-range", 6)],
        ),
        ("a Tool tool: x, actionClass: read, failurePolicy: Retry, retry: {every: 2m}", "", &[("unknown-key", 6)]),
    ]);
    let near = findings(&document("  - {id: a, kind: Timer, deley: 1}", ""), Mode::Stored).join("\n");
    assert!(near.contains("did you mean `delay`?"), "{near}");
}

/// [D3] Action class and failure policy are declared on every Agent, Tool and Human step, from the configured list.
#[test]
fn classes_and_policies_are_declared() {
    let both: &[(&str, u32)] = &[("undeclared-action-class", 6), ("undeclared-failure-policy", 6)];
    check(&[
        ("a Agent agent: x", "", both),
        ("a Tool tool: x", "", both),
        ("a Human", "", both),
        ("a Tool tool: x, actionClass: write, failurePolicy: Fail", "", &[("unknown-action-class", 6)]),
        (
            "a Tool tool: x, actionClass: read, failurePolicy: Retry, maxAttempts: 1",
            "",
            &[("retry-without-attempts", 6)],
        ),
    ]);
    let env = Environment { action_classes: vec!["low".into(), "high".into()], ..Environment::default() };
    let text = document("  - {id: a, kind: Tool, tool: x, actionClass: high, failurePolicy: Fail}", "");
    assert_eq!(load(&text, Mode::Publish, &env).findings, []);
    let draft = load(&document("  - {id: a, kind: Tool, tool: x}", ""), Mode::Draft, &env);
    assert_eq!(draft.plan.unwrap().steps[0].action_class, "low");
}

/// [D3]
#[test]
fn edges_have_ends_and_decidable_guards() {
    check(&[
        ("a t\nb t", "a -> b, b -> x", &[("unknown-step", 10)]),
        ("a t\nb t", "a -> b, a -> b", &[("doubled-edge", 10)]),
        ("a c\nb t", "a -> b [true], a -> b [false]", &[]),
        ("a t\nb t", "a -> b [true]", &[("bad-guard", 9)]),
        ("a t\nb t", "a -> b [maybe]", &[("wrong-type", 9)]),
        ("a t\nb t", "a -> b ['']", &[("wrong-type", 9)]),
        ("a t\nb t", "a -> b [null]", &[("wrong-type", 9)]),
        ("a t\nb t", "a -> b [{}]", &[("wrong-type", 9)]),
        ("a t\nb t", "a -> b [{'=>': [1]}]", &[("bad-expression", 9)]),
        ("a t\nb t", "a -> b [{'==': [{var: a.x},1]}]", &[]),
        ("a t\nb t", "a -> b [failed]", &[("guard-never-taken", 9)]),
        ("a t failurePolicy: Route\nb t", "a -> b [failed]", &[]),
        (
            "a Tool tool: x, actionClass: read, failurePolicy: Fail, compensation: u\nu Compensation tool: y, actionClass: read",
            "a -> u",
            &[("compensation-edge", 9)],
        ),
    ]);
}

/// [D3] [FR-212] [FR-072] A cycle names all its steps in order, with their lines.
#[test]
fn cycles_are_named_whole() {
    let mut lines: Vec<String> = (0..20).map(|n| format!("s{n} t")).collect();
    lines.reverse();
    let mut all: Vec<String> = (1..20).map(|n| format!("s{} -> s{n}", n - 1)).collect();
    all.push("s11 -> s8".into());
    let text = document(&steps(&lines.join("\n")), &edges(&all.join(", ")));
    let found = findings(&text, Mode::Publish);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("`s11` (line 14) → `s8` (line 17) → `s9` (line 16) → `s10` (line 15) → `s11`"),
        "{found:?}"
    );
    check(&[
        ("a t", "a -> a", &[("cycle", 6)]),
        ("a t\nb t", "a -> b, b -> a", &[("cycle", 6)]),
        ("a t\nb t\nc t\nd t", "a -> b, b -> a, c -> d, d -> c", &[("cycle", 6), ("cycle", 8)]),
    ]);
}

/// [D3]
#[test]
fn steps_are_connected() {
    check(&[
        ("a t\nb t\nc t", "a -> b", &[("unreachable-step", 8)]),
        ("a t\nb t\nc t", "", &[("unreachable-step", 7), ("unreachable-step", 8)]),
        ("a t\nb t\nc t", "a -> c, b -> c", &[]),
    ]);
}

/// [D3] [R6] Loop-backs lead back, into what can start again.
#[test]
fn loops_lead_back() {
    check(&[
        ("a t\nb c\nc t", "a -> b, b -> c [true], b => a [false]", &[]),
        ("a c", "a => a [false]", &[]),
        ("a t\nb c\nc t", "a -> b, a -> c, b => c [true]", &[("loop-not-back", 12)]),
        ("a t\nb c", "a -> b, a => b", &[("loop-not-back", 10)]),
        ("a t\nb t", "a -> b, b => a", &[("loop-without-guard", 10)]),
        ("a t\nb t\nj j\nc c", "a -> j, b -> j, j -> c, c => j [true]", &[("loop-into-join", 14)]),
        ("f d\na c\nj j", "f -> a, a -> j [true], a => f [false]", &[("fanout-border", 12)]),
        ("f d\na t\nj j\nc c", "f -> a, a -> j, j -> c, c => f [false]", &[]),
    ]);
}

/// [D3] [R6] Loops lie inside or beside one another; else one round of the one would cut the other's in two.
#[test]
fn loops_do_not_overlap() {
    check(&[
        // Beside one another, and inside: also with one head, or one source.
        ("a t\nb c\nc t\nd c", "a -> b, b => a [false], b -> c [true], c -> d, d => c [false]", &[]),
        ("a t\nb t\nc c\nd c", "a -> b, b -> c, c => b [false], c -> d [true], d => a [false]", &[]),
        ("a t\nb c\nc c", "a -> b, b => a [false], b -> c [true], c => a [false]", &[]),
        ("a t\nb t\nc c", "a -> b, b -> c, c => b [{var: c}], c => a [{var: a}]", &[]),
        ("a c\nb c", "a => a [false], a -> b [true], b => a [false]", &[]),
        // One head and two ends, neither of which is before the other.
        ("a c\nb c\nc c", "a -> b [true], a -> c [false], b => a [false], c => a [false]", &[("loop-overlap", 13)]),
        // One starts inside of the other and ends outside of it.
        (
            "a t\nb c\nc c\nd c",
            "a -> b, b -> c [true], b -> d [false], c => a [true], d => b [true]",
            &[("loop-overlap", 15)],
        ),
        // Both around the same steps.
        ("a t\nb c", "a -> b, b => a [true], b => a [false]", &[("loop-overlap", 11)]),
    ]);
    let text = document(&steps("a t\nb c"), &edges("a -> b, b => a [true], b => a [false]"));
    let message = findings(&text, Mode::Publish).join("\n");
    assert!(message.contains("(edges[2])") && message.contains("the same steps"), "{message}");
}

/// [FR-202] A loop bound that is none is refused with its path; without one the default of the cluster holds, and shows.
#[test]
fn loop_bounds_are_whole_numbers() {
    let text = |bound: &str| format!("{bound}{}", document(&steps("a t\nb c"), &edges("a -> b, b => a [false]")));
    for bound in ["null", "''", "0", "-1", "1.5", "\"5\"", "[]", "{}", "1e9"] {
        let text = text(&format!("maxLoopIterations: {bound}\n"));
        let found = findings(&text, Mode::Publish);
        assert!(
            found.iter().any(|line| line.starts_with("1:20 error number-range (maxLoopIterations)")),
            "{bound}: {found:?}"
        );
    }
    let bound = |text: &str| load(text, Mode::Publish, &Environment::default()).plan.unwrap().loops[0].max_iterations;
    assert_eq!(bound(&text("maxLoopIterations: 3\n")), 3);
    assert_eq!(bound(&text("")), 10);
    for expression in ["''", "null", "{}", "[]", "'  '", "'[]'", "'null'", "x y"] {
        let text = document(&format!("  - {{id: a, kind: Condition, expression: {expression}}}"), "");
        let found = findings(&text, Mode::Publish);
        assert!(found.iter().any(|line| line.contains("(steps[0].expression): Expected")), "{expression}: {found:?}");
    }
}

/// [D3] [R5] Branches stay apart until their Join.
#[test]
fn fanouts_have_borders() {
    let deep_steps: String = (0..9).map(|n| format!("f{n} f\n")).chain(["a t".to_owned()]).collect();
    let deep_edges: Vec<String> = (1..9).map(|n| format!("f{} -> f{n}", n - 1)).chain(["f8 -> a".to_owned()]).collect();
    let deep_edges = deep_edges.join(", ");
    check(&[
        ("f d\na t\nj j", "f -> a, a -> j", &[]),
        ("f d\na t", "f -> a", &[]),
        ("f f\na t\nb t", "f -> a, f -> b", &[]),
        ("f f\na t", "a -> f", &[("fanout-branches", 6)]),
        ("f d\na t\nb t\nj j", "f -> a, f -> b, a -> j, b -> j", &[]),
        ("f f\na t\nj j", "f -> a, f -> j, a -> j", &[]),
        ("f d\na t\nj j", "f -> a, f -> j, a -> j", &[("fanout-branches", 6)]),
        (&deep_steps, &deep_edges, &[("too-deep", 14)]),
        ("f f\na t\nb t\nx t", "f -> a, f -> b, a -> x, b -> x", &[("branches-meet", 9)]),
        ("f f\na t\nb t\nc t\nj j", "f -> a, f -> b, f -> c, a -> j, b -> j", &[("branches-meet", 10)]),
        ("s t\nf d\na t\nj j", "s -> f, f -> a, a -> j, s -> a", &[("fanout-border", 14)]),
        ("s t\nf d\na t\nj j", "s -> f, f -> a, a -> j, s -> j", &[("fanout-border", 14)]),
    ]);
}

/// [D3] [FR-085] A Join waits for something, and its quorum can be reached.
#[test]
fn joins_have_branches() {
    check(&[
        ("j j\na t", "j -> a", &[("join-of-nothing", 6)]),
        ("a t\nj j", "a -> j", &[("join-of-nothing", 7)]),
        ("a t\nb t\nj j", "a -> j, b -> j", &[]),
        // [FR-159] Two edges of one step are one branch.
        ("a t failurePolicy: Route\nb t\nj j quorum: 2", "a -> j, a -> j [failed], b -> j", &[]),
        ("a t failurePolicy: Route\nb t\nj j quorum: 3", "a -> j, a -> j [failed], b -> j", &[("quorum-too-large", 8)]),
        ("a t\nb t\nj j quorum: 3", "a -> j, b -> j", &[("quorum-too-large", 8)]),
        ("f f\na t\nb t\nj j quorum: 3", "f -> a, f -> b, a -> j, b -> j", &[("quorum-too-large", 9)]),
        ("f f\na t\nb t\nj j quorum: 2", "f -> a, f -> b, a -> j, b -> j", &[]),
        ("f d\na t\nj j quorum: 300", "f -> a, a -> j", &[]),
        ("a t\nb t\nj j quorum: 0", "a -> j, b -> j", &[("number-range", 8)]),
        ("a t\nb t\nj j quorum: most", "a -> j, b -> j", &[("wrong-type", 8)]),
        ("a t\nb t\nj j quorum: 1.5", "a -> j, b -> j", &[("number-range", 8)]),
    ]);
    // The first Join that every way from a Fanout passes is its own, also if it was meant for paths inside a branch.
    let inside = "f d\na t\nb t\nc t\nmeet j\nz t\nlast j";
    let flow = "f -> a, a -> b, a -> c, b -> meet, c -> meet, meet -> z, z -> last";
    check(&[(inside, flow, &[("join-of-nothing", 12)])]);
    let message = findings(&document(&steps(inside), &edges(flow)), Mode::Publish).join("\n");
    assert!(message.contains("the Fanout `f` has ended in `meet` before"), "{message}");
    check(&[
        // What was meant: the paths meet in another step, and the branches in the Join.
        (&inside.replace("meet j", "meet t"), flow, &[]),
        // A branch of several has its own Join, since not every way passes it.
        (
            "f f\na t\nb t\nc t\nin j\nz t\nlast j",
            "f -> a, a -> b, a -> c, b -> in, c -> in, f -> z, in -> last, z -> last",
            &[],
        ),
    ]);
    let named = findings(&document(&steps("meet j"), ""), Mode::Publish).join("\n");
    assert!(named.contains("`meet`"), "{named}");
}

/// [D3] [R11]
#[test]
fn compensations_are_compensation_steps() {
    let a = "a Tool tool: x, actionClass: read, failurePolicy: Fail, compensation: ";
    let case = |target: &str, more: &str| format!("{a}{target}\n{more}");
    let unknown = case("undo", "");
    let other = case("b", "b t");
    let declared = case("b", "b Compensation tool: y, actionClass: read");
    let neither = case("b", "b Compensation actionClass: read");
    let classless = case("b", "b Compensation tool: y");
    check(&[
        (&unknown, "", &[("undeclared-compensation", 6)]),
        (&other, "a -> b", &[("bad-compensation", 6)]),
        (&declared, "", &[]),
        (&neither, "", &[("missing-field", 7)]),
        (&classless, "", &[("undeclared-action-class", 7)]),
        ("a t\nb Compensation tool: y, actionClass: read", "", &[("unused-compensation", 7)]),
        ("a t compensation: b\nb Compensation tool: y, actionClass: read", "", &[("wrong-field", 6)]),
    ]);
}

/// [D3] [R4] Expressions read what can have run.
#[test]
fn expressions_read_what_can_be_there() {
    check(&[
        ("a t\nb Condition expression: {var: a.x}", "a -> b", &[]),
        ("a t\nb Condition expression: {var: input.x}\nc Condition expression: {var: vars.y}", "a -> b, b -> c", &[]),
        ("a t\nb Condition expression: {var: nothing.x}", "a -> b", &[("unknown-root", 7)]),
        ("a Condition expression: {var: b.x}\nb t", "a -> b", &[("reads-later-step", 6)]),
        ("a Condition expression: {var: a.x}\nb t", "a -> b", &[("reads-later-step", 6)]),
        (
            "a t\nb Condition expression: {var: c.x}\nc t\nd t",
            "a -> b, a -> c, b -> d, c -> d",
            &[("reads-later-step", 7)],
        ),
        // In a loop, the round before.
        ("a Condition expression: {var: b.x}\nb c", "a -> b, b => a [false]", &[]),
        ("a t\nb t\nc t", "a -> b, b -> c [{var: b.x}]", &[]),
        ("a t\nb t\nc t", "a -> b, b -> c [{var: c.x}]", &[("reads-later-step", 11)]),
        ("a Condition expression: {var: item}", "", &[("unknown-root", 6)]),
        ("f d\na Condition expression: {var: item.x}\nj j", "f -> a, a -> j", &[]),
        ("f d\na t\nj j\nb Condition expression: {var: a.x}", "f -> a, a -> j, j -> b", &[("reads-branch-step", 9)]),
        (
            "f f\na t\nb t\nj j\nc Condition expression: {var: a.x}",
            "f -> a, f -> b, a -> j, b -> j, j -> c",
            &[("reads-branch-step", 10)],
        ),
        ("f d\na t\nb Condition expression: {var: a.x}\nj j", "f -> a, a -> b, b -> j", &[]),
        ("a Condition expression: true", "", &[("constant-condition", 6)]),
        ("a Condition expression: {missing: [input.x]}", "", &[("missing-counts-empty", 6)]),
        ("a Condition expression: {in: [5, [{var: input.x}]]}", "", &[("bad-expression", 6)]),
        ("a Timer delay: {var: b.x}\nb t", "a -> b", &[("reads-later-step", 6)]),
        ("f Fanout items: {var: a.x}\na t\nj j", "f -> a, a -> j", &[("reads-later-step", 6)]),
    ]);
}

/// [D3] [FR-072] [FR-140] No definition starts itself, also not by way of others.
#[test]
fn sub_workflows_form_no_cycle() {
    check(&[
        ("a SubWorkflow workflow: w", "", &[("sub-workflow-cycle", 6)]),
        ("a SubWorkflow workflow: other@1", "", &[]),
    ]);
    let env = Environment {
        sub_workflows: [("x".to_owned(), vec!["y".to_owned()]), ("y".to_owned(), vec!["z".to_owned(), "w".to_owned()])]
            .into(),
        ..Environment::default()
    };
    let loaded = load(&document(&steps("a SubWorkflow workflow: x"), ""), Mode::Publish, &env);
    assert!(loaded.findings[0].message.contains("`w` → `x` → `y` → `w`"), "{:?}", loaded.findings);
    assert_eq!(loaded.sub_workflows, ["x"]);
}

/// [D3] All findings come back at once, in the order of the text.
#[test]
fn all_findings_at_once() {
    let text = "workflow: w\nversion: 1\ninput: nowhere\nextra: 1\nsteps:\n  - {id: a, kind: Agent}\n  - {id: a, kind: Timer, delay: x}\n  - {kind: Timer, delay: 1}\nedges:\n  - {from: a, to: zz, guard: maybe}\n  - {to: a}\n";
    let wanted = [
        ("undeclared-schema", 0),
        ("unknown-schema", 3),
        ("unknown-key", 4),
        ("undeclared-action-class", 6),
        ("missing-field", 6),
        ("undeclared-failure-policy", 6),
        ("doubled-step", 7),
        ("bad-time", 7),
        ("missing-field", 8),
        ("unknown-step", 10),
        ("wrong-type", 10),
        ("missing-field", 11),
    ];
    assert_eq!(codes(text, Mode::Publish), wanted, "{:#?}", findings(text, Mode::Publish));
}
