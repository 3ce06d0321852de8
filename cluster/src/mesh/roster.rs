//! Whom this node has heard of, from whom, and over what it can call them.
//!
//! Two kinds of knowledge are kept apart. First-hand: the node said it itself, with its certificate; only that is repeated to
//! others, and only for a short while, so that the dead are not passed round for ever. Hearsay: somebody said so; good for
//! an address to dial, and for nothing else.
//!
//! A node id has one life at a time: the boot that was admitted last. Its token ends everything that belongs to that life.

use super::judge::info;
use super::line::{Line, Permits};
use super::wire::Wire;
use crate::peers::{Attached, PeerInfo};
use granary_proto::peers::NodeIdentity;
use parking_lot::Mutex;
use shard::NodeId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// Nodes that are kept in mind.
const NODES_MAX: usize = 256;
/// Addresses that are tried for one node.
const ADDRESSES_MAX: usize = 4;
/// First-hand knowledge is repeated to others for this long after the node was last attached.
const REPEATED_FOR: Duration = Duration::from_secs(60);
/// After this long out of reach a node is no longer dialled; the seeds find it again.
const DIALLED_FOR: Duration = Duration::from_secs(600);
/// The same for one that was never met.
const HEARSAY_DIALLED_FOR: Duration = Duration::from_secs(60);

pub(super) struct Roster {
    entries: Mutex<BTreeMap<NodeId, Entry>>,
    attached: watch::Sender<Attached>,
    /// Those that are attached by their gates.
    gates: watch::Sender<Arc<BTreeSet<NodeId>>>,
    /// Counts what would be worth telling others.
    news: watch::Sender<u64>,
}

struct Entry {
    identity: NodeIdentity,
    is_first_hand: bool,
    /// Last attached or last heard.
    heard: Instant,
    addresses: VecDeque<String>,
    life: CancellationToken,
    wire: Option<Arc<Wire>>,
    gate: Option<Arc<dyn Line>>,
    permits: Arc<Permits>,
    /// There is something new to try.
    wake: Arc<Notify>,
}

/// What came of an identity that was judged welcome.
#[derive(Debug)]
pub(super) enum Admission {
    Admitted {
        life: CancellationToken,
        /// Nobody dials it yet.
        is_new: bool,
    },
    /// A living process seems to have this id or this name already: whether it answers must be seen first.
    Occupied(NodeId),
    /// Too many nodes.
    Full,
}

/// The ways to a node.
#[derive(Clone)]
pub(super) struct Ways {
    /// The highest version of the protocol that the node speaks.
    pub protocol_max: u32,
    pub wire: Option<Arc<Wire>>,
    pub gate: Option<Arc<dyn Line>>,
    pub permits: Arc<Permits>,
}

impl Default for Roster {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
            attached: watch::Sender::new(Attached::default()),
            gates: watch::Sender::default(),
            news: watch::Sender::new(0),
        }
    }
}

impl Entry {
    fn new(identity: NodeIdentity, is_first_hand: bool, now: Instant) -> Self {
        Self {
            addresses: VecDeque::from([identity.peer_address.clone()]),
            identity,
            is_first_hand,
            heard: now,
            life: CancellationToken::new(),
            wire: None,
            gate: None,
            permits: Arc::default(),
            wake: Arc::default(),
        }
    }

    fn is_attached(&self) -> bool {
        self.wire.is_some() || self.gate.is_some()
    }

    fn try_first(&mut self, address: &str) {
        self.addresses.retain(|known| known != address);
        self.addresses.push_front(address.to_owned());
        self.addresses.truncate(ADDRESSES_MAX);
        self.wake.notify_one();
    }

    fn end_life(&mut self) {
        self.life.cancel();
        if let Some(wire) = self.wire.take() {
            wire.close();
        }
        if let Some(gate) = self.gate.take() {
            gate.close();
        }
    }
}

