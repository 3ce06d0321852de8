//! Given a workflow document, when these facts come, then exactly these effects.
//!
//! [`Run`] drives one projection. After every turn it stores the rows, loads them again, compares the two, and goes on with the
//! loaded one; and it holds what must hold always: event numbers without a gap, moves that begin where the last one ended,
//! S1's run transitions, one order a step run and attempt, one terminal event with nothing behind it.

mod basics;
mod books;
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
