//! Panics of this process, wherever they were caught: a simulated node must have none.

use std::sync::{Mutex, PoisonError};

static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// From now on every panic of the process is kept for [`take`].
pub fn watch() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let trace = std::backtrace::Backtrace::force_capture().to_string();
        // Where it came from, without the machinery of the panic itself.
        let ours: Vec<&str> = trace.lines().filter(|line| line.contains("/src/")).take(6).map(str::trim).collect();
        let text = panic.payload_as_str().unwrap_or("without a word").to_owned();
        let seen = format!("{text} at {place} {ours:?}");
        SEEN.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    }));
}

pub fn take() -> Vec<String> {
    std::mem::take(&mut *SEEN.lock().unwrap_or_else(PoisonError::into_inner))
}
