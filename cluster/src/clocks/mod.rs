//! How far the wall clocks of the silos are apart (FR-017).
//!
//! Timers are due by the clock of whoever owns their run, so a clock that is wrong makes them early or late when ownership
//! goes there. Nothing here sets a clock or moves a timer: it is measured and said. Every silo asks the others for their
//! time; the answer was true somewhere between question and answer, and the middle is taken. Who is wrong is judged by the
//! middle of all the clocks, its own among them, so that one wrong clock makes one silo complain and not all the others.

mod measure;
mod offsets;

pub use measure::watch;
pub use offsets::Offset;

use offsets::Offsets;
use parking_lot::Mutex;
use shard::NodeId;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What this silo knows of the others' clocks.
#[derive(Default)]
pub struct Clocks {
    offsets: Mutex<Offsets>,
    /// How far its own may be off before it says that it is not ready; 0 = however far.
    off_max_ms: AtomicU64,
}

impl Clocks {
    /// The others' clocks, measured lately; ahead of this one is positive.
    pub fn offsets(&self) -> Vec<(NodeId, Offset)> {
        self.offsets.lock().all()
    }

    /// How far this silo's clock is ahead of the middle of all, ms; `None` before any other was measured.
    pub fn off_ms(&self) -> Option<i64> {
        self.offsets.lock().off_ms()
    }

    /// Why this silo should get no traffic, if its clock is a reason.
    pub(crate) fn complaint(&self) -> Option<String> {
        let (most, off) = (self.off_max_ms.load(Relaxed), self.off_ms()?);
        (most > 0 && off.unsigned_abs() > most)
            .then(|| format!("its clock is {off} ms ahead of the others' (negative = behind), more than {most} ms"))
    }

    fn allow(&self, off_max_ms: u64) {
        self.off_max_ms.store(off_max_ms, Relaxed);
    }

    fn measured(&self, node: NodeId, offset: Offset, now_ms: u64) {
        self.offsets.lock().put(node, offset, now_ms);
    }

    fn keep_only(&self, nodes: &BTreeSet<NodeId>) {
        self.offsets.lock().keep_only(nodes);
    }
}
