//! Calls of other nodes, and of the book wherever it is.

use super::book;
use super::ground::Inner;
use crate::hop::wire::read_rejection;
use crate::peers::{CallError, Refused};
use crate::{Request, refusal};
use bytes::Bytes;
use grain_contract::{Code, Method, Rejection};
use granary_proto::peers::{AskBook, AskBookAnswer, BookView, ask_book_answer};
use prost::Message;
use shard::{NodeId, ShardId};
use std::time::Duration;
use tokio::time::Instant;

/// The parts of this service between nodes.
pub(super) const GREET: &str = "book.greet";
pub(super) const ADOPT: &str = "book.adopt";
pub(super) const BEGIN: &str = "book.begin";
pub(super) const ASK: &str = "book.ask";
pub(super) const LEARN: &str = "book.learn";
pub(super) const STATUS: &str = "node.status";
pub(super) const ORDER: &str = "node.order";
pub(super) const COUNTS_ON: &str = "node.counts_on";

impl Inner {
    /// One call of another node.
    pub(super) async fn call<A: Message + Default>(
        &self,
        to: NodeId,
        method: &'static str,
        question: &impl Message,
        within: Duration,
    ) -> Result<A, CallError> {
        let body = Bytes::from(question.encode_to_vec());
        let answer = self.ground.peers.call(to, method, body, within).await?;
        A::decode(answer)
            .map_err(|error| CallError::Refused(Refused::Other(format!("an answer that is none: {error}"))))
    }

    /// The book, by the silo of this node: it finds the owner if it knows any replica of shard 0.
    pub(super) async fn ask_here(
        &self,
        method: Method,
        question: &impl Message,
        within: Duration,
    ) -> Result<BookView, Rejection> {
        self.ask_raw(method, question.encode_to_vec(), within).await
    }

    pub(super) async fn ask_raw(&self, method: Method, body: Vec<u8>, within: Duration) -> Result<BookView, Rejection> {
        let deadline = Instant::now() + within;
        let request = Request { target: book::id(), method, body, command: None, deadline };
        read(&self.ground.silo.call(request).await?)
    }

    /// The book, through another node.
    pub(super) async fn ask_through(
        &self,
        to: NodeId,
        method: Method,
        question: &impl Message,
        within: Duration,
    ) -> Result<BookView, Rejection> {
        let question = AskBook { method: u32::from(method.0), body: question.encode_to_vec() };
        let answer: AskBookAnswer = self.call(to, ASK, &question, within).await.map_err(refusal::unavailable)?;
        match answer.answer {
            Some(ask_book_answer::Answer::Reply(reply)) => read(&reply),
            Some(ask_book_answer::Answer::Rejection(rejection)) => Err(read_rejection(rejection)),
            None => Err(refusal::unavailable("an answer that is none")),
        }
    }

    /// The book, one way or another: here first if there is somebody to ask, then through each node of this cluster that can be
    /// called. A refusal of the book itself is final; everything else is tried elsewhere.
    pub(super) async fn ask(&self, method: Method, question: &impl Message) -> Result<BookView, Rejection> {
        let within = self.options.call_within;
        let mut why = refusal::unavailable("no node of the cluster can be called");
        if self.knows_a_replica() {
            match self.ask_here(method, question, within).await {
                Err(rejection) if is_passing(&rejection) => why = rejection,
                answer => return answer,
            }
        }
        let cluster = self.cluster();
        for (node, info) in self.attached().iter() {
            if info.cluster.is_none() || cluster.is_some_and(|cluster| info.cluster != Some(cluster)) {
                continue;
            }
            match self.ask_through(*node, method, question, within).await {
                Err(rejection) if is_passing(&rejection) => why = rejection,
                answer => return answer,
            }
        }
        Err(why)
    }

    fn knows_a_replica(&self) -> bool {
        self.ground.host.hosted().contains(&ShardId(0)) || !self.ground.directory.replicas(ShardId(0)).is_empty()
    }
}

/// Whether another node, or a later moment, may answer otherwise.
pub(super) fn is_passing(rejection: &Rejection) -> bool {
    matches!(rejection.code, Code::Unavailable | Code::Overloaded | Code::Internal)
}

fn read(reply: &[u8]) -> Result<BookView, Rejection> {
    BookView::decode(reply).map_err(|error| Rejection::new(Code::Internal, format!("Expected the book, but {error}.")))
}
