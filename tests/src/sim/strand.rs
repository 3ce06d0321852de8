//! One node's thread of time: a runtime of its own whose clock stands still between two steps of the simulation.
//!
//! The driver lets each strand in turn run up to a moment of *its* clock. While it runs, tokio jumps its paused clock from timer
//! to timer, so an idle second costs nothing. Dropping a strand drops every task where it stands: that is a crash. Not running
//! it and then letting its clock jump is what a stopped process sees.

use std::future::Future;
use std::time::Duration;
use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub struct Strand {
    runtime: Runtime,
    zero: Instant,
    at: Duration,
}

impl Strand {
    pub fn new() -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let zero = runtime.block_on(async { Instant::now() });
        Ok(Self { runtime, zero, at: Duration::ZERO })
    }

    /// Lets everything happen that is due until `at`, counted from this strand's beginning.
    pub fn run_until(&mut self, at: Duration) {
        if at > self.at {
            let until = self.zero + at;
            self.runtime.block_on(async move { tokio::time::sleep_until(until).await });
            self.at = at;
        }
    }

    /// The clock went on to `at` while nothing ran.
    pub fn jump_to(&mut self, at: Duration) {
        let by = at.saturating_sub(self.at);
        self.runtime.block_on(async move { tokio::time::advance(by).await });
        self.at = self.at.max(at);
    }

    pub fn handle(&self) -> Handle {
        self.runtime.handle().clone()
    }

    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.runtime.spawn(task)
    }

    /// For dropping what may want to spawn something as it goes.
    pub fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    /// This strand's clock when it began.
    pub fn zero(&self) -> Instant {
        self.zero
    }
}
