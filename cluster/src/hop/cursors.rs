//! Named cursors at the owners of the shards: taking one over, and moving it.
//!
//! Beside each cursor stands the number of the reader that took it last, in the same commit. A move of any other reader is
//! refused: so of two readers on two nodes the older one ends, whatever either of them knows of the other.

use super::gather::{Question, gather};
use super::wire::{self, Answer};
use crate::hub::Hub;
use crate::peers::Refused;
use crate::refusal;
use bytes::Bytes;
use futures::future::{BoxFuture, join_all};
use grain_contract::Rejection;
use granary_proto::peers::{
    CursorAnswer, CursorRequest, CursorTaken, CursorsAnswers, CursorsRequest, MoveCursor, TakeCursor, cursor_answer,
    cursor_request,
};
use prost::Message;
use shard::{Cursor, Error, Housekeeping, ShardId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

pub(crate) const CURSORS: &str = "grain.cursors";
pub(crate) const TAKEN: &str = "grain.cursor_taken";
/// Requests of one call.
const REQUESTS_MAX: usize = 10_000;
/// Peers are told this long that a cursor was taken; who does not hear it finds out at its next move.
const TELL: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) shard: ShardId,
    pub(crate) name: String,
    pub(crate) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Take { reader: u64, start: u64, start_is_explicit: bool },
    Move { reader: u64, sequence: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Where it stands now.
    At(u64),
    /// Another reader took it.
    Taken,
}

/// The row beside a cursor that says whose it is. Names of cursors hold no zero byte, so it is no other cursor's name.
fn reader_row(name: &str) -> String {
    format!("{name}\0reader")
}

/// What one request does to the cursors of a shard: pure.
fn decide(kept: &BTreeMap<String, u64>, ask: &Ask) -> (Said, Vec<Cursor>) {
    let (stored, owner) = (kept.get(&ask.name).copied(), kept.get(&reader_row(&ask.name)).copied());
    let cursor = |sequence: u64| Cursor { name: ask.name.clone(), sequence };
    match ask.what {
        What::Take { reader, start, start_is_explicit } => {
            let at = stored.filter(|_| !start_is_explicit).unwrap_or(start);
            let mut writes = Vec::new();
            if stored != Some(at) {
                writes.push(cursor(at));
            }
            if owner != Some(reader) {
                writes.push(Cursor { name: reader_row(&ask.name), sequence: reader });
            }
            (Said::At(at), writes)
        }
        What::Move { reader, .. } if owner != Some(reader) => (Said::Taken, Vec::new()),
        What::Move { sequence, .. } if stored.is_some_and(|stored| stored >= sequence) => {
            (Said::At(stored.unwrap_or(sequence)), Vec::new())
        }
        What::Move { sequence, .. } => (Said::At(sequence), vec![cursor(sequence)]),
    }
}

impl Question for Ask {
    const METHOD: &'static str = CURSORS;
    type Reply = Said;

    fn shard(&self) -> ShardId {
        self.shard
    }

    fn answer_here<'a>(hub: &'a Hub, batch: &'a [&'a Self]) -> BoxFuture<'a, Vec<Answer<Said>>> {
        Box::pin(async move {
            let mut by_shard: BTreeMap<ShardId, Vec<usize>> = BTreeMap::new();
            for (place, ask) in batch.iter().enumerate() {
                by_shard.entry(ask.shard).or_default().push(place);
            }
            let mut answers: Vec<Answer<Said>> = batch.iter().map(|_| Answer::Moved(None)).collect();
            let done = by_shard.into_iter().map(|(shard, places)| async move {
                let asks: Vec<&Ask> = places.iter().map(|place| batch[*place]).collect();
                (shard, places, write(hub, shard, &asks).await)
            });
            for (shard, places, said) in join_all(done).await {
                match said {
                    Ok(said) => {
                        places.into_iter().zip(said).for_each(|(place, said)| answers[place] = Answer::Got(said))
                    }
                    Err(error) => places.into_iter().for_each(|place| {
                        answers[place] = match &error {
                            Error::Fenced { .. } | Error::NotLeader { .. } => Answer::Moved(hub.leader_of(shard)),
                            other => Answer::Refused(refusal::unavailable(other)),
                        };
                    }),
                }
            }
            answers
        })
    }

    fn question(batch: &[&Self]) -> Bytes {
        let request = |ask: &&Self| CursorRequest {
            shard: ask.shard.0,
            name: ask.name.clone(),
            what: Some(match ask.what {
                What::Take { reader, start, start_is_explicit } => {
                    cursor_request::What::Take(TakeCursor { reader, start, start_is_explicit })
                }
                What::Move { reader, sequence } => cursor_request::What::Move(MoveCursor { reader, sequence }),
            }),
        };
        CursorsRequest { cursors: batch.iter().map(request).collect() }.encode_to_vec().into()
    }

    fn answers(_: &[&Self], body: &[u8]) -> Option<Vec<Answer<Said>>> {
        let answer = |told: CursorAnswer| {
            Some(match told.answer? {
                cursor_answer::Answer::Sequence(at) => Answer::Got(Said::At(at)),
                cursor_answer::Answer::Taken(_) => Answer::Got(Said::Taken),
                cursor_answer::Answer::Rejection(told) => Answer::Refused(wire::read_rejection(told)),
                cursor_answer::Answer::Moved(told) => Answer::Moved(wire::read_moved(told)),
            })
        };
        CursorsAnswers::decode(body).ok()?.answers.into_iter().map(answer).collect()
    }
}

