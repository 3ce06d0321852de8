//! One machine: a disk, clocks, and a process that may run on it.
//!
//! What a crash leaves: the log lies on a disk of the simulator, which knows what was synced (see `shard::testing::Double`).
//! The stamp of the folder and the snapshot files lie in a folder of memory; they are written and synced in one go, so at any
//! moment of the simulation they are whole or not there (that they survive a crash in between is tested in `shard`).

use super::chance::Chance;
use super::clock::{EPOCH_MS, NodeClock};
use super::court::{Court, Sight};
use super::doors::{Door, Doors, Inside};
use super::net::{Answer, Ask, Delivery, Net, Slot, Wire};
use super::plans::{Plans, Supplies};
use super::sabotage::Sabotage;
use super::strand::Strand;
use super::tally::Tallies;
use crate::sim::load::{LEASE, RENEW};
use cluster::directory::Directory;
use cluster::hop::Around;
use cluster::peers::{PeerService as _, Switchboard};
use cluster::{Membership, MembershipOptions, Silo, SiloOptions, membership};
use grains::engine::EngineOptions;
use grains::kinds::methods::{index, run};
use grains::kinds::{KindOptions, RunMode, grain_types};
use shard::testing::{Double, Scene, Seen, Stage, Witness};
use shard::{Host, HostOptions, StateBackend};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longer than any machine is down, so that only a lost volume is replaced.
const DEAD_NODE_GRACE: Duration = Duration::from_secs(60);

/// What all machines have in common.
#[derive(Clone)]
pub struct Site {
    pub net: Net,
    pub court: Court,
    pub doors: Doors,
    pub plans: Plans,
    pub shards: u32,
    pub alone: bool,
    /// How many of the machines begin the cluster.
    pub founders: usize,
    pub folder: PathBuf,
    pub sabotage: Option<Sabotage>,
}

pub struct Machine {
    pub slot: Slot,
    site: Site,
    chance: Chance,
    disk: Double,
    /// Number of the present volume: a lost one is replaced by the next, under a new node id.
    volume: u32,
    node_id: u64,
    process: Option<Process>,
    /// How much faster its clocks go than true time, in millionths.
    drift_ppm: i64,
    /// How far its wall clock stands from true time, and what it was set by since.
    wall_off_ms: i64,
    set_by: Arc<AtomicI64>,
    /// The longest that a sync takes, in microseconds.
    pub sync_us_max: Arc<AtomicU64>,
}

/// A process and its memory.
struct Process {
    strand: Strand,
    began_us: u64,
    frozen: bool,
    wire: Wire,
    state: Arc<Mutex<State>>,
    services: Arc<Switchboard>,
}

#[derive(Default)]
struct State {
    host: Option<Host>,
    inside: Option<Arc<Inside>>,
    membership: Option<Membership>,
    removed: bool,
    failed: Option<String>,
}

