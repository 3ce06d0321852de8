//! Conditions of registered kinds: what a Branch and a WaitForCondition know, and when they look.
//!
//! A condition is looked at when its step starts, whenever a fact of the run may have changed its answer (an observation, the
//! end of a step), and when it said that time alone may. So waiting costs nothing, however short the poll interval: a look
//! between two facts would see what the last one saw. Only a condition that workers answer is asked again and again.

use super::inputs::Standpoint;
use super::state::{FrameIx, Projection, Purpose, RunIx, StepState};
use super::turn::{Turn, Work};
use crate::condition::kinds::{Condition, Facts, How, Verdict};
use crate::condition::{Expression, View, truthy};
use crate::definition::{Check, Plan, StepKind};
use grain_contract::Timestamp;
use grain_contract::limits::PAYLOAD_BYTES_MAX;
use granary_proto::v1::Failure;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::sync::Arc;

const CLASS: &str = "condition";
const UNKNOWN_KIND: &str = "unrecognized-condition-kind";

/// The facts as a step in its frame sees them.
struct Known<'a> {
    p: &'a Projection,
    plan: &'a Plan,
    ix: RunIx,
    frame: FrameIx,
    now: Timestamp,
}

/// A rule of a condition also sees what was observed.
struct Observing<'a> {
    outputs: Standpoint<'a>,
    p: &'a Projection,
}

impl View for Observing<'_> {
    fn root(&self, name: &str) -> Option<Value> {
        match name {
            "scene" => self.outputs.parse(&self.p.observed.scene),
            "world" => self.outputs.parse(&self.p.observed.world),
            _ => self.outputs.root(name),
        }
    }
}

impl Facts for Known<'_> {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn run_started(&self) -> Timestamp {
        Timestamp(self.p.header.accepted_ms)
    }

    fn step_started(&self) -> Timestamp {
        match self.p.run(self.ix).started_ms {
            0 => self.now,
            started => Timestamp(started),
        }
    }

    fn scene(&self) -> Option<Value> {
        read(&self.p.observed.scene)
    }

    fn world(&self) -> Option<Value> {
        read(&self.p.observed.world)
    }

    fn succeeded(&self, step: &str) -> Option<bool> {
        let step = *self.plan.by_id.get(step)?;
        let mut frame = self.frame;
        loop {
            if let Some(slot) = self.p.slots.get(&(frame, step)) {
                // The one of this round, and if it has not ended yet that of the round before.
                let mut newest = Some(slot.run);
                while let Some(ix) = newest.filter(|ix| !self.p.run(*ix).state.is_terminal()) {
                    newest = self.p.run(ix).previous;
                }
                return match self.p.run(newest?).state {
                    StepState::Succeeded => Some(true),
                    StepState::Failed => Some(false),
                    _ => None,
                };
            }
            self.p.frame(frame).owner?;
            frame = self.p.frame(frame).parent;
        }
    }

    fn evaluate(&self, rule: &Expression) -> Result<Value, String> {
        let outputs =
            Standpoint { p: self.p, plan: self.plan, frame: self.frame, undoes: None, broken: RefCell::default() };
        let view = Observing { outputs, p: self.p };
        let value = rule.evaluate(&view);
        match view.outputs.broken.take() {
            Some(why) => Err(why),
            None => value.map_err(|error| error.message),
        }
    }
}

/// Observations are JSON, checked where they come in.
fn read(text: &[u8]) -> Option<Value> {
    serde_json::from_slice(text).ok()
}

