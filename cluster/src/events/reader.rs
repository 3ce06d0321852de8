//! One reader's way through the events of all shards.

use super::keeper::Named;
use super::position::Position;
use super::{DeliveredEvent, Scope};
use crate::hop::outbox::{Event, EventPage};
use crate::hub::Hub;
use crate::refusal;
use crate::room::Room;
use futures::future::select_all;
use grain_contract::{Code, Rejection, TenantId};
use shard::ShardId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Between two looks at which shards have replicas here, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// One page from another node; then it is asked for again.
const FETCH: Duration = Duration::from_secs(10);

/// Reads on for ever. Dropping it ends the reading; a named cursor stays.
pub struct EventReader {
    hub: Arc<Hub>,
    tenant: Option<TenantId>,
    scope: Scope,
    position: Position,
    arrivals: Vec<watch::Receiver<u64>>,
    /// Told when a shard elsewhere has news.
    news: watch::Receiver<u64>,
    elsewhere: Vec<Elsewhere>,
    fetching: JoinSet<Fetched>,
    named: Option<Arc<Named>>,
    /// Rows between this reader and the head when it last looked.
    lag: Arc<AtomicU64>,
    /// Rows that were trimmed before this reader came to them.
    skipped: u64,
    /// Which shard is looked at first, so that a busy one does not keep the others waiting.
    first: usize,
}

/// What is known of a shard's rows on other nodes. At most one page of each is held or on its way.
enum Elsewhere {
    Idle,
    Fetching,
    Fetched(EventPage),
}

/// The shard, and its page.
type Fetched = (usize, Result<EventPage, Rejection>);

/// What one shard gave in one round.
struct Taken {
    events: Vec<Event>,
    /// Rows looked at, whether or not they held events.
    moved: bool,
    behind: u64,
}

impl EventReader {
    pub(super) fn new(
        hub: &Arc<Hub>,
        tenant: Option<TenantId>,
        scope: Scope,
        position: Position,
        named: Option<Arc<Named>>,
    ) -> Self {
        // Subscribed before the first read, and each marked as seen by it.
        let arrivals = hub.rooms.iter().map(|room| room.store.outbox_watch()).collect();
        Self {
            tenant,
            scope,
            arrivals,
            news: hub.tails.news(),
            elsewhere: hub.rooms.iter().map(|_| Elsewhere::Idle).collect(),
            fetching: JoinSet::new(),
            lag: hub.readers.register(),
            hub: hub.clone(),
            position,
            named,
            skipped: 0,
            first: 0,
        }
    }

