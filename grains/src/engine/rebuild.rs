//! Everything that is not in rows, since it follows from them: what is present, what is active, what is due, how each branch
//! ended, who is half ready. Found by the same rules that a turn uses.

use super::EngineOptions;
use super::edges::TAKEN;
use super::state::{Branch, Due, FrameIx, Projection, RunIx, RunState, StepRun, StepState};
use super::turn::Turn;
use crate::definition::{Plan, StepIx};
use grain_contract::Timestamp;
use std::collections::{HashSet, VecDeque};

impl Projection {
    pub(super) fn rebuild(&mut self, plan: &Plan) {
        for ix in (0..self.runs.len() as u32).map(RunIx) {
            self.runs[ix.0 as usize].changed = false;
            self.note_iterations(plan, ix);
        }
        self.changed_runs.clear();
        self.note_present(plan);
        for ix in (0..self.runs.len() as u32).map(RunIx) {
            self.note_active(ix);
            self.note_exits(plan, ix);
        }
        // The output of a Join is read from its branches, of an ended run too.
        self.note_branches(plan);
        if !self.is_terminal() && self.state != RunState::Compensating {
            if self.header.deadline_ms != 0 && !self.header.deadline_fired {
                self.due.insert((self.header.deadline_ms, Due::Deadline));
            }
            self.note_half_ready(plan);
        }
    }

    /// Each iteration of a loop begins with a step run of its head, so the newest one tells how far the loop is.
    fn note_iterations(&mut self, plan: &Plan, ix: RunIx) {
        let run = &self.runs[ix.0 as usize];
        let (frame, step) = (run.frame, run.step);
        let own: Vec<(u32, u32)> = plan.own_loops(step).zip(run.loops.iter().copied()).collect();
        for (at, (of_loop, made)) in own.iter().enumerate() {
            if plan.loops[*of_loop as usize].head != step {
                continue;
            }
            let outer_moved = own[..at].iter().any(|(outer, made)| self.iteration(frame, *outer) < *made);
            debug_assert!(!outer_moved, "the outer head comes first");
            if self.iteration(frame, *of_loop) != *made {
                self.forget_inner(plan, frame, *of_loop);
                self.iterations.insert((frame, *of_loop), *made);
            }
        }
    }

    fn forget_inner(&mut self, plan: &Plan, frame: FrameIx, outer: u32) {
        for inner in 0..plan.loops.len() as u32 {
            if plan.is_inner_loop(inner, outer) {
                self.iterations.remove(&(frame, inner));
            }
        }
    }

    fn note_present(&mut self, plan: &Plan) {
        let mut past = Vec::new();
        for ((frame, step), slot) in &self.slots {
            let run = self.run(slot.run);
            let present = plan.own_loops(*step).zip(run.loops.iter()).all(|(l, at)| self.iteration(*frame, l) == *at);
            if !present {
                past.push((*frame, *step));
            }
        }
        for key in past {
            if let Some(slot) = self.slots.get_mut(&key) {
                slot.present = false;
            }
        }
    }

    fn note_active(&mut self, ix: RunIx) {
        let run = self.run(ix);
        let (state, frame) = (run.state, run.frame);
        if state.is_terminal() {
            return;
        }
        let due: Vec<_> =
            run.timers.iter().filter(|t| !t.fired).map(|t| (t.due_ms, Due::Step(ix, t.purpose))).collect();
        self.due.extend(due);
        self.active.insert((frame, ix));
        self.count(state, 1);
    }

    fn note_exits(&mut self, plan: &Plan, ix: RunIx) {
        let run = self.run(ix);
        let frame = run.frame;
        let mut taken = Vec::new();
        for (edge, how) in plan.step(run.step).outgoing.iter().zip(&run.edges) {
            let of_edge = plan.edge(*edge);
            if *how != TAKEN || of_edge.loop_back.is_some() || !plan.leaves_loop(*edge) {
                continue;
            }
            if self.is_of_now(plan, ix, of_edge.to) {
                taken.push((frame, *edge));
            }
        }
        self.exits_taken.extend(taken);
    }