impl Roster {
    /// A node said this of itself and was judged welcome.
    pub(super) fn admit(&self, identity: &NodeIdentity, now: Instant) -> Admission {
        let mut entries = self.entries.lock();
        let node = identity.node_id;
        let namesakes: Vec<_> = entries
            .iter()
            .filter(|(id, e)| **id != node && e.identity.name == identity.name)
            .map(|(id, _)| *id)
            .collect();
        if let Some(living) = namesakes.iter().find(|id| entries[*id].is_attached()) {
            return Admission::Occupied(*living);
        }
        if entries.get(&node).is_some_and(|e| e.is_first_hand && e.identity.boot != identity.boot && e.is_attached()) {
            return Admission::Occupied(node);
        }
        // Its volume was lost, and the id with it: nobody will answer to that again.
        for namesake in namesakes {
            if let Some(mut gone) = entries.remove(&namesake) {
                gone.end_life();
            }
        }
        let is_new = !entries.contains_key(&node);
        if is_new && entries.len() >= NODES_MAX {
            return Admission::Full;
        }
        let entry = entries.entry(node).or_insert_with(|| Entry::new(identity.clone(), true, now));
        let is_news = is_new || !entry.is_first_hand || entry.identity != *identity;
        if entry.identity.boot != identity.boot {
            entry.end_life();
            entry.life = CancellationToken::new();
        }
        entry.identity = identity.clone();
        entry.is_first_hand = true;
        entry.heard = now;
        if is_news {
            entry.try_first(&identity.peer_address);
        }
        let life = entry.life.clone();
        drop(entries);
        if is_news {
            self.news.send_modify(|count| *count += 1);
        }
        self.publish();
        Admission::Admitted { life, is_new }
    }

    /// Somebody said this of a third node. True if it is new and nobody dials it yet.
    pub(super) fn hear(&self, identity: &NodeIdentity, now: Instant) -> bool {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get_mut(&identity.node_id) {
            if !entry.is_attached() && entry.addresses.front() != Some(&identity.peer_address) {
                entry.try_first(&identity.peer_address);
            }
            return false;
        }
        let has_living_namesake = entries.values().any(|e| e.identity.name == identity.name && e.is_attached());
        if has_living_namesake || entries.len() >= NODES_MAX {
            return false;
        }
        entries.insert(identity.node_id, Entry::new(identity.clone(), false, now));
        true
    }

    pub(super) fn ways(&self, node: NodeId) -> Option<Ways> {
        let entries = self.entries.lock();
        let entry = entries.get(&node)?;
        let protocol_max = entry.identity.protocol_max;
        Some(Ways { protocol_max, wire: entry.wire.clone(), gate: entry.gate.clone(), permits: entry.permits.clone() })
    }

    pub(super) fn identity(&self, node: NodeId) -> Option<NodeIdentity> {
        self.entries.lock().get(&node).filter(|entry| entry.is_first_hand).map(|entry| entry.identity.clone())
    }

    /// The life of this boot, if it is the present one.
    pub(super) fn life(&self, node: NodeId, boot: u64) -> Option<CancellationToken> {
        let entries = self.entries.lock();
        let entry = entries.get(&node)?;
        (entry.is_first_hand && entry.identity.boot == boot).then(|| entry.life.clone())
    }

    pub(super) fn attach_wire(&self, node: NodeId, boot: u64, wire: &Arc<Wire>) -> bool {
        self.attach(node, boot, |entry| entry.wire = Some(wire.clone()))
    }

    /// The gate that was there is closed: an older one, or a connection that is dead and does not know it.
    pub(super) fn attach_gate(&self, node: NodeId, boot: u64, gate: &Arc<dyn Line>) -> bool {
        self.attach(node, boot, |entry| {
            if let Some(old) = entry.gate.replace(gate.clone()) {
                old.close();
            }
        })
    }

