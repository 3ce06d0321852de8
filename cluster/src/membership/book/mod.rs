//! The book of the cluster: a grain in shard 0 that says who is a member and where each shard belongs.
//!
//! What a change means is in `changes`, one function each, from the book before to the book after; what is written is the
//! difference of the two (`rows`). A reply is always the whole book: it is small, and whoever asks wants to learn it.
//! Times in it are the owner's, for people; nothing is decided by them, and no clock of another node is looked at (FR-017).

mod changes;
mod rows;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use view::{book_of, to_view, view_of};

use crate::directory::Member;
use crate::placement::OWN_TENANT;
use grain_contract::{
    Code, Context, Corrupt, Decision, Effect, Grain, GrainId, GrainKind, GrainType, Message, Method, Need, Rejection,
    Row, Supply, Timestamp, Turn,
};
use granary_proto::peers::{BookMember, BookView, ChangeBook, FoundBook, JoinBook, PlaceBook, ReadBook, SeenBook};
use prost::Message as _;
use shard::NodeId;
use std::collections::BTreeMap;
use uuid::Uuid;

pub(crate) const KIND: &str = "cluster";
pub(crate) const KEY: &str = "book";

/// `FoundBook`; all of these answer a `BookView`, the whole book.
pub(crate) const FOUND: Method = Method(1);
/// `JoinBook`
pub(crate) const JOIN: Method = Method(2);
/// `SeenBook`
pub(crate) const SEEN: Method = Method(3);
/// `ReadBook`; the answer is empty if there is nothing newer.
pub(crate) const READ: Method = Method(4);
/// `ChangeBook`
pub(crate) const CHANGE: Method = Method(5);
/// `PlaceBook`
pub(crate) const PLACE: Method = Method(6);

/// Members that are not gone.
pub(crate) const MEMBERS_MAX: usize = 256;
/// Members that are gone are remembered, the latest ones; a node that is not remembered is no member either.
pub(crate) const GONE_KEPT_MAX: usize = 256;

pub(crate) fn id() -> GrainId {
    GrainId::new(&OWN_TENANT.into(), &KIND.into(), KEY)
}

/// The book as of one version. Immutable: a change makes the next one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Book {
    pub(crate) cluster: Uuid,
    pub(crate) version: u64,
    /// Replicas of a shard that are wanted.
    pub(crate) replicas: u32,
    pub(crate) members: BTreeMap<NodeId, Member>,
    /// By shard.
    pub(crate) places: Vec<Vec<NodeId>>,
}

pub(crate) struct BookType;

impl GrainType for BookType {
    fn kind(&self) -> GrainKind {
        KIND.into()
    }

    /// Each says so of itself; a director's findings that were taken already meet a newer version, and are made anew.
    fn is_idempotent(&self, _: Method) -> bool {
        true
    }

    fn load(&self, _: &GrainId, rows: Vec<Row>) -> Result<Box<dyn Grain>, Corrupt> {
        Ok(Box::new(BookGrain { book: rows::read(&rows)? }))
    }
}

struct BookGrain {
    /// `None` until the cluster is founded.
    book: Option<Book>,
}

impl Grain for BookGrain {
    fn handle(&mut self, cx: &mut Context<'_>, message: &Message<'_>) -> Decision {
        match *message {
            Message::Call { method: READ, body } => match self.newer(body) {
                Ok(view) => Decision::Read(view.encode_to_vec()),
                Err(rejection) => Decision::Reject(rejection),
            },
            Message::Call { method, body } => match self.next(method, body, cx.now) {
                Ok(next) => self.turn(next),
                Err(rejection) => Decision::Reject(rejection),
            },
            // It sets no reminders and has no work.
            Message::Reminder { .. } | Message::Wake => Decision::Read(Vec::new()),
        }
    }

    fn supply(&mut self, _: &Need, _: Supply) {}

    fn memory(&self) -> usize {
        self.book.as_ref().map_or(0, |book| book.members.len() * 256 + book.places.len() * 64)
    }
}

/// The book after a call; `None` if it stays as it is.
type Next = Result<Option<Book>, Rejection>;

impl BookGrain {
    fn next(&self, method: Method, body: &[u8], now: Timestamp) -> Next {
        match method {
            FOUND => changes::found(self.book.as_ref(), &read::<FoundBook>(body)?),
            JOIN => changes::join(self.present()?, &read::<JoinBook>(body)?, now),
            SEEN => changes::seen(self.present()?, &read::<SeenBook>(body)?, now),
            CHANGE => changes::change(self.present()?, &read::<ChangeBook>(body)?, now),
            PLACE => changes::place(self.present()?, &read::<PlaceBook>(body)?, now),
            _ => Err(Rejection::new(Code::Invalid, format!("Expected a call of the book, but found {}.", method.0))),
        }
    }

    /// Empty if there is nothing newer.
    fn newer(&self, body: &[u8]) -> Result<BookView, Rejection> {
        let ReadBook { since } = read(body)?;
        let book = self.present()?;
        Ok(if book.version > since { view_of(book) } else { BookView::default() })
    }

    fn present(&self) -> Result<&Book, Rejection> {
        let why = "Expected the book of the cluster, but the cluster is not founded yet.";
        self.book.as_ref().ok_or_else(|| Rejection::new(Code::Unavailable, why))
    }

    fn turn(&mut self, next: Option<Book>) -> Decision {
        let Some(next) = next else {
            return Decision::Read(self.book.as_ref().map(view_of).unwrap_or_default().encode_to_vec());
        };
        let (puts, deletes) = rows::difference(self.book.as_ref(), &next);
        let reply = view_of(&next).encode_to_vec();
        self.book = Some(next);
        Decision::Commit(Turn { puts, deletes, effects: vec![Effect::Changed], reply, ..Turn::default() })
    }
}

fn read<M: prost::Message + Default>(body: &[u8]) -> Result<M, Rejection> {
    M::decode(body).map_err(|error| Rejection::new(Code::Invalid, format!("Expected a call of the book, but {error}.")))
}

fn named(member: Option<&BookMember>) -> Result<&BookMember, Rejection> {
    let member = member.filter(|member| member.node_id != 0 && !member.name.is_empty());
    member.ok_or_else(|| Rejection::new(Code::Invalid, "Expected a member with name and id, but found none.").at("me"))
}
