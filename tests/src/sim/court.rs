//! Who watches: everything that is seen goes to every checker, at the moment it happens.

use super::check::Check;
use super::collect::Journaled;
use super::net::Slot;
use super::trace::Trace;
use grain_contract::{GrainId, TenantId, Timestamp};
use grains::kinds::methods::run;
use granary_proto::storage;
use granary_proto::storage::TurnEntry;
use granary_proto::v1;
use prost::Message as _;
use shard::NodeId;
use shard::testing::Digest;
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

/// Something that happened. Times are true time, in microseconds, unless a clock is named.
#[derive(Clone, Debug)]
pub enum Sight {
    /// A replica applied a turn's entry; `revision` is what it made of the grain, `None` if it was fenced.
    Applied {
        slot: Slot,
        node: NodeId,
        shard: u32,
        term: u64,
        index: u64,
        revision: Option<u64>,
        entry: Arc<TurnEntry>,
    },
    /// A node keeps for good that it has promised its vote of this term.
    Voted {
        node: NodeId,
        shard: u32,
        term: u64,
        candidate: NodeId,
    },
    /// A node says that it owns a shard.
    Owns {
        node: NodeId,
        shard: u32,
        epoch: u64,
    },
    /// A tally was reminded; `now` is its owner's wall clock.
    Reminded {
        slot: Slot,
        tally: GrainId,
        name: String,
        due: Timestamp,
        now: Timestamp,
    },
    /// A process stopped, or goes on.
    Frozen {
        slot: Slot,
        frozen: bool,
    },
    /// A node's wall clock was set by so much.
    ClockSet {
        slot: Slot,
        by_ms: i64,
    },
    /// Somebody sent, was told that it is done, or never learnt it. `what` is a tally's operation.
    Sent {
        tally: GrainId,
        what: String,
    },
    Done {
        tally: GrainId,
        what: String,
    },
    ReminderSet {
        tally: GrainId,
        name: String,
        due: Timestamp,
    },
    /// A read of a tally that began and ended at these moments.
    Read {
        tally: GrainId,
        began_us: u64,
        ended_us: u64,
        sum: i64,
    },
    /// An addition to a tally that was acknowledged with this sum.
    Added {
        tally: GrainId,
        ended_us: u64,
        sum: i64,
    },
    Submitted {
        run: GrainId,
    },
    Accepted {
        run: GrainId,
        at_us: u64,
    },
    /// A look at a run by way of a machine, that began and ended at these moments.
    Looked {
        run: GrainId,
        slot: Slot,
        began_us: u64,
        ended_us: u64,
        looks: Looks,
    },
    /// A worker was handed an attempt; one that is not its tenant's included.
    Assigned {
        worker: String,
        tenant: TenantId,
        at_us: u64,
        assignment: Arc<v1::Assignment>,
    },
    /// The worker's right is over by its own account: it renewed last at this moment.
    Held {
        worker: String,
        attempt: Uuid,
        until_us: u64,
    },
    /// It works no more on it: it begins to report, or was told to stop.
    LetGo {
        worker: String,
        attempt: Uuid,
    },
    Reported {
        worker: String,
        attempt: Uuid,
        outcome: String,
        accepted: bool,
    },
    /// Somebody wants to be told all events of a tenant.
    Consumer {
        name: String,
        tenant: TenantId,
    },
    /// A consumer was handed an event.
    Delivered {
        consumer: String,
        tenant: TenantId,
        grain: GrainId,
        body: Arc<Vec<u8>>,
    },
}

/// What a run looks like.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Looks {
    /// There is no such run.
    Missing,
    /// Run Control's word for how it stands.
    State(String),
    /// So many entries.
    Journal(usize),
}

/// What is there when all faults are over and everybody has had time.
#[derive(Default)]
pub struct End {
    /// Replicas of each shard.
    pub digests: Vec<(u32, Vec<(Slot, Digest)>)>,
    /// State and journal of each run that was accepted, read from its owner.
    pub runs: Journaled,
    pub sums: Vec<(GrainId, i64)>,
}

#[derive(Clone)]
pub struct Court(Arc<Mutex<Inner>>);

struct Inner {
    checks: Vec<Box<dyn Check>>,
    faults: Vec<String>,
    trace: Trace,
}

impl Court {
    pub fn new(checks: Vec<Box<dyn Check>>, trace: Trace) -> Self {
        Self(Arc::new(Mutex::new(Inner { checks, faults: Vec::new(), trace })))
    }

    pub fn see(&self, sight: Sight) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { checks, faults, trace } = &mut *inner;
        trace.note(Brief(&sight));
        for check in checks {
            let found = check.see(&sight);
            faults.extend(found.into_iter().map(|fault| format!("{}: {fault}", check.name())));
        }
    }

    pub fn end(&self, end: &End) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { checks, faults, .. } = &mut *inner;
        for check in checks {
            let found = check.end(end);
            faults.extend(found.into_iter().map(|fault| format!("{}: {fault}", check.name())));
        }
    }

    /// Whether nothing is outstanding by any checker's account.
    pub fn is_settled(&self) -> bool {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.checks.iter().all(|check| check.is_settled())
    }

    /// Something that no checker was needed for.
    pub fn complain(&self, fault: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).faults.push(fault.into());
    }

    pub fn faults(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).faults.clone()
    }

    pub fn is_content(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).faults.is_empty()
    }
}

/// What a run's turn put into its journal.
fn journal(entry: &TurnEntry) -> String {
    let rows = entry.puts.iter().filter(|put| put.table == u32::from(run::table::JOURNAL.0));
    let entries = rows.flat_map(|row| storage::JournalRow::decode(&*row.value).unwrap_or_default().entries);
    entries.map(|entry| format!(" {} {} {}", entry.r#type, entry.step_id, entry.attempt_id)).collect()
}

/// A sight in one line.
struct Brief<'a>(&'a Sight);

impl std::fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Sight::Applied { slot, shard, term, index, revision, entry, .. } => {
                let grain = GrainId::from_storage_bytes(&entry.grain).map(|(grain, _)| grain.to_string());
                let grain = grain.unwrap_or_default();
                write!(f, "{slot} applied {shard}/{index} of term {term}: {grain} to {revision:?}{}", journal(entry))
            }
            Sight::Assigned { worker, assignment, .. } => {
                write!(f, "{worker} has {} of {} step {}", assignment.attempt_id, assignment.run_id, assignment.step_id)
            }
            Sight::Delivered { consumer, grain, body, .. } => {
                write!(f, "{consumer} was told {} bytes of {grain}", body.len())
            }
            other => write!(f, "{other:?}"),
        }
    }
}
