//! Reading a run's journal: straight from its rows, since the journal is not part of what an activation loads.

use super::runs::not_found;
use super::{Api, check, run_grain};
use crate::tenant::Caller;
use grain_contract::{Code, GrainId, Rejection, Row, limits};
use grains::kinds::methods::run;
use granary_proto::{storage, v1};
use prost::Message as _;
use uuid::Uuid;

/// A page is ended before it grows beyond this. Bytes.
const PAGE_BYTES_MAX: usize = limits::MESSAGE_BYTES_MAX / 2;
/// Rows read at once.
const ROWS_AT_ONCE: usize = 64;

impl Api {
    pub async fn read_journal(
        &self,
        caller: &Caller,
        request: &v1::ReadJournalRequest,
    ) -> Result<v1::ReadJournalResponse, Rejection> {
        self.bundled()?;
        let id = check::id(&request.run_id, "runId")?;
        self.journal_page(caller, id, request.after, check::page_size(request.page_size)).await
    }

    pub(super) async fn journal_page(
        &self,
        caller: &Caller,
        id: Uuid,
        after: u64,
        page_size: usize,
    ) -> Result<v1::ReadJournalResponse, Rejection> {
        let grain = run_grain(&caller.tenant, id);
        if self.inner.silo.rows(&grain, run::table::AUTHORITY, None, 1, caller.deadline).await?.is_empty() {
            return Err(not_found(id));
        }
        let mut page = v1::ReadJournalResponse::default();
        let mut bytes = 0;
        // The first row may begin before the first entry that is asked for.
        let mut behind = self.row_before(caller, &grain, after).await?;
        loop {
            let rows = self
                .inner
                .silo
                .rows(&grain, run::table::JOURNAL, behind.as_deref(), ROWS_AT_ONCE, caller.deadline)
                .await?;
            let Some(last) = rows.last() else { return Ok(page) };
            behind = Some(last.key.key.clone());
            for row in &rows {
                for entry in entries(row)?.into_iter().filter(|e| e.number > after) {
                    bytes += entry.encoded_len();
                    if page.entries.len() == page_size || (bytes > PAGE_BYTES_MAX && !page.entries.is_empty()) {
                        page.next_after = page.entries.last().map_or(0, |e| e.number);
                        return Ok(page);
                    }
                    page.entries.push(entry);
                }
            }
        }
    }

    /// The key behind which the row with entry `after + 1` is found. Rows are keyed by their first entry and hold one turn's,
    /// so a row before it begins at most one turn earlier: looked for in growing steps back.
    async fn row_before(&self, caller: &Caller, grain: &GrainId, after: u64) -> Result<Option<Vec<u8>>, Rejection> {
        let mut step: u64 = 1;
        while step < after {
            // Rows with keys above `from`, so at most `step + 1` of them up to the one wanted.
            let from = after - step;
            let rows =
                self.inner.silo.rows(grain, run::table::JOURNAL, Some(&from.to_be_bytes()), 1, caller.deadline).await?;
            if rows.first().and_then(number).is_some_and(|first| first <= after.saturating_add(1)) {
                return Ok(Some(from.to_be_bytes().to_vec()));
            }
            step = step.saturating_mul(4);
        }
        Ok(None)
    }
}

fn number(row: &Row) -> Option<u64> {
    Some(u64::from_be_bytes(row.key.key.as_slice().try_into().ok()?))
}

fn entries(row: &Row) -> Result<Vec<v1::JournalEntry>, Rejection> {
    storage::JournalRow::decode(row.value.as_slice()).map(|r| r.entries).map_err(|e| {
        Rejection::new(Code::Quarantined, format!("Expected a journal row that this build reads, but: {e}."))
    })
}
