//! Which runs were started, which have ended, and how long they took.

use hdrhistogram::Histogram;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use uuid::Uuid;

/// Latencies are kept in microseconds, up to one hour, to three digits.
const LATENCY_US_MAX: u64 = 3_600_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Completed,
    Failed,
    Cancelled,
}

pub struct Ledger {
    /// Held for a few map operations, never across an await.
    books: Mutex<Books>,
}

struct Books {
    open: HashMap<Uuid, Open>,
    /// Ended runs with the id of the event that told it.
    ended: HashMap<Uuid, Ended>,
    refused: Vec<(Uuid, String)>,
    doubled: Vec<Uuid>,
    redelivered: u64,
    latency: Histogram<u64>,
    measured: u64,
    last_end: Option<Instant>,
    gaps: Gaps,
    milestone: Option<(u64, oneshot::Sender<()>)>,
    drained: Vec<(HashSet<Uuid>, oneshot::Sender<()>)>,
}

struct Open {
    intended: Instant,
    measured: bool,
    done: oneshot::Sender<End>,
}

struct Ended {
    event_id: String,
    end: End,
}

/// The figures at the end.
pub struct Summary {
    pub started: Vec<Uuid>,
    pub not_completed: Vec<Uuid>,
    pub lost: Vec<Uuid>,
    pub refused: Vec<(Uuid, String)>,
    /// Runs for which two different terminal events came.
    pub doubled: Vec<Uuid>,
    pub redelivered: u64,
    pub latency: Histogram<u64>,
    pub measured: u64,
    pub last_end: Option<Instant>,
    pub gaps: Gaps,
}

/// Times in which no run ended although some were open.
#[derive(Clone, Default)]
pub struct Gaps {
    last: Option<Instant>,
    /// Over the whole load.
    pub longest: Duration,
    /// The longest since each fault.
    pub since_faults: Vec<Duration>,
}

impl Gaps {
    fn end(&mut self, now: Instant) {
        let gap = self.last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        self.longest = self.longest.max(gap);
        if let Some(since) = self.since_faults.last_mut() {
            *since = gap.max(*since);
        }
        self.last = Some(now);
    }

    fn fault(&mut self, now: Instant) {
        self.end(now);
        self.since_faults.push(Duration::ZERO);
    }
}

