//! Loops: a taken loop-back makes the step runs of the body past and begins the head anew.
//!
//! An edge out of the body that an iteration does not take says nothing yet, since a later iteration may take it: it stays
//! open until the loop has *settled*, that is until the source of its loop-back ended without going back.

use super::edges::TAKEN;
use super::state::FrameIx;
use super::turn::{Turn, Work};
use crate::definition::{EdgeIx, Plan, StepIx};
use granary_proto::v1::Failure;

impl Plan {
    /// Loops around a step that lie within its own frame, outermost first; those around its Fanout are the Fanout's.
    pub(super) fn own_loops(&self, step: StepIx) -> impl Iterator<Item = u32> {
        let step = self.step(step);
        step.loops.iter().copied().filter(move |l| {
            let head = self.loops[*l as usize].head;
            self.step(head).scope.len() == step.scope.len()
        })
    }

    fn source_of_loop(&self, of_loop: u32) -> StepIx {
        self.edge(self.loops[of_loop as usize].back).from
    }

    /// Whether `inner` lies in the body of `outer`, so that it starts anew with each iteration of it.
    pub(super) fn is_inner_loop(&self, inner: u32, outer: u32) -> bool {
        let holds = |step: StepIx| self.step(step).loops.contains(&outer);
        inner != outer && holds(self.loops[inner as usize].head) && holds(self.source_of_loop(inner))
    }
}

impl Turn<'_> {
    pub(super) fn within_bound(&self, frame: FrameIx, of_loop: u32) -> Result<(), Failure> {
        let (made, bound) = (self.p.iteration(frame, of_loop), self.plan.loops[of_loop as usize].max_iterations);
        if made < bound {
            return Ok(());
        }
        Err(Failure {
            class: "loop-bound".into(),
            message: format!(
                "Expected at most {bound} iterations, but iteration {} was asked for.",
                u64::from(made) + 1
            ),
        })
    }

    pub(super) fn loop_is_settled(&self, frame: FrameIx, of_loop: u32) -> bool {
        let back: EdgeIx = self.plan.loops[of_loop as usize].back;
        let Some(source) = self.p.present(frame, self.plan.source_of_loop(of_loop)) else { return false };
        let source = self.p.run(source);
        source.state.is_terminal() && source.edges.get(self.plan.position(back)) != Some(&TAKEN)
    }

    /// The loop has come to its end: the edges out of its body are decided now.
    pub(super) fn settle_loop(&mut self, frame: FrameIx, of_loop: u32) {
        let plan = self.plan;
        let depth = plan.step(plan.loops[of_loop as usize].head).scope.len();
        for step_ix in &plan.loops[of_loop as usize].body {
            let step = plan.step(*step_ix);
            if step.scope.len() != depth {
                continue;
            }
            for edge in step.outgoing.iter().filter(|edge| plan.loops_left(**edge).any(|l| l == of_loop)) {
                self.tell(frame, step, plan.edge(*edge).to);
            }
        }
    }

    /// Iteration n+1.
    pub(super) fn restart(&mut self, frame: FrameIx, of_loop: u32) {
        let plan = self.plan;
        let head = plan.loops[of_loop as usize].head;
        let next = self.p.iteration(frame, of_loop).saturating_add(1);
        self.p.iterations.insert((frame, of_loop), next);
        for inner in 0..plan.loops.len() as u32 {
            if plan.is_inner_loop(inner, of_loop) {
                self.p.iterations.remove(&(frame, inner));
            }
        }
        for step in &plan.loops[of_loop as usize].body {
            if let Some(slot) = self.p.slots.get_mut(&(frame, *step)) {
                slot.present = false;
            }
            self.p.half_ready.remove(&(frame, *step));
            for edge in plan.forward_incoming(*step) {
                self.p.exits_taken.remove(&(frame, edge));
            }
        }
        self.work.push_back(Work::Begin(frame, head));
    }
}
