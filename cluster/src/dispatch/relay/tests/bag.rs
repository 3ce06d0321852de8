//! The world from a seed.

use super::grains::Rows;
use super::workers::{Session, Worker};
use crate::Moment;
use crate::dispatch::pool::{Action, Pool, Waiting};
use crate::dispatch::relay::State;
use crate::dispatch::relay::lane::Step;
use crate::dispatch::relay::telling::Record;
use crate::dispatch::tenants::{Acts, Tenants};
use crate::peers::CallError;
use crate::placement::home_of;
use grain_contract::{Epoch, Lease, TenantId};
use granary_proto::peers::{Assign, AssignAnswer, Tell, TellAnswer};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use shard::{NodeId, ShardId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

const NODES: u64 = 3;
pub(super) const SHARDS: u32 = 4;
const LEASE_MS: u64 = 45_000;
pub(super) const QUEUES: [&str; 2] = ["q0", "q1"];
pub(super) const TENANTS: [&str; 2] = ["acme", "beta"];

pub(super) struct Node {
    /// Of its process; what an earlier one sent or waited for is nobody's.
    pub(super) process: u64,
    pub(super) state: State,
    pub(super) tenants: Arc<Tenants>,
    pub(super) attached: BTreeSet<NodeId>,
    /// Tellings that wait for their answer, by peer.
    pub(super) tellings: BTreeMap<NodeId, (u64, Record)>,
    /// Batches that wait for theirs.
    pub(super) batches: BTreeMap<NodeId, u64>,
}

#[derive(Clone)]
pub(super) enum Event {
    Tell {
        from: NodeId,
        to: NodeId,
        process: u64,
        id: u64,
        tell: Tell,
    },
    Told {
        to: NodeId,
        about: NodeId,
        process: u64,
        id: u64,
        answer: Option<TellAnswer>,
    },
    Assign {
        from: NodeId,
        to: NodeId,
        process: u64,
        id: u64,
        assign: Assign,
    },
    Assigned {
        to: NodeId,
        about: NodeId,
        process: u64,
        id: u64,
        answer: Result<AssignAnswer, CallError>,
    },
    SendBatch {
        node: NodeId,
        to: NodeId,
        process: u64,
    },
    /// The node learns that it leads.
    Open {
        node: NodeId,
        shard: ShardId,
        epoch: Epoch,
    },
    /// The node learns that it does not.
    Close {
        node: NodeId,
        shard: ShardId,
        epoch: Epoch,
    },
    /// What follows a commit, or a takeover.
    Offer {
        node: NodeId,
        process: u64,
        epoch: Epoch,
        attempt: Uuid,
        took: Option<Lease>,
    },
    Claim {
        node: NodeId,
        process: u64,
        epoch: Option<Epoch>,
        waiting: Waiting,
        lease: Lease,
    },
    Verify {
        node: NodeId,
        process: u64,
        epoch: Option<Epoch>,
        attempt: Uuid,
        lease: Lease,
    },
    NeverStarted {
        node: NodeId,
        process: u64,
        attempt: Uuid,
        lease: Lease,
    },
    Report {
        worker: usize,
        node: NodeId,
        session: u64,
        attempt: Uuid,
        lease: Lease,
    },
}

pub(super) struct World {
    pub(super) seed: u64,
    pub(super) rng: SmallRng,
    pub(super) now_ms: u64,
    pub(super) next_id: u64,
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) rows: Rows,
    pub(super) workers: Vec<Worker>,
    /// Streams that broke without their node noticing; what is sent there is never read.
    pub(super) ghosts: Vec<Session>,
    pub(super) bag: Vec<Event>,
    pub(super) is_calm: bool,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut world = Self {
            seed,
            rng: SmallRng::seed_from_u64(seed),
            now_ms: 1,
            next_id: 1,
            nodes: BTreeMap::new(),
            rows: Rows { owners: vec![(1, Epoch(0)); SHARDS as usize], ..Rows::default() },
            workers: Vec::new(),
            ghosts: Vec::new(),
            bag: Vec::new(),
            is_calm: false,
        };
        for node in 1..=NODES {
            world.start_node(node);
        }
        for shard in 0..SHARDS {
            world.elect(ShardId(shard));
        }
        for n in 0..4 {
            let capacity = world.rng.random_range(1..4);
            world.workers.push(Worker::new(n, capacity));
        }
        world
    }

    pub(super) fn start_node(&mut self, node: NodeId) {
        self.next_id += 1;
        // Its clock may have gone back since its last life.
        let life = self.rng.random_range(1..1_000);
        let fresh = Node {
            process: self.next_id,
            state: State::new(SHARDS, LEASE_MS, life, self.rng.random()),
            tenants: Arc::new(Tenants::new(LEASE_MS)),
            attached: (1..=NODES).filter(|other| *other != node).collect(),
            tellings: BTreeMap::new(),
            batches: BTreeMap::new(),
        };
        self.nodes.insert(node, fresh);
    }

    pub(super) fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    pub(super) fn any_node(&mut self) -> NodeId {
        self.rng.random_range(1..=NODES)
    }

    pub(super) fn step(&mut self) {
        self.now_ms += self.rng.random_range(0..4);
        match self.rng.random_range(0..100) {
            0..=54 => self.deliver(),
            55..=69 => self.tell(),
            70..=76 => self.submit(),
            77..=91 => self.work(),
            92..=94 => self.wander(),
            95..=96 => self.renew(),
            97 => {
                let shard = ShardId(self.rng.random_range(0..SHARDS));
                self.elect(shard);
            }
            98 => self.lose_sight(),
            _ => {
                if self.chance(30) {
                    let node = self.any_node();
                    self.crash(node);
                }
            }
        }
        self.check();
    }

    /// Nothing bad happens any more.
    pub(super) fn calm_down(&mut self) {
        self.is_calm = true;
        for n in 0..self.workers.len() {
            self.connect(n);
        }
        for (id, node) in &mut self.nodes {
            node.attached = (1..=NODES).filter(|other| other != id).collect();
        }
        for _ in 0..6_000 {
            self.now_ms += 1;
            match self.rng.random_range(0..10) {
                0..=4 => self.deliver(),
                5..=6 => self.tell(),
                _ => self.work(),
            }
            if self.now_ms.is_multiple_of(500) {
                self.tick();
                self.renew();
            }
            self.check();
            if self.bag.is_empty() && self.rows.attempts.values().all(|attempt| attempt.is_done) {
                return;
            }
        }
    }

    pub(super) fn describe(&self) {
        for (id, node) in &self.nodes {
            for (tenant, pool) in node.tenants.all() {
                println!("node {id} tenant {tenant}\n{}", pool.lock().describe());
            }
        }
        for worker in &self.workers {
            let at = worker.at.as_ref().map(|at| (at.node, at.number));
            println!("{} at {at:?} holds {:?}", worker.id, worker.held.keys().collect::<Vec<_>>());
        }
    }

    pub(super) fn check_all_done(&self) {
        if self.rows.attempts.values().any(|attempt| !attempt.is_done) {
            self.describe();
        }
        for (id, attempt) in &self.rows.attempts {
            assert!(
                attempt.is_done,
                "seed {}: {id} is not done: {:?}, owners {:?}",
                self.seed, attempt.lease, self.rows.owners
            );
            assert_eq!(self.rows.reports.get(id), Some(&1), "seed {}", self.seed);
        }
    }

    pub(super) fn check(&self) {
        for worker in &self.workers {
            let active = worker.held.values().filter(|held| !held.is_finished).count();
            assert!(active <= worker.capacity as usize, "seed {}: {} has {active} attempts", self.seed, worker.id);
        }
    }

    // ---- the bag ----

    pub(super) fn put(&mut self, event: Event) {
        self.bag.push(event);
    }

    pub(super) fn deliver(&mut self) {
        if self.bag.is_empty() {
            return;
        }
        let at = self.rng.random_range(0..self.bag.len());
        let is_message = matches!(self.bag[at], Event::Tell { .. } | Event::Assign { .. });
        // Twice: it stays in the bag, for any time later.
        let event = if is_message && !self.is_calm && self.chance(10) {
            self.bag[at].clone()
        } else {
            self.bag.swap_remove(at)
        };
        if is_message && !self.is_calm && self.chance(8) {
            return;
        }
        self.happen(event);
    }

    pub(super) fn is_of(&self, node: NodeId, process: u64) -> bool {
        self.nodes[&node].process == process
    }

    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::Tell { from, to, process, id, tell } => {
                let (now_ms, fresh) = (self.now_ms, self.rng.random());
                let node = self.nodes.get_mut(&to).expect("a node");
                let (answer, acts) = node.state.hear(from, tell, &node.tenants.clone(), fresh, now_ms);
                self.follow(to, acts);
                let answer = Some(answer);
                if self.is_calm || !self.chance(5) {
                    self.put(Event::Told { to: from, about: to, process, id, answer });
                }
            }
            Event::Told { to, about, process, id, answer } => self.told(to, about, process, id, answer),
            Event::Assign { from, to, process, id, assign } => {
                let now_ms = self.now_ms;
                let node = self.nodes.get_mut(&to).expect("a node");
                let owners = u32::try_from(NODES).expect("few");
                let (answer, acts) = node.state.place(from, assign, &node.tenants.clone(), owners, Moment::at(now_ms));
                self.follow(to, acts);
                if self.is_calm || !self.chance(5) {
                    self.put(Event::Assigned { to: from, about: to, process, id, answer: Ok(answer) });
                }
            }
            Event::Assigned { to, about, process, id, answer } => self.assigned(to, about, process, id, answer),
            Event::SendBatch { node, to, process } => {
                if self.is_of(node, process) {
                    self.send_batch(node, to);
                }
            }
            Event::Open { node, shard, epoch } => self.open(node, shard, epoch),
            Event::Close { node, shard, epoch } => {
                let now_ms = self.now_ms;
                let tenants = self.nodes[&node].tenants.clone();
                if tenants.epoch(shard) == Some(epoch) {
                    let (acts, _) = tenants.closed(shard, now_ms);
                    self.follow(node, acts);
                }
            }
            Event::Offer { node, process, epoch, attempt, took } => self.offer(node, process, epoch, attempt, took),
            Event::Claim { node, process, epoch, waiting, lease } => self.claim(node, process, epoch, waiting, lease),
            Event::Verify { node, process, epoch, attempt, lease } => self.verify(node, process, epoch, attempt, lease),
            Event::NeverStarted { node, process, attempt, lease } => self.never_started(node, process, attempt, lease),
            Event::Report { worker, node, session, attempt, lease } => {
                self.reported(worker, node, session, attempt, lease)
            }
        }
    }

    // ---- the relay ----

    pub(super) fn tell(&mut self) {
        let (from, to) = (self.any_node(), self.any_node());
        let (now_ms, is_calm) = (self.now_ms, self.is_calm);
        self.next_id += 1;
        let id = self.next_id;
        let node = self.nodes.get_mut(&from).expect("a node");
        if from == to || !node.attached.contains(&to) || node.tellings.contains_key(&to) {
            return;
        }
        let owners = u32::try_from(NODES).expect("few");
        let (tell, record) = node.state.tell(to, &node.tenants.clone(), owners, now_ms);
        let process = node.process;
        node.tellings.insert(to, (id, record));
        self.put(Event::Tell { from, to, process, id, tell });
        if !is_calm {
            // Whichever comes first: the answer, or the end of patience.
            self.put(Event::Told { to: from, about: to, process, id, answer: None });
        }
    }

    pub(super) fn told(&mut self, to: NodeId, about: NodeId, process: u64, id: u64, answer: Option<TellAnswer>) {
        let now_ms = self.now_ms;
        if !self.is_of(to, process) {
            return;
        }
        let node = self.nodes.get_mut(&to).expect("a node");
        if node.tellings.get(&about).is_none_or(|(waits_for, _)| *waits_for != id) {
            return;
        }
        let Some((_, record)) = node.tellings.remove(&about) else { return };
        let (acts, _) = node.state.told(about, record, answer, &node.tenants.clone(), now_ms);
        self.follow(to, acts);
    }

    pub(super) fn send_batch(&mut self, from: NodeId, to: NodeId) {
        let now_ms = self.now_ms;
        self.next_id += 1;
        let id = self.next_id;
        let node = self.nodes.get_mut(&from).expect("a node");
        let Some(assign) = node.state.next_batch(to, now_ms) else { return };
        let process = node.process;
        node.batches.insert(to, id);
        if !node.attached.contains(&to) {
            let answer = Err(CallError::NotSent("out of sight".into()));
            return self.put(Event::Assigned { to: from, about: to, process, id, answer });
        }
        self.put(Event::Assign { from, to, process, id, assign });
        // In calm times too: an answer may have been lost before.
        let answer = Err(CallError::Unknown("no answer".into()));
        self.put(Event::Assigned { to: from, about: to, process, id, answer });
    }

    pub(super) fn assigned(
        &mut self,
        to: NodeId,
        about: NodeId,
        process: u64,
        id: u64,
        answer: Result<AssignAnswer, CallError>,
    ) {
        let now_ms = self.now_ms;
        if !self.is_of(to, process) {
            return;
        }
        let node = self.nodes.get_mut(&to).expect("a node");
        if node.batches.get(&about) != Some(&id) {
            return;
        }
        node.batches.remove(&about);
        let is_attached = node.attached.contains(&about);
        let (acts, step) = node.state.batch_answered(about, answer, is_attached, &node.tenants.clone(), now_ms);
        self.follow(to, acts);
        match step {
            Step::Next => self.send_batch(to, about),
            Step::Again => self.put(Event::SendBatch { node: to, to: about, process }),
        }
    }

    pub(super) fn follow(&mut self, node: NodeId, acts: Acts) {
        let (process, tenants) = (self.nodes[&node].process, self.nodes[&node].tenants.clone());
        for (_, action) in acts {
            match action {
                Action::Claim { waiting, lease } => {
                    let epoch = tenants.epoch(waiting.shard);
                    self.put(Event::Claim { node, process, epoch, waiting, lease });
                }
                Action::Verify { grain, attempt, lease } => {
                    let epoch = tenants.epoch(home_of(&grain, SHARDS));
                    self.put(Event::Verify { node, process, epoch, attempt, lease });
                }
                Action::Expired { attempt, lease, never_started, .. } => {
                    assert!(never_started, "seed {}: the lease of {attempt} ran out", self.seed);
                    self.put(Event::NeverStarted { node, process, attempt, lease });
                }
                Action::Send { edge, parcel } => {
                    let state = &mut self.nodes.get_mut(&node).expect("a node").state;
                    if state.send(edge, parcel) {
                        self.put(Event::SendBatch { node, to: edge, process });
                    }
                }
            }
        }
    }

    pub(super) fn with(&mut self, node: NodeId, tenant: &TenantId, work: impl FnOnce(&mut Pool) -> Vec<Action>) {
        let pool = self.nodes[&node].tenants.pool(tenant);
        let actions = work(pool.lock().at(self.now_ms));
        self.follow(node, actions.into_iter().map(|action| (tenant.clone(), action)).collect());
    }

    pub(super) fn tick(&mut self) {
        for node in 1..=NODES {
            let acts = self.nodes[&node].tenants.each(self.now_ms, Pool::tick);
            self.follow(node, acts);
        }
    }

    // ---- faults ----

    pub(super) fn elect(&mut self, shard: ShardId) {
        let (before, epoch) = self.rows.owners[shard.0 as usize];
        let node = self.any_node();
        self.rows.owners[shard.0 as usize] = (node, Epoch(epoch.0 + 1));
        self.put(Event::Close { node: before, shard, epoch });
        self.put(Event::Open { node, shard, epoch: Epoch(epoch.0 + 1) });
    }

    pub(super) fn open(&mut self, node: NodeId, shard: ShardId, epoch: Epoch) {
        if !self.rows.is_owner(shard, node, epoch) {
            return;
        }
        let (now_ms, process, tenants) = (self.now_ms, self.nodes[&node].process, self.nodes[&node].tenants.clone());
        if tenants.epoch(shard).is_some() {
            let (acts, _) = tenants.closed(shard, now_ms);
            self.follow(node, acts);
        }
        let acts = tenants.opened(shard, epoch, now_ms);
        self.follow(node, acts);
        let open = self.rows.attempts.iter().filter(|(_, attempt)| attempt.shard == shard && !attempt.is_done);
        let woken: Vec<Uuid> = open.map(|(id, _)| *id).collect();
        for attempt in woken {
            self.put(Event::Offer { node, process, epoch, attempt, took: None });
        }
    }

    pub(super) fn lose_sight(&mut self) {
        let (node, other) = (self.any_node(), self.any_node());
        if node == other {
            return;
        }
        let now_ms = self.now_ms;
        let found = self.nodes.get_mut(&node).expect("a node");
        if found.attached.remove(&other) {
            found.tellings.remove(&other);
            let acts = found.state.peer_lost(other, &found.tenants.clone(), now_ms);
            self.follow(node, acts);
        } else {
            found.attached.insert(other);
        }
    }

    pub(super) fn crash(&mut self, node: NodeId) {
        for worker in &mut self.workers {
            if worker.at.as_ref().is_some_and(|session| session.node == node) {
                worker.at = None;
            }
        }
        self.start_node(node);
        let led: Vec<u32> = (0..SHARDS).filter(|shard| self.rows.owners[*shard as usize].0 == node).collect();
        for shard in led {
            self.elect(ShardId(shard));
        }
    }
}
