//! The list of runs: the index gives the order, the rows of each run say whether it is wanted. No run is activated for it.

use super::runs::is_ended;
use super::{Api, HEADER_ROWS_MAX, check, header};
use crate::tenant::Caller;
use grain_contract::{Code, IndexEntry, Rejection, Timestamp, limits};
use grains::kinds::methods::{index, run};
use granary_proto::v1;
use prost::Message as _;

/// Index entries looked at for one page. A page may hold fewer runs than asked for, or none, and still have a next one.
pub const ENTRIES_PER_PAGE_MAX: usize = 2_000;
/// With a filter most entries may be passed over, so they are read in steps of at least this many while the page is empty.
const STEP_MIN: usize = 16;
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
            for entry in &page.entries {
                match filter.by_time(entry) {
                    ByTime::Wanted => {}
                    ByTime::TooNew => continue,
                    // Newest first: all that follow are older still.
                    ByTime::TooOld => return Ok(answer),
                }
                if let Some(run) = self.summary(caller, entry).await?
                    && filter.wants(&run)
                {
                    answer.runs.push(run);
                }
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
    /// One run of the list, from its rows; from its grain if it is open and has so many rows that a page of such runs would
    /// be dear. `None` if it is not there (any more), or cannot be read by this build.
    async fn summary(&self, caller: &Caller, entry: &IndexEntry) -> Result<Option<v1::Run>, Rejection> {
        let grain = &entry.grain;
        let mut rows = self.inner.silo.rows(grain, run::table::HEADER, None, HEADER_ROWS_MAX, caller.deadline).await?;
        let known = header(&rows);
        rows.extend(self.inner.silo.rows(grain, run::table::AUTHORITY, None, HEADER_ROWS_MAX, caller.deadline).await?);
        let mut plan = None;
        if known.ended_ms == 0 && !known.definition_release_id.is_empty() {
            for table in [run::table::STEP_RUNS, run::table::COMPENSATION] {
                let more = self.inner.silo.rows(grain, table, None, STEP_ROWS_MAX, caller.deadline).await?;
                if more.len() == STEP_ROWS_MAX {
                    return self.ask_grain(caller, entry).await;
                }
                rows.extend(more);
            }
            let release =
                self.inner.library.release(&grain.tenant, &known.definition_release_id, caller.deadline).await;
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
