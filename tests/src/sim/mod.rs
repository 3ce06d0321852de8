//! A cluster in one thread, from one seed: real hosts with their Raft groups and logs, real silos, real grains, over a network,
//! disks and clocks that fail as the seed says, under a load that the seed draws, watched by checkers.
//!
//! What is real: everything of `shard` but files of the log and threads; everything of `cluster` but sockets; the grains.
//! What stands in: the network ([`net`]), the disks ([`machine`]), time ([`strand`], [`clock`]), chance ([`chance`],
//! [`entropy`]), and who asks for plans ([`plans`]). The edges of `server` (gRPC, HTTP) are not in it.
//!
//! One seed is one process (see `tests/simulation.rs`): then two runs of a seed are the same to the last message, which a test
//! holds by the hash of [`trace`].

pub mod bugs;
pub mod chance;
pub mod check;
pub mod clock;
mod collect;
pub mod court;
pub mod doors;
pub mod entropy;
pub mod faults;
mod founding;
pub mod load;
pub mod machine;
pub mod net;
mod panics;
pub mod plans;
mod profile;
pub mod runner;
pub mod sabotage;
mod script;
pub mod strand;
pub mod tally;
pub mod trace;
pub mod world;

pub use profile::Profile;
use sabotage::Sabotage;
use std::path::PathBuf;

#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    pub nodes: usize,
    pub shards: u32,
    pub profile: Profile,
    /// How long the load and the faults last, in virtual milliseconds.
    pub load_ms: u64,
    pub faults: bool,
    /// Machines join and leave, and lose their volumes.
    pub roams: bool,
    /// A deliberate bug.
    pub sabotage: Option<Sabotage>,
    pub trace: bool,
    /// For what lies in files; removed afterwards.
    pub folder: PathBuf,
}

/// What came of a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Over everything that happened.
    pub hash: u64,
    pub notes: u64,
    pub virtual_ms: u64,
    pub runs: usize,
    pub open: usize,
    /// Nothing if all is well.
    pub faults: Vec<String>,
}

/// Simulates one seed, on a thread whose chance is the seed's from its first moment.
pub fn simulate(options: Options) -> Report {
    let folder = options.folder.clone();
    panics::watch();
    let failed = |why: String| Report { hash: 0, notes: 0, virtual_ms: 0, runs: 0, open: 0, faults: vec![why] };
    let thread = std::thread::Builder::new().name(format!("seed-{}", options.seed)).stack_size(16 << 20);
    let report = thread.spawn(move || {
        entropy::seed_this_thread(options.seed);
        match world::World::new(options) {
            Ok(world) => world.run(),
            Err(why) => failed(why),
        }
    });
    let report = match report.map(std::thread::JoinHandle::join) {
        Ok(Ok(report)) => report,
        Ok(Err(_)) => failed(format!("the simulator itself panicked: {:?}", panics::take())),
        Err(error) => failed(error.to_string()),
    };
    // Whether it can be removed is no property of the cluster.
    drop(std::fs::remove_dir_all(folder));
    report
}
