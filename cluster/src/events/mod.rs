//! Readers of the committed events of all shards.
//!
//! A reader pulls: it holds a position and a bounded number of pages, so a slow one costs little and holds back nobody. Events
//! are rows of the outbox, kept for the retention whether or not somebody reads them. Rows of a shard with a replica here are
//! read from it (they are committed, whoever leads); those of other shards come from their owners. A named cursor is a position
//! kept durably with the shards; it moves by what the consumer acknowledged, and past what was not for it as soon as nothing
//! before that is open.

mod keeper;
mod position;
mod reader;
mod retention;
mod tails;

pub(crate) use keeper::{Readers, keep_all, run as run_keeper};
pub use reader::EventReader;
pub(crate) use retention::run as run_retention;
pub(crate) use tails::{Tails, run as run_tails};

use crate::hop::outbox::Bounds;
use crate::hub::Hub;
use grain_contract::{Code, GrainId, Rejection, TenantId, Timestamp, limits};
use position::Position;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long an owner is looked for where the caller has no deadline of its own.
const ASK_OWNERS: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadEvents {
    /// Whose events; `None` = of all tenants (for the node itself).
    pub tenant: Option<TenantId>,
    /// Durable cursor of this name (one space a tenant): where it stands, reading goes on, whatever `from` says, unless
    /// `from` is an explicit cursor.
    pub cursor_name: Option<String>,
    pub from: ReadFrom,
    pub scope: Scope,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// All shards of the cluster.
    #[default]
    Cluster,
    /// Of each shard what is applied while it is led here: over all nodes, every event at most once. For counting; a few
    /// events around a change of leader are counted by nobody.
    Led,
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
    /// Shard and number in the shard's outbox: the same on every delivery, from every node.
    pub shard: u32,
    pub sequence: u64,
    /// Text that stands for "this and everything before it was seen".
    pub cursor: String,
}

/// Opens a reader; a new named cursor is durable before this returns, so that nothing from here on can be missed.
pub(crate) async fn open(hub: &Arc<Hub>, request: ReadEvents) -> Result<EventReader, Rejection> {
    if let Some(name) = &request.cursor_name
        && (name.is_empty() || name.len() > limits::NAME_BYTES_MAX || name.contains('\0'))
    {
        let max = limits::NAME_BYTES_MAX;
        let message = format!("Expected a name of 1 to {max} bytes, none of them zero, but found {}.", name.len());
        return Err(Rejection::new(Code::Invalid, message).at("cursorName"));
    }
    let start = start(hub, &request).await?;
    let is_explicit = matches!(request.from, ReadFrom::Cursor(_));
    let (position, named) = match &request.cursor_name {
        None => (start, None),
        Some(name) => {
            let named = keeper::open(hub, request.tenant.as_ref(), name, start, is_explicit).await?;
            (named.start().clone(), Some(named))
        }
    };
    Ok(EventReader::new(hub, request.tenant, request.scope, position, named))
}

async fn start(hub: &Arc<Hub>, request: &ReadEvents) -> Result<Position, Rejection> {
    match (&request.from, request.scope) {
        (ReadFrom::Cursor(text), _) => explicit(hub, text).await,
        // What a replica here has trimmed is gone everywhere; a shard without one is asked about.
        (ReadFrom::Earliest, _) => {
            let away: Vec<_> = hub.rooms.iter().filter(|room| !room.store.hosted()).map(|room| room.id).collect();
            let heads = hub.heads(away.iter().copied(), Instant::now() + ASK_OWNERS).await?;
            let mut position = Position(hub.rooms.iter().map(|room| room.store.outbox_bounds().1).collect());
            away.into_iter().zip(heads).for_each(|(shard, bounds)| position.0[shard.0 as usize] = bounds.kept);
            Ok(position)
        }
        (ReadFrom::Latest, Scope::Led) => {
            Ok(Position(hub.rooms.iter().map(|room| room.store.outbox_bounds().0).collect()))
        }
        (ReadFrom::Latest, Scope::Cluster) => {
            let heads = hub.heads(hub.rooms.iter().map(|room| room.id), Instant::now() + ASK_OWNERS).await?;
            Ok(Position(heads.into_iter().map(|bounds| bounds.head).collect()))
        }
    }
}

/// A cursor that a caller brings: of this shape, and of numbers that were given out already. A replica here may be behind
/// what the cursor has seen elsewhere, so whoever is ahead of it is compared with the owner.
async fn explicit(hub: &Arc<Hub>, text: &str) -> Result<Position, Rejection> {
    let position = Position::read(text, hub.rooms.len())?;
    let is_ahead = |room: &&Arc<crate::room::Room>| {
        !room.store.hosted() || position.0[room.id.0 as usize] > room.store.outbox_bounds().0
    };
    let ahead: Vec<_> = hub.rooms.iter().filter(is_ahead).map(|room| room.id).collect();
    let heads = hub.heads(ahead.iter().copied(), Instant::now() + ASK_OWNERS).await?;
    for (shard, Bounds { head, .. }) in ahead.into_iter().zip(heads) {
        if position.0[shard.0 as usize] > head {
            let message = format!(
                "Expected a cursor at or before the newest event, but found one ahead of it in shard {}.",
                shard.0
            );
            return Err(Rejection::new(Code::Invalid, message).at("cursor"));
        }
    }
    Ok(position)
}
