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

struct Placed {
    shard: ShardId,
    rows: RowsOf,
}

impl Question for Placed {
    const METHOD: &'static str = ROWS;
    type Reply = Vec<Row>;

    fn shard(&self) -> ShardId {
        self.shard
    }

    fn answer_here<'a>(hub: &'a Hub, batch: &'a [&'a Self]) -> BoxFuture<'a, Vec<Answer<Vec<Row>>>> {
        Box::pin(read_here(hub, batch, |placed| {
            let RowsOf { grain, table, after, limit } = &placed.rows;
            hub.room(grain).store.rows(grain, *table, after.as_deref(), *limit).map_err(refusal::of_store)
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

    fn answers(batch: &[&Self], body: &[u8]) -> Option<Vec<Answer<Vec<Row>>>> {
        let answers = RowsAnswers::decode(body).ok()?.answers;
        let rows = |table: Table, told: ReadRows| {
            let row = |row: ReadRow| Row { key: RowKey { table, key: row.key }, value: row.value };
            told.rows.into_iter().map(row).collect()
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
        let place = |rows: RowsOf| Placed { shard: self.room(&rows.grain).id, rows };
        let questions: Vec<Placed> = questions.into_iter().map(place).collect();
        gather(self, &questions, deadline).await
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
        let row = |row: Row| ReadRow { key: row.key.key, value: row.value };
        let answers = Placed::answer_here(self, &batch).await.into_iter().map(|answer| match answer {
            Answer::Got(rows) => rows_answer::Answer::Rows(ReadRows { rows: rows.into_iter().map(row).collect() }),
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
