//! All groups of a process tick in the same instant.
//!
//! openraft gives each group a timer of its own and spreads them on purpose. A node has dozens of groups, so an idle one
//! would wake up hundreds of times a second to find nothing to do, and waking up is nearly all of what that costs. Here the
//! groups wait for common lines of time instead, and one waking serves all of them. Elections stay apart all the same: what
//! spreads those is the time that each group draws for itself.
//!
//! Only where several threads serve the process's tasks. A runtime of one thread is a test's or the simulator's, whose time
//! begins at another moment in each run: there a line that all share would be a line of chance.

use openraft::OptionalSend;
use openraft::async_runtime::AsyncRuntime;
use openraft::impls::TokioRuntime;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::{Instant, Sleep};

/// Where the lines are counted from.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
/// Microseconds from line to line: the shortest that a host of this process has asked for.
static STEP_US: AtomicU64 = AtomicU64::new(u64::MAX);
/// A wait as short as this is none for a tick, and is kept as it is.
const SHORT: Duration = Duration::from_micros(100);

/// From now on there are lines at least so often. In a process with several hosts, which only tests have, the fastest decides.
pub fn align(step: Duration) {
    STEP_US.fetch_min((step.as_micros() as u64).max(1), Relaxed);
}

/// Comes at the line nearest to what is left, and once a line at most.
pub fn sleep(by: Duration) -> Sleep {
    sleep_until(Instant::now() + by)
}

fn sleep_until(due: Instant) -> Sleep {
    let step = STEP_US.load(Relaxed);
    let shared = Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if step == u64::MAX || !shared {
        return tokio::time::sleep_until(due);
    }
    let (origin, now) = (*ORIGIN, Instant::now());
    let line = line(now - origin, due.saturating_duration_since(origin), Duration::from_micros(step));
    tokio::time::sleep_until(origin + line)
}

/// The end of a wait until `due`. Up to a quarter of a step early, so that whoever ticks once a step meets every line, also if
/// its own time lies a little behind the lines and it was woken a little late.
fn line(now: Duration, due: Duration, step: Duration) -> Duration {
    if due.saturating_sub(now) <= SHORT {
        return due;
    }
    let step_us = step.as_micros();
    let after = |at: Duration| Duration::from_micros((at.as_micros() / step_us * step_us + step_us) as u64);
    let nearest = after(due.saturating_sub(step / 4).saturating_sub(Duration::from_micros(1)));
    nearest.max(after(now))
}

/// tokio, with waits that end together.
#[derive(Debug)]
pub struct Runtime(TokioRuntime);

impl AsyncRuntime for Runtime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = Sleep;
    type Instant = <TokioRuntime as AsyncRuntime>::Instant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = <TokioRuntime as AsyncRuntime>::ThreadLocalRng;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = <TokioRuntime as AsyncRuntime>::Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        TokioRuntime::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        tokio::time::sleep(duration)
    }

    /// openraft waits so for its ticks.
    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        let now = <Self::Instant as openraft::Instant>::now();
        let left = if deadline > now { deadline - now } else { Duration::ZERO };
        sleep_until(Instant::now() + left)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(duration: Duration, future: F) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(deadline: Self::Instant, future: F) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(error)
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        TokioRuntime::thread_rng()
    }

    fn new(threads: usize) -> Self {
        Self(TokioRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(50);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_wait_ends_at_the_line_nearest_to_its_end() {
        // (now, due, expected), in milliseconds
        let cases = [
            (100, 150, 150),
            (100, 151, 150),
            (100, 162, 150),
            (100, 163, 200),
            (100, 199, 200),
            (101, 112, 150),
            (149, 190, 200),
            (100, 1_010, 1_000),
            (100, 1_040, 1_050),
            // Passed already, or as good as.
            (100, 90, 90),
            (100, 100, 100),
        ];
        for (now, due, expected) in cases {
            assert_eq!(line(ms(now), ms(due), STEP), ms(expected), "{now} until {due}");
        }
        assert_eq!(line(ms(100), ms(100) + SHORT, STEP), ms(100) + SHORT, "no tick waits so shortly");
    }

    /// What openraft does: its due times are a phase and whole periods behind it, the next one after the waking.
    #[test]
    fn whoever_ticks_once_a_step_meets_every_line_whatever_its_phase() {
        for phase_us in (0..50_000).step_by(499) {
            for late_us in [0, 200, 3_000, 12_000] {
                let phase = Duration::from_micros(phase_us);
                let mut now = phase + ms(1_000);
                let mut lines = Vec::new();
                for _ in 0..40 {
                    let periods = (now - phase).as_micros() / STEP.as_micros() + 1;
                    let due = phase + STEP * periods as u32;
                    let line = line(now, due, STEP);
                    if line > now && due - now > SHORT {
                        lines.push(line.as_micros() / STEP.as_micros());
                    }
                    now = line.max(now) + Duration::from_micros(late_us);
                }
                let expected: Vec<_> = (lines[0]..).take(lines.len()).collect();
                assert!(lines.len() >= 38, "{phase_us} {late_us}: {lines:?}");
                assert_eq!(lines, expected, "phase {phase_us} us, woken {late_us} us late");
            }
        }
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_waits_as_it_is_told() {
        align(STEP);
        let due = Instant::now() + ms(7);
        assert_eq!(sleep_until(due).deadline(), due);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn two_waits_of_one_process_end_at_the_same_line() {
        align(STEP);
        let due = Instant::now() + STEP * 40;
        let (one, other) = (sleep_until(due), sleep_until(due));
        assert_eq!(one.deadline(), other.deadline());
        // Other tests of this process may have asked for shorter steps.
        let step_us = u128::from(STEP_US.load(Relaxed));
        assert_eq!((one.deadline() - *ORIGIN).as_micros() % step_us, 0);
    }
}
