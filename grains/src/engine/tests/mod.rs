//! Given a workflow document, when these facts come, then exactly these effects.
//!
//! [`Run`] drives one projection. After every turn it stores the rows, loads them again, compares the two, and goes on with the
//! loaded one; and it holds what must hold always: event numbers without a gap, moves that begin where the last one ended,
//! S1's run transitions, one order a step run and attempt, one terminal event with nothing behind it.

mod basics;
mod budget;
mod cancel;
mod compensation;
mod cost;
mod fanouts;
mod given;
mod human;
mod joins;
mod loops;
mod policies;
mod properties;
mod running;
mod skipping;
mod stuck;
mod timers;

use super::state::{Branch, FrameIx};
use super::{
    Accepted, Closing, Decided, Effect, EngineOptions, Input, Note, Outcome, OutcomeKind, Projection, Refusal, RunEnd,
    RunState,
};
use crate::definition::{Environment, Mode, Plan, load};
use given::{accepted, decided, failure, outcome};
use grain_contract::{Row, RowKey, Timestamp};
use granary_proto::v1::event::Payload;
use granary_proto::v1::{self, Failure};
use std::collections::{BTreeMap, HashMap, HashSet};
use uuid::Uuid;

pub(super) const RUN: Uuid = Uuid::from_u128(0x0198_0000_0000_7000_8000_0000_0000_0001);
/// The clock of a run begins here, in milliseconds.
pub(super) const T0: i64 = 1_000_000;

pub(super) struct Run {
    pub plan: Plan,
    pub options: EngineOptions,
    pub p: Projection,
    pub rows: BTreeMap<RowKey, Row>,
    pub now: i64,
    /// Every input that was not refused, with its time.
    pub history: Vec<(i64, Input)>,
    /// Orders that wait for an answer, by the name of their step run: id, attempt, child.
    pub open: BTreeMap<String, (Uuid, u32)>,
    pub ended: Option<RunEnd>,
    /// Bytes of the rows that the last turn wrote.
    pub written: usize,
    /// Compare and reload after each turn.
    pub reload: bool,
    sequence: u64,
    events: u64,
    states: HashMap<String, String>,
    ordered: HashSet<(Uuid, u32)>,
    run_state: RunState,
}

impl Run {
    pub fn of(document: &str) -> Self {
        Self::with(document, Environment::default())
    }

    pub fn with(document: &str, env: Environment) -> Self {
        let loaded = load(document, Mode::Draft, &env);
        let plan = loaded.plan.unwrap_or_else(|| {
            let errors = loaded.findings.iter().filter(|finding| finding.is_error());
            panic!("the document is refused: {:#?}\n{document}", errors.collect::<Vec<_>>())
        });
        Self {
            plan,
            options: EngineOptions::default(),
            p: Projection::new("acme", RUN),
            rows: BTreeMap::new(),
            now: T0,
            history: Vec::new(),
            open: BTreeMap::new(),
            ended: None,
            written: 0,
            reload: true,
            sequence: 0,
            events: 0,
            states: HashMap::new(),
            ordered: HashSet::new(),
            run_state: RunState::Pending,
        }
    }

    // ---- when ----

    pub fn start(&mut self, input: &str) -> Vec<String> {
        self.start_with(input, "")
    }

    pub fn start_with(&mut self, input: &str, variables: &str) -> Vec<String> {
        let accepted = accepted(input, variables);
        self.fact(|sequence| Input::RunAccepted { sequence, accepted })
    }

    /// The open attempt of this step run succeeded.
    pub fn ok(&mut self, name: &str, output: &str) -> Vec<String> {
        self.end(name, OutcomeKind::Succeeded, output, None)
    }

    pub fn fail(&mut self, name: &str, class: &str) -> Vec<String> {
        self.end(name, OutcomeKind::Failed, "", Some(failure(class)))
    }

    pub fn end(&mut self, name: &str, kind: OutcomeKind, output: &str, failure: Option<Failure>) -> Vec<String> {
        let (step_run_id, attempt) = self.order(name);
        self.outcome(Outcome { output: output.into(), failure, ..outcome(step_run_id, attempt, kind) })
    }

    pub fn outcome(&mut self, outcome: Outcome) -> Vec<String> {
        self.fact(|sequence| Input::AttemptOutcomeRecorded { sequence, outcome })
    }

