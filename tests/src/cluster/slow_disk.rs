//! A disk that takes its time.
//!
//! `strace` attaches to the process and delays every sync that it asks for. The product has no hook for this and the kernel no
//! knob that works on every file system. Being traced slows the process's other system calls a little too, as a sick machine does.

use super::node::signal;
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Attaching takes a moment for each thread.
const ATTACH_MAX: Duration = Duration::from_secs(10);

pub struct SlowDisk {
    tracer: Child,
}

impl SlowDisk {
    /// # Errors
    /// There is no `strace` (Debian: strace), or it may not trace.
    pub fn start(pid: u32, delay: Duration) -> Result<Self> {
        let tracer = Command::new("strace")
            .args(["--follow-forks", "--quiet=all", "--output=/dev/null", "--trace=fsync,fdatasync"])
            .arg(format!("--inject=fsync,fdatasync:delay_enter={}", delay.as_micros()))
            .arg(format!("--attach={pid}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start strace, which delays the syncs of a disk (Debian: strace)")?;
        let mut slow = Self { tracer };
        let deadline = Instant::now() + ATTACH_MAX;
        while !is_traced(pid) {
            anyhow::ensure!(slow.tracer.try_wait()?.is_none(), "strace may not trace process {pid}");
            anyhow::ensure!(Instant::now() < deadline, "strace did not attach within {ATTACH_MAX:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(slow)
    }
}

fn is_traced(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|pid| pid.trim() != "0"))
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // Asked to end, it lets go in order; killed, the kernel lets go for it.
        signal(self.tracer.id(), Signal::TERM);
        let deadline = Instant::now() + ATTACH_MAX;
        while self.tracer.try_wait().is_ok_and(|status| status.is_none()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.tracer.kill();
        let _ = self.tracer.wait();
    }
}
