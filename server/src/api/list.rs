//! The list of runs: the index gives the order, the rows of each run say whether it is wanted. No run is activated for it.

use super::runs::is_ended;
use super::{Api, HEADER_ROWS_MAX, check, header};
use crate::tenant::Caller;
use cluster::RowsOf;
use grain_contract::{Code, IndexEntry, Rejection, Row, Table, Timestamp, limits};
use grains::kinds::methods::{index, run};
use granary_proto::v1;
use prost::Message as _;
use std::collections::HashMap;

/// Index entries looked at for one page. A page may hold fewer runs than asked for, or none, and still have a next one.
pub const ENTRIES_PER_PAGE_MAX: usize = 2_000;
/// With a filter most entries may be passed over, so they are read in steps of at least this many while the page is empty.
const STEP_MIN: usize = 16;
/// Runs whose rows are read in one question to their owners: each may hold values of several MiB.
const RUNS_AT_ONCE: usize = 16;
/// Rows of one table of one open run that are read for it.
const STEP_ROWS_MAX: usize = 2_000;
const WAITING_ON: [&str; 9] =
    ["worker", "timer", "human", "join", "retry", "child", "predecessors", "loop", "compensation"];
const STATES: [&str; 11] = [
    "Accepted",
    "Running",
    "WaitingForApproval",
    "Cancelling",
    "Completed",
    "Failed",
    "Cancelled",
    "Pending",
    "WaitingForTimer",
    "WaitingForHuman",
    "Compensating",
];

impl Api {
    /// Newest first. Outputs are left out; `GetRun` has them.
    pub async fn list_runs(
        &self,
        caller: &Caller,
        request: &v1::ListRunsRequest,
    ) -> Result<v1::ListRunsResponse, Rejection> {
        let filter = Filter::of(request)?;
        let page_size = check::page_size(request.page_size);
        let mut answer = v1::ListRunsResponse::default();
        let mut token = request.page_token.clone();
        let mut looked_at = 0;
        loop {
            // Never more than still fit, because the index's tokens stand between its pages only.
            let left = page_size - answer.runs.len();
            let page = self.inner.silo.index_page(filter.index, &caller.tenant, &token, left, caller.deadline).await?;
            looked_at += page.entries.len().max(1);
            // Newest first: all that follow one that is too old are older still.
            let recent = page.entries.iter().take_while(|entry| filter.by_time(entry) != ByTime::TooOld);
            let recent: Vec<&IndexEntry> = recent.collect();
            let wanted = recent.iter().copied().filter(|entry| filter.by_time(entry) == ByTime::Wanted);
            for some in wanted.collect::<Vec<_>>().chunks(RUNS_AT_ONCE) {
                let runs = self.summaries(caller, some).await?;
                answer.runs.extend(runs.into_iter().filter(|run| filter.wants(run)));
            }
            if recent.len() < page.entries.len() {
                return Ok(answer);
            }
            token = page.next_page_token;
            let full = answer.runs.len() == page_size;
            let nearly =
                page_size - answer.runs.len() < STEP_MIN && !answer.runs.is_empty() && looked_at > page_size * 2;
            if token.is_empty() || full || nearly || looked_at >= ENTRIES_PER_PAGE_MAX {
                answer.next_page_token = token;
                return Ok(answer);
            }
        }
    }
}

impl Api {
    /// Runs of the list, from their rows: two questions to each owner for all of them. A run that is open and has so many rows
    /// that a page of such runs would be dear is asked of its grain. Those that are not there (any more), or cannot be read by
    /// this build, are left out.
    async fn summaries(&self, caller: &Caller, entries: &[&IndexEntry]) -> Result<Vec<v1::Run>, Rejection> {
        let tables = [run::table::HEADER, run::table::AUTHORITY];
        let mut found = self.rows_of_each(caller, entries, tables, HEADER_ROWS_MAX).await?;
        let is_open = |rows: &[Vec<Row>; 2]| {
            let known = header(&rows[0]);
            known.ended_ms == 0 && !known.definition_release_id.is_empty()
        };
        let open: Vec<usize> = (0..entries.len()).filter(|at| is_open(&found[*at])).collect();
        let of_open: Vec<&IndexEntry> = open.iter().map(|at| entries[*at]).collect();
        let tables = [run::table::STEP_RUNS, run::table::COMPENSATION];
        let steps = self.rows_of_each(caller, &of_open, tables, STEP_ROWS_MAX).await?;
        let mut steps: HashMap<usize, [Vec<Row>; 2]> = open.into_iter().zip(steps).collect();
        let mut runs = Vec::with_capacity(entries.len());
        for (at, entry) in entries.iter().enumerate() {
            let rows = std::mem::take(&mut found[at]);
            runs.extend(self.summary(caller, entry, rows, steps.remove(&at)).await?);
        }
        Ok(runs)
    }

