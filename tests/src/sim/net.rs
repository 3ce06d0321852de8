//! The network between simulated nodes: it delays, drops, repeats, reorders and cuts as its weather says, one way or both.
//!
//! Whoever asks waits with a clock of its own; what is on the way belongs to the network and is delivered by the driver, at the
//! beginning of the step in which it is due. A dead process refuses, a lost machine is silent, a frozen one takes what comes
//! and answers when it wakes.

use super::chance::Chance;
use super::trace::Trace;
use bytes::Bytes;
use cluster::peers::{Attached, CallError, Peers, Refused};
use futures::future::BoxFuture;
use shard::{LinkError, NodeId, RaftFrame, RaftLink, ShardId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// Number of a machine: it keeps its name and place whatever disk and process it has.
pub type Slot = usize;

/// How messages fare.
#[derive(Clone, Debug)]
pub struct Weather {
    pub delay_us: Range<u64>,
    /// Of 1,000 messages, so many are lost, come twice, or come later than others that were sent after them.
    pub lost: u64,
    pub repeated: u64,
    pub held_up: u64,
    pub held_up_us: Range<u64>,
}

impl Weather {
    pub fn fine() -> Self {
        Self { delay_us: 100..2_000, lost: 0, repeated: 0, held_up: 0, held_up_us: 1..2 }
    }
}

pub enum Ask {
    Raft(RaftFrame),
    Snapshot { shard: ShardId, head: Bytes, file: Bytes },
    Call { method: &'static str, body: Bytes, within: Duration },
}

impl Ask {
    fn name(&self) -> String {
        match self {
            Self::Raft(frame) => format!("{:?} {}", frame.kind, frame.shard.0),
            Self::Snapshot { shard, .. } => format!("Snapshot {}", shard.0),
            Self::Call { method, .. } => (*method).to_owned(),
        }
    }

    /// For those that may come twice. A snapshot comes over a connection, once.
    fn again(&self) -> Option<Self> {
        match self {
            Self::Raft(frame) => Some(Self::Raft(frame.clone())),
            Self::Call { method, body, within } => Some(Self::Call { method, body: body.clone(), within: *within }),
            Self::Snapshot { .. } => None,
        }
    }
}

pub enum Answer {
    Done(Bytes),
    /// Nobody listens there: it was never taken.
    Dead,
    LinkRefused(LinkError),
    CallRefused(Refused),
}

/// What the driver hands to a node.
pub struct Delivery {
    pub from: NodeId,
    pub to: Slot,
    pub ask: Ask,
    pub answer: AnswerTo,
}

/// Where an answer goes.
pub struct AnswerTo {
    net: Net,
    from: Slot,
    to: Slot,
    ticket: u64,
}

impl AnswerTo {
    pub fn send(self, answer: Answer) {
        self.net.clone().answer(self, answer);
    }
}

enum Packet {
    Ask { from: NodeId, ticket: u64, ask: Ask },
    Answer { ticket: u64, answer: Answer },
}

struct OnWay {
    from: Slot,
    to: Slot,
    packet: Packet,
}

#[derive(Clone)]
pub struct Net(Arc<Mutex<Inner>>);

struct Inner {
    trace: Trace,
    chance: Chance,
    serial: u64,
    on_way: BTreeMap<(u64, u64), OnWay>,
    waiting: BTreeMap<u64, oneshot::Sender<Answer>>,
    /// Which machine a node's number is on. Numbers of lost disks lead nowhere.
    slots: BTreeMap<NodeId, Slot>,
    /// From, to: nothing gets through.
    cut: BTreeSet<(Slot, Slot)>,
    weather: Weather,
}

impl Net {
    pub fn new(trace: Trace, chance: Chance) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            trace,
            chance,
            serial: 0,
            on_way: BTreeMap::new(),
            waiting: BTreeMap::new(),
            slots: BTreeMap::new(),
            cut: BTreeSet::new(),
            weather: Weather::fine(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node's number is on this machine from now on, and no other is.
    pub fn place(&self, node: NodeId, slot: Slot) {
        let mut inner = self.lock();
        inner.slots.retain(|_, of| *of != slot);
        inner.slots.insert(node, slot);
    }

    pub fn set_weather(&self, weather: Weather) {
        self.lock().weather = weather;
    }

    /// Cuts the way from one to another, or mends it.
    pub fn cut(&self, from: Slot, to: Slot, cut: bool) {
        let mut inner = self.lock();
        if cut {
            inner.cut.insert((from, to));
        } else {
            inner.cut.remove(&(from, to));
        }
    }

    pub fn mend_all(&self) {
        self.lock().cut.clear();
    }

    pub fn is_cut(&self, from: Slot, to: Slot) -> bool {
        self.lock().cut.contains(&(from, to))
    }

    /// Everything that is due by now, in order. Answers go to who waits for them, requests to the driver.
    pub fn due(&self, now_us: u64) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        let mut inner = self.lock();
        while let Some(entry) = inner.on_way.first_entry() {
            if entry.key().0 > now_us {
                break;
            }
            let OnWay { from, to, packet } = entry.remove();
            if inner.cut.contains(&(from, to)) {
                continue;
            }
            match packet {
                Packet::Ask { from: node, ticket, ask } => {
                    inner.trace.note(format_args!("{from}>{to} {}", ask.name()));
                    let answer = AnswerTo { net: self.clone(), from: to, to: from, ticket };
                    deliveries.push(Delivery { from: node, to, ask, answer });
                }
                Packet::Answer { ticket, answer } => {
                    // Whoever does not wait any more has given up on its own account.
                    if let Some(waiting) = inner.waiting.remove(&ticket) {
                        drop(waiting.send(answer));
                    }
                }
            }
        }
        deliveries
    }

    fn answer(&self, to: AnswerTo, answer: Answer) {
        let AnswerTo { from, to, ticket, .. } = to;
        self.lock().send(from, to, 0, Packet::Answer { ticket, answer });
    }

    /// Sends a request and waits for its answer; `None` if none came in time.
    async fn ask(&self, from: NodeId, to: NodeId, ask: Ask, within: Duration) -> Option<Answer> {
        let (ticket, answer) = {
            let mut inner = self.lock();
            let (Some(from_slot), Some(to_slot)) = (inner.slots.get(&from).copied(), inner.slots.get(&to).copied())
            else {
                return Some(Answer::Dead);
            };
            let (sender, answer) = oneshot::channel();
            inner.serial += 1;
            let ticket = inner.serial;
            inner.waiting.insert(ticket, sender);
            let bytes = if let Ask::Snapshot { file, .. } = &ask { file.len() as u64 } else { 0 };
            inner.send(from_slot, to_slot, bytes, Packet::Ask { from, ticket, ask });
            (ticket, answer)
        };
        let _forget = Forget { net: self, ticket };
        tokio::time::timeout(within, answer).await.ok()?.ok()
    }
}

/// Whoever stops waiting is forgotten.
struct Forget<'a> {
    net: &'a Net,
    ticket: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.net.lock().waiting.remove(&self.ticket);
    }
}

