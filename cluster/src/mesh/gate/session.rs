//! One session of ractor_cluster, from "ready" to its end: who is there, and whether it still is.

use super::actor::GateMessage;
use super::keeper::Connection;
use super::line::GateLine;
use super::{GROUP, SCOPE};
use crate::mesh::hello::admit;
use crate::mesh::judge::{Judged, complete, judge};
use crate::mesh::line::Line;
use crate::mesh::shared::Shared;
use granary_proto::peers::{HelloReply, HelloRequest, NodeIdentity};
use prost::Message;
use ractor::rpc::CallResult;
use ractor::{ActorId, ActorRef, pg};
use ractor_cluster::node::NodeServerSessionInformation;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// The peer may not have met this node over gRPC yet, which it must before it takes its calls.
const HELLO_TRIES_MAX: u32 = 40;
const HELLO_PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn serve(shared: Arc<Shared>, session: NodeServerSessionInformation, connection: Connection) {
    let served = async {
        if let Err(why) = stay(&shared, &session, &connection).await {
            shared.warn(&format!("a gate at {} is not used: {why}", connection.ip));
        }
    };
    connection.end.run_until_cancelled(served).await;
    connection.end.cancel();
    session.actor.stop(None);
}

async fn stay(
    shared: &Arc<Shared>,
    session: &NodeServerSessionInformation,
    connection: &Connection,
) -> Result<(), String> {
    let gate = gate_of(session).ok_or("it has no gate")?;
    let identity = complete(hello(shared, &gate).await?, connection.ip);
    let said = session.peer_name.as_ref().map(|name| name.name.as_str()).unwrap_or_default();
    if said.split('@').next() != Some(&*format!("{:x}.{:x}", identity.node_id, identity.boot)) {
        return Err(format!("the session is {said}'s, the gate {}'s", identity.name));
    }
    match judge(&shared.me.identity(), &identity, &connection.names).map_err(|refused| refused.message)? {
        Judged::Peer => {}
        Judged::Myself => return Err("it is this node itself".into()),
    }
    let life = admit(shared, &identity).await.map_err(|refused| refused.message)?;
    let (node, boot) = (identity.node_id, identity.boot);
    let attached = Attached::new(shared, node, boot, GateLine::new(gate, connection.end.clone()));
    let Some(attached) = attached else { return Ok(()) };
    watch(shared, &attached.line, &life).await;
    Ok(())
}

/// The gate of the session's node, which has one visible actor and no other.
fn gate_of(session: &NodeServerSessionInformation) -> Option<ActorRef<GateMessage>> {
    let members = pg::get_scoped_members(&SCOPE.into(), &GROUP.into());
    let of_session = |id| matches!(id, ActorId::Remote { node_id, .. } if node_id == session.node_id);
    members.into_iter().find(|member| of_session(member.get_id())).map(ActorRef::from)
}

async fn hello(shared: &Shared, gate: &ActorRef<GateMessage>) -> Result<NodeIdentity, String> {
    let request = HelloRequest { me: Some(shared.me.identity()), ..HelloRequest::default() }.encode_to_vec();
    let mut why = String::from("no answer to the hello");
    for _ in 0..HELLO_TRIES_MAX {
        let asked = gate.call(|port| GateMessage::Hello(request.clone(), port), Some(shared.timing.handshake)).await;
        let Ok(CallResult::Success(reply)) = asked else { return Err(why) };
        let reply = HelloReply::decode(reply.as_slice()).map_err(|error| error.to_string())?;
        match (reply.refused, reply.me) {
            (None, Some(me)) => return Ok(me),
            (None, None) => return Err("the hello has no identity".into()),
            (Some(refused), _) => why = refused.message,
        }
        tokio::time::sleep(HELLO_PAUSE).await;
    }
    Err(why)
}

/// Detaches whatever way the session's task ends.
struct Attached {
    shared: Arc<Shared>,
    node: u64,
    gate: Arc<dyn Line>,
    line: Arc<GateLine>,
}

impl Attached {
    fn new(shared: &Arc<Shared>, node: u64, boot: u64, line: GateLine) -> Option<Self> {
        let line = Arc::new(line);
        let gate: Arc<dyn Line> = line.clone();
        let is_attached = shared.roster.attach_gate(node, boot, &gate);
        is_attached.then(|| Self { shared: shared.clone(), node, gate, line })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.shared.roster.detach_gate(self.node, &self.gate, Instant::now());
    }
}

/// Comes when the peer has given no sign of life for the deadline, or its place is another process's.
async fn watch(shared: &Shared, line: &GateLine, life: &CancellationToken) {
    let timing = shared.timing;
    let pinging = async {
        // Not an interval: after a stall it would catch up with a burst.
        loop {
            tokio::time::sleep(timing.ping).await;
            // A call that was answered meanwhile is as good as a ping.
            if line.heard().elapsed() < timing.ping || line.answers(timing.ping).await {
                continue;
            }
            if line.heard().elapsed() >= timing.deadline {
                return;
            }
        }
    };
    life.run_until_cancelled(pinging).await;
}