    async fn rows_of_each(
        &self,
        caller: &Caller,
        entries: &[&IndexEntry],
        tables: [Table; 2],
        limit: usize,
    ) -> Result<Vec<[Vec<Row>; 2]>, Rejection> {
        let question = |entry: &IndexEntry, table| RowsOf { grain: entry.grain.clone(), table, after: None, limit };
        let questions = entries.iter().flat_map(|entry| tables.map(|table| question(entry, table))).collect();
        let mut rows = self.inner.silo.rows_of(questions, caller.deadline).await?.into_iter();
        Ok(entries.iter().map(|_| std::array::from_fn(|_| rows.next().unwrap_or_default())).collect())
    }

    async fn summary(
        &self,
        caller: &Caller,
        entry: &IndexEntry,
        [mut rows, authority]: [Vec<Row>; 2],
        steps: Option<[Vec<Row>; 2]>,
    ) -> Result<Option<v1::Run>, Rejection> {
        let grain = &entry.grain;
        let release_id = header(&rows).definition_release_id;
        rows.extend(authority);
        let mut plan = None;
        if let Some(steps) = steps {
            if steps.iter().any(|rows| rows.len() == STEP_ROWS_MAX) {
                return self.ask_grain(caller, entry).await;
            }
            rows.extend(steps.into_iter().flatten());
            let release = self.inner.library.release(&grain.tenant, &release_id, caller.deadline).await;
            // Without its plan a run is shown all the same, but not what it waits for.
            plan = release.ok();
        }
        let plan = plan.as_ref().map(|compiled| compiled.plan.as_ref());
        match grains::kinds::run::summary(grain, &rows, plan) {
            Ok(run) => Ok(run.map(without_output)),
            Err(corrupt) => {
                tracing::warn!(%grain, %corrupt, "a run cannot be read and is left out of the list");
                Ok(None)
            }
        }
    }

    async fn ask_grain(&self, caller: &Caller, entry: &IndexEntry) -> Result<Option<v1::Run>, Rejection> {
        let request = v1::GetRunRequest { run_id: entry.grain.key.to_string() };
        match self.call(caller, entry.grain.clone(), run::GET, request.encode_to_vec()).await {
            Ok(run) => Ok(Some(without_output(run))),
            Err(r) if matches!(r.code, Code::NotFound | Code::Quarantined) => Ok(None),
            Err(r) => Err(r),
        }
    }
}

struct Filter<'a> {
    request: &'a v1::ListRunsRequest,
    index: &'static str,
}

#[derive(Debug, PartialEq, Eq)]
enum ByTime {
    Wanted,
    TooNew,
    TooOld,
}

impl<'a> Filter<'a> {
    fn of(request: &'a v1::ListRunsRequest) -> Result<Self, Rejection> {
        for state in &request.states {
            if !STATES.contains(&state.as_str()) {
                let message = format!("Expected one of {}, but found {}.", STATES.join(", "), check::shown(state));
                return Err(check::invalid("states", message));
            }
        }
        let waiting = request.waiting_on.as_str();
        if !waiting.is_empty() && !WAITING_ON.contains(&waiting) {
            let message = format!("Expected one of {}, but found {}.", WAITING_ON.join(", "), check::shown(waiting));
            return Err(check::invalid("waitingOn", message));
        }
        if !request.queue.is_empty() && waiting != "worker" {
            return Err(check::invalid("queue", "Expected waitingOn = worker beside a queue, but found another."));
        }
        check::optional_name(&request.definition_id, "definitionId")?;
        check::optional_name(&request.queue, "queue")?;
        let only_open =
            !waiting.is_empty() || (!request.states.is_empty() && request.states.iter().all(|state| !is_ended(state)));
        Ok(Self { request, index: if only_open { index::OPEN_RUNS } else { index::RUNS } })
    }