/// The requests of one shard, in one commit.
async fn write(hub: &Hub, shard: ShardId, asks: &[&Ask]) -> Result<Vec<Said>, Error> {
    let leader = || hub.leader_of(shard);
    let Some(room) = hub.rooms.get(shard.0 as usize) else { return Err(not_led(shard, None)) };
    let epoch = room.store.leadership().borrow().epoch.ok_or_else(|| not_led(shard, leader()))?;
    let mut kept: BTreeMap<String, u64> =
        room.store.cursors()?.into_iter().map(|cursor| (cursor.name, cursor.sequence)).collect();
    let mut cursors = Vec::new();
    let mut said = Vec::with_capacity(asks.len());
    for ask in asks {
        let (answer, writes) = decide(&kept, ask);
        kept.extend(writes.iter().map(|cursor| (cursor.name.clone(), cursor.sequence)));
        cursors.extend(writes);
        said.push(answer);
    }
    if cursors.is_empty() {
        room.store.confirm(epoch).await?;
    } else {
        room.store.housekeeping(Housekeeping { epoch, cursors, ..Housekeeping::default() }).await?;
    }
    Ok(said)
}

fn not_led(shard: ShardId, leader: Option<u64>) -> Error {
    Error::NotLeader { shard: shard.0, leader }
}

impl Hub {
    pub(crate) async fn cursors(self: &Arc<Self>, asks: &[Ask], deadline: Instant) -> Result<Vec<Said>, Rejection> {
        gather(self, asks, deadline).await
    }

    /// Tells every node, so that an older reader ends now and not at its next move.
    pub(crate) fn tell_cursor_taken(self: &Arc<Self>, name: &str, reader: u64) {
        if !self.has_company() {
            return;
        }
        let body: Bytes = CursorTaken { name: name.to_owned(), reader }.encode_to_vec().into();
        let nodes: Vec<_> = self.around.peers.attached().borrow().keys().copied().collect();
        let hub = self.clone();
        tokio::spawn(async move {
            let deadline = Instant::now() + TELL;
            join_all(nodes.into_iter().map(|node| hub.post(node, TAKEN, body.clone(), deadline))).await;
        });
    }

    pub(super) async fn serve_cursors(&self, body: &[u8]) -> Result<CursorsAnswers, Refused> {
        let requests = wire::read::<CursorsRequest>(body)?.cursors;
        if requests.len() > REQUESTS_MAX {
            return Err(Refused::BadRequest(format!("{} cursors, but the most is {REQUESTS_MAX}", requests.len())));
        }
        let ask = |request: CursorRequest| {
            let what = match request.what? {
                cursor_request::What::Take(take) => {
                    What::Take { reader: take.reader, start: take.start, start_is_explicit: take.start_is_explicit }
                }
                cursor_request::What::Move(told) => What::Move { reader: told.reader, sequence: told.sequence },
            };
            Some(Ask { shard: ShardId(request.shard), name: request.name, what })
        };
        let asks: Option<Vec<Ask>> = requests.into_iter().map(ask).collect();
        let asks = asks.ok_or_else(|| Refused::BadRequest("a cursor and nothing to do with it".to_owned()))?;
        let batch: Vec<&Ask> = asks.iter().collect();
        let answers = Ask::answer_here(self, &batch).await.into_iter().map(|answer| match answer {
            Answer::Got(Said::At(sequence)) => cursor_answer::Answer::Sequence(sequence),
            Answer::Got(Said::Taken) => cursor_answer::Answer::Taken(true),
            Answer::Refused(rejection) => cursor_answer::Answer::Rejection(wire::rejection(&rejection)),
            Answer::Moved(leader) => cursor_answer::Answer::Moved(wire::moved(leader)),
        });
        Ok(CursorsAnswers { answers: answers.map(|answer| CursorAnswer { answer: Some(answer) }).collect() })
    }

    pub(super) fn serve_cursor_taken(&self, body: &[u8]) -> Result<CursorTaken, Refused> {
        let taken: CursorTaken = wire::read(body)?;
        self.readers.taken_elsewhere(&taken.name, taken.reader);
        Ok(CursorTaken::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(what: What) -> Ask {
        Ask { shard: ShardId(0), name: "t\0c".to_owned(), what }
    }

    fn kept(rows: &[(&str, u64)]) -> BTreeMap<String, u64> {
        rows.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect()
    }

    /// [V2] What a request does, by who has the cursor.
    #[test]
    fn only_the_last_taker_moves_a_cursor() {
        let (name, reader) = ("t\0c", "t\0c\0reader");
        let taken = [(name, 5), (reader, 7)];
        let take = |start, start_is_explicit| What::Take { reader: 8, start, start_is_explicit };
        let mine = |sequence| What::Move { reader: 7, sequence };
        type Case<'a> = (&'a [(&'a str, u64)], What, Said, &'a [(&'a str, u64)]);
        let cases: [Case<'_>; 8] = [
            (&[], take(3, false), Said::At(3), &[(name, 3), (reader, 8)]),
            // A cursor of before there were readers beside it.
            (&[(name, 5)], take(3, false), Said::At(5), &[(reader, 8)]),
            (&taken, take(3, false), Said::At(5), &[(reader, 8)]),
            (&taken, take(3, true), Said::At(3), &[(name, 3), (reader, 8)]),
            (&taken, mine(9), Said::At(9), &[(name, 9)]),
            // Said again, or late.
            (&taken, mine(5), Said::At(5), &[]),
            (&taken, What::Move { reader: 8, sequence: 9 }, Said::Taken, &[]),
            (&[], mine(9), Said::Taken, &[]),
        ];
        for (rows, what, said, writes) in cases {
            let (found, made) = decide(&kept(rows), &ask(what.clone()));
            let made: Vec<(&str, u64)> = made.iter().map(|cursor| (cursor.name.as_str(), cursor.sequence)).collect();
            assert_eq!((found, made.as_slice()), (said, writes), "{rows:?} {what:?}");
        }
    }
}
