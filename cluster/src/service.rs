//! Background services that must not end unnoticed.
//!
//! A service that ended by itself, whatever the reason, makes the silo unready and is started again; one that stands still
//! (no beat for a while) makes it unready too. Services begin from rows, so a restart loses nothing.

use crate::metrics::{Metrics, count};
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// A service that did not beat for this long counts as stuck.
const BEAT_MAX: Duration = Duration::from_secs(5);
/// Between two looks of a service at nothing, at most: it beats each time.
pub(crate) const BEAT_EVERY: Duration = Duration::from_secs(1);
const RESTART_AFTER: Duration = Duration::from_millis(100);

/// Whether one service runs, for health.
pub(crate) struct Pulse {
    name: &'static str,
    /// It should run now.
    wanted: AtomicBool,
    up: AtomicBool,
    beat: Mutex<Instant>,
}

impl Pulse {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, wanted: AtomicBool::new(false), up: AtomicBool::new(false), beat: Mutex::new(Instant::now()) }
    }

    /// The service is alive and has looked at its work.
    pub(crate) fn beat(&self) {
        *self.beat.lock() = Instant::now();
        self.up.store(true, Ordering::Release);
    }

    /// Why this service makes the silo unready, if it does.
    pub(crate) fn complaint(&self) -> Option<String> {
        if !self.wanted.load(Ordering::Acquire) {
            return None;
        }
        if !self.up.load(Ordering::Acquire) {
            return Some(format!("{} does not run", self.name));
        }
        let silent = self.beat.lock().elapsed();
        (silent > BEAT_MAX).then(|| format!("{} stands still for {} s", self.name, silent.as_secs()))
    }
}

/// Runs what `start` makes, again and again, until `stop`.
pub(crate) async fn keep_running<F, Fut>(pulse: Arc<Pulse>, metrics: Arc<Metrics>, stop: CancellationToken, start: F)
where
    F: Fn() -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    pulse.wanted.store(true, Ordering::Release);
    while !stop.is_cancelled() {
        let mut task = tokio::spawn(start());
        tokio::select! {
            () = stop.cancelled() => {
                task.abort();
                let _ = task.await;
            }
            ended = &mut task => {
                if stop.is_cancelled() {
                    break;
                }
                pulse.up.store(false, Ordering::Release);
                count(&metrics.service_restarts);
                let panicked = ended.is_err_and(|e| e.is_panic());
                tracing::error!(service = pulse.name, panicked, "a service ended by itself; it is started again");
                let _ = tokio::time::timeout(RESTART_AFTER, stop.cancelled()).await;
            }
        }
    }
    pulse.wanted.store(false, Ordering::Release);
    pulse.up.store(false, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use tokio::sync::Notify;

    /// [FR-031] A service that quietly ended is seen, counted and started again.
    #[tokio::test]
    async fn a_service_that_ends_is_unready_and_started_again() {
        let (pulse, metrics, stop) =
            (Arc::new(Pulse::new("wheel")), Arc::<Metrics>::default(), CancellationToken::new());
        let (starts, started, end) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()), Arc::new(Notify::new()));
        let service = {
            let (pulse, starts, started, end) = (pulse.clone(), starts.clone(), started.clone(), end.clone());
            move || {
                let (pulse, starts, started, end) = (pulse.clone(), starts.clone(), started.clone(), end.clone());
                async move {
                    pulse.beat();
                    let first = starts.fetch_add(1, Ordering::SeqCst) == 0;
                    started.notify_one();
                    end.notified().await;
                    assert!(!first, "the first one dies");
                }
            }
        };
        let runner = tokio::spawn(keep_running(pulse.clone(), metrics.clone(), stop.clone(), service));
        started.notified().await;
        assert_eq!(pulse.complaint(), None);
        end.notify_one();
        started.notified().await;
        assert_eq!((starts.load(Ordering::SeqCst), metrics.snapshot().service_restarts), (2, 1));
        assert_eq!(pulse.complaint(), None);
        stop.cancel();
        runner.await.expect("ends");
        assert_eq!(pulse.complaint(), None);
    }
}
