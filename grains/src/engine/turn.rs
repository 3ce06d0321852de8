//! One turn: the worklist, and the frame around each trigger.

use super::state::{FrameIx, Projection, RunIx};
use super::{Effect, EngineOptions, Input, Refusal};
use crate::definition::{Plan, StepIx};
use grain_contract::Timestamp;
use std::collections::VecDeque;

/// What became of the last input that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    Applied,
    /// This fact had been applied before; nothing happened.
    Repeated,
    /// The fact came too late to matter (ended step, older attempt); its number is used up and nothing else happened.
    Superseded(String),
}

/// What is to be looked at within this turn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// An incoming edge of the step was decided: can it go on?
    Check(FrameIx, StepIx),
    /// Make a step run and start it, whatever its edges say (entries, heads of loops).
    Begin(FrameIx, StepIx),
    /// Start the next attempt of a step run.
    Start(RunIx),
    /// Something reached the Join, or cannot any more: how did the branch end?
    Branch(FrameIx),
}

pub(super) struct Turn<'a> {
    pub p: &'a mut Projection,
    pub plan: &'a Plan,
    pub options: &'a EngineOptions,
    pub now: Timestamp,
    pub effects: Vec<Effect>,
    pub work: VecDeque<Work>,
    /// Facts changed that a waiting condition may ask for.
    pub stirred: bool,
}

impl Projection {
    /// Applies one input. Refused: nothing changed. `plan` may be absent only for an acceptance with a refusal, and for a
    /// run that has ended.
    ///
    /// # Errors
    /// [`Refusal`], which says what was expected.
    pub fn decide(
        &mut self,
        plan: Option<&Plan>,
        options: &EngineOptions,
        now: Timestamp,
        input: Input,
    ) -> Result<Vec<Effect>, Refusal> {
        let fact = match self.number(&input)? {
            Numbered::Repeated => {
                self.note = Note::Repeated;
                return Ok(Vec::new());
            }
            Numbered::Next(fact) => Some(fact),
            Numbered::NotAFact => None,
        };
        if self.is_terminal() {
            // Only the clock and the sweep come here: a fact for an ended run was refused above.
            self.note = Note::Applied;
            return Ok(Vec::new());
        }
        if let Input::RunAccepted { accepted, .. } = &input
            && (plan.is_none() || accepted.refusal.is_some())
        {
            self.note = Note::Applied;
            self.take_number(fact, options);
            return Ok(self.on_refused_acceptance(now, accepted));
        }
        let Some(plan) = plan else {
            return Err(Refusal::DoesNotFit {
                code: "no-plan",
                message: "Expected the run's plan, but it was not given.".into(),
            });
        };
        self.check_fit(plan, &input)?;

        self.note = Note::Applied;
        self.spent.begin(now);
        let due_before = self.next_due();
        let mut turn = Turn { p: self, plan, options, now, effects: Vec::new(), work: VecDeque::new(), stirred: false };
        turn.run();
        turn.p.take_number(fact, options);
        if turn.p.is_terminal() {
            // The timers that were due just now ended the run; the fact came too late.
            if fact.is_some() {
                turn.supersede("the run has ended".into());
            }
        } else {
            turn.apply(input);
            turn.run();
            turn.settle();
        }
        let effects = turn.finish(due_before);
        if !effects.is_empty() || fact.is_some() {
            self.header.version += 1;
            self.header_changed = true;
        }
        Ok(effects)
    }

    /// What would make the input refused, found before anything changes.
    fn check_fit(&self, plan: &Plan, input: &Input) -> Result<(), Refusal> {
        match input {
            Input::AttemptOutcomeRecorded { outcome, .. } => self.known(outcome.step_run_id).map(drop),
            Input::ApprovalDecided { decided, .. } => self.decision_fits(decided),
            Input::StepTaken { step_run_id, .. }
            | Input::AttemptClaimed { step_run_id, .. }
            | Input::AttemptRequeued { step_run_id, .. } => self.known(*step_run_id).map(drop),
            Input::RunAccepted { .. }
            | Input::RunCancelled { .. }
            | Input::Observed { .. }
            | Input::TimersDue
            | Input::CheckStuck { .. } => {
                debug_assert!(self.header.graph_hash.is_empty() || self.header.graph_hash == plan.graph_hash);
                Ok(())
            }
        }
    }

    pub(super) fn known(&self, id: uuid::Uuid) -> Result<RunIx, Refusal> {
        self.by_id.get(&id).copied().ok_or_else(|| Refusal::DoesNotFit {
            code: "unknown-step-run",
            message: format!("Expected a step run of run {}, but found {id}.", self.run_id),
        })
    }
}

/// Where a fact's number stands.
pub(super) enum Numbered {
    NotAFact,
    Repeated,
    Next(Fact),
}

#[derive(Clone, Copy)]
pub(super) struct Fact {
    pub sequence: u64,
    pub digest: [u8; 16],
}

impl Turn<'_> {
    fn apply(&mut self, input: Input) {
        match input {
            Input::RunAccepted { accepted, .. } => self.on_accepted(accepted),
            Input::AttemptOutcomeRecorded { outcome, .. } => self.on_outcome(outcome),
            Input::ApprovalDecided { decided, .. } => self.on_decision(decided),
            Input::RunCancelled { reason, .. } => self.on_cancelled(&reason),
            Input::Observed { observation, .. } => self.on_observed(observation),
            Input::TimersDue => {}
            Input::CheckStuck { open } => self.on_stuck(&open),
            Input::StepTaken { step_run_id, attempt_id, approval_id } => {
                self.on_taken(step_run_id, attempt_id, approval_id)
            }
            Input::AttemptClaimed { step_run_id, attempt } => self.on_claimed(step_run_id, attempt),
            Input::AttemptRequeued { step_run_id, attempt } => self.on_requeued(step_run_id, attempt),
        }
    }

    /// Does what is to be done, and fires what is due, until neither is left.
    fn run(&mut self) {
        loop {
            while let Some(work) = self.work.pop_front() {
                if self.p.is_terminal() {
                    self.work.clear();
                    return;
                }
                match work {
                    Work::Check(frame, step) => self.check(frame, step),
                    Work::Begin(frame, step) => self.begin(frame, step),
                    Work::Start(run) => self.start(run),
                    Work::Branch(frame) => self.check_branch(frame),
                }
            }
            if self.p.is_terminal() {
                return;
            }
            if std::mem::take(&mut self.stirred) && self.plan.waits {
                self.look_again();
            } else if !self.fire_next() {
                return;
            }
        }
    }

    pub(super) fn supersede(&mut self, why: String) {
        self.p.note = Note::Superseded(why);
    }

    /// The wake-up, if it moved, goes last.
    fn finish(self, due_before: Option<Timestamp>) -> Vec<Effect> {
        let mut effects = self.effects;
        let due = self.p.next_due();
        if due != due_before {
            effects.push(Effect::WakeAt(due));
        }
        effects
    }
}
