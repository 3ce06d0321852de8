//! The outboxes of shards that have no replica here: where they stand, and their pages.

use super::gather::{Question, gather, read_here};
use super::way::Way;
use super::wire::{self, Answer};
use crate::hub::Hub;
use crate::peers::{CallError, Refused};
use crate::refusal;
use crate::routing::LOOK_AGAIN_MAX;
use bytes::Bytes;
use futures::future::{BoxFuture, select_all};
use grain_contract::{GrainId, Rejection, Timestamp};
use granary_proto::peers::{
    HeadsAnswer, HeadsAnswers, HeadsRead, KnownHead, OutboxAnswer, OutboxBounds, OutboxEvent, OutboxPage, OutboxRead,
    heads_answer, outbox_answer,
};
use prost::Message;
use shard::{NodeId, OutboxItem, ShardId};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

pub(crate) const HEADS: &str = "grain.heads";
pub(crate) const PAGE: &str = "grain.outbox";

/// Rows looked at for one page.
pub(crate) const PAGE_ROWS: usize = 256;
/// A page is ended behind the event that brings it here. Bytes.
const PAGE_BYTES: usize = 1 << 20;
/// The longest that a peer is asked to wait for news.
const WAIT_MS_MAX: u32 = 10_000;

/// Where an outbox stands: the number that its next row will get, and the lowest that is still kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounds {
    pub(crate) head: u64,
    pub(crate) kept: u64,
}

/// Events of one shard, as they are read.
#[derive(Debug, Default)]
pub(crate) struct EventPage {
    pub(crate) events: Vec<Event>,
    /// All rows before this one were looked at.
    pub(crate) next: u64,
    pub(crate) head: u64,
    pub(crate) kept: u64,
}

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) sequence: u64,
    pub(crate) grain: GrainId,
    pub(crate) at: Timestamp,
    pub(crate) body: Vec<u8>,
}

struct Head(ShardId);

impl Question for Head {
    const METHOD: &'static str = HEADS;
    type Reply = Bounds;

    fn shard(&self) -> ShardId {
        self.0
    }

    fn answer_here<'a>(hub: &'a Hub, batch: &'a [&'a Self]) -> BoxFuture<'a, Vec<Answer<Bounds>>> {
        Box::pin(read_here(hub, batch, |head| {
            let (head, kept) = hub.rooms[head.0.0 as usize].store.outbox_bounds();
            Ok(Bounds { head, kept })
        }))
    }

    fn question(batch: &[&Self]) -> Bytes {
        let shards = batch.iter().map(|head| KnownHead { shard: head.0.0, head: 0 }).collect();
        HeadsRead { shards, wait_ms: 0 }.encode_to_vec().into()
    }

    fn answers(_: &[&Self], body: &[u8]) -> Option<Vec<Answer<Bounds>>> {
        HeadsAnswers::decode(body).ok()?.answers.into_iter().map(read_head).collect()
    }
}

fn read_head(told: HeadsAnswer) -> Option<Answer<Bounds>> {
    Some(match told.answer? {
        heads_answer::Answer::Bounds(told) => Answer::Got(Bounds { head: told.head, kept: told.kept }),
        heads_answer::Answer::Moved(told) => Answer::Moved(wire::read_moved(told)),
        heads_answer::Answer::Rejection(told) => Answer::Refused(wire::read_rejection(told)),
    })
}

impl Hub {
    /// Where the outboxes of these shards stand, from their owners.
    pub(crate) async fn heads(
        self: &Arc<Self>,
        shards: impl Iterator<Item = ShardId>,
        deadline: Instant,
    ) -> Result<Vec<Bounds>, Rejection> {
        let questions: Vec<Head> = shards.map(Head).collect();
        gather(self, &questions, deadline).await
    }