impl Turn<'_> {
    pub(super) fn start_branch(&mut self, ix: RunIx, check: &Check) {
        match &check.how {
            How::Here(condition) => match self.verdict(ix, condition) {
                Ok(verdict) => self.succeed(ix, answer(verdict == Verdict::Satisfied)),
                Err(failure) => self.fail_step(ix, failure, false),
            },
            How::Served => self.ask_worker(ix, check),
            How::Unknown => self.fail_step(ix, unknown(check), false),
        }
    }

    pub(super) fn start_wait(&mut self, ix: RunIx, check: &Check) {
        match &check.how {
            How::Here(condition) => {
                self.begin_wait(ix);
                self.look(ix, condition);
            }
            How::Served => {
                self.begin_wait(ix);
                self.ask_worker(ix, check);
            }
            How::Unknown => self.fail_step(ix, unknown(check), false),
        }
    }

    /// The timeout counts from the first look, whatever a worker is asked in between.
    fn begin_wait(&mut self, ix: RunIx) {
        self.p.run_mut(ix).failure = None;
        self.enter(ix, StepState::WaitingForTimer);
        let run = self.p.run(ix);
        let is_set = run.timers.iter().any(|timer| timer.purpose == Purpose::Timeout && !timer.fired);
        if let (false, Some(timeout)) = (is_set, self.plan.step(run.step).timeout_ms) {
            let due = Timestamp(run.started_ms).plus_ms(timeout).0;
            self.set_timer(ix, Purpose::Timeout, due);
        }
    }

    /// Looks at every condition that waits for facts, because some have changed.
    pub(super) fn look_again(&mut self) {
        let mut waiting: Vec<RunIx> = self.p.active.iter().map(|(_, ix)| *ix).collect();
        waiting.retain(|ix| self.p.run(*ix).state == StepState::WaitingForTimer);
        waiting.sort_unstable();
        let plan = self.plan;
        for ix in waiting {
            if let StepKind::WaitFor { check: Check { how: How::Here(condition), .. }, .. } =
                &plan.step(self.p.run(ix).step).kind
                && !self.p.run(ix).state.is_terminal()
                && !self.p.is_terminal()
            {
                self.look(ix, condition);
            }
        }
    }

    /// It said that by now time may have changed its answer, or the next look of a worker is due.
    pub(super) fn on_look_due(&mut self, ix: RunIx) {
        let plan = self.plan;
        match &plan.step(self.p.run(ix).step).kind {
            StepKind::WaitFor { check: Check { how: How::Here(condition), .. }, .. } => self.look(ix, condition),
            _ => self.work.push_back(Work::Start(ix)),
        }
    }

    /// The last look, at the timeout itself. True if that ended the wait.
    pub(super) fn look_at_the_last_moment(&mut self, ix: RunIx) -> bool {
        let plan = self.plan;
        if let StepKind::WaitFor { check: Check { how: How::Here(condition), .. }, .. } =
            &plan.step(self.p.run(ix).step).kind
        {
            self.look(ix, condition);
        }
        self.p.run(ix).state.is_terminal()
    }

    fn look(&mut self, ix: RunIx, condition: &Arc<dyn Condition>) {
        match self.verdict(ix, condition) {
            Ok(Verdict::Satisfied) => self.succeed(ix, answer(true)),
            Ok(Verdict::NotYet { again_at }) => self.look_at(ix, again_at),
            Err(failure) => self.fail_step(ix, failure, false),
        }
    }

    fn verdict(&self, ix: RunIx, condition: &Arc<dyn Condition>) -> Result<Verdict, Failure> {
        let known = Known { p: self.p, plan: self.plan, ix, frame: self.p.run(ix).frame, now: self.now };
        condition.look(&known).map_err(|message| Failure { class: CLASS.into(), message })
    }

    /// At most one such timer, and none at or behind the timeout, which looks itself. A time that has come already would be
    /// looked at for ever, so it counts as none.
    fn look_at(&mut self, ix: RunIx, at: Option<Timestamp>) {
        let run = self.p.run(ix);
        let due_of =
            |purpose| run.timers.iter().find(|timer| timer.purpose == purpose && !timer.fired).map(|t| t.due_ms);
        let bound = due_of(Purpose::Timeout);
        let wanted = at.map(|at| at.0).filter(|at| *at > self.now.0 && bound.is_none_or(|bound| *at < bound));
        let set = due_of(Purpose::Look);
        if wanted == set {
            return;
        }
        if let Some(set) = set {
            self.p.due.remove(&(set, super::state::Due::Step(ix, Purpose::Look)));
            self.p.run_mut(ix).timers.retain(|timer| timer.purpose != Purpose::Look);
        }
        if let Some(wanted) = wanted {
            self.set_timer(ix, Purpose::Look, wanted);
        }
    }

    /// An attempt on the queue of the kind, with everything that a worker may want to know.
    fn ask_worker(&mut self, ix: RunIx, check: &Check) {
        let text = json!({
            "kind": check.kind,
            "parameters": check.parameters,
            "scene": read(&self.p.observed.scene),
            "world": read(&self.p.observed.world),
        });
        let text = text.to_string().into_bytes();
        if text.len() > 2 * PAYLOAD_BYTES_MAX {
            let message = format!("Expected at most {} bytes, but found {}.", 2 * PAYLOAD_BYTES_MAX, text.len());
            return self.fail_step(ix, Failure { class: "mapping".into(), message }, false);
        }
        if let Err(failure) = self.afford(ix, 2 * text.len()) {
            return self.fail_step(ix, failure, false);
        }
        self.p.payload_bytes += text.len();
        let before = self.p.run_mut(ix).input.replace(text);
        self.p.payload_bytes -= before.map_or(0, |before| before.len());
        self.p.run_mut(ix).failure = None;
        self.enter(ix, StepState::Ready);
        self.order(ix, "");
    }

    /// A worker answered: any JSON value, which is true or not.
    pub(super) fn on_answer(&mut self, ix: RunIx, output: &[u8]) {
        let yes = serde_json::from_slice(output).is_ok_and(|value| truthy(&value));
        match self.plan.step(self.p.run(ix).step).kind {
            StepKind::WaitFor { poll_ms, .. } if !yes => {
                self.enter(ix, StepState::WaitingForTimer);
                self.look_at(ix, Some(self.now.plus_ms(poll_ms)));
            }
            _ => self.succeed(ix, answer(yes)),
        }
    }
}

fn answer(yes: bool) -> Vec<u8> {
    if yes { b"true".to_vec() } else { b"false".to_vec() }
}

fn unknown(check: &Check) -> Failure {
    let message = format!("Expected a registered condition kind, but {:?} is none.", check.kind);
    Failure { class: UNKNOWN_KIND.into(), message }
}
