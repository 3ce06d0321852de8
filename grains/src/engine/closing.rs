//! Closing: step runs that are not wanted any more, in the order of their creation.

use super::state::{FrameIx, RunIx, StepState};
use super::turn::Turn;
use super::{Closing, Effect, ids, state::Asked};
use crate::definition::StepKind;

impl Turn<'_> {
    /// Cancels one active step run and tells whoever works on it.
    pub(super) fn close(&mut self, ix: RunIx, reason: &str) {
        if self.p.run(ix).state.is_terminal() {
            return;
        }
        self.call_off(ix, Closing::Cancelled, reason);
        self.enter(ix, StepState::Cancelled);
    }

    /// Run Control, or the child run, shall not go on with the present attempt.
    pub(super) fn call_off(&mut self, ix: RunIx, closing: Closing, reason: &str) {
        let run = self.p.run(ix);
        let is_child =
            matches!(self.plan.step(run.step).kind, StepKind::SubWorkflow { .. }) && run.asked == Asked::Nothing;
        match run.state {
            StepState::Ready | StepState::Running | StepState::WaitingForHuman => {}
            // Between attempts, or a Timer step: nobody works on it.
            _ => return,
        }
        let effect = if is_child {
            Effect::CancelChild { child_run_id: ids::child_run_id(run.id, run.attempt), reason: reason.to_owned() }
        } else {
            Effect::CloseStep { step_run_id: run.id, closing }
        };
        self.effects.push(effect);
    }

    /// Everything active in these frames, and in the frames opened from them.
    pub(super) fn close_frames(&mut self, mut open: Vec<FrameIx>) {
        let mut runs: Vec<RunIx> = Vec::new();
        let mut closed: Vec<FrameIx> = Vec::new();
        while let Some(frame) = open.pop() {
            self.p.frame_mut(frame).closed = true;
            closed.push(frame);
            runs.extend(self.p.active.range((frame, RunIx(0))..=(frame, RunIx(u32::MAX))).map(|(_, ix)| *ix));
            for fanout in &self.p.frame(frame).fanouts {
                if let Some(fan) = &self.p.run(*fanout).fan {
                    open.extend((fan.first_frame..fan.first_frame + fan.branches).map(FrameIx));
                }
            }
        }
        for frame in closed {
            let of_frame = (frame, crate::definition::StepIx(0))..=(frame, crate::definition::StepIx(u32::MAX));
            let waiting: Vec<_> = self.p.half_ready.range(of_frame).copied().collect();
            for target in waiting {
                self.p.half_ready.remove(&target);
            }
        }
        runs.sort_unstable();
        for ix in runs {
            self.close(ix, "the join does not need this branch any more");
        }
    }

    /// Everything active in the run. Says how many there were.
    pub(super) fn close_all(&mut self, reason: &str) -> u32 {
        let mut runs: Vec<RunIx> = self.p.active.iter().map(|(_, ix)| *ix).collect();
        runs.sort_unstable();
        for ix in &runs {
            self.close(*ix, reason);
        }
        self.p.half_ready.clear();
        runs.len() as u32
    }
}