    /// How each branch ended: by the same rule that found it the first time. A branch that was closed before it ended may
    /// look dry now; its Join is decided, so nobody asks any more.
    fn note_branches(&mut self, plan: &Plan) {
        let failed = self.failed_branches(plan);
        let busy = self.busy_frames();
        for frame in (1..self.frames.len() as u32).map(FrameIx) {
            let Some((owner, _)) = self.frame(frame).owner else { continue };
            let Some(join) = plan.join_of(self.run(owner).step) else { continue };
            let how = if failed.contains(&frame) && !self.had_arrived(plan, frame, join) {
                Branch::Failed
            } else {
                self.with_turn(plan, |turn| turn.branch_state(owner, frame, join))
            };
            self.note_branch(frame, how);
            let decided = self.slots.get(&(self.frame(frame).parent, join)).is_some_and(|slot| slot.run > owner);
            self.frame_mut(frame).closed = failed.contains(&frame) || (decided && !busy.contains(&frame));
        }
    }

    /// Frames of the branches that a failure ended which no edge took.
    fn failed_branches(&self, plan: &Plan) -> HashSet<FrameIx> {
        let lost = self.runs.iter().filter(|run| run.is_lost() && run.undoes.is_none());
        lost.filter_map(|run| self.failing_branch(plan, run.frame)).collect()
    }

    /// Whether a failed branch had reached its Join before it failed: none of the steps before the Join was part of that.
    fn had_arrived(&self, plan: &Plan, frame: FrameIx, join: StepIx) -> bool {
        let before = plan.forward_incoming(join).filter_map(|edge| self.slots.get(&(frame, plan.edge(edge).from)));
        let mut before = before.map(|slot| self.run(slot.run)).peekable();
        before.peek().is_some()
            && before.all(|run| run.state.is_terminal() && run.state != StepState::Cancelled && !run.is_lost())
    }

    /// Frames with something active in them, or in a Fanout opened in them.
    pub(super) fn busy_frames(&self) -> HashSet<FrameIx> {
        let mut busy = HashSet::new();
        for (frame, _) in &self.active {
            let mut frame = *frame;
            while busy.insert(frame) && self.frame(frame).owner.is_some() {
                frame = self.frame(frame).parent;
            }
        }
        busy
    }

    fn note_half_ready(&mut self, plan: &Plan) {
        let mut targets = Vec::new();
        for (run, ix) in self.runs.iter().zip((0..).map(RunIx)).filter(|(run, _)| run.state.is_terminal()) {
            let (frame, step) = (run.frame, plan.step(run.step));
            let forward = step.outgoing.iter().map(|edge| plan.edge(*edge)).filter(|edge| edge.loop_back.is_none());
            let beside = forward.map(|edge| edge.to).filter(|to| {
                let target = plan.step(*to);
                target.scope.len() == step.scope.len() && !target.is_fanout_join()
            });
            let all = beside.chain(plan.join_of(run.step));
            let open = all.filter(|to| self.is_of_now(plan, ix, *to) && self.present(frame, *to).is_none());
            targets.extend(open.map(|to| (frame, to)));
        }
        targets.retain(|(frame, _)| !self.is_closed(*frame));
        self.half_ready.extend(targets);
    }

    fn is_closed(&self, mut frame: FrameIx) -> bool {
        loop {
            if self.frame(frame).closed {
                return true;
            }
            if self.frame(frame).owner.is_none() {
                return false;
            }
            frame = self.frame(frame).parent;
        }
    }

    /// Asks the rules of a turn without taking one.
    fn with_turn<T>(&mut self, plan: &Plan, ask: impl FnOnce(&mut Turn<'_>) -> T) -> T {
        let options = EngineOptions::default();
        let (effects, work) = (Vec::new(), VecDeque::new());
        let mut turn = Turn { p: self, plan, options: &options, now: Timestamp(0), effects, work, stirred: false };
        ask(&mut turn)
    }
}

impl StepRun {
    /// Failed, and no edge took the failure.
    fn is_lost(&self) -> bool {
        self.state == StepState::Failed && !self.routed
    }
}
