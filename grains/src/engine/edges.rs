//! Edges: decided all at once when their step ends, read by their targets.

use super::state::{FrameIx, Projection, ROOT, RunIx, StepState};
use super::turn::{Turn, Work};
use crate::condition::truthy;
use crate::definition::{EdgeIx, Guard, Plan, Step, StepIx, StepKind};
use granary_proto::v1::Failure;
use std::collections::HashSet;

pub(super) const TAKEN: u8 = 1;
pub(super) const NOT_TAKEN: u8 = 2;

/// An edge as its target sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EdgeState {
    Open,
    Taken,
    NotTaken,
}

/// How a step ended, as far as its edges care.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    Succeeded,
    /// Skipped by a human: like a success with the output null, but it never goes back.
    SkippedByHuman,
    /// Failed under policy Route.
    Routed,
}

pub(super) struct Decided {
    pub edges: Vec<u8>,
    /// The loop whose loop-back was taken.
    pub back: Option<u32>,
}

impl Turn<'_> {
    /// Decides the outgoing edges of a step run whose output is set already, so that guards can read it.
    pub(super) fn decide_edges(&self, ix: RunIx, ending: Ending) -> Result<Decided, Failure> {
        let run = self.p.run(ix);
        let step = self.plan.step(run.step);
        let mut edges = vec![NOT_TAKEN; step.outgoing.len()];
        let mut back = None;
        if ending != Ending::SkippedByHuman {
            for (position, edge) in step.outgoing.iter().enumerate() {
                let Some(of_loop) = self.plan.edge(*edge).loop_back else { continue };
                if back.is_none() && self.guard_holds(ix, *edge, ending, None)? {
                    self.within_bound(run.frame, of_loop)?;
                    edges[position] = TAKEN;
                    back = Some(of_loop);
                }
            }
        }
        for (position, edge) in step.outgoing.iter().enumerate() {
            if self.plan.edge(*edge).loop_back.is_none() && self.guard_holds(ix, *edge, ending, back)? {
                edges[position] = TAKEN;
            }
        }
        Ok(Decided { edges, back })
    }

    fn guard_holds(&self, ix: RunIx, edge: EdgeIx, ending: Ending, back: Option<u32>) -> Result<bool, Failure> {
        let succeeded = ending != Ending::Routed;
        Ok(match &self.plan.edge(edge).guard {
            Guard::Always => succeeded && back.is_none(),
            Guard::Succeeded => succeeded,
            Guard::Failed => !succeeded,
            Guard::IsTrue => succeeded && self.output_is_true(ix),
            Guard::IsFalse => succeeded && !self.output_is_true(ix),
            Guard::Rule(rule) => truthy(&self.evaluate(ix, rule, "condition")?),
        })
    }

    fn output_is_true(&self, ix: RunIx) -> bool {
        let text = self.p.run(ix).output.as_slice();
        serde_json::from_slice(text).is_ok_and(|value| truthy(&value))
    }

    /// Tells everybody whom the ended step run's edges concern.
    pub(super) fn follow(&mut self, ix: RunIx, back: Option<u32>) {
        if !self.p.is_present(ix) {
            return; // A loser kept from an earlier iteration: nobody waits for it any more.
        }
        let (frame, step_ix) = (self.p.run(ix).frame, self.p.run(ix).step);
        let plan = self.plan;
        let step = plan.step(step_ix);
        self.leave_by_exits(ix);
        for edge in &step.outgoing {
            let edge = plan.edge(*edge);
            match edge.loop_back {
                None => self.tell(frame, step, edge.to),
                Some(of_loop) if back.is_none() => self.settle_loop(frame, of_loop),
                Some(_) => {}
            }
        }
        if let Some(of_loop) = back {
            return self.restart(frame, of_loop);
        }
        if let Some(join) = plan.join_of(step_ix)
            && self.p.run(ix).fan.is_none()
        {
            // Never opened: its Join must learn it, since no branch will tell.
            self.work.push_back(Work::Check(frame, join));
        }
    }

    /// Remembers and tells the taken edges out of loops; the not taken ones stay open until the loop has settled.
    fn leave_by_exits(&mut self, ix: RunIx) {
        let (frame, step) = (self.p.run(ix).frame, self.plan.step(self.p.run(ix).step));
        for (position, edge) in step.outgoing.iter().enumerate() {
            let taken = self.p.run(ix).edges.get(position) == Some(&TAKEN);
            if taken && self.plan.edge(*edge).loop_back.is_none() && self.plan.leaves_loop(*edge) {
                self.p.exits_taken.insert((frame, *edge));
                self.tell(frame, step, self.plan.edge(*edge).to);
            }
        }
    }

    /// One edge of `from` to `to` was decided in this frame.
    pub(super) fn tell(&mut self, frame: FrameIx, from: &Step, to: StepIx) {
        let target = self.plan.step(to);
        if target.scope.len() == from.scope.len() {
            self.work.push_back(Work::Check(frame, to));
        } else if target.scope.len() + 1 == from.scope.len() && frame != ROOT {
            self.work.push_back(Work::Branch(frame));
        }
        // Else into the branches of a Fanout, which are told when it opens.
    }

    /// How the edge stands for its target in `frame`.
    pub(super) fn edge_state(&mut self, frame: FrameIx, edge: EdgeIx) -> EdgeState {
        let from = self.plan.edge(edge).from;
        if let Some((owner, branch)) = self.p.frame(frame).owner {
            let owner_step = self.p.run(owner).step;
            if owner_step == from {
                return self.head_edge(owner, branch, edge);
            }
            if self.plan.is_static_fanout(owner_step)
                && self.p.present(frame, from).is_none()
                && !self.in_branch(owner_step, branch, from)
            {
                return EdgeState::NotTaken;
            }
        }
        if self.plan.leaves_loop(edge) {
            if self.p.exits_taken.contains(&(frame, edge)) {
                return EdgeState::Taken;
            }
            if !self.plan.loops_left(edge).all(|of_loop| self.loop_is_settled(frame, of_loop)) {
                return EdgeState::Open;
            }
        }
        let Some(run) = self.p.present(frame, from).map(|ix| self.p.run(ix)) else { return EdgeState::Open };
        if !run.state.is_terminal() {
            return EdgeState::Open;
        }
        match run.edges.get(self.plan.position(edge)) {
            Some(&TAKEN) => EdgeState::Taken,
            _ => EdgeState::NotTaken,
        }
    }

    /// An edge from the Fanout itself into one of its branches.
    fn head_edge(&self, owner: RunIx, branch: u32, edge: EdgeIx) -> EdgeState {
        let position = self.plan.position(edge);
        let fanout = self.p.run(owner);
        let here = !self.plan.is_static_fanout(fanout.step)
            || self.plan.forward_positions(fanout.step).nth(branch as usize) == Some(position);
        if here && fanout.edges.get(position) == Some(&TAKEN) { EdgeState::Taken } else { EdgeState::NotTaken }
    }

    /// Whether a step can run in this branch of a static Fanout.
    fn in_branch(&mut self, fanout: StepIx, branch: u32, step: StepIx) -> bool {
        let plan = self.plan;
        self.p.reach.entry((fanout, branch)).or_insert_with(|| plan.reach_of_branch(fanout, branch)).contains(&step)
    }

    pub(super) fn skip(&mut self, ix: RunIx, skipped_by: Vec<StepIx>) {
        let edges = vec![NOT_TAKEN; self.plan.step(self.p.run(ix).step).outgoing.len()];
        let run = self.p.run_mut(ix);
        run.skipped_by = skipped_by;
        run.edges = edges;
        self.enter(ix, StepState::Skipped);
        self.follow(ix, None);
    }
}