    pub fn decide(&mut self, name: &str, decision: &str) -> Vec<String> {
        let (step_run_id, _) = self.order(name);
        let decided = decided(step_run_id, decision);
        self.fact(|sequence| Input::ApprovalDecided { sequence, decided })
    }

    pub fn cancel(&mut self) -> Vec<String> {
        self.fact(|sequence| Input::RunCancelled { sequence, reason: "not wanted".into() })
    }

    /// The clock moves to this many milliseconds behind the start, and the timers get their turn.
    pub fn at(&mut self, ms: i64) -> Vec<String> {
        self.now = T0 + ms;
        self.tell(Input::TimersDue).expect("the clock is never refused")
    }

    pub fn check_stuck(&mut self, open: &[&str]) -> Vec<String> {
        let open = open.iter().map(|name| self.order(name).0).collect();
        self.tell(Input::CheckStuck { open }).expect("the sweep is never refused")
    }

    /// A worker claimed the open attempt of this step run.
    pub fn claim(&mut self, name: &str) -> Vec<String> {
        let (step_run_id, attempt) = self.order(name);
        self.tell(Input::AttemptClaimed { step_run_id, attempt }).expect("a claim is never refused")
    }

    /// The worker that had claimed it never got it.
    pub fn requeue(&mut self, name: &str) -> Vec<String> {
        let (step_run_id, attempt) = self.order(name);
        self.tell(Input::AttemptRequeued { step_run_id, attempt }).expect("a requeue is never refused")
    }

    /// The next fact; its number is used up unless it is refused.
    pub fn fact(&mut self, input: impl FnOnce(u64) -> Input) -> Vec<String> {
        let input = input(self.sequence + 1);
        self.tell(input.clone()).unwrap_or_else(|refusal| panic!("{input:?} is refused: {refusal:?}"))
    }

    pub fn tell(&mut self, input: Input) -> Result<Vec<String>, Refusal> {
        let before = self.reload.then(|| self.graph());
        let effects = match self.p.decide(Some(&self.plan), &self.options, Timestamp(self.now), input.clone()) {
            Ok(effects) => effects,
            Err(refusal) => {
                assert_eq!(self.reload.then(|| self.graph()), before, "refused, so nothing changed");
                assert!(self.p.take_changes().puts.is_empty(), "refused, so nothing is written");
                return Err(refusal);
            }
        };
        self.sequence = self.p.last_outcome_sequence();
        if *self.p.note() == Note::Repeated {
            assert_eq!(effects, [], "repeated, so nothing happens");
        } else {
            self.history.push((self.now, input));
        }
        let lines = self.take(effects);
        self.store();
        self.hold_run_state();
        Ok(lines)
    }

    // ---- then ----

    pub fn state(&self) -> RunState {
        self.p.state()
    }

    pub fn graph(&self) -> v1::RunGraph {
        self.p.graph(Some(&self.plan), "", 0)
    }

    pub fn step(&self, name: &str) -> v1::StepRun {
        let graph = self.graph();
        let found = graph.step_runs.into_iter().rev().find(|run| name_of(run) == name);
        found.unwrap_or_else(|| panic!("no step run {name}"))
    }

    pub fn output(&self, name: &str) -> String {
        String::from_utf8(self.step(name).output.map(|json| json.text).unwrap_or_default()).expect("JSON is text")
    }

    pub fn waits(&self, step_id: &str) -> String {
        let all = self.p.waiting(&self.plan);
        let found = all.into_iter().find(|waiting| waiting.step_id == step_id).and_then(|waiting| waiting.waiting);
        found.map_or_else(|| "nothing".into(), |waiting| format!("{}: {}", waiting.on, waiting.text))
    }

    pub fn order(&self, name: &str) -> (Uuid, u32) {
        *self.open.get(name).unwrap_or_else(|| panic!("{name} is not asked for; open are {:?}", self.open.keys()))
    }

    pub fn superseded(&self) -> bool {
        matches!(self.p.note(), Note::Superseded(_))
    }

    pub fn run_output(&self) -> String {
        match &self.ended {
            Some(RunEnd::Completed { output }) => String::from_utf8(output.clone()).expect("JSON is text"),
            other => panic!("not completed: {other:?}"),
        }
    }