    /// At least one event, in order per grain; waits if there is none. May be dropped while it waits: nothing is lost.
    ///
    /// # Errors
    /// `Unavailable` if the store is closed or the silo stops; `WrongState` if another reader took the named cursor over, on
    /// whatever node.
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
            self.news.borrow_and_update();
            while let Some(fetched) = self.fetching.try_join_next() {
                hold(&mut self.elsewhere, fetched);
            }
            let (events, looked_at_some) = self.read()?;
            if !events.is_empty() {
                return Ok(events);
            }
            if looked_at_some {
                // Nothing for this reader in these pages; others get their turn before the next ones.
                tokio::task::yield_now().await;
                continue;
            }
            self.wait().await?;
        }
    }

    async fn wait(&mut self) -> Result<(), Rejection> {
        let hub = self.hub.clone();
        let taken_over = self.named.clone();
        let taken_over = async {
            match &taken_over {
                Some(named) => named.taken_over().await,
                None => std::future::pending().await,
            }
        };
        let arrived = select_all(self.arrivals.iter_mut().map(|arrivals| Box::pin(arrivals.changed())));
        let can_change = !hub.around.is_alone();
        tokio::select! {
            (arrived, ..) = arrived => arrived.map_err(|_| refusal::unavailable("the store is closed"))?,
            _ = self.news.changed() => {}
            Some(fetched) = self.fetching.join_next() => hold(&mut self.elsewhere, fetched),
            () = hub.stop.cancelled() => return Err(refusal::unavailable("this silo is shutting down")),
            () = taken_over => {}
            () = tokio::time::sleep(LOOK_EVERY), if can_change => {}
        }
        Ok(())
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
        let (mut events, mut looked_at_some, mut lag) = (Vec::new(), false, 0);
        for shard in (0..shards).map(|n| (first + n) % shards) {
            let taken = self.take(shard)?;
            looked_at_some |= taken.moved;
            lag += taken.behind;
            let next = self.position.0[shard];
            for event in taken.events {
                // The position stands behind this event while it is delivered: its cursor says so.
                self.position.0[shard] = event.sequence + 1;
                events.extend(self.deliver(shard, event));
            }
            self.position.0[shard] = next;
        }
        self.first = (first + 1) % shards.max(1);
        if let Some(named) = &self.named {
            named.looked_at(&self.position, events.iter().map(|event| (event.shard as usize, event.sequence)));
        }
        self.lag.store(lag, Relaxed);
        Ok((events, looked_at_some))
    }

    fn take(&mut self, shard: usize) -> Result<Taken, Rejection> {
        let hub = self.hub.clone();
        let room = &hub.rooms[shard];
        let mut at = self.position.0[shard];
        let (head, _) = room.store.outbox_bounds();
        if self.scope == Scope::Led {
            let epoch = room.store.leadership().borrow().epoch;
            match *room.led_from.lock() {
                // What was there before this leadership is that of the one before, even if nobody looked here since.
                Some((since, from)) if epoch == Some(since) => at = at.max(from),
                _ => {
                    if epoch.is_none() {
                        // Whoever leads counts these.
                        self.position.0[shard] = at.max(head);
                    }
                    return Ok(Taken { events: Vec::new(), moved: false, behind: 0 });
                }
            }
        }
        let page = if is_here(room, at, head) {
            self.elsewhere[shard] = Elsewhere::Idle;
            hub.event_page_here(room.id, at)?
        } else {
            match self.take_fetched(shard, at) {
                Some(page) => page,
                None => return Ok(Taken { events: Vec::new(), moved: false, behind: 0 }),
            }
        };
        let moved = page.next > at;
        if at < page.kept {
            self.skipped += page.kept - at;
        }
        self.position.0[shard] = page.next.max(at);
        Ok(Taken { moved, behind: page.head.saturating_sub(page.next), events: page.events })
    }

    /// A page of another node, if it is there; otherwise sees to it that it comes once there is one.
    fn take_fetched(&mut self, shard: usize, at: u64) -> Option<EventPage> {
        let id = ShardId(u32::try_from(shard).unwrap_or(u32::MAX));
        let head = self.hub.tails.want(shard);
        match std::mem::replace(&mut self.elsewhere[shard], Elsewhere::Idle) {
            Elsewhere::Fetched(page) if page.next > at => return Some(page),
            Elsewhere::Fetching => self.elsewhere[shard] = Elsewhere::Fetching,
            Elsewhere::Fetched(_) | Elsewhere::Idle if head > at => {
                self.elsewhere[shard] = Elsewhere::Fetching;
                let hub = self.hub.clone();
                self.fetching.spawn(async move { (shard, hub.event_page(id, at, Instant::now() + FETCH).await) });
            }
            Elsewhere::Fetched(_) | Elsewhere::Idle => {}
        }
        None
    }

    fn deliver(&self, shard: usize, event: Event) -> Option<DeliveredEvent> {
        if self.tenant.as_ref().is_some_and(|tenant| *tenant != event.grain.tenant) {
            return None;
        }
        Some(DeliveredEvent {
            grain: event.grain,
            at: event.at,
            body: event.body,
            shard: u32::try_from(shard).unwrap_or(u32::MAX),
            sequence: event.sequence,
            cursor: self.position.to_string(),
        })
    }
}

fn hold(elsewhere: &mut [Elsewhere], fetched: Result<Fetched, tokio::task::JoinError>) {
    match fetched {
        Ok((shard, Ok(page))) => elsewhere[shard] = Elsewhere::Fetched(page),
        Ok((shard, Err(rejection))) => {
            tracing::debug!(shard, %rejection, "events of another node do not come now; again");
            elsewhere[shard] = Elsewhere::Idle;
        }
        // A fetch that broke off is not known by its shard: all that wait are asked for again.
        Err(_) => elsewhere.iter_mut().for_each(|elsewhere| *elsewhere = Elsewhere::Idle),
    }
}

/// Whether the replica here is as far as the reader. One that is behind (it was just made, or the reader came from another
/// node) catches up; meanwhile the rows come from elsewhere.
fn is_here(room: &Room, at: u64, head: u64) -> bool {
    room.store.hosted() && head >= at
}

impl Drop for EventReader {
    fn drop(&mut self) {
        self.lag.store(0, Relaxed);
        if let Some(named) = &self.named {
            named.reader_gone();
        }
    }
}
