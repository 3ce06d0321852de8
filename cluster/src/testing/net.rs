//! A network in memory between silos: calls arrive, are lost, come twice, or wait until they are let through. What it does is
//! said by the test, per call or by a seed.

use crate::peers::{Attached, CALL_BYTES_MAX, CallError, PeerInfo, PeerService, Peers, Switchboard};
use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use shard::NodeId;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What happens to one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Arrives,
    /// The question is lost; nobody knows.
    QuestionLost,
    /// It took place, and the answer is lost.
    AnswerLost,
    /// The question comes twice.
    Twice,
    /// The caller's side says at once that it cannot be sent.
    NotSent,
}

type Judge = Box<dyn FnMut(NodeId, NodeId, &str) -> Fate + Send>;

#[derive(Default)]
pub(crate) struct Net {
    nodes: Mutex<BTreeMap<NodeId, Plug>>,
    /// Nothing goes from the first to the second; calls are not answered.
    cuts: Mutex<BTreeSet<(NodeId, NodeId)>>,
    judge: Mutex<Option<Judge>>,
    /// Calls that arrived, by method.
    pub(crate) arrived: Mutex<HashMap<String, usize>>,
}

struct Plug {
    services: Arc<Switchboard>,
    attached: watch::Sender<Attached>,
}

impl Net {
    pub(crate) fn plug(self: &Arc<Self>, node: NodeId, services: Arc<Switchboard>) -> Arc<dyn Peers> {
        let attached = watch::Sender::new(Attached::default());
        let peer = Peer { net: self.clone(), me: node, attached: attached.subscribe() };
        self.nodes.lock().insert(node, Plug { services, attached });
        self.refresh();
        Arc::new(peer)
    }

    pub(crate) fn unplug(&self, node: NodeId) {
        self.nodes.lock().remove(&node);
        self.refresh();
    }

    /// Cuts it off both ways, and everybody notices.
    pub(crate) fn isolate(&self, node: NodeId) {
        self.cut_silently(node);
        self.refresh();
    }

    /// Cuts it off both ways, and nobody notices yet.
    pub(crate) fn cut_silently(&self, node: NodeId) {
        let others: Vec<NodeId> = self.nodes.lock().keys().copied().filter(|other| *other != node).collect();
        let mut cuts = self.cuts.lock();
        cuts.extend(others.into_iter().flat_map(|other| [(node, other), (other, node)]));
    }

    pub(crate) fn cut_one_way(&self, from: NodeId, to: NodeId) {
        self.cuts.lock().insert((from, to));
    }

    pub(crate) fn heal(&self) {
        self.cuts.lock().clear();
        self.refresh();
    }

    /// From now on it says what happens to each call.
    pub(crate) fn judge(&self, judge: impl FnMut(NodeId, NodeId, &str) -> Fate + Send + 'static) {
        *self.judge.lock() = Some(Box::new(judge));
    }

    pub(crate) fn fair(&self) {
        *self.judge.lock() = None;
    }

    pub(crate) fn arrived(&self, method: &str) -> usize {
        self.arrived.lock().get(method).copied().unwrap_or(0)
    }

    fn refresh(&self) {
        let nodes = self.nodes.lock();
        let cuts = self.cuts.lock();
        for (node, plug) in nodes.iter() {
            let others = nodes.keys().filter(|other| *other != node && !cuts.contains(&(*node, **other)));
            let now: Attached = Arc::new(others.map(|other| (*other, info(*other))).collect());
            plug.attached.send_if_modified(|known| std::mem::replace(known, now.clone()) != now);
        }
    }

    fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.cuts.lock().contains(&(from, to))
    }

    fn fate(&self, from: NodeId, to: NodeId, method: &str) -> Fate {
        self.judge.lock().as_mut().map_or(Fate::Arrives, |judge| judge(from, to, method))
    }
}

fn info(node: NodeId) -> PeerInfo {
    PeerInfo {
        name: format!("node-{node}"),
        boot: 1,
        cluster: None,
        client_address: String::new(),
        zone: String::new(),
        build: "test".to_owned(),
    }
}

struct Peer {
    net: Arc<Net>,
    me: NodeId,
    attached: watch::Receiver<Attached>,
}

impl Peers for Peer {
    fn me(&self) -> NodeId {
        self.me
    }

    fn call(
        &self,
        to: NodeId,
        method: &'static str,
        body: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, CallError>> {
        let (net, me) = (self.net.clone(), self.me);
        Box::pin(async move {
            assert!(body.len() <= CALL_BYTES_MAX, "{method} of {} bytes", body.len());
            let fate = net.fate(me, to, method);
            if fate == Fate::NotSent {
                return Err(CallError::NotSent("told to".to_owned()));
            }
            let Some(services) = net.nodes.lock().get(&to).map(|plug| plug.services.clone()) else {
                return Err(CallError::NotSent("nobody is there".to_owned()));
            };
            if fate == Fate::QuestionLost || net.is_cut(me, to) {
                tokio::time::sleep(within).await;
                return Err(CallError::Unknown("no answer".to_owned()));
            }
            // As over a wire, it goes on at the other side even if the caller leaves.
            let handle = |body: Bytes| tokio::spawn(services.handle(me, method, body, within));
            *net.arrived.lock().entry(method.to_owned()).or_default() += 1;
            let answer = handle(body.clone());
            if fate == Fate::Twice {
                handle(body);
            }
            let answer = tokio::time::timeout(within, answer).await;
            if fate == Fate::AnswerLost || net.is_cut(to, me) {
                return Err(CallError::Unknown("the answer was lost".to_owned()));
            }
            match answer {
                Ok(Ok(Ok(answer))) => {
                    assert!(answer.len() <= CALL_BYTES_MAX, "an answer to {method} of {} bytes", answer.len());
                    Ok(answer)
                }
                Ok(Ok(Err(refused))) => Err(CallError::Refused(refused)),
                Ok(Err(_)) => Err(CallError::Unknown("the other side broke off".to_owned())),
                Err(_) => Err(CallError::Unknown("no answer in time".to_owned())),
            }
        })
    }

    fn attached(&self) -> watch::Receiver<Attached> {
        self.attached.clone()
    }
}
