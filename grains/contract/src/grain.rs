//! The behaviour of a grain, as the machinery sees it.

use crate::ids::{GrainId, GrainKind, QueueName, Timestamp};
use crate::turn::{Decision, Method, Row};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// One grain, loaded. Turns of a grain never overlap.
///
/// `handle` is pure: the same state, message and context give the same decision. It may change `self` in place; if the
/// commit of the decision fails, the machinery drops `self` and loads it again from its rows, so memory is never ahead of
/// what was committed. A `handle` that answers [`Decision::Reject`], [`Decision::Read`] or [`Decision::Need`] must leave
/// `self` as it was.
pub trait Grain: Send {
    fn handle(&mut self, cx: &mut Context<'_>, message: &Message<'_>) -> Decision;

    /// Hands over what an earlier [`Decision::Need`] asked for. The same message is handled again afterwards.
    fn supply(&mut self, need: &Need, supply: Supply);

    /// Bytes held in memory, roughly: for the catalog's budget.
    fn memory(&self) -> usize;
}

/// Makes grains of one kind from their rows.
pub trait GrainType: Send + Sync {
    fn kind(&self) -> GrainKind;

    /// Whether the call may be made again when it is not known if it happened: a second one has the same answer (or one that
    /// says it is a repeat) and no second effect. Such calls are repeated by the machinery inside the caller's deadline; the
    /// outcome of others is told to be unknown.
    fn is_idempotent(&self, method: Method) -> bool {
        let _ = method;
        false
    }

    /// `rows` are all rows of the grain's loaded tables (see [`crate::Table::LOADED_BELOW`]), in key order; none for a grain
    /// that was never committed.
    fn load(&self, id: &GrainId, rows: Vec<Row>) -> Result<Box<dyn Grain>, Corrupt>;
}

/// What a grain is told.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// A call; `body` is a protobuf message that `method` names.
    Call { method: Method, body: &'a [u8] },
    /// A reminder that the grain set came due. Delivered at least once, never early by the owner's clock.
    Reminder { name: &'a str, due: Timestamp },
    /// The owner has just taken over the shard: offer again what lives in memory only (open work).
    Wake,
}

/// What a turn may know of the world besides its state and message.
pub struct Context<'a> {
    pub now: Timestamp,
    /// Fresh random bytes, for ids.
    pub entropy: [u8; 16],
    pub offers: &'a mut dyn Offers,
}

/// Free places at workers. Taking one during a turn makes "created" and "leased" one commit instead of two.
pub trait Offers {
    fn take(&mut self, queue: &QueueName) -> Option<Lease>;
}

/// The right of one worker to work on one attempt.
#[derive(Clone, PartialEq, Eq)]
pub struct Lease {
    /// The worker's own stable name for this process life.
    pub worker: String,
    /// Proves the lease when the outcome is reported. Never printed.
    pub token: [u8; 16],
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({}, token hidden)", self.worker)
    }
}

/// No places: for tests, and where no worker can be.
pub struct NoOffers;

impl Offers for NoOffers {
    fn take(&mut self, _: &QueueName) -> Option<Lease> {
        None
    }
}

/// Something immutable that a grain needs and does not own, e.g. the compiled plan of a release.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Need {
    pub kind: &'static str,
    pub key: String,
}

/// Answer to a [`Need`]: the thing, or why there is none (a final answer; a passing fault is retried by the machinery).
pub type Supply = Result<Arc<dyn Any + Send + Sync>, crate::Rejection>;

/// Rows that this build cannot read: the grain is quarantined and shown, the shard goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corrupt {
    pub what: String,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}