/// Questions about the graph alone.
impl Plan {
    /// The edge's place among the outgoing ones of its step.
    pub(super) fn position(&self, edge: EdgeIx) -> usize {
        let from = self.step(self.edge(edge).from);
        from.outgoing.iter().position(|e| *e == edge).unwrap_or(usize::MAX)
    }

    /// Positions of the outgoing edges that are no loop-backs.
    pub(super) fn forward_positions(&self, step: StepIx) -> impl Iterator<Item = usize> {
        let outgoing = &self.step(step).outgoing;
        outgoing.iter().enumerate().filter(|(_, edge)| self.edge(**edge).loop_back.is_none()).map(|(at, _)| at)
    }

    pub(super) fn forward_incoming(&self, step: StepIx) -> impl Iterator<Item = EdgeIx> {
        self.step(step).incoming.iter().copied().filter(|edge| self.edge(*edge).loop_back.is_none())
    }

    /// Loops that hold the edge's start and not its end.
    pub(super) fn loops_left(&self, edge: EdgeIx) -> impl Iterator<Item = u32> {
        let (from, to) = (self.step(self.edge(edge).from), self.step(self.edge(edge).to));
        from.loops.iter().copied().filter(|of_loop| !to.loops.contains(of_loop))
    }

    pub(super) fn leaves_loop(&self, edge: EdgeIx) -> bool {
        self.loops_left(edge).next().is_some()
    }

    pub(super) fn is_static_fanout(&self, step: StepIx) -> bool {
        matches!(&self.step(step).kind, StepKind::Fanout(fan) if fan.items.is_none())
    }

    pub(super) fn is_dynamic_fanout(&self, step: StepIx) -> bool {
        matches!(&self.step(step).kind, StepKind::Fanout(fan) if fan.items.is_some())
    }

    /// Steps that one branch of a static Fanout can reach without leaving it.
    fn reach_of_branch(&self, fanout: StepIx, branch: u32) -> HashSet<StepIx> {
        let depth = self.step(fanout).scope.len();
        let head = self.forward_positions(fanout).nth(branch as usize).map(|at| self.step(fanout).outgoing[at]);
        let mut found = HashSet::new();
        let mut open: Vec<StepIx> = head.map(|edge| self.edge(edge).to).into_iter().collect();
        while let Some(step) = open.pop() {
            if self.step(step).scope.get(depth) == Some(&fanout) && found.insert(step) {
                open.extend(self.step(step).outgoing.iter().map(|edge| self.edge(*edge).to));
            }
        }
        found
    }
}

impl Projection {
    /// Whether two step runs of one frame belong to the same iteration of every loop that is around both.
    pub(super) fn same_iteration(&self, plan: &Plan, a: RunIx, b: RunIx) -> bool {
        let (a, b) = (self.run(a), self.run(b));
        let of_b: Vec<u32> = plan.own_loops(b.step).collect();
        plan.own_loops(a.step).zip(a.loops.iter()).all(|(of_loop, at)| {
            of_b.iter().position(|l| *l == of_loop).is_none_or(|place| b.loops.get(place) == Some(at))
        })
    }
}
