//! The silos of a local cluster as processes of this one.

use super::super::Failure;
use super::layout::Plan;
use futures::future::select_all;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::process::{ExitStatus, Stdio};
use tokio::process::{Child, Command};

/// Settings that must differ from silo to silo: the environment, which is the same for all, may not say them.
const OWN: [&str; 11] = [
    "GRANARY_CONFIG",
    "GRANARY_NAME",
    "GRANARY_LISTEN",
    "GRANARY_STORE__DATA_DIR",
    "GRANARY_CLUSTER__PEER_LISTEN",
    "GRANARY_CLUSTER__MESH_LISTEN",
    "GRANARY_CLUSTER__ADVERTISE_HOST",
    "GRANARY_CLUSTER__CLIENT_ADDRESS",
    "GRANARY_CLUSTER__TLS__CERT",
    "GRANARY_CLUSTER__TLS__KEY",
    "GRANARY_CLUSTER__ZONE",
];
/// Of a log, what is shown of a silo that ended by itself.
const TAIL_BYTES: u64 = 2_048;
const TAIL_LINES: usize = 5;

pub struct Children {
    all: Vec<One>,
}

struct One {
    plan: Plan,
    /// `None` once it has ended.
    child: Option<Child>,
}

impl Children {
    /// Must be called on a thread that lives as long as the command: the silos end with the thread that started them.
    pub fn start(plans: &[Plan]) -> Result<Self, Failure> {
        let one = |plan: &Plan| Ok(One { plan: plan.clone(), child: Some(spawn(plan)?) });
        Ok(Self { all: plans.iter().map(one).collect::<Result<_, Failure>>()? })
    }

    pub fn plan(&self, at: usize) -> &Plan {
        &self.all[at].plan
    }

    pub fn pid(&self, at: usize) -> Option<u32> {
        self.all[at].child.as_ref()?.id()
    }

    /// How many run.
    pub fn left(&self) -> usize {
        self.all.iter().filter(|one| one.child.is_some()).count()
    }

    /// The next one that ends: which, and how. Never comes if none is left.
    pub async fn ended(&mut self) -> (usize, String) {
        let waits: Vec<_> = self
            .all
            .iter_mut()
            .enumerate()
            .filter_map(|(at, one)| {
                let child = one.child.as_mut()?;
                Some(Box::pin(async move { (at, child.wait().await) }))
            })
            .collect();
        if waits.is_empty() {
            return std::future::pending().await;
        }
        let ((at, status), _, _) = select_all(waits).await;
        self.all[at].child = None;
        let how = match status {
            Ok(status) => shown(status),
            Err(error) => error.to_string(),
        };
        (at, how)
    }

    pub fn start_again(&mut self, at: usize) -> Result<(), Failure> {
        let child = spawn(&self.all[at].plan)?;
        self.all[at].child = Some(child);
        Ok(())
    }

    /// The word to stop in order. A frozen one is woken to hear it.
    pub fn terminate(&self) {
        self.tell(&[Signal::TERM, Signal::CONT]);
    }

    pub fn kill(&self) {
        self.tell(&[Signal::KILL]);
    }

    fn tell(&self, signals: &[Signal]) {
        for pid in self.all.iter().filter_map(|one| one.child.as_ref()?.id()) {
            let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { continue };
            for signal in signals {
                // It has ended meanwhile: that is what is wanted.
                let _ = kill_process(pid, *signal);
            }
        }
    }
}

fn spawn(plan: &Plan) -> Result<Child, Failure> {
    let wrong = |error: std::io::Error| Failure::no("internal", format!("{} cannot be started: {error}", plan.name));
    let log = OpenOptions::new().create(true).append(true).open(&plan.log).map_err(wrong)?;
    let mut command = Command::new(std::env::current_exe().map_err(wrong)?);
    command
        .args(["node", "--parent", &std::process::id().to_string(), "--config"])
        .arg(&plan.config)
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(wrong)?)
        .stderr(log)
        // Ctrl-C goes to the whole group of a terminal; the silos are told by us, once.
        .process_group(0)
        .kill_on_drop(true);
    OWN.iter().for_each(|name| {
        command.env_remove(name);
    });
    command.spawn().map_err(wrong)
}

fn shown(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// The last lines of a silo's log.
pub fn last_words(plan: &Plan) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = std::fs::File::open(&plan.log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let text = String::from_utf8_lossy(&read().unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
