//! One node's process: started, killed, frozen, asked to stop, started again.

use super::net::Net;
use super::slow_disk::SlowDisk;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

pub const CLIENT_PORT: u16 = 7420;
/// Where the preloaded library lies that moves a process's wall clock (Debian: libfaketime).
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
/// Between two looks at a process or probe.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const PROBE_MAX: Duration = Duration::from_secs(2);

pub struct Node {
    pub name: String,
    /// Its place in the fleet and on the network.
    pub place: usize,
    pub ip: Ipv4Addr,
    /// Arguments of the binary.
    pub args: Vec<String>,
    pub data: PathBuf,
    /// Standard error of all its boots.
    pub log: PathBuf,
    /// Put over its configuration.
    pub environment: Vec<(String, String)>,
    /// Its wall clock is wrong by this much.
    pub skew_seconds: i64,
    pub boots: u32,
    child: Option<Child>,
    slow: Option<SlowDisk>,
}

impl Node {
    pub fn new(place: usize, name: String, ip: Ipv4Addr, args: Vec<String>, folder: &Path) -> Self {
        let (data, log) = (folder.join(&name), folder.join(format!("{name}.log")));
        Self {
            name,
            place,
            ip,
            args,
            data,
            log,
            environment: Vec::new(),
            skew_seconds: 0,
            boots: 0,
            child: None,
            slow: None,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}:{CLIENT_PORT}", self.ip)
    }

    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// # Errors
    /// It runs already; the binary or the log cannot be opened.
    pub fn start(&mut self, net: &Net) -> Result<()> {
        ensure!(self.child.is_none(), "{} runs already", self.name);
        self.boots += 1;
        let mut log = File::options().create(true).append(true).open(&self.log)?;
        writeln!(log, "==== boot {} of {}", self.boots, self.name)?;
        let mut command = net.command(self.place, &crate::process::binary()?);
        command.args(&self.args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.envs(self.environment.iter().map(|(key, value)| (key, value)));
        if std::env::var_os("RUST_LOG").is_none() {
            command.env("RUST_LOG", "info,openraft=warn,ractor=warn,ractor_cluster=error");
        }
        if self.skew_seconds != 0 {
            ensure!(Path::new(FAKETIME).exists(), "expected {FAKETIME}: install Debian's libfaketime");
            // The monotonic clock stays as it is: it is the wall clock that people set wrong.
            command.env("LD_PRELOAD", FAKETIME).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
            command.env("FAKETIME", format!("{:+}s", self.skew_seconds));
        }
        self.child = Some(command.spawn().with_context(|| format!("start {}", self.name))?);
        Ok(())
    }

    /// Waits until `/readyz` says yes.
    ///
    /// # Errors
    /// It ends, or is not ready in time; with the end of its log.
    pub fn wait_ready(&mut self, within: Duration) -> Result<()> {
        let deadline = Instant::now() + within;
        loop {
            let probe = probe(SocketAddr::from((self.ip, CLIENT_PORT)), "/readyz");
            if matches!(probe, Some((200, _))) {
                return Ok(());
            }
            if let Some(status) = self.ended()? {
                bail!("{} ended with {status} before it was ready:\n{}", self.name, self.last_words());
            }
            if Instant::now() > deadline {
                let why = probe.map_or_else(|| "no answer".to_owned(), |(_, body)| body);
                bail!("{} was not ready within {within:?}: {why}\n{}", self.name, self.last_words());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Status and body of one of its probes; `None` if it does not answer.
    pub fn probe(&self, path: &str) -> Option<(u16, String)> {
        probe(SocketAddr::from((self.ip, CLIENT_PORT)), path)
    }

    /// Waits until a probe says what is wanted.
    ///
    /// # Errors
    /// It does not in time, or the process ends; with what was said last.
    pub fn wait_probe(&mut self, path: &str, within: Duration, wanted: impl Fn(u16, &str) -> bool) -> Result<()> {
        let deadline = Instant::now() + within;
        loop {
            let said = self.probe(path);
            if said.as_ref().is_some_and(|(code, body)| wanted(*code, body)) {
                return Ok(());
            }
            if let Some(status) = self.ended()? {
                bail!("{} ended with {status}:\n{}", self.name, self.last_words());
            }
            ensure!(Instant::now() < deadline, "{} says of {path} after {within:?}: {said:?}", self.name);
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Whether it has ended by itself.
    ///
    /// # Errors
    /// The operating system does not say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let status = child.try_wait()?;
        if status.is_some() {
            self.child = None;
            self.slow = None;
        }
        Ok(status)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It does not end in time.
    pub fn wait_end(&mut self, within: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            ensure!(self.child.is_some(), "{} does not run", self.name);
            ensure!(Instant::now() < deadline, "{} did not end within {within:?}\n{}", self.name, self.last_words());
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// SIGKILL, and waits until it is gone: its locks are free afterwards.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn kill(&mut self) -> Result<()> {
        // Whoever traces it lets go first, or the process would end only when the tracer looks.
        self.slow = None;
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// SIGTERM; see [`Node::wait_end`].
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGSTOP: the kernel keeps its connections open and acknowledges what comes; nobody reads it.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Each sync of its disk takes so much longer, until [`Node::fast_disk`].
    ///
    /// # Errors
    /// It does not run; the tracer cannot be started.
    pub fn slow_disk(&mut self, delay: Duration) -> Result<()> {
        let child = self.child.as_ref().with_context(|| format!("{} does not run", self.name))?;
        self.slow = Some(SlowDisk::start(child.id(), delay)?);
        Ok(())
    }

    pub fn fast_disk(&mut self) {
        self.slow = None;
    }

    fn signal(&self, with: Signal) {
        if let Some(child) = &self.child {
            signal(child.id(), with);
        }
    }

    /// Processor time of its present boot.
    pub fn cpu(&self) -> Duration {
        /// The kernel gives user space this unit on every architecture we run on.
        const TICKS_PER_SECOND: u64 = 100;
        let stat =
            self.pid().and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()).unwrap_or_default();
        // The name in brackets may hold blanks, so fields count from the last bracket.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
        let ticks: u64 = fields.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND)
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The end of its log.
    pub fn last_words(&self) -> String {
        const LINES: usize = 25;
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(LINES)..];
        format!("---- {}\n{}\n----", self.log.display(), tail.join("\n"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Signals a process; one that is gone already needs no signal.
pub fn signal(pid: u32, with: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, with);
    }
}

/// One plain HTTP request: no client library is needed to ask a probe.
fn probe(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    const ANSWER_BYTES_MAX: u64 = 1 << 20;
    let mut stream = TcpStream::connect_timeout(&address, PROBE_MAX).ok()?;
    stream.set_read_timeout(Some(PROBE_MAX)).ok()?;
    stream.set_write_timeout(Some(PROBE_MAX)).ok()?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n").as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    Some((status, body))
}
