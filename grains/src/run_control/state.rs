//! What the authority knows of a run: its state, and for each step run what it was asked, one ask after the other.

use grain_contract::{Lease, Timestamp};
use granary_proto::v1;
use std::collections::BTreeMap;
use uuid::Uuid;

/// Run Control's word for a run (S3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    Accepted,
    Running,
    WaitingForApproval,
    Cancelling,
    Completed,
    Failed,
    Cancelled,
}

impl RunState {
    pub const ALL: [RunState; 7] = [
        RunState::Accepted,
        RunState::Running,
        RunState::WaitingForApproval,
        RunState::Cancelling,
        RunState::Completed,
        RunState::Failed,
        RunState::Cancelled,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Accepted => "Accepted",
            RunState::Running => "Running",
            RunState::WaitingForApproval => "WaitingForApproval",
            RunState::Cancelling => "Cancelling",
            RunState::Completed => "Completed",
            RunState::Failed => "Failed",
            RunState::Cancelled => "Cancelled",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    pub fn is_terminal(self) -> bool {
        matches!(self, RunState::Completed | RunState::Failed | RunState::Cancelled)
    }

    /// All transitions there are. A run that was being cancelled can only end Cancelled: a completion that comes at the same
    /// time came either before the cancel, and then the cancel was refused, or after it, and then it is (FR-011).
    pub fn may_become(self, next: Self) -> bool {
        use RunState::{Accepted, Cancelled, Cancelling, Completed, Failed, Running, WaitingForApproval};
        matches!(
            (self, next),
            (Accepted, Running | WaitingForApproval | Failed | Cancelling)
                | (Running, WaitingForApproval | Completed | Failed | Cancelling)
                | (WaitingForApproval, Running | Completed | Failed | Cancelling)
                | (Cancelling, Cancelled)
        )
    }
}

/// A run that was submitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Submitted {
    pub state: RunState,
    pub client_key: String,
    /// Over the request as the caller gave it.
    pub hash: [u8; 32],
    pub by: String,
    pub definition_id: String,
    pub definition_version: String,
    pub release_id: String,
    pub project_id: String,
    pub parent_run_id: Option<Uuid>,
    pub parent_step_run_id: Option<Uuid>,
    pub depth: u32,
    pub accepted: Timestamp,
    pub ended: Option<Timestamp>,
    pub cancel_reason: String,
    /// Why it could not start.
    pub refusal: Option<v1::Failure>,
}

/// One step run, as it was asked for.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub step_run_id: Uuid,
    pub step_id: String,
    pub kind: String,
    pub action_class: String,
    pub queue: String,
    pub name: String,
    /// JSON text; empty if `run_input`, or once the ask is over.
    pub input: Vec<u8>,
    /// The input is the run's, which lies in the engine's header. A large input that many steps take is so kept once, and
    /// a turn stays below the bound of an entry (FR-125).
    pub run_input: bool,
    pub timeout_ms: u64,
    pub idempotency_key: String,
    /// The newest ask, and its number from 1.
    pub number: u32,
    pub ask: Ask,
    /// What was asked before, by number: late and repeated answers find what they were answered.
    pub earlier: BTreeMap<u32, Ask>,
}

/// What a step run asks of the world.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Attempt(Attempt),
    Approval(Box<Approval>),
    Child(Child),
}

#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub id: Uuid,
    pub state: AttemptState,
    pub created: Timestamp,
    pub ended: Option<Timestamp>,
    /// The lease it has, or had when it ended.
    pub lease: Option<Lease>,
    /// Over outcome and output, if a worker reported it.
    pub outcome_hash: Option<[u8; 32]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptState {
    Queued,
    Claimed,
    Ended(crate::engine::OutcomeKind),
}

#[derive(Clone, Debug)]
pub(super) struct Approval {
    pub id: Uuid,
    pub view: v1::Approval,
    /// Over the decision, once there is one.
    pub decision_hash: Option<[u8; 32]>,
}

#[derive(Clone, Debug)]
pub(super) struct Child {
    pub run_id: Uuid,
    /// Open, then the child's own end: Completed, Failed, Cancelled.
    pub state: String,
}

pub(super) const CHILD_OPEN: &str = "Open";
pub(super) const PENDING: &str = "pending";
pub(super) const WITHDRAWN: &str = "withdrawn";

impl Ask {
    pub fn id(&self) -> Uuid {
        match self {
            Ask::Attempt(attempt) => attempt.id,
            Ask::Approval(approval) => approval.id,
            Ask::Child(child) => child.run_id,
        }
    }

    pub fn is_open(&self) -> bool {
        match self {
            Ask::Attempt(attempt) => !matches!(attempt.state, AttemptState::Ended(_)),
            Ask::Approval(approval) => approval.view.state == PENDING,
            Ask::Child(child) => child.state == CHILD_OPEN,
        }
    }

    pub fn is_open_attempt(&self) -> bool {
        matches!(self, Ask::Attempt(attempt) if !matches!(attempt.state, AttemptState::Ended(_)))
    }

    pub fn is_pending_approval(&self) -> bool {
        matches!(self, Ask::Approval(approval) if approval.view.state == PENDING)
    }
}

#[cfg(test)]
mod tests {
    use super::RunState::{self, Accepted, Cancelled, Cancelling, Completed, Failed, Running, WaitingForApproval};

    /// [C1] The states of S3, and no transition beside these.
    #[test]
    fn transitions_are_those_of_the_table() {
        let table: [(RunState, &[RunState]); 7] = [
            (Accepted, &[Running, WaitingForApproval, Cancelling, Failed]),
            (Running, &[WaitingForApproval, Cancelling, Completed, Failed]),
            (WaitingForApproval, &[Running, Cancelling, Completed, Failed]),
            (Cancelling, &[Cancelled]),
            (Completed, &[]),
            (Failed, &[]),
            (Cancelled, &[]),
        ];
        for (from, to) in table {
            let found: Vec<_> = RunState::ALL.into_iter().filter(|next| from.may_become(*next)).collect();
            assert_eq!(found, to, "from {from:?}");
            assert_eq!(from.is_terminal(), to.is_empty());
            assert_eq!(RunState::parse(from.as_str()), Some(from));
        }
    }
}