    /// Waits at the owner of these shards until one of them stands above what is known.
    pub(crate) async fn newer_heads(
        self: &Arc<Self>,
        node: NodeId,
        known: &[(ShardId, u64)],
        wait: Duration,
    ) -> Result<Vec<Answer<Bounds>>, CallError> {
        let shards = known.iter().map(|(shard, head)| KnownHead { shard: shard.0, head: *head }).collect();
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(WAIT_MS_MAX).min(WAIT_MS_MAX);
        let question = HeadsRead { shards, wait_ms }.encode_to_vec().into();
        // The answer needs its own time behind the wait.
        let deadline = Instant::now() + wait + Duration::from_secs(2);
        let answer = self.post(node, HEADS, question, deadline).await?;
        let answers = HeadsAnswers::decode(answer).map(|heads| heads.answers).unwrap_or_default();
        let answers: Option<Vec<_>> = answers.into_iter().map(read_head).collect();
        answers
            .filter(|answers| answers.len() == known.len())
            .ok_or_else(|| CallError::Unknown("its answer cannot be read".to_owned()))
    }

    /// One page of a shard's events, from whoever has the rows.
    pub(crate) async fn event_page(
        self: &Arc<Self>,
        shard: ShardId,
        from: u64,
        deadline: Instant,
    ) -> Result<EventPage, Rejection> {
        let mut way = Way::default();
        let question: Bytes = OutboxRead { shard: shard.0, from, limit: PAGE_ROWS as u32 }.encode_to_vec().into();
        loop {
            while let Some(node) = self.next_node(shard, &way) {
                let answer = self.post(node, PAGE, question.clone(), deadline).await;
                let told = answer.ok().and_then(|body| OutboxAnswer::decode(body).ok()?.answer);
                match told {
                    Some(outbox_answer::Answer::Page(page)) => return read_page(page, from),
                    Some(outbox_answer::Answer::Rejection(told)) => return Err(wire::read_rejection(told)),
                    Some(outbox_answer::Answer::Moved(told)) => way.in_vain(node, wire::read_moved(told)),
                    None => way.in_vain(node, None),
                }
            }
            let again = Instant::now() + LOOK_AGAIN_MAX;
            if again >= deadline {
                return Err(refusal::unavailable("nobody with its events can be asked now"));
            }
            self.news_of(shard, again).await;
            way.again();
        }
    }

    /// One page of what is kept here.
    pub(crate) fn event_page_here(&self, shard: ShardId, from: u64) -> Result<EventPage, Rejection> {
        let store = &self.rooms[shard.0 as usize].store;
        // The bounds first: what comes between is behind this head and read next time.
        let (head, kept) = store.outbox_bounds();
        let from = from.max(kept);
        let mut page = EventPage { next: from, head, kept, ..EventPage::default() };
        if from >= head {
            return Ok(page);
        }
        let records = store.outbox(from, PAGE_ROWS).map_err(refusal::of_store)?;
        if records.is_empty() {
            // Only struck calls up to here.
            page.next = head;
        }
        let mut bytes = 0;
        for record in records {
            page.next = record.sequence + 1;
            if let OutboxItem::Event(body) = record.item {
                bytes += body.len();
                page.events.push(Event { sequence: record.sequence, grain: record.grain, at: record.at, body });
            }
            if bytes >= PAGE_BYTES {
                break;
            }
        }
        Ok(page)
    }

    pub(super) async fn serve_outbox(&self, body: &[u8]) -> Result<OutboxAnswer, Refused> {
        let read: OutboxRead = wire::read(body)?;
        let shard = ShardId(read.shard);
        let room = self.room_of(shard)?;
        // Every replica's rows are committed ones, so a follower's page is as good, if it is as far.
        if !room.store.hosted() || room.store.outbox_bounds().0 < read.from {
            let moved = outbox_answer::Answer::Moved(wire::moved(self.leader_of(shard)));
            return Ok(OutboxAnswer { answer: Some(moved) });
        }
        let answer = match self.event_page_here(shard, read.from) {
            Ok(page) => outbox_answer::Answer::Page(OutboxPage {
                bounds: Some(OutboxBounds { head: page.head, kept: page.kept }),
                next: page.next,
                events: page.events.into_iter().map(told).collect(),
            }),
            Err(rejection) => outbox_answer::Answer::Rejection(wire::rejection(&rejection)),
        };
        Ok(OutboxAnswer { answer: Some(answer) })
    }

