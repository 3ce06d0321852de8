//! Runs seeds in child processes of the test binary, some at once, and says what to type for one that fails.

use super::sabotage::Sabotage;
use super::{Options, Profile, Report, simulate};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// What a child is told by its environment.
const SEED: &str = "GRANARY_SIM_SEED";
const SABOTAGE: &str = "GRANARY_SIM_SABOTAGE";
const NODES: &str = "GRANARY_SIM_NODES";
const LOAD_MS: &str = "GRANARY_SIM_LOAD_MS";
const PROFILE: &str = "GRANARY_SIM_PROFILE";
const CALM: &str = "GRANARY_SIM_CALM";
/// What [`run_as_asked`] is told, by `cargo xtask sim`.
const FROM: &str = "GRANARY_SIM_FROM";
const SEEDS: &str = "GRANARY_SIM_SEEDS";
const TRACE: &str = "GRANARY_SIM_TRACE";
/// Processes at once.
const AT_ONCE: &str = "GRANARY_SIM_AT_ONCE";

/// Without further word: what the gate can afford, about four minutes on two cores.
const SEEDS_IN_CI: u64 = 200;
/// Begins the lines by which a child tells what came of it.
const MARK: &str = "sim: ";

fn told<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

impl Options {
    /// What a seed stands for.
    pub fn of(seed: u64) -> Self {
        let profile = std::env::var(PROFILE).ok().and_then(|name| Profile::named(&name));
        let profile = profile.unwrap_or_else(|| Profile::of(seed));
        let memory = PathBuf::from("/dev/shm");
        let folder = if memory.is_dir() { memory } else { std::env::temp_dir() };
        Self {
            seed,
            nodes: told(NODES).unwrap_or(3),
            shards: 3,
            profile,
            load_ms: told(LOAD_MS).unwrap_or_else(|| profile.load_ms()),
            faults: told::<u8>(CALM).is_none(),
            roams: true,
            sabotage: std::env::var(SABOTAGE).ok().and_then(|name| Sabotage::named(&name)),
            trace: told::<u8>(TRACE).is_some(),
            folder: folder.join(format!("granary-sim-{}-{seed}", std::process::id())),
        }
    }
}

/// The child's side: simulates what its environment says, and tells it line by line.
pub fn child() {
    let Some(seed) = told(SEED) else { return };
    let report = simulate(Options::of(seed));
    let Report { hash, notes, virtual_ms, runs, open, faults } = report;
    println!("\n{MARK}report {hash} {notes} {virtual_ms} {runs} {open}");
    for fault in faults {
        println!("{MARK}fault {}", fault.replace('\n', " "));
    }
}

/// Runs one seed in a child.
pub fn run(options: &Options) -> Report {
    let failed = |why: String| Report { hash: 0, notes: 0, virtual_ms: 0, runs: 0, open: 0, faults: vec![why] };
    let Ok(binary) = std::env::current_exe() else { return failed("the test binary is not found".into()) };
    let mut command = Command::new(binary);
    command.args(["child", "--exact", "--nocapture", "--test-threads=1"]);
    command.env(SEED, options.seed.to_string());
    command.env(NODES, options.nodes.to_string());
    command.env(LOAD_MS, options.load_ms.to_string());
    command.env(PROFILE, options.profile.name());
    if !options.faults {
        command.env(CALM, "1");
    }
    command.env_remove(SABOTAGE);
    if let Some(sabotage) = options.sabotage {
        command.env(SABOTAGE, sabotage.name());
    }
    if options.trace {
        command.env(TRACE, "1").stderr(Stdio::inherit());
    } else {
        command.stderr(Stdio::null());
    }
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => return failed(error.to_string()),
    };
    read(&output).unwrap_or_else(|| failed(format!("the child told nothing: {output}")))
}

fn read(output: &str) -> Option<Report> {
    let mut lines = output.lines().filter_map(|line| line.strip_prefix(MARK));
    let mut numbers = lines.next()?.strip_prefix("report ")?.split(' ').map(|n| n.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    let (hash, notes, virtual_ms) = (next()?, next()?, next()?);
    let (runs, open) = (next()? as usize, next()? as usize);
    let faults = lines.filter_map(|line| line.strip_prefix("fault ")).map(str::to_owned).collect();
    Some(Report { hash, notes, virtual_ms, runs, open, faults })
}

/// Runs seeds, a few at once; gives back those that failed, in order.
pub fn run_all(
    all: impl Iterator<Item = Options> + Send,
    each: impl Fn(&Options, &Report) + Sync,
) -> Vec<(Options, Report)> {
    let all = Mutex::new(all);
    let failed = Mutex::new(Vec::new());
    let at_once = told(AT_ONCE).or_else(|| std::thread::available_parallelism().ok().map(|n| n.get())).unwrap_or(2);
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let Some(options) = all.lock().unwrap_or_else(PoisonError::into_inner).next() else { return };
                    let report = run(&options);
                    each(&options, &report);
                    if !report.faults.is_empty() {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).push((options, report));
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.sort_by_key(|(options, _)| options.seed);
    failed
}

/// As many seeds as the environment asks for.
///
/// # Panics
/// If one fails; says which, why, and what to type. If it is asked for a profile or a bug that is not there.
pub fn run_as_asked() {
    let is_known = |name: &str, known: fn(&str) -> bool| std::env::var(name).map_or(true, |value| known(&value));
    assert!(is_known(PROFILE, |name| Profile::named(name).is_some()), "there is no such profile");
    assert!(is_known(SABOTAGE, |name| Sabotage::named(name).is_some()), "there is no such bug");
    let (from, seeds) = (told(FROM).unwrap_or(1u64), told(SEEDS).unwrap_or(SEEDS_IN_CI));
    let (done, runs, virtual_ms) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let failed = run_all((from..from + seeds).map(Options::of), |options, report| {
        runs.fetch_add(report.runs as u64, Relaxed);
        virtual_ms.fetch_add(report.virtual_ms, Relaxed);
        let done = done.fetch_add(1, Relaxed) + 1;
        if !report.faults.is_empty() {
            eprintln!("{}", sentence(options, report));
        } else if seeds <= 20 || done.is_multiple_of(100) {
            eprintln!("seed {} is fine: {report:?}; {done} of {seeds} done", options.seed);
        }
    });
    eprintln!("{seeds} seeds from {from}: {runs:?} runs in {} virtual seconds", virtual_ms.into_inner() / 1_000);
    let told: Vec<String> = failed.iter().map(|(options, report)| sentence(options, report)).collect();
    assert!(told.is_empty(), "{} of {seeds} seeds failed\n{}", told.len(), told.join("\n"));
}

fn sentence(options: &Options, report: &Report) -> String {
    let (seed, profile) = (options.seed, options.profile.name());
    let shown: Vec<&String> = report.faults.iter().take(6).collect();
    let bug = options.sabotage.map(|bug| format!(" --bug {}", bug.name())).unwrap_or_default();
    format!("seed {seed} fails: {shown:#?}\n  cargo xtask sim --from {seed} --seeds 1 --profile {profile}{bug} --trace")
}
