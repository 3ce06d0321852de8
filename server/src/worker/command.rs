//! A local command as agent, tool or condition: input JSON on standard input, output JSON on standard output. A line
//! `::observe scene JSON` or `::observe world JSON` on standard error tells what it sees in the world of the run.

use super::handler::Handler;
use super::work::{Outcome, Seen, Work};
use futures::future::BoxFuture;
use grain_contract::limits::PAYLOAD_BYTES_MAX;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;
use tokio::task::JoinHandle;

/// Tells the command which attempt it is; also how a left-over command is found again.
pub const ATTEMPT_VARIABLE: &str = "WORK_ATTEMPT_ID";
/// What is kept of standard error: its end, where the reason usually stands.
const STDERR_TAIL_BYTES: usize = 4 * 1024;
/// Begins a line that tells what is seen.
const OBSERVE: &[u8] = b"::observe ";
/// Of such a line.
const LINE_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 64;
/// Between the polite and the final signal.
const TERMINATE_GRACE: Duration = Duration::from_secs(2);
/// How long the pipes may stay open after the command and its group have ended: a process that left the group holds them.
const PIPES_GRACE: Duration = Duration::from_millis(500);

/// Exit code 0 and JSON (or nothing) on standard output is success; another exit code is a failure that carries the end
/// of standard error. Everything the command started ends with it.
#[derive(Clone, Debug)]
pub struct Command {
    /// Program and arguments.
    pub argv: Vec<String>,
    pub working_directory: PathBuf,
    /// The whole environment of the command, besides what is told about the attempt.
    pub environment: Vec<(String, String)>,
    /// Bound of its own, besides the step's.
    pub timeout: Option<Duration>,
    pub output_bytes_max: usize,
    /// Doing it twice with the same `WORK_IDEMPOTENCY_KEY` is the same as doing it once.
    pub idempotent: bool,
}

impl Command {
    pub fn new(argv: impl IntoIterator<Item = impl Into<String>>, working_directory: impl Into<PathBuf>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            working_directory: working_directory.into(),
            environment: Vec::new(),
            timeout: None,
            output_bytes_max: PAYLOAD_BYTES_MAX,
            idempotent: false,
        }
    }
}

impl Handler for Command {
    fn handle(&self, work: Work) -> BoxFuture<'static, Outcome> {
        let command = self.clone();
        Box::pin(async move { command.run(&work).await })
    }

    fn is_idempotent(&self) -> bool {
        self.idempotent
    }
}

impl Command {
    async fn run(&self, work: &Work) -> Outcome {
        let mut child = match self.spawn(work) {
            Ok(child) => child,
            Err(error) => return work.failed(format!("the command {} could not be started: {error}", self.shown())),
        };
        // From here on the whole group dies if this future is dropped.
        let mut group = Group::of(&child);
        let mut pipes = Pipes::of(&mut child, work.input.clone(), self.output_bytes_max, work.seen());
        let timeout = shorter(self.timeout, work.timeout);
        let status = tokio::select! {
            status = child.wait() => status,
            () = &mut pipes.overflow => {
                return work.failed(format!("Expected at most {} bytes of output, but found more.", self.output_bytes_max));
            }
            () = elapsed(timeout) => {
                let seconds = timeout.unwrap_or_default().as_secs_f64();
                let message = format!("the command {} did not end within {seconds} s and was killed", self.shown());
                return Outcome::Failed { class: "timeout".to_owned(), message };
            }
            () = work.interrupted() => {
                group.terminate();
                // How it ends does not matter any more, only that it ends.
                let _ = tokio::time::timeout(TERMINATE_GRACE, child.wait()).await;
                return Outcome::Cancelled("interrupted".to_owned());
            }
        };
        // What it left in the background would hold the pipes open.
        group.kill();
        let Some((output, errors)) = pipes.rest().await else {
            return work.failed(format!("a process that {} left behind holds its output open", self.shown()));
        };
        match status {
            Ok(status) => self.judge(work, status, output, &errors),
            Err(error) => work.failed(format!("the command {} could not be waited for: {error}", self.shown())),
        }
    }

    fn spawn(&self, work: &Work) -> std::io::Result<Child> {
        let Some((program, arguments)) = self.argv.split_first() else {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "the command is empty"));
        };
        tokio::process::Command::new(program)
            .args(arguments)
            .current_dir(&self.working_directory)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env(ATTEMPT_VARIABLE, &work.attempt_id)
            .env("WORK_ATTEMPT", work.attempt.to_string())
            .env("WORK_RUN_ID", &work.run_id)
            .env("WORK_STEP_ID", &work.step_id)
            .env("WORK_STEP_RUN_ID", &work.step_run_id)
            .env("WORK_KIND", &work.kind)
            .env("WORK_NAME", &work.name)
            .env("WORK_ACTION_CLASS", &work.action_class)
            .env("WORK_IDEMPOTENCY_KEY", &work.idempotency_key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
    }

    fn judge(&self, work: &Work, status: ExitStatus, output: Vec<u8>, errors: &[u8]) -> Outcome {
        if output.len() > self.output_bytes_max {
            return work.failed(format!("Expected at most {} bytes of output, but found more.", self.output_bytes_max));
        }
        if !status.success() {
            let tail = String::from_utf8_lossy(errors);
            let tail = tail.trim();
            let colon = if tail.is_empty() { "" } else { ": " };
            return work.failed(format!("the command {} ended with {status}{colon}{tail}", self.shown()));
        }
        let text = output.trim_ascii();
        if text.is_empty() {
            return Outcome::Succeeded(b"null".to_vec());
        }
        match serde_json::from_slice::<serde::de::IgnoredAny>(text) {
            Ok(_) => Outcome::Succeeded(text.to_vec()),
            Err(error) => {
                let begin = String::from_utf8_lossy(&text[..text.len().min(200)]).into_owned();
                work.failed(format!("Expected JSON on standard output, but found {begin:?} ({error})."))
            }
        }
    }

    fn shown(&self) -> String {
        self.argv.join(" ")
    }
}