fn lock(state: &Arc<Mutex<State>>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Machine {
    pub fn new(slot: Slot, site: Site, mut chance: Chance) -> Self {
        let node_id = chance.draw() >> 8;
        let drift_ppm = chance.between(0..2_000) as i64 - 1_000;
        let wall_off_ms = chance.between(0..1_000) as i64 - 500;
        Self {
            slot,
            site,
            chance,
            disk: Double::default(),
            volume: 0,
            node_id,
            process: None,
            drift_ppm,
            wall_off_ms,
            set_by: Arc::default(),
            sync_us_max: Arc::new(AtomicU64::new(2_000)),
        }
    }

    pub fn is_up(&self) -> bool {
        self.process.is_some()
    }

    pub fn is_frozen(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.frozen)
    }

    pub fn host(&self) -> Option<Host> {
        lock(&self.process.as_ref()?.state).host.clone()
    }

    /// When its process began: new with every process.
    pub fn boot(&self) -> u64 {
        self.process.as_ref().map_or(0, |process| process.began_us + 1)
    }

    pub fn membership(&self) -> Option<Membership> {
        lock(&self.process.as_ref()?.state).membership.clone()
    }

    /// Whether the cluster has taken it out for good.
    pub fn is_removed(&self) -> bool {
        self.process.as_ref().is_some_and(|process| lock(&process.state).removed)
    }

    pub fn wire(&self) -> Option<Wire> {
        Some(self.process.as_ref()?.wire.clone())
    }

    /// Why the process could not start or go on.
    pub fn failed(&self) -> Option<String> {
        let state = lock(&self.process.as_ref()?.state);
        let stopped = state.host.as_ref().and_then(Host::stopped);
        state.failed.clone().or(stopped)
    }

    pub fn handle(&self) -> Option<tokio::runtime::Handle> {
        Some(self.process.as_ref()?.strand.handle())
    }

    fn folder(&self) -> PathBuf {
        self.site.folder.join(format!("machine-{}-{}", self.slot, self.volume))
    }

    fn local(&self, began_us: u64, now_us: u64) -> Duration {
        let passed = i128::from(now_us.saturating_sub(began_us));
        let local = passed + passed * i128::from(self.drift_ppm) / 1_000_000;
        Duration::from_micros(u64::try_from(local).unwrap_or(0))
    }

    pub fn start(&mut self, now_us: u64) -> std::io::Result<()> {
        let strand = Strand::new()?;
        let wall = EPOCH_MS + (now_us / 1_000) as i64 + self.wall_off_ms;
        let clock = NodeClock::new(strand.zero(), wall, self.set_by.clone());
        let wire = Wire::new(self.site.net.clone());
        let state = Arc::<Mutex<State>>::default();
        let services = Arc::<Switchboard>::default();
        let start = Start {
            slot: self.slot,
            site: self.site.clone(),
            options: self.options(&wire),
            supplies: Supplies { plans: self.site.plans.clone(), chance: Mutex::new(self.chance.fork()) },
            clock,
            boot: now_us + 1,
            membership: self.membership_options(),
            wire: wire.clone(),
            handle: strand.handle(),
            around: Around {
                peers: Arc::new(wire.clone()),
                directory: Directory::default(),
                services: services.clone(),
            },
        };
        let told = state.clone();
        strand.spawn(async move {
            if let Err(why) = start.run(&told).await {
                lock(&told).failed = Some(why);
            }
        });
        self.process = Some(Process { strand, began_us: now_us, frozen: false, wire, state, services });
        Ok(())
    }

    fn membership_options(&self) -> Option<MembershipOptions> {
        if self.site.alone {
            return None;
        }
        let founders = (0..self.site.founders).map(name).collect();
        Some(MembershipOptions {
            dead_node_grace: DEAD_NODE_GRACE,
            settle: Duration::from_secs(2),
            ..MembershipOptions::new(name(self.slot), founders, self.folder())
        })
    }

    fn options(&mut self, wire: &Wire) -> HostOptions {
        let (longest, chance) = (self.sync_us_max.clone(), Mutex::new(self.chance.fork()));
        let sync_takes = move || {
            let mut chance = chance.lock().unwrap_or_else(PoisonError::into_inner);
            Duration::from_micros(chance.between(100..longest.load(Relaxed).max(101)))
        };
        let witness = Watching { slot: self.slot, court: self.site.court.clone(), wire: wire.clone() };
        let scene = Scene {
            log: Arc::new(self.disk.clone()),
            sync_takes: Box::new(sync_takes),
            witness: Arc::new(witness),
            sabotage: self.site.sabotage.and_then(Sabotage::in_store),
        };
        HostOptions {
            state: StateBackend::Memory,
            cache_bytes: 8 << 20,
            segment_bytes: 256 << 10,
            snapshot_log_bytes: 96 << 10,
            keep_log: 20,
            node_id: Some(self.node_id),
            alone: self.site.alone,
            link: Arc::new(wire.clone()),
            stage: Stage::new(scene),
            ..HostOptions::new(self.folder(), self.site.shards)
        }
    }

    /// The process is gone where it stood; what the system had of its files is there.
    pub fn kill(&mut self) {
        self.disk = self.disk.copy();
        self.drop_process();
    }

    /// The machine is off: what was not synced may be gone.
    pub fn cut_power(&mut self) {
        let chance = &mut self.chance;
        self.disk = self.disk.after_cut(&mut |end| chance.below(end));
        self.drop_process();
    }

    /// As [`Machine::cut_power`], and the volume never comes back.
    pub fn lose_volume(&mut self) {
        self.drop_process();
        self.disk = Double::default();
        self.volume += 1;
        self.node_id = self.chance.draw() >> 8;
    }

    fn drop_process(&mut self) {
        self.site.doors.close(self.slot);
        let Some(process) = self.process.take() else { return };
        let Process { strand, wire, state, services, .. } = process;
        {
            let _inside = strand.enter();
            drop((std::mem::take(&mut *lock(&state)), wire, services));
        }
        drop(strand);
    }

    pub fn freeze(&mut self, frozen: bool, now_us: u64) {
        let (began_us, slot) = (self.process.as_ref().map_or(0, |process| process.began_us), self.slot);
        let local = self.local(began_us, now_us);
        let Some(process) = &mut self.process else { return };
        if process.frozen && !frozen {
            // All timers that came due meanwhile are late at once, as they are in a process that was stopped.
            process.strand.jump_to(local);
        }
        process.frozen = frozen;
        self.site.court.see(Sight::Frozen { slot, frozen });
    }

    pub fn set_clock(&mut self, by_ms: i64) {
        self.set_by.fetch_add(by_ms, Relaxed);
        self.site.court.see(Sight::ClockSet { slot: self.slot, by_ms });
    }

    /// Back to true time, as a time service does.
    pub fn right_clock(&mut self) {
        let off = self.wall_off_ms + self.set_by.load(Relaxed);
        self.set_clock(-off);
    }

    pub fn run_until(&mut self, now_us: u64) {
        let Some(began_us) = self.process.as_ref().map(|process| process.began_us) else { return };
        let local = self.local(began_us, now_us);
        if let Some(process) = self.process.as_mut().filter(|process| !process.frozen) {
            process.strand.run_until(local);
        }
    }

    /// Hands over a request; a machine without a process refuses it.
    pub fn deliver(&mut self, delivery: Delivery) {
        let Some(process) = &self.process else { return delivery.answer.send(Answer::Dead) };
        let host = lock(&process.state).host.clone();
        let Some(host) = host else { return delivery.answer.send(Answer::Dead) };
        let services = process.services.clone();
        process.strand.spawn(async move {
            let Delivery { from, ask, answer, .. } = delivery;
            answer.send(match ask {
                Ask::Raft(frame) => match host.raft_request(from, frame).await {
                    Ok(bytes) => Answer::Done(bytes),
                    Err(error) => Answer::LinkRefused(error),
                },
                Ask::Snapshot { shard, head, file } => match receive(&host, from, shard, head, &file).await {
                    Ok(bytes) => Answer::Done(bytes),
                    Err(error) => Answer::LinkRefused(error),
                },
                Ask::Call { method, body, within } => match services.handle(from, method, body, within).await {
                    Ok(bytes) => Answer::Done(bytes),
                    Err(refused) => Answer::CallRefused(refused),
                },
            });
        });
    }
}