    fn by_time(&self, entry: &IndexEntry) -> ByTime {
        let Some(at) = accepted_at(entry) else { return ByTime::Wanted };
        if self.request.accepted_before.is_some_and(|before| at.0 >= before.millis()) {
            return ByTime::TooNew;
        }
        if self.request.accepted_after.is_some_and(|after| at.0 <= after.millis()) {
            return ByTime::TooOld;
        }
        ByTime::Wanted
    }

    fn wants(&self, run: &v1::Run) -> bool {
        let request = self.request;
        let state = request.states.is_empty()
            || request.states.iter().any(|state| *state == run.state || *state == run.engine_state);
        let definition = request.definition_id.is_empty() || request.definition_id == run.definition_id;
        let waiting = request.waiting_on.is_empty()
            || run
                .waiting
                .iter()
                .filter_map(|w| w.waiting.as_ref())
                .any(|w| w.on == request.waiting_on && (request.queue.is_empty() || w.queue == request.queue));
        state && definition && waiting
    }
}

/// The index sorts by the inverted time, so that a scan gives the newest first.
fn accepted_at(entry: &IndexEntry) -> Option<Timestamp> {
    let inverted = u64::from_be_bytes(entry.sort.get(..8)?.try_into().ok()?);
    i64::try_from(u64::MAX - inverted).ok().map(Timestamp)
}

/// Lists hold no outputs: a page of them would not fit into a message.
pub(super) fn without_output(mut run: v1::Run) -> v1::Run {
    run.output = None;
    run
}

const _: () = assert!(ENTRIES_PER_PAGE_MAX >= limits::PAGE_MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use grain_contract::Code;
    use granary_proto::wire;

    fn entry(ms: u64) -> IndexEntry {
        let grain = super::super::grain(&"t".into(), "run", "k");
        IndexEntry { grain, sort: (u64::MAX - ms).to_be_bytes().to_vec(), value: Vec::new() }
    }

    /// [C2]
    #[test]
    fn the_index_and_the_bounds_follow_from_the_filter() {
        let request = |states: &[&str], waiting: &str| v1::ListRunsRequest {
            states: states.iter().map(|s| (*s).to_owned()).collect(),
            waiting_on: waiting.to_owned(),
            ..v1::ListRunsRequest::default()
        };
        let cases = [
            (request(&[], ""), index::RUNS),
            (request(&["Completed"], ""), index::RUNS),
            (request(&["Running", "Failed"], ""), index::RUNS),
            (request(&["Running", "WaitingForTimer"], ""), index::OPEN_RUNS),
            (request(&[], "human"), index::OPEN_RUNS),
        ];
        for (request, wanted) in cases {
            assert_eq!(Filter::of(&request).expect("valid").index, wanted, "{request:?}");
        }
        for bad in [request(&["running"], ""), request(&[], "godot")] {
            assert_eq!(Filter::of(&bad).err().map(|r| r.code), Some(Code::Invalid));
        }
    }

    #[test]
    fn the_time_bounds_are_open_on_both_sides() {
        let request = v1::ListRunsRequest {
            accepted_after: Some(wire::Timestamp::from_millis(10)),
            accepted_before: Some(wire::Timestamp::from_millis(20)),
            ..v1::ListRunsRequest::default()
        };
        let filter = Filter::of(&request).expect("valid");
        let found: Vec<_> = [10, 11, 19, 20].map(|ms| filter.by_time(&entry(ms))).into_iter().collect();
        assert_eq!(found, [ByTime::TooOld, ByTime::Wanted, ByTime::Wanted, ByTime::TooNew]);
    }
}
