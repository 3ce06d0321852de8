//! The whole: machines, network, clients and the one driver of time.
//!
//! Time goes in steps. At the beginning of each, what is due is done: faults begin and end, messages arrive. Then every strand
//! runs up to the end of the step, in an order drawn anew. A message takes a step at least, so nothing that one strand does
//! could have reached another one within it.

use super::chance::Chance;
use super::check;
use super::court::{Court, End, Sight};
use super::doors::Doors;
use super::faults::{self, Fault};
use super::load::client::Client;
use super::load::consumer::Consumer;
use super::load::person::Person;
use super::load::twin::Twin;
use super::load::visitor::Visitor;
use super::load::worker::Worker;
use super::load::{Runs, TENANTS, Yard};
use super::machine::{Machine, Site, name};
use super::net::{Net, Slot, Weather};
use super::plans::Plans;
use super::script::Script;
use super::strand::Strand;
use super::trace::Trace;
use super::{Options, Report, collect, founding, panics};
use cluster::peers::PeerInfo;
use shard::ShardId;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How far a step goes, in microseconds. Messages take one at least.
const STEP_US: u64 = 4_000;
/// How often nodes learn who can be called.
const ATTACH_EVERY_US: u64 = 300_000;
/// What the cluster gets to found itself.
const FOUNDING_US_MAX: u64 = 30_000_000;
/// What everybody gets to finish once faults have stopped.
const QUIET_US_MAX: u64 = 240_000_000;
/// Between two looks whether all is done, which is not free.
const LOOK_EVERY_US: u64 = 500_000;
const COLLECT_US_MAX: u64 = 60_000_000;

pub struct World {
    pub options: Options,
    pub chance: Chance,
    pub now_us: u64,
    pub trace: Trace,
    pub court: Court,
    pub net: Net,
    pub doors: Doors,
    pub machines: Vec<Machine>,
    /// Where clients, workers and consumers live.
    outside: Strand,
    working: watch::Sender<bool>,
    runs: Runs,
    site: Site,
    attached_at: u64,
    /// Machines that were told to leave for good.
    pub removed: BTreeSet<Slot>,
    /// Whether their leaving was acknowledged.
    pub leaving: BTreeMap<Slot, Arc<AtomicBool>>,
    /// Machines that were frozen because they owned these shards.
    pub asleep: BTreeMap<u32, Slot>,
    /// Goes up whenever a machine wakes.
    woken: watch::Sender<u64>,
    /// Epochs that were told already.
    owned: HashMap<(u64, u32), u64>,
}

impl World {
    pub fn new(options: Options) -> Result<Self, String> {
        let trace = Trace::new(options.trace);
        let court = Court::new(check::all(), trace.clone());
        let net = Net::new(trace.clone(), Chance::of(options.seed, "net"));
        let doors = Doors::default();
        let folder = options.folder.clone();
        let site = Site {
            net: net.clone(),
            court: court.clone(),
            doors: doors.clone(),
            plans: Plans::compile()?,
            shards: options.shards,
            alone: options.nodes == 1,
            founders: options.nodes,
            folder,
            sabotage: options.sabotage,
        };
        let chance = Chance::of(options.seed, "world");
        let outside = Strand::new().map_err(|error| error.to_string())?;
        let (working, _) = watch::channel(true);
        let mut world = Self {
            options,
            chance,
            now_us: 0,
            trace,
            court,
            net,
            doors,
            machines: Vec::new(),
            outside,
            working,
            runs: Runs::default(),
            site,
            attached_at: 0,
            removed: BTreeSet::new(),
            leaving: BTreeMap::new(),
            asleep: BTreeMap::new(),
            woken: watch::Sender::default(),
            owned: HashMap::new(),
        };
        for _ in 0..world.options.nodes {
            world.add_machine();
        }
        Ok(world)
    }

    pub fn add_machine(&mut self) {
        let slot = self.machines.len();
        let chance = Chance::of(self.options.seed, &format!("machine {slot}"));
        let mut machine = Machine::new(slot, self.site.clone(), chance);
        if let Err(error) = machine.start(self.now_us) {
            self.court.complain(format!("machine {slot} does not start: {error}"));
        }
        self.machines.push(machine);
    }

