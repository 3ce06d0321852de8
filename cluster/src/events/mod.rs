//! Readers of the committed events of all shards.
//!
//! A reader pulls: it holds a position and no events, so a slow one costs nothing and holds back nobody. Events are rows of
//! the outbox, kept for the retention whether or not somebody reads them. A named cursor is a position kept durably with the
//! shards; it moves by what the consumer acknowledged, and past what was not for it as soon as nothing before that is open.

mod keeper;
mod position;
mod retention;

pub(crate) use keeper::{Readers, keep_all, run as run_keeper};
pub(crate) use retention::run as run_retention;

use crate::hub::Hub;
use crate::refusal;
use futures::future::select_all;
use grain_contract::{Code, GrainId, Rejection, TenantId, Timestamp, limits};
use keeper::Named;
use position::Position;
use shard::{OutboxItem, OutboxRecord};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::sync::watch;

/// Rows read from one shard at a time.
const PAGE: usize = 256;

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
pub struct EventReader {
    hub: Arc<Hub>,
    tenant: Option<TenantId>,
    position: Position,
    arrivals: Vec<watch::Receiver<u64>>,
    named: Option<Arc<Named>>,
    /// Rows between this reader and the head when it last looked.
    lag: Arc<AtomicU64>,
    /// Rows that were trimmed before this reader came to them.
    skipped: u64,
    /// Which shard is looked at first, so that a busy one does not keep the others waiting.
    first: usize,
}

impl EventReader {
    /// At least one event, in order per grain; waits if there is none.
    ///
    /// # Errors
    /// `Unavailable` if the store is closed or the silo stops; `WrongState` if another reader took the named cursor over.
    pub async fn next_batch(&mut self) -> Result<Vec<DeliveredEvent>, Rejection> {
        loop {
            if self.named.as_ref().is_some_and(|named| named.is_taken_over()) {
                return Err(Rejection::new(
                    Code::WrongState,
                    "Expected to be the only reader of this cursor, but another reader took it over.",
                ));
            }
            // Marked as seen before the rows are read: what is applied meanwhile wakes the wait below.
            self.arrivals.iter_mut().for_each(|arrivals| {
                arrivals.borrow_and_update();
            });
            let (events, looked_at_some) = self.read()?;
            if !events.is_empty() {
                return Ok(events);
            }
            if looked_at_some {
                // Nothing for this reader in these pages; others get their turn before the next ones.
                tokio::task::yield_now().await;
                continue;
            }
            let hub = self.hub.clone();
            let taken_over = self.named.clone();
            let arrived = select_all(self.arrivals.iter_mut().map(|arrivals| Box::pin(arrivals.changed())));
            tokio::select! {
                (arrived, ..) = arrived => arrived.map_err(|_| refusal::unavailable("the store is closed"))?,
                () = hub.stop.cancelled() => return Err(refusal::unavailable("this silo is shutting down")),
                () = async { match &taken_over { Some(named) => named.taken_over().await, None => std::future::pending().await } } => {}
            }
        }
    }

    /// Everything up to this cursor is done; kept durably, a little later, if the reader has a named cursor.
    ///
    /// # Errors
    /// `Invalid` if it is not a cursor of this cluster, or one of an event that this reader has not delivered.
    pub fn acknowledge(&self, cursor: &str) -> Result<(), Rejection> {
        let acknowledged = Position::read(cursor, self.position.0.len())?;
        let ahead = acknowledged.0.iter().zip(&self.position.0).any(|(acknowledged, read)| acknowledged > read);
        if ahead {
            let message = "Expected the cursor of a delivered event, but found one that lies ahead of this reader.";
            return Err(Rejection::new(Code::Invalid, message).at("cursor"));
        }
        if let Some(named) = &self.named {
            named.acknowledge(&acknowledged);
        }
        Ok(())
    }

