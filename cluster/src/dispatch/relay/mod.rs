//! Workers across nodes: what an edge tells owners, and how an owner's assignment reaches the edge.
//!
//! Two conversations with each peer. In `telling` each node tells every other its state as far as it concerns that one, one
//! message at a time; `hearing` is the other end. In `lane` an owner hands assignments to an edge, one numbered batch at a
//! time; `inbox` is the other end. All four are pure: they work on the pools, and what follows comes out. Here are the lock,
//! the tasks and the calls.
//!
//! Nothing here decides who owns an attempt. A telling is a hint and a promise, an assignment the delivery of what was
//! committed before.

mod hearing;
mod inbox;
mod lane;
mod telling;
#[cfg(test)]
mod tests;
mod wire;

use super::Dispatch;
use super::pool::Parcel;
use super::tenants::{Acts, Tenants};
use crate::hub::Hub;
use crate::metrics::{Metrics, count};
use crate::peers::{CallError, PeerService, Refused};
use crate::service::{BEAT_EVERY, Pulse};
use bytes::Bytes;
use futures::future::BoxFuture;
use grain_contract::Epoch;
use granary_proto::peers::{Assign, AssignAnswer, Tell, TellAnswer};
use inbox::Inbox;
use lane::{Lane, Step};
use parking_lot::Mutex;
use prost::Message;
use shard::{NodeId, ShardId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use telling::Telling;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

const TELL: &str = "relay.tell";
const ASSIGN: &str = "relay.assign";
/// For one telling or one batch of assignments to be answered.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Between two tellings to one peer, at least: what happens meanwhile goes together.
const TELL_GAP: Duration = Duration::from_millis(3);
/// What is not urgent waits so long at most.
const TELL_LAZY: Duration = Duration::from_millis(500);
/// A peer hears something at least this often.
const TELL_EVERY: Duration = Duration::from_secs(5);
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// What one node knows for the relay. Pure; locked before any pool, never while one is locked.
pub(crate) struct State {
    /// Greater than those of this node's earlier processes.
    life: u64,
    /// Names this process.
    process: u64,
    shards: u32,
    lease_ms: u64,
    /// Who leads the shards that are led elsewhere, as was heard.
    leads: HashMap<ShardId, (NodeId, Epoch)>,
    peers: HashMap<NodeId, Peer>,
}

#[derive(Default)]
struct Peer {
    heard: hearing::Heard,
    telling: Telling,
    lane: Lane,
    inbox: Inbox,
}

pub(crate) struct Relay {
    state: Mutex<State>,
    nudges: watch::Sender<u64>,
    has_peers: AtomicBool,
}

impl State {
    /// `wall_ms` makes its life later than earlier ones, mostly. `process`: random.
    pub(crate) fn new(shards: u32, lease_ms: u64, wall_ms: u64, process: u64) -> Self {
        let (life, leads, peers) = (wall_ms.max(1), HashMap::new(), HashMap::new());
        Self { life, process: process.max(1), shards, lease_ms, leads, peers }
    }

    /// An earlier process of this node had a later clock: this one is later from now on.
    fn outlive(&mut self, known: u64) {
        if known < self.life {
            return;
        }
        self.life = known.saturating_add(1);
        for peer in self.peers.values_mut() {
            peer.telling.begin_again(0);
        }
    }

    /// `true`: nothing drives the lane to that node, the caller is to begin.
    pub(crate) fn send(&mut self, edge: NodeId, parcel: Parcel) -> bool {
        let peer = self.peers.entry(edge).or_default();
        peer.lane.push(parcel, peer.heard.now_ms)
    }

    /// The peer is not to be reached, or is another process now.
    pub(crate) fn peer_lost(&mut self, node: NodeId, tenants: &Tenants, now_ms: u64) -> Acts {
        let Some(peer) = self.peers.get_mut(&node) else { return Acts::new() };
        // Heard anew from the beginning when it is back. What is on its way to it in the lane stays until it is known.
        peer.heard.forget();
        peer.telling.begin_again(0);
        tenants.edge_lost(node, now_ms)
    }
}

impl Relay {
    pub(super) fn new(shards: u32, lease_ms: u64, wall_ms: u64) -> Self {
        Self {
            state: Mutex::new(State::new(shards, lease_ms, wall_ms, rand::random())),
            nudges: watch::Sender::new(0),
            has_peers: AtomicBool::new(false),
        }
    }

    pub(super) fn has_peers(&self) -> bool {
        self.has_peers.load(Ordering::Acquire)
    }

    /// Something happened that peers should hear soon.
    pub(super) fn nudge(&self) {
        if self.has_peers() {
            self.nudges.send_modify(|n| *n += 1);
        }
    }
}

impl Dispatch {
    /// Puts it into the lane of that node.
    pub(super) fn send(self: &Arc<Self>, edge: NodeId, parcel: Parcel) {
        let starts = self.relay.state.lock().send(edge, parcel);
        if starts {
            tokio::spawn(drive_lane(self.clone(), edge));
        }
    }

    fn owners(&self) -> u32 {
        let Some(hub) = self.hub.upgrade() else { return 1 };
        u32::try_from(hub.around.peers.attached().borrow().len()).unwrap_or(u32::MAX).saturating_add(1)
    }

    /// Does what follows from what a peer said.
    fn follow_up(self: &Arc<Self>, acts: Acts) {
        self.perform_all(acts);
        if self.tenants.take_news() {
            self.nudge();
        }
    }

    fn nudge(&self) {
        self.relay.nudge();
    }
}

/// Keeps the conversations with every peer that is attached; ends only by being stopped.
pub(crate) async fn run(hub: Arc<Hub>, pulse: Arc<Pulse>) {
    let relay = &hub.dispatch.relay;
    let mut attached = hub.around.peers.attached();
    let mut pumps = JoinSet::new();
    let mut running: HashMap<NodeId, (u64, AbortHandle)> = HashMap::new();
    loop {
        pulse.beat();
        while pumps.try_join_next().is_some() {}
        let peers = attached.borrow_and_update().clone();
        relay.has_peers.store(!peers.is_empty(), Ordering::Release);
        let gone = running.extract_if(|node, (boot, pump)| {
            pump.is_finished() || peers.get(node).is_none_or(|peer| peer.boot != *boot)
        });
        for (node, (_, pump)) in gone.collect::<Vec<_>>() {
            pump.abort();
            let acts = relay.state.lock().peer_lost(node, &hub.dispatch.tenants, hub.clock.monotonic_ms());
            hub.dispatch.follow_up(acts);
        }
        for (node, peer) in peers.iter() {
            if !running.contains_key(node) {
                let pump = pumps.spawn(tell_peer(hub.dispatch.clone(), *node));
                running.insert(*node, (peer.boot, pump));
            }
        }
        tokio::select! {
            changed = attached.changed() => {
                if changed.is_err() {
                    // Nobody will ever be attached; the pulse goes on.
                    tokio::time::sleep(BEAT_EVERY).await;
                }
            }
            () = tokio::time::sleep(BEAT_EVERY) => {}
        }
    }
}

/// Tells one peer, as long as it is attached.
async fn tell_peer(dispatch: Arc<Dispatch>, to: NodeId) {
    let mut nudges = dispatch.relay.nudges.subscribe();
    let mut told = None::<Instant>;
    loop {
        let Some(hub) = dispatch.hub.upgrade() else { return };
        nudges.borrow_and_update();
        let owners = dispatch.owners();
        let (message, record) =
            dispatch.relay.state.lock().tell(to, &dispatch.tenants, owners, dispatch.clock.monotonic_ms());
        let is_due = told.is_none_or(|at| at.elapsed() >= TELL_EVERY);
        if record.is_empty() && !is_due {
            drop(hub);
            let _ = tokio::time::timeout(TELL_LAZY, nudges.changed()).await;
            continue;
        }
        count(&hub.metrics.relay_tellings);
        let answer = hub.around.peers.call(to, TELL, message.encode_to_vec().into(), ANSWER_MAX).await;
        drop(hub);
        let answer = answer.ok().and_then(|body| TellAnswer::decode(body).ok());
        let failed = answer.is_none();
        let more = record.has_more();
        let (acts, again) =
            dispatch.relay.state.lock().told(to, record, answer, &dispatch.tenants, dispatch.clock.monotonic_ms());
        dispatch.follow_up(acts);
        told = Some(Instant::now());
        if failed {
            tokio::time::sleep(TRY_AGAIN).await;
        } else if !more && !again {
            tokio::time::sleep(TELL_GAP).await;
            let _ = tokio::time::timeout(TELL_LAZY, nudges.changed()).await;
        }
    }
}

fn count_answer(metrics: &Metrics, answer: &Result<AssignAnswer, CallError>) {
    metrics.assigned(match answer {
        Ok(answer) => {
            let placed = answer.placed.iter().filter(|it| it.placed).count() as u64;
            Ok((placed, answer.placed.len() as u64 - placed))
        }
        Err(_) => Err(()),
    });
}

/// Hands over what is in a lane, until it is empty.
async fn drive_lane(dispatch: Arc<Dispatch>, to: NodeId) {
    let mut pause = TRY_AGAIN;
    loop {
        let Some(hub) = dispatch.hub.upgrade().filter(|hub| !hub.stop.is_cancelled()) else { return };
        let next = dispatch.relay.state.lock().next_batch(to, dispatch.clock.monotonic_ms());
        let Some(batch) = next else { return };
        let answer = hub.around.peers.call(to, ASSIGN, batch.encode_to_vec().into(), ANSWER_MAX).await;
        let answer = answer.and_then(|body| {
            AssignAnswer::decode(body)
                .map_err(|error| CallError::Unknown(format!("an answer that cannot be read: {error}")))
        });
        count_answer(&hub.metrics, &answer);
        let is_attached = hub.around.peers.attached().borrow().contains_key(&to);
        let stop = hub.stop.clone();
        drop(hub);
        let (acts, step) = dispatch.relay.state.lock().batch_answered(
            to,
            answer,
            is_attached,
            &dispatch.tenants,
            dispatch.clock.monotonic_ms(),
        );
        dispatch.follow_up(acts);
        match step {
            Step::Next => pause = TRY_AGAIN,
            Step::Again => {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = stop.cancelled() => return,
                }
                pause = (pause * 2).min(ANSWER_MAX);
            }
        }
    }
}

