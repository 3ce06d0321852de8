//! Counts the open runs of the shards this node leads, by tenant, definition and state, and their timers.
//!
//! The index of open runs and a few rows a run are read, on a thread of its own, when the figures are asked for and the last
//! count is old. Ended runs cost nothing. A count that meets more runs than one pass may look at goes on where it stopped at
//! the next pass, and the figures change when it is complete.

use crate::api::{HEADER_ROWS_MAX, header};
use arc_swap::ArcSwap;
use grain_contract::{IndexEntry, TenantId};
use grains::kinds::methods::{index, run};
use granary_proto::storage;
use opentelemetry::KeyValue;
use opentelemetry::metrics::AsyncInstrument;
use parking_lot::Mutex;
use prost::Message as _;
use shard::{Host, Shard, ShardId};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A count younger than this is good enough.
const FRESH: Duration = Duration::from_secs(5);
/// How long a reader of the figures waits for a new count.
const WAIT: Duration = Duration::from_secs(1);
/// Runs looked at in one pass.
const RUNS_PER_PASS: usize = 20_000;
const RUNS_AT_ONCE: usize = 256;
const ROWS_AT_ONCE: usize = 256;

#[derive(Default)]
pub struct Census {
    host: OnceLock<Host>,
    seen: ArcSwap<Counts>,
    work: Mutex<Work>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By tenant, definition, state.
    pub runs: HashMap<(TenantId, Arc<str>, Arc<str>), i64>,
    pub timers: HashMap<TenantId, i64>,
}

#[derive(Default)]
struct Work {
    counting: Counts,
    /// Shard, and the last entry looked at in it.
    at: (u32, Option<IndexEntry>),
    ended: Option<Instant>,
}

impl Census {
    pub(crate) fn attach(&self, host: Host) {
        let _ = self.host.set(host);
    }

    /// Makes the figures fresh, as far as one pass does it.
    pub async fn refresh(self: &Arc<Self>) {
        let census = Arc::clone(self);
        let pass = tokio::task::spawn_blocking(move || census.pass());
        // The pass goes on if the reader does not wait for it.
        let _ = tokio::time::timeout(WAIT, pass).await;
    }

    pub(super) fn observe_runs(&self, observer: &dyn AsyncInstrument<i64>) {
        for ((tenant, definition, state), count) in &self.seen.load().runs {
            let labels = [
                KeyValue::new("tenant", tenant.to_string()),
                KeyValue::new("definition", definition.to_string()),
                KeyValue::new("state", state.to_string()),
            ];
            observer.observe(*count, &labels);
        }
    }

    pub(super) fn observe_timers(&self, observer: &dyn AsyncInstrument<i64>) {
        for (tenant, count) in &self.seen.load().timers {
            observer.observe(*count, &[KeyValue::new("tenant", tenant.to_string())]);
        }
    }

    fn pass(&self) {
        let Some(host) = self.host.get() else { return };
        // A second reader uses what the first one counts.
        let Some(mut work) = self.work.try_lock() else { return };
        if work.ended.is_some_and(|at| at.elapsed() < FRESH) {
            return;
        }
        let mut left = RUNS_PER_PASS;
        while work.at.0 < host.shards() {
            let shard = host.shard(ShardId(work.at.0)).filter(|s| s.leadership().borrow().epoch.is_some());
            if let Some(shard) = shard
                && !count_shard(&shard, &mut work, &mut left)
            {
                return;
            }
            work.at = (work.at.0 + 1, None);
        }
        let mut counted = std::mem::take(&mut *work).counting;
        keep_zeros(&self.seen.load(), &mut counted);
        self.seen.store(Arc::new(counted));
        work.ended = Some(Instant::now());
    }
}

/// False if the pass is used up (or the store is closing).
fn count_shard(shard: &Shard, work: &mut Work, left: &mut usize) -> bool {
    loop {
        if *left == 0 {
            return false;
        }
        let limit = RUNS_AT_ONCE.min(*left);
        let Ok(page) = shard.index_all(index::OPEN_RUNS, work.at.1.as_ref(), limit) else { return false };
        let Some(last) = page.last().cloned() else { return true };
        for entry in &page {
            count_run(shard, entry, &mut work.counting);
        }
        *left -= page.len();
        work.at.1 = Some(last);
    }
}

fn count_run(shard: &Shard, entry: &IndexEntry, counts: &mut Counts) {
    let grain = &entry.grain;
    let Ok(rows) = shard.rows(grain, run::table::HEADER, None, HEADER_ROWS_MAX) else { return };
    let header = header(&rows);
    let definition = definition_of(shard, grain, &header.definition_release_id);
    let key = (grain.tenant.clone(), definition, Arc::from(header.state.as_str()));
    *counts.runs.entry(key).or_default() += 1;
    let timers = timers_of(shard, grain);
    if timers > 0 {
        *counts.timers.entry(grain.tenant.clone()).or_default() += timers;
    }
}

/// The authority knows the definition's id; with an external one, the release id begins with it by our own custom.
pub(super) fn definition_of(shard: &Shard, grain: &grain_contract::GrainId, release_id: &str) -> Arc<str> {
    let rows = shard.rows(grain, run::table::AUTHORITY, None, ROWS_AT_ONCE).unwrap_or_default();
    let known = rows.iter().filter(|r| r.key.key == b"run").find_map(|row| {
        storage::AuthorityRow::decode(row.value.as_slice()).ok().map(|a| a.definition_id).filter(|id| !id.is_empty())
    });
    Arc::from(known.as_deref().unwrap_or_else(|| release_id.split('@').next().unwrap_or(release_id)))
}

fn timers_of(shard: &Shard, grain: &grain_contract::GrainId) -> i64 {
    let mut found = 0;
    let mut after: Option<Vec<u8>> = None;
    while let Ok(rows) = shard.rows(grain, run::table::STEP_RUNS, after.as_deref(), ROWS_AT_ONCE) {
        let Some(last) = rows.last() else { break };
        after = Some(last.key.key.clone());
        for row in &rows {
            let Ok(step) = storage::StepRunRow::decode(row.value.as_slice()) else { continue };
            let open = step.ended_ms == 0;
            found += step.timers.iter().filter(|t| open && !t.fired).count() as i64;
        }
        if rows.len() < ROWS_AT_ONCE {
            break;
        }
    }
    found
}

/// A label set that was shown once is shown as 0 once it is empty, so that no dashboard keeps the last number.
fn keep_zeros(before: &Counts, now: &mut Counts) {
    for key in before.runs.keys() {
        now.runs.entry(key.clone()).or_default();
    }
    for tenant in before.timers.keys() {
        now.timers.entry(tenant.clone()).or_default();
    }
}
