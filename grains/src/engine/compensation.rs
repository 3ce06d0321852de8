//! Compensation: what succeeded is undone in reverse order of completion, one at a time.

use super::ids;
use super::state::{Entry, RunIx, RunState, StepRun, StepState};
use super::turn::Turn;
use granary_proto::v1::event::Payload;
use granary_proto::v1::{self, Failure, FollowUp};

impl Turn<'_> {
    /// A step failed with policy Compensate; it has ended already.
    pub(super) fn compensate(&mut self, failed: RunIx, failure: Failure) {
        self.p.header.failed_step_id = self.step_id(failed).to_owned();
        self.p.header.failure = Some(failure);
        self.close_all("the run is compensated");
        // What this very turn was about to start or look at is not wanted any more either.
        self.work.clear();
        if self.p.header.deadline_ms != 0 {
            self.p.due.remove(&(self.p.header.deadline_ms, super::state::Due::Deadline));
        }
        self.p.state = RunState::Compensating;
        self.p.entries = self.plan_entries();
        self.publish(Payload::CompensationStarted(v1::CompensationStarted {
            run_id: self.p.run_id.to_string(),
            tenant_id: self.p.tenant.clone(),
            entries: self.p.entries.len() as u32,
        }));
        self.undo_next();
    }

    /// Also undone: a step that did its work and failed only afterwards, in the guards of its edges.
    fn plan_entries(&self) -> Vec<Entry> {
        let runs = (0..self.p.runs.len() as u32).map(RunIx);
        let mut done: Vec<(u64, RunIx)> = runs
            .filter_map(|ix| {
                let run = self.p.run(ix);
                let did_it = match run.state {
                    StepState::Succeeded => true,
                    StepState::Failed => !run.routed,
                    _ => false,
                };
                (did_it && run.completed_as > 0).then_some((run.completed_as, ix))
            })
            .collect();
        done.sort_unstable_by(|a, b| b.cmp(a));
        let entries = done.into_iter().filter_map(|(_, ix)| {
            let run = self.p.run(ix);
            let step = self.plan.step(run.step).compensation?;
            let id = ids::compensation_entry_id(run.id);
            Some(Entry { id, undoes: ix, step, state: StepState::Pending, run: None, changed: true })
        });
        entries.collect()
    }

    fn undo_next(&mut self) {
        let Some(at) = self.p.entries.iter().position(|entry| entry.state == StepState::Pending) else {
            return self.compensated();
        };
        let (forward, step) = (self.p.entries[at].undoes, self.p.entries[at].step);
        if !self.has_room(step) {
            return;
        }
        let run = self.p.run(forward);
        let undo = StepRun {
            iteration: run.iteration,
            undoes: Some(forward),
            ..StepRun::pending(ids::compensation_run_id(run.id), step, run.frame)
        };
        let ix = self.p.push(undo);
        let entry = &mut self.p.entries[at];
        entry.run = Some(ix);
        entry.state = StepState::Running;
        entry.changed = true;
        self.start(ix);
    }

    fn end_entry(&mut self, undo: RunIx, state: StepState) {
        if let Some(entry) = self.p.entries.iter_mut().find(|entry| entry.run == Some(undo)) {
            entry.state = state;
            entry.changed = true;
        }
    }

    pub(super) fn compensation_succeeded(&mut self, undo: RunIx) {
        self.end_entry(undo, StepState::Succeeded);
        self.undo_next();
    }

    fn compensated(&mut self) {
        self.p.header.compensated = !self.p.entries.is_empty();
        let failure = self.p.header.failure.clone().unwrap_or_default();
        let step_id = self.p.header.failed_step_id.clone();
        self.fail_run(&step_id, failure);
    }

    /// No further automatic retry: an operator has to see to the rest.
    pub(super) fn compensation_failed(&mut self, undo: RunIx, failure: Failure) {
        self.enter(undo, StepState::Failed);
        self.end_entry(undo, StepState::Failed);
        let forward_step = |entry: &Entry| self.plan.step(self.p.run(entry.undoes).step).id.clone();
        let (undone, not_undone): (Vec<&Entry>, Vec<&Entry>) =
            self.p.entries.iter().partition(|entry| entry.state == StepState::Succeeded);
        let cause = self.p.header.failure.clone().unwrap_or_default();
        let message = format!(
            "Expected compensation {} to succeed, but it failed ({}: {}). The run had failed at step {} ({}: {}).",
            self.step_id(undo),
            failure.class,
            failure.message,
            self.p.header.failed_step_id,
            cause.class,
            cause.message,
        );
        let follow_up = FollowUp {
            reason: message.clone(),
            undone_step_ids: undone.into_iter().map(forward_step).collect(),
            not_undone_step_ids: not_undone.into_iter().map(forward_step).collect(),
        };
        self.p.header.follow_up = Some(follow_up);
        let step_id = self.step_id(undo).to_owned();
        self.fail_run(&step_id, Failure { class: "compensation".into(), message });
    }
}