fn shorter(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

async fn elapsed(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

/// The process group of a command, killed when dropped.
struct Group(Option<i32>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|pid| i32::try_from(pid).ok()))
    }

    fn terminate(&self) {
        signal(self.0, rustix::process::Signal::TERM);
    }

    fn kill(&mut self) {
        // Once only: a group that is gone may have lent its number to a stranger.
        signal(self.0.take(), rustix::process::Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Kills all processes of the group.
pub fn kill_group(group: i32) {
    signal(Some(group), rustix::process::Signal::KILL);
}

fn signal(group: Option<i32>, signal: rustix::process::Signal) {
    if let Some(pid) = group.filter(|pid| *pid > 1).and_then(rustix::process::Pid::from_raw) {
        // It may be gone already, which is what is wanted.
        let _ = rustix::process::kill_process_group(pid, signal);
    }
}

/// The three pipes, moved by tasks of their own, so that a command that writes before it reads cannot block itself.
struct Pipes {
    overflow: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
    output: JoinHandle<Vec<u8>>,
    errors: JoinHandle<Vec<u8>>,
}

impl Pipes {
    fn of(child: &mut Child, input: Vec<u8>, output_bytes_max: usize, seen: Seen) -> Self {
        if let Some(mut stdin) = child.stdin.take() {
            tokio::spawn(async move {
                // A command need not read its input.
                let _ = stdin.write_all(&input).await;
            });
        }
        let (too_much, overflowed) = tokio::sync::oneshot::channel::<()>();
        let output = tokio::spawn(read_head(child.stdout.take(), output_bytes_max, too_much));
        let errors = tokio::spawn(read_errors(child.stderr.take(), seen));
        let overflow = Box::pin(async move {
            if overflowed.await.is_err() {
                std::future::pending::<()>().await;
            }
        });
        Self { overflow, output, errors }
    }

    /// What was written; `None` if the pipes stay open.
    async fn rest(self) -> Option<(Vec<u8>, Vec<u8>)> {
        let (stop_output, stop_errors) = (self.output.abort_handle(), self.errors.abort_handle());
        let both = async { (self.output.await.unwrap_or_default(), self.errors.await.unwrap_or_default()) };
        let rest = tokio::time::timeout(PIPES_GRACE, both).await;
        stop_output.abort();
        stop_errors.abort();
        rest.ok()
    }
}

async fn read_head(
    pipe: Option<impl AsyncRead + Unpin>,
    most: usize,
    too_much: tokio::sync::oneshot::Sender<()>,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // A pipe that breaks gives what came before.
        let _ = pipe.take(most as u64 + 1).read_to_end(&mut bytes).await;
    }
    if bytes.len() > most {
        let _ = too_much.send(());
    }
    bytes
}

/// Keeps the end of what was written, and takes out what was seen.
async fn read_errors(pipe: Option<impl AsyncRead + Unpin>, seen: Seen) -> Vec<u8> {
    let (mut tail, mut line): (Vec<u8>, Vec<u8>) = (Vec::new(), Vec::new());
    let Some(mut pipe) = pipe else { return tail };
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        for part in buffer[..count].split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            let is_whole = part.ends_with(b"\n");
            // A line that is longer than any observation is none, and need not be kept whole.
            let is_none = !line.starts_with(&OBSERVE[..line.len().min(OBSERVE.len())]) || line.len() > LINE_BYTES_MAX;
            if is_whole || is_none {
                end_of_line(&mut line, &mut tail, &seen);
            }
        }
    }
    end_of_line(&mut line, &mut tail, &seen);
    tail
}

fn end_of_line(line: &mut Vec<u8>, tail: &mut Vec<u8>, seen: &Seen) {
    let told = line.strip_prefix(OBSERVE).and_then(|rest| std::str::from_utf8(rest).ok()).map(observed);
    match told {
        Some(Ok((kind, value))) => {
            if let Err(why) = seen.observe(kind, value) {
                tracing::warn!(why, "an observation of a command was left out");
            }
        }
        Some(Err(why)) => tracing::warn!(why, "an observation of a command was left out"),
        None => tail.extend_from_slice(line),
    }
    line.clear();
    let surplus = tail.len().saturating_sub(STDERR_TAIL_BYTES);
    tail.drain(..surplus);
}

/// `scene {"text":"Inbox"}`
fn observed(text: &str) -> Result<(&str, serde_json::Value), String> {
    let (kind, value) = text.trim().split_once(' ').ok_or("Expected a kind and a JSON value, but found one word.")?;
    let value = serde_json::from_str(value).map_err(|error| format!("Expected a JSON value, but found: {error}."))?;
    Ok((kind, value))
}
