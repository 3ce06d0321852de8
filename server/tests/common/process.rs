//! The binary as a process of its own.

use serde_json::Value;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Nothing here takes long on a quiet machine; what does not come by then never will.
pub const PATIENCE: Duration = Duration::from_secs(150);

pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("this did not happen in time")
}

pub fn granary(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_granary"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    for name in ["GRANARY_SERVER", "GRANARY_TENANT", "GRANARY_FORMAT", "GRANARY_CONFIG", "GRANARY_USER"] {
        command.env_remove(name);
    }
    command.env("USER", "tester");
    command
}

/// What a finished command said.
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn of(output: &Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    #[track_caller]
    pub fn ended_with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "out:\n{}\nerr:\n{}", self.out, self.err);
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("no JSON ({e}): {}\n{}", self.out, self.err))
    }
}

pub async fn say(arguments: &[&str]) -> Said {
    Said::of(&soon(granary(arguments).output()).await.expect("runs"))
}

/// The id of a run that nobody else has. Attempts are named by their run and step, and a worker's next life stops everything on
/// the machine that works on its attempts: with one id for all, tests would kill each other's commands.
pub fn a_run() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// A `granary dev` of its own.
pub struct Dev {
    pub child: Child,
    pub url: String,
}

impl Dev {
    pub async fn start(data: &str) -> Self {
        let mut child = granary(&["dev", "--listen", "127.0.0.1:0", "--data", data])
            .stderr(Stdio::inherit())
            .spawn()
            .expect("starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = soon(lines.next_line()).await.expect("reads").expect("a first line");
        let url = line.split_whitespace().find(|word| word.starts_with("http://")).expect("a URL").to_owned();
        Self { child, url }
    }

    pub async fn say(&self, arguments: &[&str]) -> Said {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--server", &self.url]).collect();
        say(&arguments).await
    }
    /// Follows the run until the step is in this state.
    pub async fn until_step(&self, run: &str, step: &str, state: &str) {
        let mut watch =
            granary(&["runs", "watch", run, "--format", "json", "--server", &self.url]).spawn().expect("starts");
        let mut lines = BufReader::new(watch.stdout.take().expect("piped")).lines();
        soon(async {
            loop {
                let line = lines.next_line().await.expect("reads").expect("the run ended before");
                let moved: Value = serde_json::from_str(&line).expect("an object a line");
                if moved["step"] == step && moved["state"] == state {
                    return;
                }
            }
        })
        .await;
    }
}

pub fn interrupt(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(child.id().expect("it runs") as i32).expect("a pid");
    rustix::process::kill_process(pid, signal).expect("signals");
}

/// A process elsewhere has made the file. It tells nobody, so it is looked for.
pub async fn exists(path: &Path) {
    until(|| path.exists()).await;
}

/// The same, and has written a whole line: a shell makes the file before it writes.
pub async fn written(path: &Path) {
    until(|| std::fs::read_to_string(path).is_ok_and(|text| text.ends_with('\n'))).await;
}

async fn until(there: impl Fn() -> bool) {
    soon(async {
        while !there() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}
