//! Readiness: a step waits until each incoming edge (loop-backs aside) is decided; at least one taken: it is ready; none: it
//! is skipped. Every kind obeys this one rule; a Join may pass earlier, by its quorum.

use super::edges::EdgeState;
use super::state::{Asked, FrameIx, Projection, RunIx, Slot, StepRun, StepState};
use super::turn::Turn;
use crate::definition::{Plan, Step, StepIx, StepKind};
use granary_proto::v1::Failure;

impl Turn<'_> {
    pub(super) fn check(&mut self, frame: FrameIx, step: StepIx) {
        if self.p.frame(frame).closed || self.p.present(frame, step).is_some() {
            return;
        }
        match &self.plan.step(step).kind {
            StepKind::Join(join) if join.fanout.is_some() => self.check_fanout_join(frame, step, join),
            StepKind::Join(join) => self.check_plain_join(frame, step, join),
            _ => self.check_step(frame, step),
        }
    }

    fn check_step(&mut self, frame: FrameIx, step: StepIx) {
        let (mut taken, mut not_taken) = (false, Vec::new());
        for edge in self.plan.forward_incoming(step) {
            match self.edge_state(frame, edge) {
                EdgeState::Open => return self.wait(frame, step),
                EdgeState::Taken => taken = true,
                EdgeState::NotTaken => not_taken.push(self.plan.edge(edge).from),
            }
        }
        if taken {
            self.begin(frame, step);
        } else {
            self.begin_skipped(frame, step, not_taken);
        }
    }

    /// Remembers a step as half ready, if something before it has come so far in the present iteration. (The check may be
    /// a leftover from before a loop began anew.)
    pub(super) fn wait(&mut self, frame: FrameIx, step: StepIx) {
        let plan = self.plan;
        let begun = plan.forward_incoming(step).any(|edge| {
            let mut before = self.p.slots.get(&(frame, plan.edge(edge).from)).map(|slot| slot.run);
            while let Some(ix) = before.filter(|ix| self.p.is_of_now(plan, *ix, step)) {
                if self.p.run(ix).state.is_terminal() {
                    return true;
                }
                before = self.p.run(ix).previous;
            }
            false
        });
        if begun || plan.step(step).is_fanout_join() {
            self.p.half_ready.insert((frame, step));
        }
    }

    pub(super) fn begin(&mut self, frame: FrameIx, step: StepIx) {
        if let Some(ix) = self.create(frame, step) {
            self.start(ix);
        }
    }

    pub(super) fn begin_skipped(&mut self, frame: FrameIx, step: StepIx, mut by: Vec<StepIx>) {
        by.dedup();
        if let Some(ix) = self.create(frame, step) {
            self.skip(ix, by);
        }
    }

    /// A new step run, Pending. `None`: the run has too many, and has failed.
    pub(super) fn create(&mut self, frame: FrameIx, step: StepIx) -> Option<RunIx> {
        self.p.half_ready.remove(&(frame, step));
        if !self.has_room(step) {
            return None;
        }
        let previous = self.p.slots.get(&(frame, step)).map(|slot| slot.run);
        let iteration = self.p.next_iteration(frame, step);
        let id = self.p.id_of_next(self.plan, frame, step);
        let loops = self.plan.own_loops(step).map(|of_loop| self.p.iteration(frame, of_loop)).collect();
        let ix = self.p.push(StepRun { iteration, loops, previous, ..StepRun::pending(id, step, frame) });
        self.p.slots.insert((frame, step), Slot { run: ix, present: true });
        Some(ix)
    }

    pub(super) fn has_room(&mut self, step: StepIx) -> bool {
        let bound = self.options.step_runs_max;
        let step = self.plan.step(step);
        if self.p.runs.len() < bound {
            return self.has_bytes(step);
        }
        let class = if step.loops.is_empty() { "fanout-limit" } else { "loop-bound" };
        let message = format!("Expected at most {bound} step runs in one run, but one more was asked for.");
        self.fail_run(&step.id, Failure { class: class.into(), message });
        false
    }
}

impl StepRun {
    pub(super) fn pending(id: uuid::Uuid, step: StepIx, frame: FrameIx) -> Self {
        Self {
            id,
            step,
            frame,
            iteration: 1,
            loops: Box::default(),
            state: StepState::Pending,
            attempt: 0,
            asked: Asked::Nothing,
            approval_id: None,
            attempt_ids: Vec::new(),
            started_ms: 0,
            ended_ms: 0,
            ready_ms: 0,
            input: None,
            output: Vec::new(),
            output_ref: String::new(),
            failure: None,
            completed_as: 0,
            routed: false,
            edges: Vec::new(),
            timers: Vec::new(),
            skipped_by: Vec::new(),
            fan: None,
            asked_again: 0,
            late: false,
            undoes: None,
            previous: None,
            changed: false,
        }
    }
}

impl Step {
    pub(super) fn is_fanout_join(&self) -> bool {
        matches!(&self.kind, StepKind::Join(join) if join.fanout.is_some())
    }
}

impl Projection {
    /// Whether a step run belongs to the present iteration of every loop that is around both it and the step `to`.
    pub(super) fn is_of_now(&self, plan: &Plan, ix: RunIx, to: StepIx) -> bool {
        let run = self.run(ix);
        let own = plan.own_loops(run.step).zip(run.loops.iter());
        let mut around_both = own.filter(|(of_loop, _)| plan.step(to).loops.contains(of_loop));
        around_both.all(|(of_loop, at)| self.iteration(run.frame, of_loop) == *at)
    }

    /// The iteration number of the step's next step run in this frame, from 1.
    pub(super) fn next_iteration(&self, frame: FrameIx, step: StepIx) -> u32 {
        match self.slots.get(&(frame, step)) {
            Some(slot) => self.run(slot.run).iteration + 1,
            None => self.frame(frame).iteration_base + 1,
        }
    }

    pub(super) fn push(&mut self, run: StepRun) -> RunIx {
        let ix = RunIx(self.runs.len() as u32);
        let (id, iteration, mut frame) = (run.id, run.iteration, run.frame);
        self.by_id.insert(id, ix);
        self.runs.push(run);
        self.run_mut(ix);
        // Each Fanout around it counts iterations on from the greatest number used inside.
        while let Some((owner, _)) = self.frame(frame).owner {
            let parent = self.frame(frame).parent;
            if let Some(fan) = &mut self.runs[owner.0 as usize].fan {
                fan.iteration_max = fan.iteration_max.max(iteration);
            }
            frame = parent;
        }
        ix
    }
}