impl Inner {
    fn send(&mut self, from: Slot, to: Slot, bytes: u64, packet: Packet) {
        let weather = self.weather.clone();
        if self.cut.contains(&(from, to)) || (from != to && self.chance.permille(weather.lost)) {
            return;
        }
        let mut due = self.trace.now_us() + self.chance.between(weather.delay_us.clone()) + bytes / 50;
        if self.chance.permille(weather.held_up) {
            due += self.chance.between(weather.held_up_us.clone());
        }
        if self.chance.permille(weather.repeated)
            && let Packet::Ask { from: node, ask, .. } = &packet
            && let Some(ask) = ask.again()
        {
            self.serial += 1;
            // Its answer finds nobody: the first one was asked for.
            let packet = Packet::Ask { from: *node, ticket: self.serial, ask };
            let later = due + self.chance.between(weather.held_up_us.start..weather.held_up_us.end.max(2));
            let serial = self.serial;
            self.on_way.insert((later, serial), OnWay { from, to, packet });
        }
        self.serial += 1;
        let serial = self.serial;
        self.on_way.insert((due, serial), OnWay { from, to, packet });
    }
}

/// One node's end of the network.
#[derive(Clone)]
pub struct Wire {
    pub net: Net,
    /// Learnt when its data folder is open.
    pub me: Arc<std::sync::OnceLock<NodeId>>,
    pub attached: watch::Sender<Attached>,
}

impl Wire {
    pub fn new(net: Net) -> Self {
        Self { net, me: Arc::default(), attached: watch::Sender::new(Attached::default()) }
    }
}

impl RaftLink for Wire {
    fn request(&self, to: NodeId, frame: RaftFrame, within: Duration) -> BoxFuture<'static, Result<Bytes, LinkError>> {
        let (net, me) = (self.net.clone(), self.me.get().copied().unwrap_or_default());
        Box::pin(async move { linked(net.ask(me, to, Ask::Raft(frame), within).await) })
    }

    fn snapshot(
        &self,
        to: NodeId,
        shard: ShardId,
        head: Bytes,
        file: PathBuf,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, LinkError>> {
        let (net, me) = (self.net.clone(), self.me.get().copied().unwrap_or_default());
        Box::pin(async move {
            let file = std::fs::read(file).map_err(|error| LinkError::Unreachable(error.to_string()))?;
            linked(net.ask(me, to, Ask::Snapshot { shard, head, file: file.into() }, within).await)
        })
    }
}

fn linked(answer: Option<Answer>) -> Result<Bytes, LinkError> {
    match answer {
        Some(Answer::Done(bytes)) => Ok(bytes),
        Some(Answer::Dead) => Err(LinkError::Unreachable("nobody listens there".into())),
        Some(Answer::LinkRefused(error)) => Err(error),
        Some(Answer::CallRefused(refused)) => Err(LinkError::Refused(refused.to_string())),
        None => Err(LinkError::TimedOut),
    }
}

impl Peers for Wire {
    fn me(&self) -> NodeId {
        self.me.get().copied().unwrap_or_default()
    }

    fn call(
        &self,
        to: NodeId,
        method: &'static str,
        body: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, CallError>> {
        let (net, me) = (self.net.clone(), Peers::me(self));
        let is_attached = to == me || self.attached.borrow().contains_key(&to);
        Box::pin(async move {
            if !is_attached {
                return Err(CallError::NotSent("not attached".into()));
            }
            match net.ask(me, to, Ask::Call { method, body, within }, within).await {
                Some(Answer::Done(bytes)) => Ok(bytes),
                Some(Answer::Dead) => Err(CallError::NotSent("nobody listens there".into())),
                Some(Answer::CallRefused(refused)) => Err(CallError::Refused(refused)),
                Some(Answer::LinkRefused(error)) => Err(CallError::Unknown(error.to_string())),
                None => Err(CallError::Unknown("no answer in time".into())),
            }
        })
    }

    fn attached(&self) -> watch::Receiver<Attached> {
        self.attached.subscribe()
    }
}
