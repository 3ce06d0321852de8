//! What the engine remembers of one run.
//!
//! Rows hold the step runs; everything else here (frames, slots, counters, what is due) follows from them and the plan, and
//! is made again by `load`. Indices are places in vectors that only grow, so they are stable and never dangle.

pub(super) use super::frames::{Branch, Fan, Frame, FrameIx, ROOT, Slot};
use super::turn::Note;
pub use super::words::RunState;
pub(super) use super::words::{Asked, Purpose, StepState};
use crate::definition::{EdgeIx, StepIx};
use grain_contract::Timestamp;
use granary_proto::v1::Failure;
use std::collections::{BTreeSet, HashMap, HashSet};
use uuid::Uuid;

/// Number of a step run, in order of creation; also the key of its row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct RunIx(pub u32);

#[derive(Clone, Debug)]
pub(super) struct Timer {
    pub id: Uuid,
    pub purpose: Purpose,
    pub due_ms: i64,
    pub fired: bool,
    pub late_ms: u64,
}

/// Whose timer is due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Due {
    Deadline,
    Step(RunIx, Purpose),
}

pub(super) struct StepRun {
    pub id: Uuid,
    pub step: StepIx,
    pub frame: FrameIx,
    pub iteration: u32,
    /// Iteration of each loop around the step within its frame, outermost first.
    pub loops: Box<[u32]>,
    pub state: StepState,
    pub attempt: u32,
    pub asked: Asked,
    pub approval_id: Option<Uuid>,
    /// The newest ones, at most [`ATTEMPT_IDS_KEPT`].
    pub attempt_ids: Vec<Uuid>,
    pub started_ms: i64,
    pub ended_ms: i64,
    pub ready_ms: i64,
    /// Evaluated input mapping, kept while the step is active so that every attempt gets the same.
    pub input: Option<Vec<u8>>,
    /// JSON text. Empty: none, or made of other outputs when read (Join).
    pub output: Vec<u8>,
    pub output_ref: String,
    pub failure: Option<Failure>,
    /// Place in the order of completion, from 1; 0 = neither succeeded nor routed.
    pub completed_as: u64,
    /// Failed, and its edges decided what follows.
    pub routed: bool,
    /// How each outgoing edge was decided, by position; empty while they are open, and for what ended without deciding.
    pub edges: Vec<u8>,
    pub timers: Vec<Timer>,
    pub skipped_by: Vec<StepIx>,
    pub fan: Option<Fan>,
    /// The sequence at which the sweep asked again, plus 1.
    pub asked_again: u64,
    pub late: bool,
    /// The step run that this one compensates.
    pub undoes: Option<RunIx>,
    /// The one before it in its slot.
    pub previous: Option<RunIx>,
    pub changed: bool,
}

/// Attempt ids that a step run remembers; a row must not grow with every attempt.
pub(super) const ATTEMPT_IDS_KEPT: usize = 16;

/// A planned compensation.
pub(super) struct Entry {
    pub id: Uuid,
    pub undoes: RunIx,
    pub step: StepIx,
    pub state: StepState,
    pub run: Option<RunIx>,
    pub changed: bool,
}

/// Active step runs by what they wait for.
#[derive(Default)]
pub(super) struct Counts {
    pub on_timer: u32,
    pub on_human: u32,
    pub working: u32,
}

#[derive(Default)]
pub(super) struct Header {
    pub project_id: String,
    pub release_id: String,
    pub graph_hash: String,
    pub last_sequence: u64,
    pub last_digest: Vec<u8>,
    pub version: u64,
    pub input: Vec<u8>,
    pub variables: Vec<u8>,
    pub accepted_ms: i64,
    pub ended_ms: i64,
    pub deadline_ms: i64,
    pub deadline_fired: bool,
    pub output: Vec<u8>,
    pub failure: Option<Failure>,
    pub failed_step_id: String,
    pub compensated: bool,
    pub follow_up: Option<granary_proto::v1::FollowUp>,
    pub events: u64,
    pub completions: u64,
    pub parent_run_id: Option<Uuid>,
    pub parent_step_run_id: Option<Uuid>,
    pub depth: u32,
    pub open_step_runs: u32,
}

/// Where an observation comes from.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub at_ms: i64,
    pub step_run_id: Option<Uuid>,
    pub attempt_id: Option<Uuid>,
    pub by: String,
}

/// The newest observations of the run's world: JSON texts, empty = none.
#[derive(Default)]
pub(super) struct Observed {
    pub scene: Vec<u8>,
    pub scene_from: Source,
    pub world: Vec<u8>,
    pub world_from: Source,
}

impl Observed {
    pub fn bytes(&self) -> usize {
        self.scene.len() + self.world.len()
    }
}

