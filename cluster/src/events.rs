//! Readers of the committed events of all shards.

use grain_contract::{GrainId, Rejection, TenantId, Timestamp};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadEvents {
    /// Whose events; `None` = of all tenants (for the node itself).
    pub tenant: Option<TenantId>,
    /// Durable cursor of this name (one space a tenant): where it stands, reading goes on, whatever `from` says, unless
    /// `from` is an explicit cursor.
    pub cursor_name: Option<String>,
    pub from: ReadFrom,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    Earliest,
    Latest,
    /// Behind the event that carried this cursor.
    Cursor(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveredEvent {
    pub grain: GrainId,
    pub at: Timestamp,
    pub body: Vec<u8>,
    /// Shard and number in the shard's outbox: the same on every delivery.
    pub shard: u32,
    pub sequence: u64,
    /// Text that stands for "this and everything before it was seen".
    pub cursor: String,
}

/// Reads on for ever. Dropping it ends the reading; a named cursor stays.
pub struct EventReader {}

impl EventReader {
    /// At least one event, in order per grain; waits if there is none.
    ///
    /// # Errors
    /// `Unavailable` if the store is closed; `WrongState` if another reader took the named cursor over.
    pub async fn next_batch(&mut self) -> Result<Vec<DeliveredEvent>, Rejection> {
        std::future::pending().await
    }

    /// Everything up to this cursor is done; kept durably, a little later, if the reader has a named cursor.
    ///
    /// # Errors
    /// `Invalid` if it is not a cursor of this cluster.
    pub fn acknowledge(&self, _cursor: &str) -> Result<(), Rejection> {
        Ok(())
    }
}
