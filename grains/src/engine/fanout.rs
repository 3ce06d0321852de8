//! Fanout: opens one frame a branch. Static: one branch an outgoing edge; dynamic: one an element of `items`.

use super::edges::{EdgeState, Ending, TAKEN};
use super::state::{Branch, Fan, Frame, FrameIx, Projection, RunIx, StepState};
use super::turn::{Turn, Work};
use crate::condition::Expression;
use crate::definition::{EdgeIx, Fanout, Plan, StepIx};
use granary_proto::v1::Failure;
use serde_json::Value;

impl Turn<'_> {
    pub(super) fn start_fanout(&mut self, ix: RunIx, fanout: &Fanout) {
        match self.open(ix, fanout) {
            Ok(()) => {}
            Err(failure) => self.fail_step(ix, failure, false),
        }
    }

    fn open(&mut self, ix: RunIx, fanout: &Fanout) -> Result<(), Failure> {
        let step = self.p.run(ix).step;
        let items = match &fanout.items {
            Some(items) => Some(self.elements(ix, items)?),
            None => None,
        };
        let branches = items.as_ref().map_or_else(|| self.plan.forward_positions(step).count(), Vec::len);
        let bound = self.options.max_fanout as usize;
        if branches > bound {
            return Err(Failure {
                class: "fanout-limit".into(),
                message: format!("Expected at most {bound} branches, but found {branches}."),
            });
        }
        let bytes = items.iter().flatten().map(|item| item.len()).sum();
        self.afford(ix, bytes)?;
        self.set_output(ix, branches.to_string().into_bytes());
        let decided = self.decide_edges(ix, Ending::Succeeded)?;
        let completed_as = self.p.next_completion();
        let run = self.p.run_mut(ix);
        run.edges = decided.edges;
        run.completed_as = completed_as;
        run.fan = Some(Fan::new(branches as u32, items.unwrap_or_default()));
        self.enter(ix, StepState::Succeeded);
        self.p.open_frames(ix);
        self.start_branches(ix);
        self.follow(ix, decided.back);
        Ok(())
    }

    fn elements(&self, ix: RunIx, items: &Expression) -> Result<Vec<Box<[u8]>>, Failure> {
        match self.evaluate(ix, items, "mapping")? {
            Value::Array(items) => Ok(items.iter().map(|item| item.to_string().into_bytes().into()).collect()),
            other => Err(Failure {
                class: "mapping".into(),
                message: format!("Expected items to be a list, but found {}.", kind_of(&other)),
            }),
        }
    }

    fn start_branches(&mut self, ix: RunIx) {
        let plan = self.plan;
        let (frame, step_ix) = (self.p.run(ix).frame, self.p.run(ix).step);
        let step = plan.step(step_ix);
        let Some((first, branches)) = self.p.run(ix).fan.as_ref().map(|fan| (fan.first_frame, fan.branches)) else {
            return;
        };
        let is_static = plan.is_static_fanout(step_ix);
        let forward: Vec<usize> = plan.forward_positions(step_ix).collect();
        for branch in 0..branches {
            let inside = FrameIx(first + branch);
            let heads = if is_static { &forward[branch as usize..=branch as usize] } else { forward.as_slice() };
            for position in heads {
                let to = plan.edge(step.outgoing[*position]).to;
                let taken = self.p.run(ix).edges[*position] == TAKEN;
                if taken && plan.step(to).scope.len() == step.scope.len() + 1 {
                    self.work.push_back(Work::Check(inside, to));
                }
            }
            // Some branches have ended already: their edge leads straight to the Join, or was not taken.
            self.work.push_back(Work::Branch(inside));
        }
        if let Some(join) = plan.join_of(step_ix) {
            self.work.push_back(Work::Check(frame, join));
        }
    }

    /// Has the branch ended? It has when every edge from it into the Join is decided.
    pub(super) fn check_branch(&mut self, frame: FrameIx) {
        let Some((owner, _)) = self.p.frame(frame).owner else { return };
        if self.p.frame(frame).closed || self.p.frame(frame).branch != Branch::Open {
            return;
        }
        let Some(join) = self.plan.join_of(self.p.run(owner).step) else { return };
        match self.branch_state(owner, frame, join) {
            Branch::Open => {}
            ended => self.end_branch(frame, ended),
        }
    }

    pub(super) fn branch_state(&mut self, owner: RunIx, frame: FrameIx, join: StepIx) -> Branch {
        let plan = self.plan;
        let fanout = self.p.run(owner).step;
        let mut how = Branch::Dry;
        for edge in plan.forward_incoming(join).filter(|edge| plan.comes_from_within(*edge, fanout)) {
            match self.edge_state(frame, edge) {
                EdgeState::Open => return Branch::Open,
                EdgeState::Taken => how = Branch::Arrived,
                EdgeState::NotTaken => {}
            }
        }
        how
    }

    pub(super) fn end_branch(&mut self, frame: FrameIx, how: Branch) {
        let Some((owner, _)) = self.p.frame(frame).owner else { return };
        self.p.note_branch(frame, how);
        let parent = self.p.frame(frame).parent;
        if let Some(join) = self.plan.join_of(self.p.run(owner).step) {
            self.work.push_back(Work::Check(parent, join));
        }
    }
}

impl Fan {
    pub(super) fn new(branches: u32, items: Vec<Box<[u8]>>) -> Self {
        Self { branches, items, first_frame: 0, arrived: 0, failed: 0, dry: 0, iteration_max: 0 }
    }
}

impl Projection {
    /// Makes the frames of an opened Fanout.
    pub(super) fn open_frames(&mut self, ix: RunIx) {
        let (parent, iteration) = (self.run(ix).frame, self.run(ix).iteration);
        let before = self.run(ix).previous.and_then(|previous| self.run(previous).fan.as_ref());
        let iteration_base = before.map_or(0, |fan| fan.iteration_max).max(iteration - 1);
        let first_frame = self.frames.len() as u32;
        let Some(fan) = &mut self.runs[ix.0 as usize].fan else { return };
        fan.first_frame = first_frame;
        fan.iteration_max = iteration_base;
        self.payload_bytes += fan.items.iter().map(|item| item.len() + 16).sum::<usize>();
        for branch in 0..fan.branches {
            self.frames.push(Frame::of_branch(ix, branch, parent, iteration_base));
        }
        self.frame_mut(parent).fanouts.push(ix);
    }

    pub(super) fn note_branch(&mut self, frame: FrameIx, how: Branch) {
        let Some((owner, _)) = self.frame(frame).owner else { return };
        if self.frame(frame).branch != Branch::Open {
            return;
        }
        self.frame_mut(frame).branch = how;
        let Some(fan) = &mut self.runs[owner.0 as usize].fan else { return };
        match how {
            Branch::Open => {}
            Branch::Arrived => fan.arrived += 1,
            Branch::Failed => fan.failed += 1,
            Branch::Dry => fan.dry += 1,
        }
    }
}

impl Plan {
    /// Whether an edge into a Join comes out of the Fanout's branches, or from the Fanout itself (a branch without steps).
    pub(super) fn comes_from_within(&self, edge: EdgeIx, fanout: StepIx) -> bool {
        let from = self.edge(edge).from;
        from == fanout || self.step(from).scope.contains(&fanout)
    }
}

pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