    /// The simulation from beginning to end.
    pub fn run(mut self) -> Report {
        if founding::found(&mut self, FOUNDING_US_MAX) {
            let load = self.start_load();
            self.work();
            self.quiet(&load);
            if self.court.is_content() {
                let end = self.collect();
                self.court.end(&end);
            }
        }
        for machine in &mut self.machines {
            machine.kill();
        }
        let (hash, notes) = self.trace.sum();
        let (runs, open) = (self.runs.all().len(), self.runs.open().len());
        Report { hash, notes, virtual_ms: self.now_us / 1_000, runs, open, faults: self.court.faults() }
    }

    pub fn step(&mut self) {
        self.now_us += STEP_US;
        self.trace.set_now(self.now_us);
        for delivery in self.net.due(self.now_us) {
            match self.machines.get_mut(delivery.to) {
                Some(machine) => machine.deliver(delivery),
                None => delivery.answer.send(super::net::Answer::Dead),
            }
        }
        let mut order: Vec<usize> = (0..self.machines.len()).collect();
        self.chance.shuffle(&mut order);
        for at in order {
            self.machines[at].run_until(self.now_us);
        }
        self.outside.run_until(Duration::from_micros(self.now_us));
        self.look_at_owners();
        if self.now_us >= self.attached_at {
            faults::ask_to_remove(self);
        }
        self.attach();
        for panic in panics::take() {
            self.court.complain(format!("a panic: {panic}"));
        }
    }

    /// Tells every node who can be called, as a mesh does that has looked a moment ago.
    fn attach(&mut self) {
        if self.now_us < self.attached_at {
            return;
        }
        self.attached_at = self.now_us + ATTACH_EVERY_US;
        for machine in &self.machines {
            let Some(wire) = machine.wire() else { continue };
            let is_near = |other: &&Machine| {
                let (a, b) = (machine.slot, other.slot);
                a != b && !other.is_frozen() && !self.net.is_cut(a, b) && !self.net.is_cut(b, a)
            };
            let info = |other: &Machine| {
                let host = other.host()?;
                let info = PeerInfo {
                    name: name(other.slot),
                    boot: other.boot(),
                    cluster: host.cluster_id(),
                    client_address: String::new(),
                    zone: String::new(),
                    build: String::new(),
                };
                Some((host.node_id(), info))
            };
            let near = self.machines.iter().filter(is_near).filter_map(info).collect::<BTreeMap<_, _>>();
            wire.attached.send_if_modified(|known| {
                let changed = **known != near;
                *known = Arc::new(near);
                changed
            });
        }
    }

    /// Who leads a shard by its own account; the first, if it is one of several.
    pub fn owner_of(&self, shard: u32) -> Option<Slot> {
        let owns = |machine: &&Machine| {
            let shard = machine.host().and_then(|host| host.shard(ShardId(shard)));
            shard.is_some_and(|shard| shard.leadership().borrow().epoch.is_some())
        };
        self.machines.iter().find(owns).map(|machine| machine.slot)
    }

    /// A frozen process goes on.
    pub fn wake(&mut self, slot: Slot) {
        self.machines[slot].freeze(false, self.now_us);
        self.woken.send_modify(|times| *times += 1);
    }

    fn look_at_owners(&mut self) {
        for machine in &self.machines {
            let Some(host) = machine.host() else { continue };
            for shard in (0..host.shards()).filter_map(|n| host.shard(ShardId(n))) {
                let Some(epoch) = shard.leadership().borrow().epoch else { continue };
                let node = host.node_id();
                if self.owned.insert((node, shard.id().0), epoch.0) != Some(epoch.0) {
                    self.court.see(Sight::Owns { node, shard: shard.id().0, epoch: epoch.0 });
                }
            }
        }
    }

