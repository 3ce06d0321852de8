//! Publishing: each event gets the run's next number, in the order in which things happen.

use super::Effect;
use super::state::{Projection, RunIx, StepState};
use super::turn::Turn;
use grain_contract::Timestamp;
use granary_proto::v1::{self, event::Payload};

impl Projection {
    pub(super) fn publish(&mut self, now: Timestamp, payload: Payload) -> Effect {
        self.header.events += 1;
        self.header_changed = true;
        Effect::Publish(v1::Event {
            sequence: self.header.events,
            at_ms: now.0,
            subject: self.run_id.to_string(),
            payload: Some(payload),
        })
    }
}

impl Turn<'_> {
    pub(super) fn publish(&mut self, payload: Payload) {
        let event = self.p.publish(self.now, payload);
        self.effects.push(event);
    }

    pub(super) fn step_id(&self, ix: RunIx) -> &str {
        &self.plan.step(self.p.run(ix).step).id
    }

    /// Moves a step run to another state: the one place where that happens, so each move is published and counted.
    pub(super) fn enter(&mut self, ix: RunIx, to: StepState) {
        let from = self.p.run(ix).state;
        if from == to {
            return;
        }
        debug_assert!(!from.is_terminal(), "an ended step run does not move");
        let now = self.now.0;
        self.p.count(from, -1);
        self.p.count(to, 1);
        let frame = self.p.run(ix).frame;
        if to.is_terminal() {
            self.stirred = true;
            self.clear_timers(ix);
            self.p.active.remove(&(frame, ix));
        } else {
            self.p.active.insert((frame, ix));
        }
        let run = self.p.run_mut(ix);
        run.state = to;
        if run.started_ms == 0 && !matches!(to, StepState::Ready | StepState::Skipped | StepState::Cancelled) {
            // A Run Control that does not tell of claims: the step was at work from its order on, for all that is known.
            let unseen = from == StepState::Ready && to != StepState::Running;
            run.started_ms = if unseen && run.ready_ms != 0 { run.ready_ms } else { now };
        }
        if to.is_terminal() {
            run.ended_ms = now;
            let input = run.input.take();
            self.p.payload_bytes -= input.map_or(0, |input| input.len());
        }
        let payload = Payload::StepRunStateChanged(v1::StepRunStateChanged {
            run_id: self.p.run_id.to_string(),
            tenant_id: self.p.tenant.clone(),
            step_run_id: self.p.run(ix).id.to_string(),
            step_id: self.step_id(ix).to_owned(),
            from_state: from.as_str().to_owned(),
            to_state: to.as_str().to_owned(),
        });
        self.publish(payload);
    }
}

impl Projection {
    pub(super) fn count(&mut self, state: StepState, by: i32) {
        let counter = match state {
            StepState::WaitingForTimer => &mut self.counts.on_timer,
            StepState::WaitingForHuman => &mut self.counts.on_human,
            StepState::Ready | StepState::Running => &mut self.counts.working,
            _ => return,
        };
        *counter = counter.saturating_add_signed(by);
    }
}
