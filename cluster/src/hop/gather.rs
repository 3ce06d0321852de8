//! Many questions about many shards, each put to its owner: in as few calls as there are owners, until all are answered.
//!
//! An owner that is asked reads its rows first and then makes sure that it is the owner still: what it read was the newest
//! then. A former owner that does not know yet says "moved", never what it remembers (FR-001, FR-063).

use super::way::Way;
use super::wire::Answer;
use crate::hub::Hub;
use crate::refusal;
use crate::routing::{LOOK_AGAIN, LOOK_AGAIN_MAX};
use bytes::Bytes;
use futures::future::{BoxFuture, join_all, select_all};
use grain_contract::{Epoch, Rejection};
use shard::{Error, NodeId, ShardId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::time::Instant;

/// A question to the owner of one shard.
pub(crate) trait Question: Send + Sync + Sized {
    const METHOD: &'static str;
    type Reply: Send;

    fn shard(&self) -> ShardId;
    /// The owner's side, in the order of the questions.
    fn answer_here<'a>(hub: &'a Hub, batch: &'a [&'a Self]) -> BoxFuture<'a, Vec<Answer<Self::Reply>>>;
    /// Several questions as one body.
    fn question(batch: &[&Self]) -> Bytes;
    /// And their answers, in the same order; `None` if this is no such body.
    fn answers(batch: &[&Self], body: &[u8]) -> Option<Vec<Answer<Self::Reply>>>;
}

/// Answers from what is committed: read first, and confirmed then.
pub(crate) async fn read_here<Q: Question>(
    hub: &Hub,
    questions: &[&Q],
    read: impl Fn(&Q) -> Result<Q::Reply, Rejection>,
) -> Vec<Answer<Q::Reply>> {
    let mut epochs: BTreeMap<ShardId, Option<Epoch>> = BTreeMap::new();
    let mut answers = Vec::with_capacity(questions.len());
    for question in questions {
        let shard = question.shard();
        let Some(room) = hub.rooms.get(shard.0 as usize) else {
            answers.push(Answer::Moved(None));
            continue;
        };
        // The epoch is looked at before the first row is: the owner that is confirmed below is the one that read.
        let epoch = *epochs.entry(shard).or_insert_with(|| room.store.leadership().borrow().epoch);
        answers.push(match epoch {
            None => Answer::Moved(hub.leader_of(shard)),
            Some(_) => read(question).map_or_else(Answer::Refused, Answer::Got),
        });
    }
    let owned = epochs.into_iter().filter_map(|(shard, epoch)| Some((shard, epoch?)));
    let confirmed = join_all(
        owned.map(|(shard, epoch)| async move { (shard, hub.rooms[shard.0 as usize].store.confirm(epoch).await) }),
    );
    for (shard, result) in confirmed.await {
        let Err(error) = result else { continue };
        for (question, answer) in questions.iter().zip(&mut answers) {
            if question.shard() == shard {
                *answer = match &error {
                    Error::Fenced { .. } | Error::NotLeader { .. } => Answer::Moved(hub.leader_of(shard)),
                    other => Answer::Refused(refusal::unavailable(other)),
                };
            }
        }
    }
    answers
}

/// The answers of all, in the order of the questions.
///
/// # Errors
/// The first refusal; `Unavailable` if an owner could not be found or asked before the deadline.
pub(crate) async fn gather<Q: Question>(
    hub: &Arc<Hub>,
    questions: &[Q],
    deadline: Instant,
) -> Result<Vec<Q::Reply>, Rejection> {
    let mut replies: Vec<Option<Q::Reply>> = questions.iter().map(|_| None).collect();
    let mut ways: HashMap<ShardId, Way> = HashMap::new();
    let mut pause = LOOK_AGAIN;
    loop {
        while let Some(round) = plan(hub, questions, &replies, &ways) {
            let asked = round.into_iter().map(|(node, places)| ask(hub, node, questions, places, deadline));
            for (node, places, answers) in join_all(asked).await {
                for (place, answer) in places.into_iter().zip(answers) {
                    let shard = questions[place].shard();
                    match (answer, node) {
                        (Answer::Got(reply), _) => replies[place] = Some(reply),
                        (Answer::Refused(rejection), _) => return Err(rejection),
                        (Answer::Moved(_), None) => ways.entry(shard).or_default().not_at_home(),
                        (Answer::Moved(leader), Some(node)) => {
                            hub.forget_hint(shard, node, leader);
                            ways.entry(shard).or_default().in_vain(node, leader);
                        }
                    }
                }
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        if replies.iter().all(Option::is_some) {
            return Ok(replies.into_iter().flatten().collect());
        }
        let open: Vec<ShardId> = unanswered(questions, &replies).map(|place| questions[place].shard()).collect();
        let again = Instant::now() + pause;
        if again >= deadline || (hub.stop.is_cancelled() && !hub.has_company()) {
            let why = format!("shard {} has no leader that can be asked now", open.first().map_or(0, |shard| shard.0));
            return Err(refusal::unavailable(why));
        }
        select_all(open.iter().map(|shard| Box::pin(hub.news_of(*shard, again)))).await;
        ways.values_mut().for_each(Way::again);
        pause = (pause * 2).min(LOOK_AGAIN_MAX);
    }
}

fn unanswered<'a, Q, R>(questions: &'a [Q], replies: &'a [Option<R>]) -> impl Iterator<Item = usize> + 'a {
    (0..questions.len()).filter(|place| replies[*place].is_none())
}

/// Who is asked what in this round (`None` = this silo itself); no round if nobody is left to ask.
fn plan<Q: Question>(
    hub: &Hub,
    questions: &[Q],
    replies: &[Option<Q::Reply>],
    ways: &HashMap<ShardId, Way>,
) -> Option<Vec<(Option<NodeId>, Vec<usize>)>> {
    let mut round: BTreeMap<Option<NodeId>, Vec<usize>> = BTreeMap::new();
    let fresh = Way::default();
    for place in unanswered(questions, replies) {
        let shard = questions[place].shard();
        let room = hub.rooms.get(shard.0 as usize)?;
        let way = ways.get(&shard).unwrap_or(&fresh);
        // A home that could not confirm its leadership is not asked again without a pause.
        if room.store.leadership().borrow().epoch.is_some() && !way.was_at_home() {
            round.entry(None).or_default().push(place);
        } else if let Some(node) = hub.next_node(shard, way) {
            round.entry(Some(node)).or_default().push(place);
        }
    }
    (!round.is_empty()).then(|| round.into_iter().collect())
}

async fn ask<Q: Question>(
    hub: &Arc<Hub>,
    node: Option<NodeId>,
    questions: &[Q],
    places: Vec<usize>,
    deadline: Instant,
) -> (Option<NodeId>, Vec<usize>, Vec<Answer<Q::Reply>>) {
    let batch: Vec<&Q> = places.iter().map(|place| &questions[*place]).collect();
    let Some(to) = node else {
        let answers = Q::answer_here(hub, &batch).await;
        return (node, places, answers);
    };
    let answer = hub.post(to, Q::METHOD, Q::question(&batch), deadline).await;
    let answers = match &answer {
        Ok(body) => Q::answers(&batch, body).filter(|answers| answers.len() == batch.len()),
        Err(error) => {
            tracing::debug!(to, %error, method = Q::METHOD, "a peer did not answer");
            None
        }
    };
    if answers.is_some() {
        for question in &batch {
            hub.hints.set(question.shard().0 as usize, Some(to));
        }
    }
    let answers = answers.unwrap_or_else(|| batch.iter().map(|_| Answer::Moved(None)).collect());
    (node, places, answers)
}