async fn receive(
    host: &Host,
    from: shard::NodeId,
    shard: shard::ShardId,
    head: bytes::Bytes,
    file: &bytes::Bytes,
) -> Result<bytes::Bytes, shard::LinkError> {
    let mut receiver = host.receive_snapshot(from, shard, head).await?;
    for at in (0..file.len()).step_by(64 << 10) {
        receiver.write(file.slice(at..file.len().min(at + (64 << 10)))).await?;
    }
    receiver.finish().await
}

/// What a process does first.
struct Start {
    slot: Slot,
    site: Site,
    options: HostOptions,
    supplies: Supplies,
    clock: NodeClock,
    boot: u64,
    membership: Option<MembershipOptions>,
    wire: Wire,
    handle: tokio::runtime::Handle,
    around: Around,
}

impl Start {
    async fn run(self, state: &Arc<Mutex<State>>) -> Result<(), String> {
        let host = Host::open(self.options).await.map_err(|error| format!("the host does not open: {error}"))?;
        self.wire.me.set(host.node_id()).map_err(|_| "opened twice")?;
        self.site.net.place(host.node_id(), self.slot);
        lock(state).host = Some(host.clone());
        let around = self.around.clone();
        let mut types = grain_types(KindOptions::fixed(RunMode::Bundled, engine()));
        types.extend(membership::grain_types());
        types.push(Arc::new(Tallies { slot: self.slot, court: self.site.court.clone() }));
        let silo = Silo::start(
            host.clone(),
            options(self.slot, self.site.sabotage),
            types,
            Arc::new(self.supplies),
            Arc::new(self.clock.clone()),
            self.around,
        );
        let silo = silo.await.map_err(|error| format!("the silo does not start: {error}"))?;
        let inside = Arc::new(Inside { silo: silo.clone(), host: host.clone() });
        let door = Door { slot: self.slot, handle: self.handle, inside: Arc::downgrade(&inside) };
        lock(state).inside = Some(inside);
        self.site.doors.open(door);
        let Some(options) = self.membership else { return Ok(()) };
        let ground = membership::Ground {
            host,
            silo,
            peers: around.peers,
            services: around.services,
            directory: around.directory,
            clock: Arc::new(self.clock),
            boot: self.boot,
            set_cluster: Arc::new(|_| ()),
        };
        match Membership::enter(ground, options).await {
            Ok(membership) => lock(state).membership = Some(membership),
            Err(membership::Error::Removed { .. }) => lock(state).removed = true,
            Err(error) => return Err(format!("the node does not come into its cluster: {error}")),
        }
        Ok(())
    }
}

/// What a machine is called, whatever its disk and process.
pub fn name(slot: Slot) -> String {
    format!("node-{slot}")
}

fn engine() -> EngineOptions {
    EngineOptions { stuck_after_ms: 15_000, keep_fact_digests: false, ..EngineOptions::default() }
}

fn options(slot: Slot, sabotage: Option<Sabotage>) -> SiloOptions {
    let mut options = SiloOptions::new(name(slot), run::CLAIM, run::LEASE_EXPIRED, run::SWEEP, index::OPEN_RUNS);
    options.sabotage = sabotage.and_then(Sabotage::in_silo);
    options.lease = LEASE;
    options.renew = RENEW;
    options.idle = Duration::from_secs(4);
    options.sweep_every = Duration::from_secs(15);
    options
}

/// Tells the court what a store does.
struct Watching {
    slot: Slot,
    court: Court,
    wire: Wire,
}

impl Witness for Watching {
    fn applied(&self, seen: Seen<'_>) {
        let Seen { shard, term, index, entry, revision } = seen;
        let (slot, node, entry) = (self.slot, self.wire.me.get().copied().unwrap_or_default(), Arc::new(entry.clone()));
        self.court.see(Sight::Applied { slot, node, shard, term, index, revision, entry });
    }

    fn voted(&self, shard: u32, term: u64, candidate: u64) {
        let node = self.wire.me.get().copied().unwrap_or_default();
        self.court.see(Sight::Voted { node, shard, term, candidate });
    }
}
