//! What openraft is told of the appends of one session, and when.
//!
//! Several are on their way at once. openraft keeps the moment at which it made each, and an acknowledgement up to an entry
//! counts for every append that ends there, so for the latest of them: from its moment on the leader's lease is good for
//! another while. An append without entries, which only tells what is committed, ends where the one before it does. If that
//! one's answer were handed on while the empty append is still on its way, the lease would begin at a moment that the
//! follower has said nothing about. A leader that was frozen with an answer unread and wakes does just that: reads the old
//! answer, commits, tells the other follower, reads that one's old answer, and believes itself in office, although another
//! leads since long (FR-001). So an acknowledgement waits until no append that is on its way ends at the same entry.

use super::network::Appended;
use super::types::{LogId, TypeConfig};
use openraft::errors::{NetworkError, RPCError};
use openraft::raft::{AppendEntriesResponse, StreamAppendError};
use std::collections::VecDeque;
use std::io;

/// The appends of one session to one follower, in their order.
#[derive(Default)]
pub struct Acks {
    /// Where each begins and ends that is on its way.
    on_the_way: VecDeque<(Option<LogId>, Option<LogId>)>,
    had_one: bool,
}

/// What an answer means for openraft.
#[derive(Debug)]
pub enum Told {
    /// Nothing yet: a later answer says the same.
    Nothing,
    Acked(Appended),
    /// And it ends the session.
    Last(Appended),
}

impl Acks {
    /// An append goes out; openraft has just made it.
    pub fn sent(&mut self, prev: Option<LogId>, last: Option<LogId>) {
        self.on_the_way.push_back((prev, last));
    }

    /// The answer to the first that is on its way. The link may reorder, and a follower that gets the second append before the
    /// first says that something is missing; only as the answer to the first append of a session does that tell anything
    /// about its log, so any later one ends the session, and the next begins at what is known to be there.
    pub fn answered(&mut self, answer: Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>>) -> Told {
        let Some((prev, last)) = self.on_the_way.pop_front() else {
            return Told::Last(Err(unreadable("an answer to nothing".into())));
        };
        let is_first = !std::mem::replace(&mut self.had_one, true);
        match answer {
            Ok(AppendEntriesResponse::Success) => self.acked(last),
            Ok(AppendEntriesResponse::PartialSuccess(upto)) if upto == last => self.acked(last),
            Ok(AppendEntriesResponse::PartialSuccess(upto)) => Told::Last(Ok(Ok(upto))),
            Ok(AppendEntriesResponse::HigherVote(vote)) => Told::Last(Ok(Err(StreamAppendError::HigherVote(vote)))),
            Ok(AppendEntriesResponse::Conflict) => Told::Last(match prev {
                Some(prev) if is_first => Ok(Err(StreamAppendError::Conflict(prev))),
                _ => Err(unreadable("an append came out of its order".into())),
            }),
            Err(error) => Told::Last(Err(error)),
        }
    }

    fn acked(&self, last: Option<LogId>) -> Told {
        if self.on_the_way.front().is_some_and(|(_, next)| *next == last) {
            return Told::Nothing;
        }
        Told::Acked(Ok(Ok(last)))
    }
}

pub fn unreadable(what: String) -> RPCError<TypeConfig> {
    RPCError::Network(NetworkError::new(&io::Error::new(io::ErrorKind::InvalidData, what)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::types::{LeaderTerm, Vote};
    use openraft::impls::leader_id_std::LeaderId;

    fn id(index: u64) -> Option<LogId> {
        Some(LogId { leader_id: LeaderTerm { term: 1 }, index })
    }

    fn after(sent: &[(u64, u64)]) -> Acks {
        let mut acks = Acks::default();
        sent.iter().for_each(|(prev, last)| acks.sent(id(*prev), id(*last)));
        acks
    }

    fn acked_upto(told: &Told) -> Option<u64> {
        match told {
            Told::Acked(Ok(Ok(Some(upto)))) => Some(upto.index),
            _ => None,
        }
    }

    /// [FR-001] openraft would take the moment of the second for that of the first.
    #[test]
    fn an_acknowledgement_waits_for_the_later_appends_that_end_at_the_same_entry() {
        let mut acks = after(&[(1, 2), (2, 2), (2, 2)]);
        assert!(matches!(acks.answered(Ok(AppendEntriesResponse::Success)), Told::Nothing));
        assert!(matches!(acks.answered(Ok(AppendEntriesResponse::PartialSuccess(id(2)))), Told::Nothing));
        assert_eq!(acked_upto(&acks.answered(Ok(AppendEntriesResponse::Success))), Some(2));
        acks.sent(id(2), id(2));
        assert_eq!(acked_upto(&acks.answered(Ok(AppendEntriesResponse::Success))), Some(2));
    }

    #[test]
    fn an_acknowledgement_does_not_wait_for_appends_that_go_further() {
        let mut acks = after(&[(1, 2), (2, 3), (3, 3)]);
        assert_eq!(acked_upto(&acks.answered(Ok(AppendEntriesResponse::Success))), Some(2));
        assert!(matches!(acks.answered(Ok(AppendEntriesResponse::Success)), Told::Nothing));
        assert_eq!(acked_upto(&acks.answered(Ok(AppendEntriesResponse::Success))), Some(3));
    }

    /// What was held back is known to nobody then: it is sent again.
    #[test]
    fn a_failure_behind_an_acknowledgement_that_waits_ends_the_session() {
        let mut acks = after(&[(1, 2), (2, 2)]);
        assert!(matches!(acks.answered(Ok(AppendEntriesResponse::Success)), Told::Nothing));
        assert!(matches!(acks.answered(Err(unreadable("lost".into()))), Told::Last(Err(_))));
    }

    #[test]
    fn the_rest_ends_the_session() {
        let vote = Vote { leader_id: LeaderId { term: 2, voted_for: 3 }, committed: true };
        let refused = after(&[(1, 2), (2, 2)]).answered(Ok(AppendEntriesResponse::HigherVote(vote)));
        assert!(matches!(refused, Told::Last(Ok(Err(StreamAppendError::HigherVote(found)))) if found == vote));
        let partly = after(&[(1, 3), (3, 3)]).answered(Ok(AppendEntriesResponse::PartialSuccess(id(2))));
        assert!(matches!(partly, Told::Last(Ok(Ok(upto))) if upto == id(2)));
        let mut acks = after(&[(1, 2), (2, 3)]);
        let missing = acks.answered(Ok(AppendEntriesResponse::Conflict));
        assert!(matches!(missing, Told::Last(Ok(Err(StreamAppendError::Conflict(at)))) if Some(at) == id(1)));
        assert!(
            matches!(acks.answered(Ok(AppendEntriesResponse::Conflict)), Told::Last(Err(_))),
            "only the first tells"
        );
        assert!(matches!(acks.answered(Ok(AppendEntriesResponse::Success)), Told::Last(Err(_))), "nothing was asked");
    }
}
