//! Everything that happened, as a running hash: two runs of one seed must give the same one. Printed as well, if asked for.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Display;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone)]
pub struct Trace(Arc<Inner>);

struct Inner {
    hash: Mutex<(DefaultHasher, u64)>,
    printed: bool,
    /// True time, in microseconds since the beginning.
    now_us: AtomicU64,
}

impl Trace {
    pub fn new(printed: bool) -> Self {
        // The hasher with fixed keys: the same in every process.
        Self(Arc::new(Inner { hash: Mutex::new((DefaultHasher::new(), 0)), printed, now_us: AtomicU64::new(0) }))
    }

    pub fn set_now(&self, now_us: u64) {
        self.0.now_us.store(now_us, Relaxed);
    }

    pub fn now_us(&self) -> u64 {
        self.0.now_us.load(Relaxed)
    }

    /// What happened, in words: part of the hash.
    pub fn note(&self, what: impl Display) {
        let text = what.to_string();
        let now = self.now_us();
        {
            let mut hash = self.0.hash.lock().unwrap_or_else(PoisonError::into_inner);
            (now, &text).hash(&mut hash.0);
            hash.1 += 1;
        }
        if self.0.printed {
            eprintln!("{:>10.3} {text}", now as f64 / 1_000.0);
        }
    }

    /// Hash and number of notes.
    pub fn sum(&self) -> (u64, u64) {
        let hash = self.0.hash.lock().unwrap_or_else(PoisonError::into_inner);
        (hash.0.finish(), hash.1)
    }
}
