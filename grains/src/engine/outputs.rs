//! Outputs. A Join's is the list of what arrived; it is made when somebody reads it, from the outputs that are stored
//! already, so no row grows with the number of branches.

use super::edges::TAKEN;
use super::state::{Branch, FrameIx, Projection, RunIx, StepState};
use super::turn::Turn;
use crate::definition::{Plan, StepIx, StepKind};
use grain_contract::limits::{ENTRY_BYTES_MAX, JSON_DEPTH_MAX};
use std::borrow::Cow;

/// An output that an expression may read. Bytes.
pub(super) const READ_BYTES_MAX: usize = ENTRY_BYTES_MAX;

#[derive(Debug, thiserror::Error)]
#[error(
    "Expected an output of at most {bound} bytes and {JSON_DEPTH_MAX} lists deep, but that of step {step} is more."
)]
pub(super) struct TooLarge {
    pub step: String,
    pub bound: usize,
}

impl Turn<'_> {
    pub(super) fn set_output(&mut self, ix: RunIx, output: Vec<u8>) {
        self.spend(output.len());
        let before = self.p.run(ix).output.len();
        self.p.payload_bytes = self.p.payload_bytes + output.len() - before;
        self.p.run_mut(ix).output = output;
    }
}

impl Projection {
    /// The output as JSON text; empty if there is none.
    pub(super) fn output_text(&self, plan: &Plan, ix: RunIx, bound: usize) -> Result<Cow<'_, [u8]>, TooLarge> {
        let run = self.run(ix);
        if !self.is_list(plan, ix) {
            return Ok(Cow::Borrowed(&run.output));
        }
        let mut text = Vec::new();
        match self.write_list(plan, ix, &mut text, bound, 0) {
            true => Ok(Cow::Owned(text)),
            false => Err(TooLarge { step: plan.step(run.step).id.clone(), bound }),
        }
    }

    fn is_list(&self, plan: &Plan, ix: RunIx) -> bool {
        let run = self.run(ix);
        matches!(plan.step(run.step).kind, StepKind::Join(_)) && run.output.is_empty() && run.completed_as > 0
    }

    fn write(&self, plan: &Plan, ix: RunIx, text: &mut Vec<u8>, bound: usize, depth: usize) -> bool {
        if self.is_list(plan, ix) {
            return self.write_list(plan, ix, text, bound, depth);
        }
        let output = &self.run(ix).output;
        text.extend_from_slice(if output.is_empty() { b"null" } else { output });
        text.len() <= bound
    }

    fn write_list(&self, plan: &Plan, ix: RunIx, text: &mut Vec<u8>, bound: usize, depth: usize) -> bool {
        let StepKind::Join(join) = &plan.step(self.run(ix).step).kind else { return true };
        if depth >= JSON_DEPTH_MAX {
            return false;
        }
        text.push(b'[');
        let fits = match join.fanout {
            Some(fanout) => self.write_branches(plan, ix, fanout, text, bound, depth),
            None => {
                let taken = self.taken_into(plan, ix, self.run(ix).frame, |_| true);
                self.write_all(plan, &taken, text, bound, depth)
            }
        };
        text.push(b']');
        fits && text.len() <= bound
    }

    fn write_branches(
        &self,
        plan: &Plan,
        ix: RunIx,
        fanout: StepIx,
        text: &mut Vec<u8>,
        bound: usize,
        depth: usize,
    ) -> bool {
        let run = self.run(ix);
        // The Fanout's step run of the Join's own iteration is the newest one made before it.
        let mut owner = self.slots.get(&(run.frame, fanout)).map(|slot| slot.run);
        while let Some(newer) = owner.filter(|owner| *owner > ix) {
            owner = self.run(newer).previous;
        }
        let Some(fan) = owner.and_then(|owner| self.run(owner).fan.as_ref()) else { return true };
        let mut first = true;
        for frame in (fan.first_frame..fan.first_frame + fan.branches).map(FrameIx) {
            if self.frame(frame).branch != Branch::Arrived {
                continue;
            }
            let within = |from: StepIx| plan.step(from).scope.contains(&fanout);
            let taken = self.taken_into(plan, ix, frame, within);
            if taken.is_empty() && !plan.leads_straight(fanout, self.branch_of(frame), run.step) {
                continue; // It arrived when the Join had passed.
            }
            if !std::mem::take(&mut first) {
                text.push(b',');
            }
            let fits = match taken.as_slice() {
                [] => {
                    text.extend_from_slice(b"null");
                    true
                }
                [one] => self.write(plan, *one, text, bound, depth + 1),
                many => {
                    text.push(b'[');
                    let fits = self.write_all(plan, many, text, bound, depth + 1);
                    text.push(b']');
                    fits
                }
            };
            if !fits {
                return false;
            }
        }
        true
    }

    fn branch_of(&self, frame: FrameIx) -> u32 {
        self.frame(frame).owner.map_or(0, |(_, branch)| branch)
    }

    fn write_all(&self, plan: &Plan, all: &[RunIx], text: &mut Vec<u8>, bound: usize, depth: usize) -> bool {
        for (at, ix) in all.iter().enumerate() {
            if at > 0 {
                text.push(b',');
            }
            if !self.write(plan, *ix, text, bound, depth + 1) {
                return false;
            }
        }
        true
    }

    /// Step runs in `frame` whose taken edges the Join's step run counted when it passed, in edge order, each once.
    fn taken_into(&self, plan: &Plan, join: RunIx, frame: FrameIx, wanted: impl Fn(StepIx) -> bool) -> Vec<RunIx> {
        let at = self.run(join);
        let mut found = Vec::new();
        for edge in plan.forward_incoming(at.step).filter(|edge| wanted(plan.edge(*edge).from)) {
            let position = plan.position(edge);
            let mut candidate = self.slots.get(&(frame, plan.edge(edge).from)).map(|slot| slot.run);
            while let Some(ix) = candidate {
                let run = self.run(ix);
                let counted = run.completed_as > 0 && run.completed_as < at.completed_as;
                let here = frame != at.frame || self.same_iteration(plan, ix, join);
                if counted && here && run.edges.get(position) == Some(&TAKEN) {
                    if !found.contains(&ix) {
                        found.push(ix);
                    }
                    break;
                }
                candidate = run.previous;
            }
        }
        found
    }

    /// What a step gave in the whole run: its output, or the list of its branches' outputs. `None`: it did not succeed.
    pub(super) fn outputs_of_step(&self, plan: &Plan, step: StepIx) -> Option<Result<Vec<u8>, TooLarge>> {
        if plan.step(step).scope.is_empty() {
            let ix = self.slots.get(&(super::state::ROOT, step)).map(|slot| slot.run)?;
            let succeeded = self.run(ix).state == StepState::Succeeded;
            return succeeded.then(|| {
                let text = self.output_text(plan, ix, READ_BYTES_MAX)?;
                Ok(if text.is_empty() { b"null".to_vec() } else { text.into_owned() })
            });
        }
        let all: Vec<RunIx> = (0..self.runs.len() as u32).map(RunIx).collect();
        let of_step = all.into_iter().filter(|ix| {
            let run = self.run(*ix);
            run.step == step && run.state == StepState::Succeeded && self.is_present(*ix)
        });
        let mut found: Vec<(Vec<u32>, RunIx)> = of_step.map(|ix| (self.branch_path(self.run(ix).frame), ix)).collect();
        if found.is_empty() {
            return None;
        }
        found.sort();
        let found: Vec<RunIx> = found.into_iter().map(|(_, ix)| ix).collect();
        let mut text = vec![b'['];
        let fits = self.write_all(plan, &found, &mut text, READ_BYTES_MAX, 0);
        text.push(b']');
        Some(if fits { Ok(text) } else { Err(TooLarge { step: plan.step(step).id.clone(), bound: READ_BYTES_MAX }) })
    }
}

impl Plan {
    /// A branch without steps: the Fanout's edge goes to the Join itself.
    fn leads_straight(&self, fanout: StepIx, branch: u32, join: StepIx) -> bool {
        let to_join = |position: usize| self.edge(self.step(fanout).outgoing[position]).to == join;
        if self.is_static_fanout(fanout) {
            return self.forward_positions(fanout).nth(branch as usize).is_some_and(to_join);
        }
        self.forward_positions(fanout).any(to_join)
    }
}