    fn attach(&self, node: NodeId, boot: u64, set: impl FnOnce(&mut Entry)) -> bool {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&node).filter(|e| e.is_first_hand && e.identity.boot == boot) else {
            return false;
        };
        set(entry);
        drop(entries);
        self.publish();
        true
    }

    pub(super) fn detach_wire(&self, node: NodeId, wire: &Arc<Wire>, now: Instant) {
        wire.close();
        self.detach(node, now, |entry| {
            entry.wire.take_if(|present| Arc::ptr_eq(present, wire));
        });
    }

    pub(super) fn detach_gate(&self, node: NodeId, gate: &Arc<dyn Line>, now: Instant) {
        gate.close();
        self.detach(node, now, |entry| {
            entry.gate.take_if(|present| Arc::ptr_eq(present, gate));
        });
    }

    fn detach(&self, node: NodeId, now: Instant, take: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries.lock().get_mut(&node) {
            take(entry);
            entry.heard = now;
        }
        self.publish();
    }

    /// It was asked and did not answer: whatever still leads there is closed.
    pub(super) fn bury(&self, node: NodeId) {
        if let Some(entry) = self.entries.lock().get_mut(&node) {
            entry.end_life();
            entry.life = CancellationToken::new();
        }
        self.publish();
    }

    /// Where to dial a node and what wakes the dialler. `None` = no more: it was superseded, or out of reach for too long.
    pub(super) fn to_dial(&self, node: NodeId, now: Instant) -> Option<(Vec<String>, Arc<Notify>)> {
        let mut entries = self.entries.lock();
        let entry = entries.get(&node)?;
        let patience = if entry.is_first_hand { DIALLED_FOR } else { HEARSAY_DIALLED_FOR };
        if !entry.is_attached() && now.saturating_duration_since(entry.heard) > patience {
            entries.remove(&node);
            return None;
        }
        Some((entry.addresses.iter().cloned().collect(), entry.wake.clone()))
    }

    /// That address leads elsewhere by now.
    pub(super) fn address_is_wrong(&self, node: NodeId, address: &str) {
        if let Some(entry) = self.entries.lock().get_mut(&node)
            && entry.addresses.len() > 1
        {
            entry.addresses.retain(|known| known != address);
        }
    }

    /// First-hand and fresh.
    pub(super) fn known(&self, now: Instant) -> Vec<NodeIdentity> {
        let entries = self.entries.lock();
        let is_fresh =
            |e: &&Entry| e.is_first_hand && (e.is_attached() || now.saturating_duration_since(e.heard) <= REPEATED_FOR);
        entries.values().filter(is_fresh).map(|entry| entry.identity.clone()).collect()
    }

    /// Name and address of everybody who was heard of from themselves.
    pub(super) fn met(&self) -> Vec<(String, String)> {
        let entries = self.entries.lock();
        let met = entries.values().filter(|entry| entry.is_first_hand);
        met.map(|entry| (entry.identity.name.clone(), entry.identity.peer_address.clone())).collect()
    }

    /// Those that are about to stop, by their own word.
    pub(super) fn leaving(&self) -> BTreeSet<NodeId> {
        let entries = self.entries.lock();
        entries.iter().filter(|(_, e)| e.is_first_hand && e.identity.leaving).map(|(node, _)| *node).collect()
    }

    pub(super) fn is_attached(&self, node: NodeId) -> bool {
        self.entries.lock().get(&node).is_some_and(Entry::is_attached)
    }

    pub(super) fn gates(&self) -> watch::Receiver<Arc<BTreeSet<NodeId>>> {
        self.gates.subscribe()
    }

    pub(super) fn attached(&self) -> watch::Receiver<Attached> {
        self.attached.subscribe()
    }

    pub(super) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    pub(super) fn close(&self) {
        self.entries.lock().values_mut().for_each(Entry::end_life);
        self.publish();
    }

    fn publish(&self) {
        // Under the lock, so that two changes are published in their order.
        let entries = self.entries.lock();
        let attached: BTreeMap<NodeId, PeerInfo> = entries
            .iter()
            .filter(|(_, entry)| entry.is_attached())
            .map(|(node, entry)| (*node, info(&entry.identity)))
            .collect();
        let gates: BTreeSet<NodeId> =
            entries.iter().filter(|(_, entry)| entry.gate.is_some()).map(|(node, _)| *node).collect();
        tell(&self.attached, attached);
        tell(&self.gates, gates);
    }
}

fn tell<T: PartialEq>(told: &watch::Sender<Arc<T>>, now: T) {
    told.send_if_modified(|known| {
        let is_new = **known != now;
        if is_new {
            *known = Arc::new(now);
        }
        is_new
    });
}

#[cfg(test)]
#[path = "roster_tests.rs"]
mod tests;
