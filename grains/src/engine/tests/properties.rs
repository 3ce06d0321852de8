//! Random workflows, answered at random: they end, once, and can be built again from their facts.

use super::*;
use proptest::prelude::*;

/// A piece of a workflow with one way in and one way out.
#[derive(Clone, Debug)]
enum Block {
    Tool(&'static str),
    Human,
    Timer,
    /// One of two ways, by a condition.
    Choice(Vec<Block>, Vec<Block>),
    /// Both ways, and a plain Join.
    Parallel(Vec<Block>, Vec<Block>, &'static str),
    Fanout(u32, Vec<Block>, &'static str, &'static str),
    /// A static Fanout of two.
    Split(Vec<Block>, Vec<Block>, &'static str, &'static str),
    /// A step whose failure is handled by these.
    Route(Vec<Block>),
    Loop(Vec<Block>),
}

fn blocks() -> impl Strategy<Value = Vec<Block>> {
    let leaf = prop_oneof![
        4 => prop_oneof![Just("Fail"), Just("Retry"), Just("Escalate"), Just("Compensate")].prop_map(Block::Tool),
        1 => Just(Block::Human),
        1 => Just(Block::Timer),
    ];
    let block = leaf.prop_recursive(3, 14, 3, |inner| {
        let many = || prop::collection::vec(inner.clone(), 1..3);
        prop_oneof![
            (many(), many()).prop_map(|(a, b)| Block::Choice(a, b)),
            (many(), many(), prop_oneof![Just("all"), Just("any")]).prop_map(|(a, b, q)| Block::Parallel(a, b, q)),
            (
                0..4_u32,
                many(),
                prop_oneof![Just("all"), Just("any"), Just("2")],
                prop_oneof![Just("keep"), Just("cancel")]
            )
                .prop_map(|(n, body, quorum, losers)| Block::Fanout(n, body, quorum, losers)),
            (many(), many(), prop_oneof![Just("all"), Just("any")], prop_oneof![Just("keep"), Just("cancel")])
                .prop_map(|(a, b, quorum, losers)| Block::Split(a, b, quorum, losers)),
            many().prop_map(Block::Route),
            many().prop_map(Block::Loop),
        ]
    });
    prop::collection::vec(block, 1..4)
}

/// Writes blocks as a document.
#[derive(Default)]
struct Writer {
    steps: String,
    edges: String,
    count: u32,
    /// Fanouts around what is being written. The first Join behind a Fanout is its own, so plain ones stay outside.
    inside: u32,
}

impl Writer {
    fn document(blocks: &[Block]) -> String {
        let mut writer = Writer::default();
        writer.chain(blocks);
        let edges = if writer.edges.is_empty() { String::new() } else { format!("edges:\n{}", writer.edges) };
        format!("workflow: random\nversion: '1'\nmaxLoopIterations: 4\nsteps:\n{}{edges}", writer.steps)
    }

    fn step(&mut self, fields: &str) -> String {
        self.count += 1;
        let id = format!("s{}", self.count);
        self.steps += &format!("  - {{ id: {id}, {fields} }}\n");
        id
    }

    /// Where two ways meet again.
    fn merge(&mut self, quorum: &str) -> String {
        match self.inside {
            0 => self.step(&format!("kind: Join, quorum: {quorum}")),
            _ => self.step("kind: Condition, expression: true"),
        }
    }

    fn edge(&mut self, from: &str, to: &str, guard: &str) {
        let guard = if guard.is_empty() { String::new() } else { format!(", guard: {guard}") };
        self.edges += &format!("  - {{ from: {from}, to: {to}{guard} }}\n");
    }

    /// Ids of the first and the last step.
    fn chain(&mut self, blocks: &[Block]) -> (String, String) {
        let mut ends: Option<(String, String)> = None;
        for block in blocks {
            let (first, last) = self.block(block);
            ends = Some(match ends {
                None => (first, last),
                Some((start, before)) => {
                    self.edge(&before, &first, "");
                    (start, last)
                }
            });
        }
        ends.expect("at least one block")
    }

    fn block(&mut self, block: &Block) -> (String, String) {
        match block {
            Block::Tool(policy) => {
                let undo = self.step("kind: Compensation, tool: undo, actionClass: sandbox");
                let id = self.step(&format!(
                    "kind: Tool, tool: echo, actionClass: sandbox, failurePolicy: {policy}, maxAttempts: 2, compensation: {undo}"
                ));
                (id.clone(), id)
            }
            Block::Human => {
                let id = self.step("kind: Human, actionClass: sandbox, failurePolicy: Fail");
                (id.clone(), id)
            }
            Block::Timer => {
                let id = self.step("kind: Timer, delay: PT30S");
                (id.clone(), id)
            }
            Block::Choice(yes, no) => {
                let work = self.step("kind: Tool, tool: echo, actionClass: sandbox, failurePolicy: Fail");
                let choice = self.step(&format!("kind: Condition, expression: {{ var: {work}.yes }}"));
                self.edge(&work, &choice, "");
                let (yes_first, yes_last) = self.chain(yes);
                let (no_first, no_last) = self.chain(no);
                let join = self.merge("all");
                self.edge(&choice, &yes_first, "'true'");
                self.edge(&choice, &no_first, "'false'");
                self.edge(&yes_last, &join, "");
                self.edge(&no_last, &join, "");
                (work, join)
            }
            Block::Parallel(one, other, quorum) => {
                let start = self.step("kind: Condition, expression: true");
                let (one_first, one_last) = self.chain(one);
                let (other_first, other_last) = self.chain(other);
                let join = self.merge(quorum);
                self.edge(&start, &one_first, "");
                self.edge(&start, &other_first, "");
                self.edge(&one_last, &join, "");
                self.edge(&other_last, &join, "");
                (start, join)
            }
            Block::Fanout(branches, body, quorum, losers) => {
                let fanout = self.step(&format!("kind: Fanout, items: {{ var: input.{branches} }}"));
                self.inside += 1;
                let (first, last) = self.chain(body);
                self.inside -= 1;
                let join = self.step(&format!("kind: Join, quorum: {quorum}, losers: {losers}"));
                self.edge(&fanout, &first, "");
                self.edge(&last, &join, "");
                (fanout, join)
            }
            Block::Split(one, other, quorum, losers) => {
                let fanout = self.step("kind: Fanout");
                self.inside += 1;
                let ends = [self.chain(one), self.chain(other)];
                self.inside -= 1;
                let join = self.step(&format!("kind: Join, quorum: {quorum}, losers: {losers}"));
                for (first, last) in ends {
                    self.edge(&fanout, &first, "");
                    self.edge(&last, &join, "");
                }
                (fanout, join)
            }
            Block::Route(handler) => {
                let work = self.step("kind: Tool, tool: echo, actionClass: read, failurePolicy: Route");
                let (first, last) = self.chain(handler);
                let merge = self.merge("all");
                self.edge(&work, &first, "failed");
                self.edge(&work, &merge, "");
                self.edge(&last, &merge, "");
                (work, merge)
            }
            Block::Loop(body) => {
                let (first, last) = self.chain(body);
                let work = self.step("kind: Tool, tool: echo, actionClass: sandbox, failurePolicy: Fail");
                let again = self.step(&format!("kind: Condition, expression: {{ var: {work}.yes }}"));
                self.edge(&last, &work, "");
                self.edge(&work, &again, "");
                self.edges += &format!("  - {{ from: {again}, to: {first}, guard: 'true', isLoopBack: true }}\n");
                let out = self.step("kind: Condition, expression: true");
                self.edge(&again, &out, "'false'");
                (first, out)
            }
        }
    }
}

/// One answer to whatever is open: which, and how.
type Choice = (u16, u8);

/// Answers until the run ends. Some choices repeat the last fact, or move the clock.
fn play(run: &mut Run, choices: &[Choice]) {
    run.start(r#"{"0":[],"1":[1],"2":[1,2],"3":[1,2,3]}"#);
    let mut choices = choices.iter().copied().cycle().zip(0..20_000);
    while run.ended.is_none() {
        let ((which, how), step) = choices.next().expect("it ends long before");
        if how % 11 == 0
            && let Some((_, last)) = run.history.iter().rev().find(|(_, input)| !matches!(input, Input::TimersDue))
        {
            let last = last.clone();
            assert_eq!(run.tell(last), Ok(vec![]), "a repeated fact");
        }
        if run.open.is_empty() || how % 13 == 0 {
            let due = run.p.next_due();
            assert!(due.is_some() || !run.open.is_empty(), "nothing is open and nothing is due");
            run.now = run.now.max(due.map_or(run.now, |due| due.0));
            run.at(run.now - T0);
            continue;
        }
        let at = usize::from(which) % run.open.len();
        let name = run.open.keys().nth(at).expect("one of them").clone();
        let asked = run.step(&name).state;
        if how % 3 == 0 {
            // Before the clock moves, or a timer could close the step first. A human or a child run is not claimed, and
            // nothing happens.
            run.claim(&name);
        }
        run.now += i64::from(how);
        if asked == "WaitingForHuman" {
            let ix = run.p.by_id[&run.order(&name).0];
            let options = run.p.run(ix).asked.options();
            run.decide(&name, options[usize::from(how) % options.len()]);
        } else {
            match how % 16 {
                1 => run.fail(&name, "tool"),
                2 => run.end(&name, OutcomeKind::Uncertain, "", None),
                // Late in a long run everything goes well and forward, so that it ends.
                _ => run.ok(&name, &format!(r#"{{"yes":{}}}"#, how % 2 == 1 && step < 300)),
            };
        }
    }
}

/// [R14] The facts and the times give the same rows and the same effects again.
fn replay(run: &Run) {
    let mut again = Projection::new("acme", RUN);
    let mut rows = BTreeMap::new();
    for (ms, input) in &run.history {
        again.decide(Some(&run.plan), &run.options, Timestamp(*ms), input.clone()).expect("it was not refused before");
        for row in again.take_changes().puts {
            rows.insert(row.key.clone(), row);
        }
    }
    assert!(rows == run.rows, "the same rows");
    assert_eq!(again.graph(Some(&run.plan), "", 0), run.graph());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, max_shrink_iters: 300, ..ProptestConfig::default() })]

    /// [R2] [R12] [R14] [FR-058] Any workflow, any answers in any order, repeated, with a reload behind each turn: it ends,
    /// with one terminal event; no step is ordered twice under one number (the books of `Run` hold that); and it can be
    /// projected again.
    #[test]
    fn every_run_ends_once_and_can_be_built_again(
        blocks in blocks(),
        choices in prop::collection::vec((any::<u16>(), any::<u8>()), 8..60),
    ) {
        let document = Writer::document(&blocks);
        let mut run = Run::of(&document);
        play(&mut run, &choices);
        prop_assert!(run.p.is_terminal());
        prop_assert_eq!(run.p.next_due(), None);
        replay(&run);
    }
}