    /// Rows that the retention trimmed before this reader came to them.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// One page of each shard, and whether it held any rows. Moves the position past everything it looked at.
    fn read(&mut self) -> Result<(Vec<DeliveredEvent>, bool), Rejection> {
        let (shards, first) = (self.position.0.len(), self.first);
        let (mut events, mut looked_at, mut lag) = (Vec::new(), 0, 0);
        for shard in (0..shards).map(|n| (first + n) % shards) {
            let (behind, records) = self.page(shard)?;
            looked_at += records.len();
            lag += behind;
            for record in records {
                self.position.0[shard] = record.sequence + 1;
                events.extend(self.deliver(shard, record));
            }
        }
        self.first = (first + 1) % shards;
        if let Some(named) = &self.named {
            named.looked_at(&self.position, events.iter().map(|event| (event.shard as usize, event.sequence)));
        }
        self.lag.store(lag, Relaxed);
        Ok((events, looked_at > 0))
    }

    fn page(&mut self, shard: usize) -> Result<(u64, Vec<OutboxRecord>), Rejection> {
        let store = &self.hub.rooms[shard].store;
        let (head, kept) = store.outbox_bounds();
        let next = &mut self.position.0[shard];
        if *next < kept {
            self.skipped += kept - *next;
            *next = kept;
        }
        if *next >= head {
            return Ok((0, Vec::new()));
        }
        let records = store.outbox(*next, PAGE).map_err(refusal::of_store)?;
        if records.is_empty() {
            // Only struck calls up to here.
            *next = head;
        }
        Ok((head.saturating_sub(*next), records))
    }

    fn deliver(&self, shard: usize, record: OutboxRecord) -> Option<DeliveredEvent> {
        let OutboxItem::Event(body) = record.item else { return None };
        if self.tenant.as_ref().is_some_and(|tenant| *tenant != record.grain.tenant) {
            return None;
        }
        Some(DeliveredEvent {
            grain: record.grain,
            at: record.at,
            body,
            shard: u32::try_from(shard).unwrap_or(u32::MAX),
            sequence: record.sequence,
            cursor: self.position.to_string(),
        })
    }
}

impl Drop for EventReader {
    fn drop(&mut self) {
        self.lag.store(0, Relaxed);
        if let Some(named) = &self.named {
            named.reader_gone();
        }
    }
}

/// Opens a reader; a new named cursor is durable before this returns, so that nothing from here on can be missed.
pub(crate) async fn open(hub: &Arc<Hub>, request: ReadEvents) -> Result<EventReader, Rejection> {
    if let Some(name) = &request.cursor_name
        && (name.is_empty() || name.len() > limits::NAME_BYTES_MAX)
    {
        let message = format!("Expected a name of 1 to {} bytes, but found {}.", limits::NAME_BYTES_MAX, name.len());
        return Err(Rejection::new(Code::Invalid, message).at("cursorName"));
    }
    let bounds: Vec<(u64, u64)> = hub.rooms.iter().map(|room| room.store.outbox_bounds()).collect();
    let start = match &request.from {
        ReadFrom::Earliest => Position(bounds.iter().map(|(_, kept)| *kept).collect()),
        ReadFrom::Latest => Position(bounds.iter().map(|(head, _)| *head).collect()),
        ReadFrom::Cursor(text) => explicit(text, &bounds)?,
    };
    let is_explicit = matches!(request.from, ReadFrom::Cursor(_));
    let (position, named) = match &request.cursor_name {
        None => (start, None),
        Some(name) => {
            let named = keeper::open(hub, request.tenant.as_ref(), name, start, is_explicit).await?;
            (named.start().clone(), Some(named))
        }
    };
    // Subscribed before the first read, and each marked as seen by it.
    let arrivals = hub.rooms.iter().map(|room| room.store.outbox_watch()).collect();
    let lag = hub.readers.register();
    let tenant = request.tenant;
    Ok(EventReader { hub: hub.clone(), tenant, position, arrivals, named, lag, skipped: 0, first: 0 })
}

/// A cursor that a caller brings: of this shape, and of numbers that were given out already.
fn explicit(text: &str, bounds: &[(u64, u64)]) -> Result<Position, Rejection> {
    let position = Position::read(text, bounds.len())?;
    let ahead = position.0.iter().zip(bounds).position(|(next, (head, _))| next > head);
    match ahead {
        None => Ok(position),
        Some(shard) => Err(Rejection::new(
            Code::Invalid,
            format!("Expected a cursor at or before the newest event, but found one ahead of it in shard {shard}."),
        )
        .at("cursor")),
    }
}
