//! Rows of grains, wherever their owners are. No grain is activated for it.

use super::gather::{Question, gather, read_here};
use super::wire::{self, Answer};
use crate::hub::Hub;
use crate::peers::Refused;
use crate::refusal;
use bytes::Bytes;
use futures::future::BoxFuture;
use grain_contract::{GrainId, Rejection, Row, RowKey, Table, limits};
use granary_proto::peers::{ReadRow, ReadRows, RowsAnswer, RowsAnswers, RowsRead, RowsReads, rows_answer};
use prost::Message;
use shard::ShardId;
use std::sync::Arc;
use tokio::time::Instant;

pub(crate) const ROWS: &str = "grain.rows";
/// Questions in one call of a peer.
const READS_MAX: usize = 4 * limits::PAGE_MAX;
/// Rows of one question in one call of a peer.
const ROWS_MAX: u32 = 10_000;
/// An answer to a peer is cut behind the row that brings it here; what is left is asked for again. Bytes.
const ANSWER_BYTES: usize = 8 << 20;

/// A question for rows of one table of a grain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowsOf {
    pub grain: GrainId,
    pub table: Table,
    /// Behind this key; `None` = from the start.
    pub after: Option<Vec<u8>>,
    /// At most.
    pub limit: usize,
}

/// Rows, and whether there may be more of those that were asked for.
struct Part {
    rows: Vec<Row>,
    cut: bool,
}

struct Placed {
    shard: ShardId,
    rows: RowsOf,
}

impl Question for Placed {
    const METHOD: &'static str = ROWS;
    type Reply = Part;

    fn shard(&self) -> ShardId {
        self.shard
    }

    fn answer_here<'a>(hub: &'a Hub, batch: &'a [&'a Self]) -> BoxFuture<'a, Vec<Answer<Part>>> {
        Box::pin(read_here(hub, batch, |placed| {
            let RowsOf { grain, table, after, limit } = &placed.rows;
            let rows = hub.room(grain).store.rows(grain, *table, after.as_deref(), *limit);
            rows.map(|rows| Part { rows, cut: false }).map_err(refusal::of_store)
        }))
    }

    fn question(batch: &[&Self]) -> Bytes {
        let read = |placed: &&Self| RowsRead {
            grain: placed.rows.grain.storage_bytes(),
            table: u32::from(placed.rows.table.0),
            after: placed.rows.after.clone(),
            limit: u32::try_from(placed.rows.limit).unwrap_or(u32::MAX),
        };
        RowsReads { reads: batch.iter().map(read).collect() }.encode_to_vec().into()
    }

    fn answers(batch: &[&Self], body: &[u8]) -> Option<Vec<Answer<Part>>> {
        let answers = RowsAnswers::decode(body).ok()?.answers;
        let rows = |table: Table, told: ReadRows| {
            let row = |row: ReadRow| Row { key: RowKey { table, key: row.key }, value: row.value };
            Part { rows: told.rows.into_iter().map(row).collect(), cut: told.cut }
        };
        let answer = |(placed, told): (&&Self, RowsAnswer)| {
            Some(match told.answer? {
                rows_answer::Answer::Rows(told) => Answer::Got(rows(placed.rows.table, told)),
                rows_answer::Answer::Rejection(told) => Answer::Refused(wire::read_rejection(told)),
                rows_answer::Answer::Moved(told) => Answer::Moved(wire::read_moved(told)),
            })
        };
        batch.iter().zip(answers).map(answer).collect()
    }
}

impl Hub {
    /// Rows as they were last committed, in the order of the questions.
    pub(crate) async fn rows(
        self: &Arc<Self>,
        questions: Vec<RowsOf>,
        deadline: Instant,
    ) -> Result<Vec<Vec<Row>>, Rejection> {
        let mut all: Vec<Vec<Row>> = questions.iter().map(|_| Vec::new()).collect();
        let place = |rows: RowsOf| Placed { shard: self.room(&rows.grain).id, rows };
        let mut open: Vec<(usize, Placed)> = questions.into_iter().map(place).enumerate().collect();
        while !open.is_empty() {
            let (places, asked): (Vec<usize>, Vec<Placed>) = open.into_iter().unzip();
            let parts = gather(self, &asked, deadline).await?;
            open = Vec::new();
            for ((place, mut question), part) in places.into_iter().zip(asked).zip(parts) {
                if part.cut {
                    question.rows.limit = question.rows.limit.saturating_sub(part.rows.len());
                    question.rows.after = part.rows.last().map(|row| row.key.key.clone()).or(question.rows.after);
                    open.push((place, question));
                }
                all[place].extend(part.rows);
            }
        }
        Ok(all)
    }

    pub(super) async fn serve_rows(&self, body: &[u8]) -> Result<RowsAnswers, Refused> {
        let reads = wire::read::<RowsReads>(body)?.reads;
        if reads.len() > READS_MAX {
            return Err(Refused::BadRequest(format!("{} questions, but the most is {READS_MAX}", reads.len())));
        }
        let placed: Vec<Placed> = reads
            .into_iter()
            .map(|read| self.placed(read))
            .collect::<Option<_>>()
            .ok_or_else(|| Refused::BadRequest("a question for rows that names no grain or no table".to_owned()))?;
        let batch: Vec<&Placed> = placed.iter().collect();
        let mut budget = ANSWER_BYTES;
        let answers = Placed::answer_here(self, &batch).await.into_iter().map(|answer| match answer {
            Answer::Got(part) => rows_answer::Answer::Rows(within(&mut budget, part.rows)),
            Answer::Refused(rejection) => rows_answer::Answer::Rejection(wire::rejection(&rejection)),
            Answer::Moved(leader) => rows_answer::Answer::Moved(wire::moved(leader)),
        });
        Ok(RowsAnswers { answers: answers.map(|answer| RowsAnswer { answer: Some(answer) }).collect() })
    }

    fn placed(&self, read: RowsRead) -> Option<Placed> {
        let grain = wire::grain(&read.grain)?;
        let table = Table(u8::try_from(read.table).ok()?);
        let limit = usize::try_from(read.limit.min(ROWS_MAX)).ok()?;
        Some(Placed { shard: self.room(&grain).id, rows: RowsOf { grain, table, after: read.after, limit } })
    }
}

/// As many as the budget holds, and one beyond it, so that every call brings something.
fn within(budget: &mut usize, rows: Vec<Row>) -> ReadRows {
    let mut told = ReadRows::default();
    for row in rows {
        if *budget == 0 {
            told.cut = true;
            break;
        }
        *budget = budget.saturating_sub(row.key.key.len() + row.value.len());
        told.rows.push(ReadRow { key: row.key.key, value: row.value });
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_cut_behind_the_row_that_fills_it() {
        let row = |n: u8, size| Row { key: RowKey { table: Table(1), key: vec![n] }, value: vec![0; size] };
        let mut budget = 10;
        let first = within(&mut budget, vec![row(1, 4), row(2, 20), row(3, 1)]);
        assert_eq!((first.rows.len(), first.cut), (2, true));
        let next = within(&mut budget, vec![row(4, 1)]);
        assert_eq!((next.rows.len(), next.cut), (0, true));
        let empty = within(&mut budget, Vec::new());
        assert!(!empty.cut, "there is nothing to ask for again");
    }
}
