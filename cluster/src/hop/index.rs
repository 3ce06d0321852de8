//! An index over all shards, wherever their owners are.

use super::gather::{Question, gather, read_here};
use super::wire::{self, Answer};
use crate::hub::Hub;
use crate::peers::Refused;
use crate::refusal;
use bytes::Bytes;
use futures::future::BoxFuture;
use grain_contract::{GrainId, IndexEntry, Rejection, TenantId, limits};
use granary_proto::peers::{IndexAnswer, IndexAnswers, IndexReads, ReadEntries, ReadEntry, index_answer};
use prost::Message;
use shard::ShardId;
use std::sync::Arc;
use tokio::time::Instant;

pub(crate) const INDEX: &str = "grain.index";

/// What is asked of every shard alike.
pub(crate) struct Page {
    pub(crate) index: String,
    pub(crate) tenant: TenantId,
    pub(crate) after: Option<IndexEntry>,
    pub(crate) limit: usize,
}

struct OfShard {
    shard: ShardId,
    page: Arc<Page>,
}

impl Question for OfShard {
    const METHOD: &'static str = INDEX;
    type Reply = Vec<IndexEntry>;

    fn shard(&self) -> ShardId {
        self.shard
    }

    fn answer_here<'a>(hub: &'a Hub, batch: &'a [&'a Self]) -> BoxFuture<'a, Vec<Answer<Vec<IndexEntry>>>> {
        Box::pin(read_here(hub, batch, |question| {
            let Page { index, tenant, after, limit } = &*question.page;
            let store = &hub.rooms[question.shard.0 as usize].store;
            store.index(index, tenant, after.as_ref(), *limit).map_err(refusal::of_store)
        }))
    }

    fn question(batch: &[&Self]) -> Bytes {
        let Some(first) = batch.first() else { return Bytes::new() };
        let after = first.page.after.as_ref();
        let reads = IndexReads {
            index: first.page.index.clone(),
            tenant: first.page.tenant.as_str().to_owned(),
            after_sort: after.map(|entry| entry.sort.clone()).unwrap_or_default(),
            after_grain: after.map(|entry| entry.grain.storage_bytes()).unwrap_or_default(),
            limit: u32::try_from(first.page.limit).unwrap_or(u32::MAX),
            shards: batch.iter().map(|question| question.shard.0).collect(),
        };
        reads.encode_to_vec().into()
    }

    fn answers(_: &[&Self], body: &[u8]) -> Option<Vec<Answer<Vec<IndexEntry>>>> {
        let entry =
            |told: ReadEntry| Some(IndexEntry { grain: wire::grain(&told.grain)?, sort: told.sort, value: told.value });
        let answer = |told: IndexAnswer| {
            Some(match told.answer? {
                index_answer::Answer::Entries(told) => {
                    Answer::Got(told.entries.into_iter().map(entry).collect::<Option<_>>()?)
                }
                index_answer::Answer::Rejection(told) => Answer::Refused(wire::read_rejection(told)),
                index_answer::Answer::Moved(told) => Answer::Moved(wire::read_moved(told)),
            })
        };
        IndexAnswers::decode(body).ok()?.answers.into_iter().map(answer).collect()
    }
}

impl Hub {
    /// The page of each shard, not merged.
    pub(crate) async fn index(self: &Arc<Self>, page: Page, deadline: Instant) -> Result<Vec<IndexEntry>, Rejection> {
        let page = Arc::new(page);
        let questions: Vec<OfShard> =
            self.rooms.iter().map(|room| OfShard { shard: room.id, page: page.clone() }).collect();
        Ok(gather(self, &questions, deadline).await?.into_iter().flatten().collect())
    }

    pub(super) async fn serve_index(&self, body: &[u8]) -> Result<IndexAnswers, Refused> {
        let reads: IndexReads = wire::read(body)?;
        let after = match reads.after_grain.is_empty() {
            true => None,
            false => Some(IndexEntry {
                grain: wire::grain(&reads.after_grain)
                    .ok_or_else(|| Refused::BadRequest("no entry is named".into()))?,
                sort: reads.after_sort,
                value: Vec::new(),
            }),
        };
        if reads.shards.iter().any(|shard| *shard as usize >= self.rooms.len()) || reads.shards.len() > self.rooms.len()
        {
            return Err(Refused::BadRequest("shards that are not there".to_owned()));
        }
        let limit = (reads.limit as usize).clamp(1, limits::PAGE_MAX + 1);
        let page = Arc::new(Page { index: reads.index, tenant: TenantId::new(reads.tenant), after, limit });
        let questions: Vec<OfShard> =
            reads.shards.iter().map(|shard| OfShard { shard: ShardId(*shard), page: page.clone() }).collect();
        let batch: Vec<&OfShard> = questions.iter().collect();
        let entry = |entry: IndexEntry| ReadEntry {
            grain: GrainId::storage_bytes(&entry.grain),
            sort: entry.sort,
            value: entry.value,
        };
        let answers = OfShard::answer_here(self, &batch).await.into_iter().map(|answer| match answer {
            Answer::Got(entries) => {
                index_answer::Answer::Entries(ReadEntries { entries: entries.into_iter().map(entry).collect() })
            }
            Answer::Refused(rejection) => index_answer::Answer::Rejection(wire::rejection(&rejection)),
            Answer::Moved(leader) => index_answer::Answer::Moved(wire::moved(leader)),
        });
        Ok(IndexAnswers { answers: answers.map(|answer| IndexAnswer { answer: Some(answer) }).collect() })
    }
}