impl Ledger {
    pub fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("the bounds are constants that fit");
        Self {
            books: Mutex::new(Books {
                open: HashMap::new(),
                ended: HashMap::new(),
                refused: Vec::new(),
                doubled: Vec::new(),
                redelivered: 0,
                latency,
                measured: 0,
                last_end: None,
                gaps: Gaps::default(),
                milestone: None,
                drained: Vec::new(),
            }),
        }
    }

    /// Enters a run before it is submitted, so that its end can never come before its beginning. The receiver tells the end.
    pub fn open(&self, run: Uuid, intended: Instant, measured: bool) -> oneshot::Receiver<End> {
        let (done, ended) = oneshot::channel();
        self.books().open.insert(run, Open { intended, measured, done });
        ended
    }

    /// The server would not take it.
    pub fn refuse(&self, run: Uuid, why: String) {
        let mut books = self.books();
        books.open.remove(&run);
        books.refused.push((run, why));
        books.tell_waiters(run);
    }

    /// Forgets what is open: it was started before the subscription stood, and its end will not be seen.
    pub fn forget_open(&self) {
        self.books().open.clear();
    }

    /// A terminal event arrived. Events of runs that are not ours are none of our business.
    pub fn end(&self, run: Uuid, event_id: &str, end: End, now: Instant) {
        let mut books = self.books();
        if let Some(before) = books.ended.get(&run) {
            if before.event_id == event_id {
                books.redelivered += 1;
            } else {
                books.doubled.push(run);
            }
            return;
        }
        let Some(open) = books.open.remove(&run) else { return };
        books.ended.insert(run, Ended { event_id: event_id.to_owned(), end });
        if open.measured {
            let micros = now.saturating_duration_since(open.intended).as_micros() as u64;
            books.latency.saturating_record(micros.max(1));
            books.measured += 1;
            books.last_end = Some(now);
            books.gaps.end(now);
        }
        // The driver may have given up on it.
        let _ = open.done.send(end);
        books.tell_waiters(run);
    }

    /// A fault begins now: the time until the next end counts from here, and the longest gap anew.
    pub fn begin_gap(&self, now: Instant) {
        self.books().gaps.fault(now);
    }

    pub fn in_flight(&self) -> Vec<Uuid> {
        self.books().open.keys().copied().collect()
    }

    pub fn counts(&self) -> (u64, usize) {
        let books = self.books();
        (books.measured, books.open.len())
    }

    /// Resolves when so many measured runs have ended.
    pub fn when_ended(&self, number: u64) -> oneshot::Receiver<()> {
        let (tell, reached) = oneshot::channel();
        let mut books = self.books();
        books.milestone = Some((number, tell));
        books.tell_milestone();
        reached
    }

    /// Resolves when none of these runs is open any more.
    pub fn when_closed(&self, runs: &[Uuid]) -> oneshot::Receiver<()> {
        let (tell, closed) = oneshot::channel();
        let mut books = self.books();
        let rest: HashSet<Uuid> = runs.iter().copied().filter(|run| books.open.contains_key(run)).collect();
        if rest.is_empty() {
            let _ = tell.send(());
        } else {
            books.drained.push((rest, tell));
        }
        closed
    }

    pub fn summary(&self) -> Summary {
        let books = self.books();
        let lost: Vec<Uuid> = books.open.keys().copied().collect();
        let not_completed = books.ended.iter().filter(|(_, e)| e.end != End::Completed).map(|(run, _)| *run).collect();
        Summary {
            started: books.ended.keys().chain(&lost).copied().collect(),
            not_completed,
            lost,
            refused: books.refused.clone(),
            doubled: books.doubled.clone(),
            redelivered: books.redelivered,
            latency: books.latency.clone(),
            measured: books.measured,
            last_end: books.last_end,
            gaps: books.gaps.clone(),
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // A panic while it was held leaves nothing half done that matters: the figures of a broken test are not used.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn tell_waiters(&mut self, run: Uuid) {
        self.tell_milestone();
        for (rest, _) in &mut self.drained {
            rest.remove(&run);
        }
        for (_, tell) in self.drained.extract_if(.., |(rest, _)| rest.is_empty()) {
            let _ = tell.send(());
        }
    }

    fn tell_milestone(&mut self) {
        if let Some((_, tell)) = self.milestone.take_if(|(number, _)| self.measured >= *number) {
            let _ = tell.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [L3] No coordinated omission: what a late sender costs is in the latency.
    #[test]
    fn latency_counts_from_the_intended_start() {
        let ledger = Ledger::new();
        let (run, start) = (Uuid::from_u128(1), Instant::now());
        let mut done = ledger.open(run, start, true);
        ledger.end(run, "e1", End::Completed, start + Duration::from_millis(250));
        assert_eq!(done.try_recv(), Ok(End::Completed));
        let summary = ledger.summary();
        assert_eq!((summary.not_completed.len(), summary.measured), (0, 1));
        assert!((249_000..=251_000).contains(&summary.latency.max()), "{}", summary.latency.max());
    }

    /// [L3] Every started run ended exactly once: a second end is seen, and an event that came twice is no second end.
    #[test]
    fn a_redelivered_end_is_told_from_a_second_end() {
        let ledger = Ledger::new();
        let (run, now) = (Uuid::from_u128(1), Instant::now());
        let _done = ledger.open(run, now, true);
        for id in ["e1", "e1", "e2"] {
            ledger.end(run, id, End::Completed, now);
        }
        let summary = ledger.summary();
        assert_eq!((summary.redelivered, summary.doubled), (1, vec![run]));
    }

    #[test]
    fn ends_of_strangers_are_not_counted() {
        let ledger = Ledger::new();
        ledger.end(Uuid::from_u128(9), "e", End::Completed, Instant::now());
        assert!(ledger.summary().started.is_empty());
    }

    #[test]
    fn gaps_are_counted_over_all_and_since_a_fault() {
        let (ledger, start) = (Ledger::new(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        let _open: Vec<_> = (1..=4).map(|n| ledger.open(Uuid::from_u128(n), start, true)).collect();
        ledger.end(Uuid::from_u128(1), "1", End::Completed, at(100));
        ledger.end(Uuid::from_u128(2), "2", End::Completed, at(5_100));
        ledger.begin_gap(at(5_200));
        ledger.end(Uuid::from_u128(3), "3", End::Completed, at(6_000));
        ledger.end(Uuid::from_u128(4), "4", End::Completed, at(6_300));
        let gaps = ledger.summary().gaps;
        assert_eq!((gaps.longest.as_millis(), gaps.since_faults), (5_000, vec![Duration::from_millis(800)]));
    }

    #[test]
    fn waiters_hear_of_the_last_run_only() {
        let ledger = Ledger::new();
        let (a, b, now) = (Uuid::from_u128(1), Uuid::from_u128(2), Instant::now());
        let _a = ledger.open(a, now, true);
        let _b = ledger.open(b, now, true);
        let mut both = ledger.when_closed(&[a, b]);
        let mut first = ledger.when_ended(1);
        ledger.end(a, "1", End::Completed, now);
        assert!(first.try_recv().is_ok() && both.try_recv().is_err());
        ledger.refuse(b, "no".to_owned());
        assert!(both.try_recv().is_ok());
    }
}
