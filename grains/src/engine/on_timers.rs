//! A timer is due: fire it. Late is fired at once and recorded as late; never early.

use super::Closing;
use super::ids;
use super::state::{Due, Purpose, RunIx, RunState};
use super::turn::{Turn, Work};
use crate::definition::StepKind;
use granary_proto::v1::event::Payload;
use granary_proto::v1::{self, Failure};
use uuid::Uuid;

impl Turn<'_> {
    /// Fires the earliest timer that is due. False if none is.
    pub(super) fn fire_next(&mut self) -> bool {
        let Some((due_ms, due)) = self.p.due.first().copied() else { return false };
        if due_ms > self.now.0 {
            return false;
        }
        self.p.due.remove(&(due_ms, due));
        let late_ms = self.now.since(grain_contract::Timestamp(due_ms));
        match due {
            Due::Deadline => self.on_deadline(late_ms),
            Due::Step(ix, purpose) => self.on_step_timer(ix, purpose, late_ms),
        }
        true
    }

    fn on_step_timer(&mut self, ix: RunIx, purpose: Purpose, late_ms: u64) {
        let Some(timer) = self.p.timer_mut(ix, purpose) else { return };
        timer.fired = true;
        timer.late_ms = late_ms;
        let timer_id = timer.id;
        let step_run_id = self.p.run(ix).id;
        self.fired(timer_id, step_run_id, late_ms);
        if purpose != Purpose::Step {
            // Set again with the next attempt: what has fired of these must not pile up in the row.
            self.p.run_mut(ix).timers.retain(|timer| timer.purpose != purpose);
        }
        match purpose {
            Purpose::Step => {
                self.p.run_mut(ix).late = late_ms > 0;
                self.succeed(ix, b"null".to_vec());
            }
            Purpose::Retry => self.work.push_back(Work::Start(ix)),
            Purpose::Look => self.on_look_due(ix),
            Purpose::Timeout => self.on_timeout(ix),
        }
    }

    fn on_timeout(&mut self, ix: RunIx) {
        if self.look_at_the_last_moment(ix) {
            return;
        }
        self.call_off(ix, Closing::TimedOut, "timed out");
        let run = self.p.run(ix);
        let bound = self.plan.step(run.step).timeout_ms.unwrap_or(0);
        let message = match &self.plan.step(run.step).kind {
            StepKind::WaitFor { check, .. } => {
                format!("Expected the condition {} to be satisfied within {bound} ms, but it was not.", check.kind)
            }
            _ => format!("Expected an end of attempt {} within {bound} ms, but none came.", run.attempt),
        };
        self.fail_step(ix, Failure { class: "timeout".into(), message }, true);
    }

    fn on_deadline(&mut self, late_ms: u64) {
        self.p.header.deadline_fired = true;
        if self.p.state == RunState::Compensating {
            return; // The run is over already; undoing is not cut short.
        }
        self.fired(ids::timer_id(self.p.run_id, "deadline", 1), Uuid::nil(), late_ms);
        let bound = self.p.header.deadline_ms - self.p.header.accepted_ms;
        let message = format!("Expected the run to end within {bound} ms, but it was still {}.", self.p.state.as_str());
        self.fail_run("", Failure { class: "deadline".into(), message });
    }

    fn fired(&mut self, timer_id: Uuid, step_run_id: Uuid, late_ms: u64) {
        self.publish(Payload::TimerFired(v1::TimerFired {
            run_id: self.p.run_id.to_string(),
            tenant_id: self.p.tenant.clone(),
            timer_id: timer_id.to_string(),
            step_run_id: step_run_id.to_string(),
            late_ms,
        }));
    }
}