    // ---- the books ----

    fn take(&mut self, effects: Vec<Effect>) -> Vec<String> {
        let mut lines = Vec::new();
        let count = effects.len();
        for (at, effect) in effects.into_iter().enumerate() {
            assert!(self.ended.is_none() || matches!(effect, Effect::WakeAt(None)), "behind the end: {effect:?}");
            match effect {
                Effect::Publish(event) => {
                    self.events += 1;
                    assert_eq!(event.sequence, self.events, "events are numbered without a gap");
                    assert_eq!(event.at_ms, self.now);
                    if let Some(line) = self.event(event.payload.expect("a payload")) {
                        lines.push(line);
                    }
                }
                Effect::StepReady(order) => {
                    let name = self.name(order.step_run_id);
                    self.ordered.insert((order.step_run_id, order.attempt));
                    let input = String::from_utf8(order.input).expect("JSON is text");
                    lines.push(match order.ask.as_str() {
                        "" => format!("do {name}/{} {} {input}", order.attempt, order.queue),
                        ask => format!("ask {name}/{} {ask} {input}", order.attempt),
                    });
                    self.open.insert(name, (order.step_run_id, order.attempt));
                }
                Effect::CloseStep { step_run_id, closing } => {
                    let name = self.name(step_run_id);
                    self.open.remove(&name);
                    lines.push(match closing {
                        Closing::TimedOut => format!("time out {name}"),
                        Closing::Cancelled => format!("close {name}"),
                    });
                }
                Effect::StartChild(child) => {
                    let name = self.name(child.step_run_id);
                    let run = self.p.run(self.p.by_id[&child.step_run_id]);
                    self.open.insert(name.clone(), (child.step_run_id, run.attempt));
                    lines.push(format!("child {name} {} depth {}", child.definition_id, child.depth));
                }
                Effect::CancelChild { child_run_id, .. } => {
                    let mut runs = self.p.runs.iter();
                    let of_run = runs.find(|run| super::ids::child_run_id(run.id, run.attempt) == child_run_id);
                    let name = self.name(of_run.expect("a child of a step run").id);
                    self.open.remove(&name);
                    lines.push(format!("cancel child {name}"));
                }
                Effect::RunEnded(end) => {
                    lines.push(match &end {
                        RunEnd::Completed { output } => format!("end Completed {}", String::from_utf8_lossy(output)),
                        RunEnd::Failed { failed_step_id, failure, compensated, .. } => {
                            let undone = if *compensated { " compensated" } else { "" };
                            format!("end Failed {failed_step_id} {}{undone}", failure.class)
                        }
                        RunEnd::Cancelled { open_step_runs } => format!("end Cancelled {open_step_runs}"),
                    });
                    self.ended = Some(end);
                    self.open.clear();
                }
                Effect::WakeAt(due) => {
                    assert_eq!(at + 1, count, "the wake-up goes last");
                    assert_eq!(due, self.p.next_due());
                }
            }
        }
        lines
    }

    /// Events that say the same as the effect behind them give no line.
    fn event(&mut self, payload: Payload) -> Option<String> {
        match payload {
            Payload::RunStarted(_) => Some("started".into()),
            Payload::StepRunStateChanged(moved) => {
                let before = self.states.insert(moved.step_run_id.clone(), moved.to_state.clone());
                assert_eq!(before.as_deref().unwrap_or("Pending"), moved.from_state, "{moved:?}");
                let name = self.name(moved.step_run_id.parse().expect("an id"));
                if matches!(moved.to_state.as_str(), "Succeeded" | "Failed" | "Skipped" | "Cancelled") {
                    self.open.remove(&name);
                }
                Some(format!("{name} {}", moved.to_state))
            }
            Payload::StepReady(ready) => {
                let pair = (ready.step_run_id.parse().expect("an id"), ready.attempt);
                assert!(!self.ordered.contains(&pair) || self.is_sweep(), "ordered twice: {ready:?}");
                None
            }
            Payload::TimerFired(fired) => {
                let id: Uuid = fired.step_run_id.parse().expect("an id");
                let name = if id.is_nil() { "run".into() } else { self.name(id) };
                Some(format!("timer {name} late {}", fired.late_ms))
            }
            Payload::CompensationStarted(started) => Some(format!("compensate {}", started.entries)),
            Payload::RunCompleted(_) | Payload::RunFailed(_) | Payload::RunCancelled(_) => {
                assert!(self.p.is_terminal());
                None
            }
            Payload::DefinitionLoaded(_) => panic!("not an event of a run"),
        }
    }

