//! A network in memory between the hosts of one process: a [`RaftLink`] with ways that can be cut, one direction at a time,
//! delayed, or made to lose and repeat.
//!
//! Across a cut way nothing arrives and nobody says so: the sender hears of it when its time is over. A host that is not
//! there cannot be reached, which is said at once.

use crate::link::{LinkError, NodeId, RaftFrame, RaftLink};
use crate::{Host, ShardId};
use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::watch;

const CHUNK_BYTES: usize = 64 << 10;

#[derive(Default)]
pub struct Net {
    hosts: Mutex<HashMap<NodeId, Host>>,
    cut: Mutex<HashSet<(NodeId, NodeId)>>,
    /// Ways on which answers wait for as long as they are here.
    held: watch::Sender<HashSet<(NodeId, NodeId)>>,
    /// Requests sent on each way.
    sent: Mutex<HashMap<(NodeId, NodeId), u64>>,
    /// Milliseconds that a way takes.
    delay: AtomicU64,
    /// One of so many requests is lost, one is delivered twice; 0 = none.
    loses: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
    snapshots: AtomicU64,
    /// Parts of snapshots after which the way is cut; 0 = never.
    parts: AtomicU64,
}

impl Net {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn link(self: &Arc<Self>, from: NodeId) -> Arc<dyn RaftLink> {
        Arc::new(Link { from, net: self.clone() })
    }

    pub fn attach(&self, host: &Host) {
        self.hosts.lock().insert(host.node_id(), host.clone());
    }

    /// Before the host is closed: the network holds it otherwise.
    pub fn detach(&self, node: NodeId) {
        self.hosts.lock().remove(&node);
    }

    /// Cuts one direction.
    pub fn cut(&self, from: NodeId, to: NodeId) {
        self.cut.lock().insert((from, to));
    }

    /// Cuts a node off from all that are here, in both directions.
    pub fn cut_off(&self, node: NodeId) {
        let others: Vec<_> = self.hosts.lock().keys().copied().filter(|other| *other != node).collect();
        let mut cut = self.cut.lock();
        for other in others {
            cut.extend([(node, other), (other, node)]);
        }
    }

    /// Answers on this way wait, however long the question's time is, until [`Net::release`]. They come then, whatever else
    /// became of the way.
    pub fn hold(&self, from: NodeId, to: NodeId) {
        self.held.send_modify(|held| _ = held.insert((from, to)));
    }

    pub fn release(&self, from: NodeId, to: NodeId) {
        self.held.send_modify(|held| _ = held.remove(&(from, to)));
    }

    /// Requests sent on one way so far, cut or not.
    pub fn sent(&self, from: NodeId, to: NodeId) -> u64 {
        self.sent.lock().get(&(from, to)).copied().unwrap_or_default()
    }

    pub fn heal(&self) {
        self.held.send_modify(HashSet::clear);
        self.cut.lock().clear();
        self.delay.store(0, Relaxed);
        self.loses.store(0, Relaxed);
        self.parts.store(0, Relaxed);
    }

    pub fn delay(&self, each_way: Duration) {
        self.delay.store(each_way.as_millis() as u64, Relaxed);
    }

    /// One of so many requests is lost, and one arrives twice.
    pub fn lose_one_in(&self, requests: u64) {
        self.loses.store(requests, Relaxed);
    }

    /// Every snapshot stops after so many parts of 64 KiB.
    pub fn cut_snapshots_after(&self, parts: u64) {
        self.parts.store(parts, Relaxed);
    }

    /// Requests sent so far, and the bytes of their bodies.
    pub fn traffic(&self) -> (u64, u64) {
        (self.requests.load(Relaxed), self.bytes.load(Relaxed))
    }

    /// Snapshots that were begun.
    pub fn snapshots(&self) -> u64 {
        self.snapshots.load(Relaxed)
    }

    async fn pass(&self, from: NodeId, to: NodeId) -> bool {
        let delay = self.delay.load(Relaxed);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        !self.cut.lock().contains(&(from, to))
    }

    fn host(&self, node: NodeId) -> Result<Host, LinkError> {
        let gone = || LinkError::Unreachable(format!("node {node} is not there"));
        self.hosts.lock().get(&node).cloned().ok_or_else(gone)
    }

    async fn carry(self: Arc<Self>, from: NodeId, to: NodeId, frame: RaftFrame) -> Result<Bytes, LinkError> {
        let number = self.requests.fetch_add(1, Relaxed);
        *self.sent.lock().entry((from, to)).or_default() += 1;
        self.bytes.fetch_add(frame.body.len() as u64, Relaxed);
        let loses = self.loses.load(Relaxed);
        if !self.pass(from, to).await || (loses > 0 && number.is_multiple_of(loses)) {
            return std::future::pending().await;
        }
        let host = self.host(to)?;
        if loses > 0 && number % loses == 1 {
            // Its first answer is lost; the second delivery is the one that is answered.
            host.raft_request(from, frame.clone()).await.ok();
        }
        let answer = host.raft_request(from, frame).await;
        drop(host);
        if self.held.borrow().contains(&(to, from)) {
            let mut held = self.held.subscribe();
            // The sender lives as long as this does.
            held.wait_for(|held| !held.contains(&(to, from))).await.ok();
            return answer;
        }
        if !self.pass(to, from).await {
            return std::future::pending().await;
        }
        answer
    }

    /// The question's time, which does not end while an answer is held.
    async fn time_is_over(self: Arc<Self>, way: (NodeId, NodeId), within: Duration) {
        tokio::time::sleep(within).await;
        let mut held = self.held.subscribe();
        held.wait_for(|held| !held.contains(&way)).await.ok();
    }

    async fn send(
        self: Arc<Self>,
        (from, to): (NodeId, NodeId),
        shard: ShardId,
        head: Bytes,
        file: PathBuf,
    ) -> Result<Bytes, LinkError> {
        self.snapshots.fetch_add(1, Relaxed);
        let content = std::fs::read(&file).map_err(|error| LinkError::Unreachable(error.to_string()))?;
        let mut receiver = self.host(to)?.receive_snapshot(from, shard, head).await?;
        for (number, part) in content.chunks(CHUNK_BYTES).enumerate() {
            let last = self.parts.load(Relaxed);
            if (last > 0 && number as u64 >= last) || !self.pass(from, to).await {
                return Err(LinkError::Unreachable("the way was cut".into()));
            }
            receiver.write(Bytes::copy_from_slice(part)).await?;
        }
        receiver.finish().await
    }
}

struct Link {
    from: NodeId,
    net: Arc<Net>,
}

impl RaftLink for Link {
    fn request(&self, to: NodeId, frame: RaftFrame, within: Duration) -> BoxFuture<'static, Result<Bytes, LinkError>> {
        let carried = self.net.clone().carry(self.from, to, frame);
        let over = self.net.clone().time_is_over((to, self.from), within);
        Box::pin(async move {
            tokio::select! {
                biased;
                answer = carried => answer,
                () = over => Err(LinkError::TimedOut),
            }
        })
    }

    fn snapshot(
        &self,
        to: NodeId,
        shard: ShardId,
        head: Bytes,
        file: PathBuf,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, LinkError>> {
        let sent = self.net.clone().send((self.from, to), shard, head, file);
        Box::pin(async move { tokio::time::timeout(within, sent).await.unwrap_or(Err(LinkError::TimedOut)) })
    }
}