    fn start_load(&mut self) -> Vec<JoinHandle<()>> {
        let yard = Yard {
            doors: self.doors.clone(),
            court: self.court.clone(),
            trace: self.trace.clone(),
            plans: self.site.plans.clone(),
            working: self.working.subscribe(),
            runs: self.runs.clone(),
            woken: self.woken.subscribe(),
        };
        let seed = self.options.seed;
        let chance = |name: &str| Chance::of(seed, name);
        let mut begun = Vec::new();
        for tenant in TENANTS {
            for number in 0..2 {
                let name = format!("{tenant}-client-{number}");
                let chance = chance(&name);
                begun.push(self.outside.spawn(Client { yard: yard.clone(), chance, tenant, name }.run()));
                let name = format!("{tenant}-worker-{number}");
                let chance = Chance::of(seed, &name);
                self.outside.spawn(Worker { yard: yard.clone(), chance, tenant, name }.run());
            }
            let name = format!("{tenant}-consumer");
            let chance = chance(&name);
            self.outside.spawn(Consumer { yard: yard.clone(), chance, tenant, name }.run());
        }
        self.outside.spawn(Person { yard: yard.clone(), chance: chance("person") }.run());
        self.outside.spawn(Visitor { yard: yard.clone(), chance: chance("visitor") }.run());
        begun.push(self.outside.spawn(Twin { yard, chance: chance("twin") }.run()));
        begun
    }

    /// The load and the faults, for as long as the script says.
    fn work(&mut self) {
        let script = Script::of(&mut Chance::of(self.options.seed, "faults"), &self.options, self.now_us);
        let mut script = script.in_order();
        let until = self.now_us + self.options.load_ms * 1_000;
        while self.now_us < until && self.court.is_content() {
            while let Some((_, fault, begins)) = script.next_if(|(at, ..)| *at <= self.now_us) {
                self.apply(&fault, begins);
            }
            self.step();
        }
    }

    fn apply(&mut self, fault: &Fault, begins: bool) {
        self.trace.note(format_args!("{} {fault:?}", if begins { "begins" } else { "ends" }));
        if begins {
            fault.begin(self);
        } else {
            fault.end(self);
        }
    }

    /// All faults are over; everybody gets time to finish.
    fn quiet(&mut self, load: &[JoinHandle<()>]) {
        self.trace.note("all faults are over");
        self.net.mend_all();
        self.net.set_weather(Weather::fine());
        for at in 0..self.machines.len() {
            let now_us = self.now_us;
            let machine = &mut self.machines[at];
            machine.freeze(false, now_us);
            machine.right_clock();
            machine.sync_us_max.store(2_000, std::sync::atomic::Ordering::Relaxed);
            if !machine.is_up()
                && let Err(error) = machine.start(now_us)
            {
                self.court.complain(format!("machine {at} does not start: {error}"));
            }
        }
        self.working.send_replace(false);
        let until = self.now_us + QUIET_US_MAX;
        let mut look_at = self.now_us;
        while self.now_us < until && self.court.is_content() {
            self.step();
            if self.now_us >= look_at {
                look_at = self.now_us + LOOK_EVERY_US;
                for (at, machine) in self.machines.iter().enumerate() {
                    if let Some(why) = machine.failed() {
                        self.court.complain(format!("machine {at} has failed: {why}"));
                    }
                }
                let is_done = load.iter().all(JoinHandle::is_finished)
                    && self.runs.open().is_empty()
                    && self.court.is_settled()
                    && founding::is_whole(self)
                    && collect::replicas_agree(&self.machines);
                if is_done {
                    return;
                }
            }
        }
        // Of everything else a checker says at the end what is amiss.
        if self.court.is_content() && !founding::is_whole(self) {
            let groups = founding::groups(self);
            self.court.complain(format!("the cluster is not whole, long after all faults are over: {groups:?}"));
        }
    }

    fn collect(&mut self) -> End {
        // Who was taken out serves nobody any more.
        self.removed.iter().for_each(|slot| self.doors.close(*slot));
        let digests = collect::digests(&self.machines);
        let found = Arc::new(Mutex::new(None));
        let (doors, runs, told) = (self.doors.clone(), self.runs.all(), found.clone());
        self.outside.spawn(async move {
            let read = collect::read(doors, runs).await;
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(read);
        });
        let until = self.now_us + COLLECT_US_MAX;
        while self.now_us < until {
            self.step();
            if let Some((runs, sums)) = found.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return End { digests, runs, sums };
            }
        }
        self.court.complain("runs and tallies could not be read at the end");
        End { digests, ..End::default() }
    }
}