    fn is_sweep(&self) -> bool {
        matches!(self.history.last(), Some((_, Input::CheckStuck { .. })))
    }

    fn store(&mut self) {
        let changes = self.p.take_changes();
        self.written = changes.puts.iter().map(|row| row.key.key.len() + row.value.len()).sum();
        for row in changes.puts {
            self.rows.insert(row.key.clone(), row);
        }
        for key in changes.deletes {
            self.rows.remove(&key);
        }
        if self.reload {
            let rows: Vec<Row> = self.rows.values().cloned().collect();
            let loaded = Projection::load("acme", RUN, rows, Some(&self.plan)).expect("its own rows");
            self.same(&loaded);
            let note = self.p.note().clone();
            self.p = loaded;
            self.p.note = note;
        }
    }

    /// The loaded projection is the one that was stored, in what is seen and in what it remembers.
    fn same(&self, loaded: &Projection) {
        if !self.p.is_terminal() {
            assert_eq!(loaded.half_ready, self.p.half_ready);
            assert_eq!(loaded.active, self.p.active);
        }
        assert_eq!(loaded.graph(Some(&self.plan), "", 0), self.graph());
        assert_eq!(loaded.waiting(&self.plan), self.p.waiting(&self.plan));
        assert_eq!(loaded.plan_next(&self.plan), self.p.plan_next(&self.plan));
        assert_eq!(loaded.next_due(), self.p.next_due());
        assert_eq!(loaded.state(), self.state());
        assert_eq!(loaded.due, self.p.due);
        // Nobody asks how a branch ended once the run is over or compensates.
        if !self.p.is_terminal() && self.state() != RunState::Compensating {
            let busy = self.p.busy_frames();
            let branches = |p: &Projection| {
                let frames = p.frames.iter().zip((0..).map(FrameIx));
                let known = frames.filter(|(frame, ix)| busy.contains(ix) || frame.branch == Branch::Arrived);
                known.map(|(frame, ix)| (ix, frame.branch)).collect::<Vec<_>>()
            };
            assert_eq!(branches(loaded), branches(&self.p));
        }
    }

    fn hold_run_state(&mut self) {
        use RunState::{
            Cancelled, Compensating, Completed, Failed, Pending, Running, WaitingForHuman, WaitingForTimer,
        };
        let direct = |from: RunState, to: RunState| {
            from == to
                || matches!(
                    (from, to),
                    (Pending, Running)
                        | (Running, WaitingForTimer | WaitingForHuman | Compensating | Completed | Failed | Cancelled)
                        | (WaitingForTimer | WaitingForHuman, Running | Cancelled)
                        | (Compensating, Failed)
                )
        };
        let (from, to) = (self.run_state, self.state());
        // Within one turn a run may pass through Running, and through Compensating when there is nothing to undo.
        let over = |middle| direct(from, middle) && direct(middle, to);
        assert!(direct(from, to) || over(Running) || over(Compensating) || direct(Running, to), "{from:?} to {to:?}");
        assert!(!from.is_terminal() || from == to);
        self.run_state = to;
    }

    pub fn name(&self, step_run_id: Uuid) -> String {
        let ix = self.p.by_id[&step_run_id];
        let run = self.p.run(ix);
        name(&self.plan.step(run.step).id, &self.p.branch_path(run.frame), run.iteration)
    }
}

fn name_of(run: &v1::StepRun) -> String {
    name(&run.step_id, &run.branch, run.iteration)
}

/// `step`, `step[branch.branch]`, `step#iteration` behind the first.
fn name(step_id: &str, branch: &[u32], iteration: u32) -> String {
    let mut name = step_id.to_owned();
    if !branch.is_empty() {
        name += &format!("[{}]", branch.iter().map(u32::to_string).collect::<Vec<_>>().join("."));
    }
    if iteration > 1 {
        name += &format!("#{iteration}");
    }
    name
}