/// What this node answers its peers.
struct RelayService(Weak<Hub>);

/// From here on peers can talk to the relay of this silo.
pub(crate) fn mount(hub: &Arc<Hub>) {
    hub.around.services.mount("relay", Arc::new(RelayService(Arc::downgrade(hub))));
}

impl PeerService for RelayService {
    fn handle(
        &self,
        from: NodeId,
        method: &str,
        body: Bytes,
        _: Duration,
    ) -> BoxFuture<'static, Result<Bytes, Refused>> {
        Box::pin(std::future::ready(self.answer(from, method, body)))
    }
}

impl RelayService {
    fn answer(&self, from: NodeId, method: &str, body: Bytes) -> Result<Bytes, Refused> {
        let hub = self.0.upgrade().filter(|hub| !hub.stop.is_cancelled());
        let hub = hub.ok_or_else(|| Refused::Other("this silo has stopped".to_owned()))?;
        let unreadable = |error: prost::DecodeError| Refused::BadRequest(error.to_string());
        let (dispatch, now_ms) = (&hub.dispatch, hub.clock.monotonic_ms());
        match method {
            TELL => {
                let tell = Tell::decode(body).map_err(unreadable)?;
                let (answer, acts) =
                    dispatch.relay.state.lock().hear(from, tell, &dispatch.tenants, rand::random(), now_ms);
                dispatch.follow_up(acts);
                Ok(answer.encode_to_vec().into())
            }
            ASSIGN => {
                let assign = Assign::decode(body).map_err(unreadable)?;
                let owners = dispatch.owners();
                let now = dispatch.moment();
                let (answer, acts) = dispatch.relay.state.lock().place(from, assign, &dispatch.tenants, owners, now);
                dispatch.follow_up(acts);
                Ok(answer.encode_to_vec().into())
            }
            other => Err(Refused::UnknownMethod(other.to_owned())),
        }
    }
}
