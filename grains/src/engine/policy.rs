//! Failure policies: what follows when a step fails.

use super::edges::Ending;
use super::state::{Asked, Branch, FrameIx, Projection, Purpose, RunIx, StepState};
use super::turn::{Turn, Work};
use crate::definition::{Backoff, FailurePolicy, Plan, StepIx, StepKind};
use grain_contract::limits::BACKOFF_MS_MAX;
use granary_proto::v1::Failure;

impl Turn<'_> {
    /// The step run's present attempt failed. `again_may_help`: the same input need not fail the same way.
    pub(super) fn fail_step(&mut self, ix: RunIx, failure: Failure, again_may_help: bool) {
        let step = self.plan.step(self.p.run(ix).step);
        let attempts_left = self.p.run(ix).attempt < step.max_attempts;
        self.clear_timers(ix);
        let run = self.p.run_mut(ix);
        run.failure = Some(failure.clone());
        let retry = step.failure_policy == FailurePolicy::Retry && again_may_help && attempts_left;
        if retry {
            return self.retry_later(ix);
        }
        if self.p.run(ix).undoes.is_some() {
            return self.compensation_failed(ix, failure);
        }
        match step.failure_policy {
            FailurePolicy::Fail | FailurePolicy::Retry if step.routes_failure => self.route(ix, failure),
            FailurePolicy::Fail | FailurePolicy::Retry => self.give_up(ix, failure),
            FailurePolicy::Escalate => self.escalate(ix),
            FailurePolicy::Compensate => {
                self.enter(ix, StepState::Failed);
                self.compensate(ix, failure);
            }
            FailurePolicy::Route => self.route(ix, failure),
        }
    }

    /// What happened is not known. Only `read` may be done again unasked: at least once, and while attempts are left.
    pub(super) fn uncertain(&mut self, ix: RunIx, failure: Failure) {
        let (run, step) = (self.p.run(ix), self.plan.step(self.p.run(ix).step));
        let is_read = step.action_class == "read";
        let again = is_read && run.attempt < step.max_attempts.max(2);
        if again {
            self.clear_timers(ix);
            self.p.run_mut(ix).failure = Some(failure);
            self.retry_later(ix);
        } else if is_read || run.undoes.is_some() {
            self.fail_step(ix, failure, false);
        } else {
            self.clear_timers(ix);
            self.p.run_mut(ix).failure = Some(failure);
            self.escalate(ix);
        }
    }

    fn retry_later(&mut self, ix: RunIx) {
        let run = self.p.run(ix);
        let delay = self.plan.step(run.step).backoff.delay_ms(run.attempt);
        if delay == 0 {
            self.work.push_back(Work::Start(ix));
            return;
        }
        self.enter(ix, StepState::WaitingForTimer);
        self.set_timer(ix, Purpose::Retry, self.now.plus_ms(delay).0);
    }

    /// A human chooses: retry, skip or fail. It is the next attempt, so that what is late for this one is told apart.
    pub(super) fn escalate(&mut self, ix: RunIx) {
        self.p.run_mut(ix).attempt += 1;
        self.ask(ix, Asked::Escalation);
    }

    /// The failure becomes data for the outgoing edges.
    fn route(&mut self, ix: RunIx, failure: Failure) {
        let data = serde_json::json!({ "failure": { "class": failure.class, "message": failure.message } });
        self.set_output(ix, data.to_string().into_bytes());
        match self.decide_edges(ix, Ending::Routed) {
            Err(in_guard) => {
                self.p.run_mut(ix).failure = Some(in_guard.clone());
                self.give_up(ix, in_guard);
            }
            Ok(decided) if !decided.edges.contains(&super::edges::TAKEN) || self.leads_nowhere(ix, &decided.edges) => {
                self.give_up(ix, failure);
            }
            Ok(decided) => {
                let completed_as = self.p.next_completion();
                let run = self.p.run_mut(ix);
                run.routed = true;
                run.completed_as = completed_as;
                run.edges = decided.edges;
                self.enter(ix, StepState::Failed);
                self.follow(ix, decided.back);
            }
        }
    }

    /// A Fanout that could not open has no branches, so edges into them handle nothing.
    fn leads_nowhere(&self, ix: RunIx, edges: &[u8]) -> bool {
        let step = self.plan.step(self.p.run(ix).step);
        let taken = step.outgoing.iter().zip(edges).filter(|(_, how)| **how == super::edges::TAKEN);
        taken.map(|(edge, _)| self.plan.step(self.plan.edge(*edge).to)).all(|to| to.scope.len() > step.scope.len())
    }

    /// The step run has failed for good: so has its branch, or the run.
    pub(super) fn give_up(&mut self, ix: RunIx, failure: Failure) {
        self.enter(ix, StepState::Failed);
        if let Some(frame) = self.p.failing_branch(self.plan, self.p.run(ix).frame) {
            self.close_frames(vec![frame]);
            return self.end_branch(frame, Branch::Failed);
        }
        let step_id = self.step_id(ix).to_owned();
        self.fail_run(&step_id, failure);
    }
}

impl Projection {
    /// The branch that fails with a step in `frame`: the innermost one that a Join collects. `None`: the run does.
    pub(super) fn failing_branch(&self, plan: &Plan, mut frame: FrameIx) -> Option<FrameIx> {
        loop {
            let (owner, _) = self.frame(frame).owner?;
            if plan.join_of(self.run(owner).step).is_some() {
                return Some(frame);
            }
            frame = self.frame(frame).parent;
        }
    }
}

impl Plan {
    /// The Join that collects a Fanout's branches.
    pub(super) fn join_of(&self, fanout: StepIx) -> Option<StepIx> {
        match &self.step(fanout).kind {
            StepKind::Fanout(fanout) => fanout.join,
            _ => None,
        }
    }
}

impl Backoff {
    /// Delay behind the n-th attempt, from 1: `initial · factor^(n-1)`, at most `max`. Floating point saturates at infinity
    /// instead of overflowing, and a product that is no number counts as the bound.
    pub fn delay_ms(&self, attempt: u32) -> u64 {
        let bound = self.max_ms.min(BACKOFF_MS_MAX);
        if self.initial_ms == 0 {
            return 0;
        }
        let exponent = f64::from(attempt.saturating_sub(1));
        let delay = self.initial_ms as f64 * self.factor.max(0.0).powf(exponent);
        if delay.is_nan() || delay >= bound as f64 { bound } else { delay as u64 }
    }
}