/// The engine's view of one run.
pub struct Projection {
    pub(super) tenant: String,
    pub(super) run_id: Uuid,
    pub(super) state: RunState,
    pub(super) header: Header,
    pub(super) observed: Observed,
    pub(super) runs: Vec<StepRun>,
    pub(super) by_id: HashMap<Uuid, RunIx>,
    pub(super) frames: Vec<Frame>,
    pub(super) slots: HashMap<(FrameIx, StepIx), Slot>,
    pub(super) active: BTreeSet<(FrameIx, RunIx)>,
    pub(super) counts: Counts,
    /// Iterations made of a loop in a frame; absent = 1.
    pub(super) iterations: HashMap<(FrameIx, u32), u32>,
    /// Edges out of loops that some iteration took, for the target's present instance.
    pub(super) exits_taken: HashSet<(FrameIx, EdgeIx)>,
    /// Steps some of whose incoming edges are decided, and some not.
    pub(super) half_ready: BTreeSet<(FrameIx, StepIx)>,
    pub(super) due: BTreeSet<(i64, Due)>,
    pub(super) entries: Vec<Entry>,
    /// Digest of each applied fact, if they are kept.
    pub(super) facts: HashMap<u64, Vec<u8>>,
    /// Steps of each branch of a static Fanout, found when first needed.
    pub(super) reach: HashMap<(StepIx, u32), HashSet<StepIx>>,
    pub(super) note: Note,
    pub(super) payload_bytes: usize,
    pub(super) spent: super::budget::Spent,
    pub(super) changed_runs: Vec<RunIx>,
    pub(super) changed_facts: Vec<u64>,
    pub(super) start_changed: bool,
    pub(super) observed_changed: bool,
    pub(super) header_changed: bool,
}

impl Projection {
    /// A run of which nothing is known yet: Pending.
    pub fn new(tenant: &str, run_id: Uuid) -> Self {
        Self {
            tenant: tenant.to_owned(),
            run_id,
            state: RunState::Pending,
            header: Header::default(),
            observed: Observed::default(),
            runs: Vec::new(),
            by_id: HashMap::new(),
            frames: vec![Frame::root()],
            slots: HashMap::new(),
            active: BTreeSet::new(),
            counts: Counts::default(),
            iterations: HashMap::new(),
            exits_taken: HashSet::new(),
            half_ready: BTreeSet::new(),
            due: BTreeSet::new(),
            entries: Vec::new(),
            facts: HashMap::new(),
            reach: HashMap::new(),
            note: Note::Applied,
            payload_bytes: 0,
            spent: super::budget::Spent::default(),
            changed_runs: Vec::new(),
            changed_facts: Vec::new(),
            start_changed: false,
            observed_changed: false,
            header_changed: false,
        }
    }

    pub fn run_id(&self) -> Uuid {
        self.run_id
    }
    pub fn state(&self) -> RunState {
        self.state
    }
    pub fn is_terminal(&self) -> bool {
        self.state.is_terminal()
    }
    /// 0 = nothing accepted yet.
    pub fn last_outcome_sequence(&self) -> u64 {
        self.header.last_sequence
    }
    /// The earliest moment at which [`super::Input::TimersDue`] is wanted.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(ms, _)| Timestamp(*ms))
    }
    /// When an active step last began or was asked for; the acceptance if none did.
    pub fn last_begun(&self) -> Timestamp {
        let begun = |ix: &RunIx| self.run(*ix).started_ms.max(self.run(*ix).ready_ms);
        let last = self.active.iter().map(|(_, ix)| begun(ix)).max().unwrap_or(0);
        Timestamp(last.max(self.header.accepted_ms))
    }
    /// True while steps are active.
    pub fn has_active_steps(&self) -> bool {
        !self.active.is_empty()
    }
    pub fn release_id(&self) -> &str {
        &self.header.release_id
    }
    pub fn graph_hash(&self) -> &str {
        &self.header.graph_hash
    }
    /// What became of the last input that was not refused.
    pub fn note(&self) -> &Note {
        &self.note
    }
    /// Bytes held, roughly.
    pub fn memory(&self) -> usize {
        // A step run costs its struct, its slot, its place in the index, and small vectors.
        self.payload_bytes
            + self.runs.len() * (size_of::<StepRun>() + 192)
            + self.frames.len() * size_of::<Frame>()
            + 1024
    }

    pub(super) fn run(&self, ix: RunIx) -> &StepRun {
        &self.runs[ix.0 as usize]
    }

    /// For changing: its row will be written.
    pub(super) fn run_mut(&mut self, ix: RunIx) -> &mut StepRun {
        let run = &mut self.runs[ix.0 as usize];
        if !run.changed {
            run.changed = true;
            self.changed_runs.push(ix);
        }
        run
    }

    /// Changes what was observed, and counts its bytes.
    pub(super) fn weigh_observed(&mut self, change: impl FnOnce(&mut Observed)) {
        self.payload_bytes -= self.observed.bytes();
        change(&mut self.observed);
        self.payload_bytes += self.observed.bytes();
        self.observed_changed = true;
    }

    pub(super) fn next_completion(&mut self) -> u64 {
        self.header.completions += 1;
        self.header.completions
    }
}