    pub(super) async fn serve_heads(&self, body: &[u8], deadline: Instant) -> Result<HeadsAnswers, Refused> {
        let read: HeadsRead = wire::read(body)?;
        if read.shards.len() > self.rooms.len() {
            return Err(Refused::BadRequest("more shards than there are".to_owned()));
        }
        let rooms: Vec<_> =
            read.shards.iter().map(|known| self.room_of(ShardId(known.shard))).collect::<Result<_, _>>()?;
        let until = deadline.min(Instant::now() + Duration::from_millis(read.wait_ms.min(WAIT_MS_MAX).into()));
        let mut arrivals: Vec<_> = rooms.iter().map(|room| room.store.outbox_watch()).collect();
        let mut leaderships: Vec<_> = rooms.iter().map(|room| room.store.leadership()).collect();
        while !rooms.is_empty() {
            arrivals.iter_mut().for_each(|arrivals| {
                arrivals.borrow_and_update();
            });
            let all_led = leaderships.iter_mut().all(|leadership| leadership.borrow_and_update().epoch.is_some());
            let news = rooms.iter().zip(&read.shards).any(|(room, known)| room.store.outbox_bounds().0 > known.head);
            if news || !all_led || Instant::now() >= until {
                break;
            }
            let arrived = select_all(arrivals.iter_mut().map(|arrivals| Box::pin(arrivals.changed())));
            let lost = select_all(leaderships.iter_mut().map(|leadership| Box::pin(leadership.changed())));
            tokio::select! {
                _ = arrived => {}
                _ = lost => {}
                () = tokio::time::sleep_until(until) => {}
                () = self.stop.cancelled() => break,
            }
        }
        let questions: Vec<Head> = read.shards.iter().map(|known| Head(ShardId(known.shard))).collect();
        let batch: Vec<&Head> = questions.iter().collect();
        let answers = Head::answer_here(self, &batch).await.into_iter().zip(&read.shards).map(|(answer, known)| {
            let answer = match answer {
                Answer::Got(Bounds { head, kept }) => heads_answer::Answer::Bounds(OutboxBounds { head, kept }),
                Answer::Refused(rejection) => heads_answer::Answer::Rejection(wire::rejection(&rejection)),
                Answer::Moved(leader) => heads_answer::Answer::Moved(wire::moved(leader)),
            };
            HeadsAnswer { shard: known.shard, answer: Some(answer) }
        });
        Ok(HeadsAnswers { answers: answers.collect() })
    }

    pub(super) fn room_of(&self, shard: ShardId) -> Result<&Arc<crate::room::Room>, Refused> {
        let room = self.rooms.get(shard.0 as usize);
        room.ok_or_else(|| Refused::BadRequest(format!("shard {}, but there are {}", shard.0, self.rooms.len())))
    }
}

fn told(event: Event) -> OutboxEvent {
    OutboxEvent { sequence: event.sequence, grain: event.grain.storage_bytes(), at_ms: event.at.0, body: event.body }
}

fn read_page(told: OutboxPage, from: u64) -> Result<EventPage, Rejection> {
    let event = |told: OutboxEvent| {
        Some(Event {
            sequence: told.sequence,
            grain: wire::grain(&told.grain)?,
            at: Timestamp(told.at_ms),
            body: told.body,
        })
    };
    let events: Option<Vec<Event>> = told.events.into_iter().map(event).collect();
    let bounds = told.bounds.unwrap_or_default();
    match events {
        // Numbers rise, and lie between where the page begins and where it ends.
        Some(events)
            if told.next >= from
                && events.first().is_none_or(|event| event.sequence >= from)
                && events.last().is_none_or(|event| event.sequence < told.next)
                && events.is_sorted_by(|a, b| a.sequence < b.sequence) =>
        {
            Ok(EventPage { events, next: told.next, head: bounds.head, kept: bounds.kept })
        }
        _ => Err(refusal::unavailable("a page of its events cannot be read")),
    }
}
