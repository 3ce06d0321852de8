//! Frames: where step runs live. The run is the root frame, and each branch of an opened Fanout is one of its own, so that
//! one step has one present step run in each.

use super::state::{Projection, RunIx};
use crate::definition::StepIx;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct FrameIx(pub u32);

pub(super) const ROOT: FrameIx = FrameIx(0);

/// An opened Fanout: its branches are the frames `first_frame ..`, and how they ended.
pub(super) struct Fan {
    pub branches: u32,
    /// Dynamic: the elements as JSON text, one a branch.
    pub items: Vec<Box<[u8]>>,
    pub first_frame: u32,
    pub arrived: u32,
    pub failed: u32,
    pub dry: u32,
    /// The greatest iteration number inside, so that the next opening counts on.
    pub iteration_max: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Branch {
    Open,
    Arrived,
    Failed,
    /// Conditions led nowhere: nothing reached the Join.
    Dry,
}

pub(super) struct Frame {
    /// The Fanout's step run, and which branch of it; `None`: the root.
    pub owner: Option<(RunIx, u32)>,
    pub parent: FrameIx,
    pub branch: Branch,
    /// No more step runs are made here.
    pub closed: bool,
    /// Fanouts opened in this frame.
    pub fanouts: Vec<RunIx>,
    /// Iteration numbers of the steps in here start behind it.
    pub iteration_base: u32,
}

/// Where a step stands in a frame: its newest step run, and whether that belongs to the present iteration.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub run: RunIx,
    pub present: bool,
}

impl Frame {
    pub fn root() -> Self {
        Self { owner: None, ..Self::of_branch(RunIx(0), 0, ROOT, 0) }
    }

    pub fn of_branch(owner: RunIx, branch: u32, parent: FrameIx, iteration_base: u32) -> Self {
        Self {
            owner: Some((owner, branch)),
            parent,
            branch: Branch::Open,
            closed: false,
            fanouts: Vec::new(),
            iteration_base,
        }
    }
}

impl Projection {
    pub(super) fn frame(&self, ix: FrameIx) -> &Frame {
        &self.frames[ix.0 as usize]
    }

    pub(super) fn frame_mut(&mut self, ix: FrameIx) -> &mut Frame {
        &mut self.frames[ix.0 as usize]
    }

    /// The step run of the present iteration, if there is one already.
    pub(super) fn present(&self, frame: FrameIx, step: StepIx) -> Option<RunIx> {
        self.slots.get(&(frame, step)).filter(|slot| slot.present).map(|slot| slot.run)
    }

    pub(super) fn is_present(&self, ix: RunIx) -> bool {
        let run = self.run(ix);
        self.present(run.frame, run.step) == Some(ix)
    }

    pub(super) fn iteration(&self, frame: FrameIx, of_loop: u32) -> u32 {
        self.iterations.get(&(frame, of_loop)).copied().unwrap_or(1)
    }

    /// Branch numbers from the outermost Fanout in.
    pub(super) fn branch_path(&self, mut frame: FrameIx) -> Vec<u32> {
        let mut path = Vec::new();
        while let Some((_, branch)) = self.frame(frame).owner {
            path.push(branch);
            frame = self.frame(frame).parent;
        }
        path.reverse();
        path
    }
}
