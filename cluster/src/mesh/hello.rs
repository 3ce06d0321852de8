//! The first message on every connection: who is there, proven; and whom each has heard of.

use super::Error;
use super::judge::{Judged, complete, judge, readable};
use super::proof::End;
use super::roster::{Admission, Ways};
use super::session::Session;
use super::shared::Shared;
use super::socket::Binding;
use super::{link, wire};
use granary_proto::peers::hello_refusal::Kind;
use granary_proto::peers::{HelloRefusal, HelloReply, HelloRequest, NodeIdentity};
use shard::NodeId;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

/// Others of whom one message may tell.
const TOLD_MAX: usize = 256;
/// A living process whose id or name somebody else claims must answer within this time.
const ALIVE_WITHIN: Duration = Duration::from_secs(1);

/// Who was met by dialling.
#[derive(Debug)]
pub(super) enum Met {
    Myself,
    Peer { node: NodeId, boot: u64, life: CancellationToken },
}

#[derive(Debug)]
pub(super) enum Failed {
    Connection(String),
    /// They do not want us.
    Refused(HelloRefusal),
    /// We do not want them.
    Unwelcome(HelloRefusal),
}

/// The other end of a connection that this node dialled.
#[derive(Clone)]
pub(super) struct Remote {
    pub names: Vec<String>,
    pub binding: Binding,
    pub ip: IpAddr,
}

/// Says hello over a connection that this node dialled.
pub(super) async fn say(shared: &Arc<Shared>, channel: Channel, remote: &Remote) -> Result<Met, Failed> {
    let request = HelloRequest {
        me: Some(shared.me.identity()),
        known: shared.roster.known(Instant::now()),
        proof: shared.secret.prove(End::Dialler, &remote.binding),
    };
    let answer = tokio::time::timeout(shared.timing.handshake, wire::peers(channel).hello(request)).await;
    let reply = match answer {
        Ok(Ok(reply)) => reply.into_inner(),
        Ok(Err(status)) => return Err(Failed::Connection(status.message().to_owned())),
        Err(_) => return Err(Failed::Connection("no answer to the hello".into())),
    };
    if let Some(refused) = reply.refused {
        shared.warn(&format!("a node at {} refuses this one: {}", remote.ip, refused.message));
        if refused.kind() == Kind::Taken {
            shared.bar(Error::Taken(refused.message.clone()));
        }
        return Err(Failed::Refused(refused));
    }
    if !shared.secret.is_proven(End::Acceptor, &remote.binding, &reply.proof) {
        return Err(unwelcome(shared, wrong_secret(remote.ip)));
    }
    let identity = reply.me.ok_or_else(|| Failed::Connection("the answer has no identity".into()))?;
    let identity = complete(identity, remote.ip);
    let judged = judge(&shared.me.identity(), &identity, &remote.names).map_err(|why| unwelcome(shared, why))?;
    if judged == Judged::Myself {
        return Ok(Met::Myself);
    }
    let life = admit(shared, &identity).await.map_err(|why| unwelcome(shared, why))?;
    learn(shared, reply.known);
    Ok(Met::Peer { node: identity.node_id, boot: identity.boot, life })
}

/// Answers the hello of a connection that was accepted.
pub(super) async fn receive(shared: &Arc<Shared>, session: &Session, request: HelloRequest) -> HelloReply {
    let ip = session.remote.ip();
    if !shared.secret.is_proven(End::Dialler, &session.binding, &request.proof) {
        session.dismiss();
        let Failed::Unwelcome(refused) = unwelcome(shared, wrong_secret(ip)) else { return HelloReply::default() };
        return HelloReply { refused: Some(refused), ..HelloReply::default() };
    }
    let me = shared.me.identity();
    let identity = complete(request.me.unwrap_or_default(), ip);
    let judged = match judge(&me, &identity, &session.names) {
        Ok(Judged::Myself) => Ok(None),
        Ok(Judged::Peer) => admit(shared, &identity).await.map(Some),
        Err(refused) => Err(refused),
    };
    match judged {
        Ok(Some(life)) => {
            session.welcome(identity.node_id, identity.boot, life);
            learn(shared, request.known);
        }
        Ok(None) => {}
        Err(refused) => {
            session.dismiss();
            shared.warn(&format!("a node at {ip} is refused: {}", refused.message));
            return HelloReply { me: Some(me), refused: Some(refused), ..HelloReply::default() };
        }
    }
    HelloReply {
        me: Some(me),
        known: shared.roster.known(Instant::now()),
        proof: shared.secret.prove(End::Acceptor, &session.binding),
        refused: None,
    }
}

/// Takes a welcome node in, unless another living process has its id or its name.
pub(super) async fn admit(shared: &Arc<Shared>, identity: &NodeIdentity) -> Result<CancellationToken, HelloRefusal> {
    // Twice: a dead one may have to be buried first.
    for _ in 0..2 {
        let occupant = match shared.roster.admit(identity, Instant::now()) {
            Admission::Admitted { life, is_new } => {
                if is_new {
                    link::keep(shared, identity.node_id);
                }
                return Ok(life);
            }
            Admission::Full => {
                let message = "Expected fewer nodes, but no more can be kept in mind".to_owned();
                return Err(HelloRefusal { kind: Kind::BadRequest.into(), message });
            }
            Admission::Occupied(node) => node,
        };
        let ways = shared.roster.ways(occupant);
        if let Some(ways) = ways
            && is_alive(ways).await
        {
            break;
        }
        shared.roster.bury(occupant);
    }
    let name = &identity.name;
    let message =
        format!("Expected one process as node {name}, but another one with this name or id lives and answers");
    Err(HelloRefusal { kind: Kind::Taken.into(), message })
}

async fn is_alive(ways: Ways) -> bool {
    let asked = ways.gate.into_iter().chain(ways.wire.map(|wire| -> Arc<dyn super::line::Line> { wire }));
    let answers = asked.map(|line| async move { line.answers(ALIVE_WITHIN).await });
    futures::future::join_all(answers).await.contains(&true)
}

/// Takes in whom others have heard of.
fn learn(shared: &Arc<Shared>, known: Vec<NodeIdentity>) {
    let me = shared.me.identity();
    for identity in known.into_iter().take(TOLD_MAX) {
        if identity.node_id == me.node_id || identity.name == me.name || readable(&identity).is_err() {
            continue;
        }
        if shared.roster.hear(&identity, Instant::now()) {
            link::keep(shared, identity.node_id);
        }
    }
}

fn unwelcome(shared: &Shared, refused: HelloRefusal) -> Failed {
    shared.warn(&format!("a node is refused: {}", refused.message));
    Failed::Unwelcome(refused)
}

fn wrong_secret(ip: IpAddr) -> HelloRefusal {
    let message = format!("Expected the cluster's secret, but the node at {ip} has another one");
    HelloRefusal { kind: Kind::Secret.into(), message }
}
