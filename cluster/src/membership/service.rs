//! What this node answers to others about its membership: `book.*` also to nodes that are in no cluster yet, `node.*` to those
//! of its own.

use super::ask::{ADOPT, ASK, BEGIN, COUNTS_ON, GREET, LEARN, ORDER, STATUS};
use super::book::{self, to_view};
use super::ground::Inner;
use super::{enter, orders, report};
use crate::hop::wire::{read, rejection};
use crate::peers::{PeerService, Refused};
use bytes::Bytes;
use futures::future::BoxFuture;
use grain_contract::{Method, Rejection};
use granary_proto::peers::{
    AskBook, AskBookAnswer, BookView, JoinBook, LearnAnswer, NodeOrderAnswer, NodeStatusRequest, ask_book_answer,
};
use prost::Message as _;
use shard::NodeId;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Weak, so that the switchboard does not keep a membership that is over.
pub(super) struct Service(pub(super) Weak<Inner>);

impl PeerService for Service {
    fn handle(
        &self,
        from: NodeId,
        method: &str,
        body: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, Refused>> {
        let (inner, method) = (self.0.upgrade(), method.to_owned());
        Box::pin(async move {
            let inner = inner.ok_or_else(|| Refused::Other("the node is stopping".to_owned()))?;
            let answer = tokio::time::timeout(within, answer(&inner, from, &method, &body, within)).await;
            answer.unwrap_or_else(|_| Err(Refused::Other("not done in time; it may go on".to_owned())))
        })
    }
}

async fn answer(
    inner: &Arc<Inner>,
    from: NodeId,
    method: &str,
    body: &Bytes,
    within: Duration,
) -> Result<Bytes, Refused> {
    if method.starts_with("node.") {
        check_cluster(inner, from)?;
    }
    let answer = match method {
        GREET => enter::greeting(inner).encode_to_vec(),
        ADOPT => enter::adopt(inner, from, &read(body)?).await?.encode_to_vec(),
        BEGIN => enter::begin(inner, from, &read(body)?).await?.encode_to_vec(),
        ASK => ask(inner, from, read(body)?, within).await.encode_to_vec(),
        LEARN => learn(inner, &read(body)?).encode_to_vec(),
        STATUS => report::of_this_node(inner, &read::<NodeStatusRequest>(body)?).await.encode_to_vec(),
        ORDER => {
            let refused = orders::obey(inner, &read(body)?).await.err().unwrap_or_default();
            NodeOrderAnswer { refused }.encode_to_vec()
        }
        COUNTS_ON => orders::counts_on(inner, &read(body)?).encode_to_vec(),
        other => return Err(Refused::UnknownMethod(other.to_owned())),
    };
    Ok(answer.into())
}

/// The mesh refuses nodes of other clusters already; this is for what it cannot know yet.
fn check_cluster(inner: &Inner, from: NodeId) -> Result<(), Refused> {
    let theirs = inner.attached().get(&from).and_then(|info| info.cluster);
    match (theirs, inner.cluster()) {
        (Some(theirs), Some(ours)) if theirs != ours => {
            Err(Refused::NotMe(format!("this node is of cluster {ours}, the caller of {theirs}")))
        }
        (_, None) => Err(Refused::NotMe("this node is in no cluster yet".to_owned())),
        _ => Ok(()),
    }
}

/// A call of the book for a node that cannot find it. Who joins does not say itself whether its name is free.
async fn ask(inner: &Inner, from: NodeId, question: AskBook, within: Duration) -> AskBookAnswer {
    use ask_book_answer::Answer;
    let AskBook { method, body } = question;
    let method = Method(u16::try_from(method).unwrap_or(0));
    let answer = match method {
        book::JOIN => match JoinBook::decode(body.as_slice()) {
            Ok(join) => inner.ask_here(method, &checked(inner, from, join), within).await,
            Err(error) => Err(Rejection::new(grain_contract::Code::Invalid, error.to_string())),
        },
        _ => inner.ask_raw(method, body, within).await,
    };
    AskBookAnswer {
        answer: Some(match answer {
            Ok(view) => Answer::Reply(view.encode_to_vec()),
            Err(told) => Answer::Rejection(rejection(&told)),
        }),
    }
}

fn checked(inner: &Inner, from: NodeId, mut join: JoinBook) -> JoinBook {
    let attached = inner.attached();
    if let Some(me) = join.me.as_mut() {
        // The name is that of its certificate, which the mesh has looked at; the id is the one that it is called by.
        me.node_id = from;
        if let Some(info) = attached.get(&from) {
            me.name.clone_from(&info.name);
        }
        let lives = |node: NodeId| node == inner.me() || attached.contains_key(&node);
        let view = inner.ground.directory.view();
        let gone = crate::directory::MemberState::Gone;
        let holder = view.members.values().find(|member| member.name == me.name && member.state != gone);
        join.old_is_alive = holder.is_some_and(|holder| holder.node != from && lives(holder.node));
    }
    join
}

fn learn(inner: &Inner, view: &BookView) -> LearnAnswer {
    // A book of another cluster is never learnt, whoever sends it.
    if let Some(view) = to_view(view).filter(|view| view.cluster.is_some() && view.cluster == inner.cluster()) {
        inner.ground.directory.learn(view);
    }
    LearnAnswer { version: inner.ground.directory.view().version }
}
