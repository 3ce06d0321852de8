//! Runs ractor_cluster's node server, gives it connections, and follows what it says of them.

use super::actor::Gate;
use super::guarded::Guarded;
use super::{Claim, dial, session};
use crate::mesh::shared::Shared;
use crate::mesh::socket::{Secured, accept};
use crate::mesh::tls::Purpose;
use crate::peers::CALL_BYTES_MAX;
use parking_lot::Mutex;
use ractor::{Actor, ActorRef};
use ractor_cluster::node::{NodeEventSubscription, NodeServerSessionInformation};
use ractor_cluster::{IncomingEncryptionMode, NodeServer, NodeServerMessage};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// A frame: the largest body with its envelope, or the list of the one visible actor.
const FRAME_BYTES_MAX: u64 = (CALL_BYTES_MAX + (1 << 20)) as u64;
/// Events of sessions that wait. One that is lost costs no more than a deadline: a session that is not taken in is closed,
/// and one that has ended does not answer pings.
const EVENTS_MAX: usize = 4_096;
/// Until the session is ready to be used; ractor_cluster has no such deadline.
const READY_WITHIN: Duration = Duration::from_secs(4);
/// Before a node server that has ended by itself is started again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

pub(in crate::mesh) struct Keeper {
    pub(super) shared: Arc<Shared>,
    server: Mutex<Option<ActorRef<NodeServerMessage>>>,
    connections: Mutex<HashMap<String, Connection>>,
    last_label: AtomicU64,
}

/// A connection that was handed to the node server.
#[derive(Clone)]
pub(super) struct Connection {
    /// Those of the certificate at the other end.
    pub names: Vec<String>,
    pub ip: IpAddr,
    pub end: CancellationToken,
    pub is_ready: CancellationToken,
}

enum Event {
    Ready(NodeServerSessionInformation),
    Ended(NodeServerSessionInformation),
}

impl Keeper {
    /// Accepts, dials and keeps the node server running until the mesh stops.
    pub(in crate::mesh) fn start(shared: &Arc<Shared>, listener: TcpListener, claim: Claim) {
        let keeper = Arc::new(Self {
            shared: shared.clone(),
            server: Mutex::default(),
            connections: Mutex::default(),
            last_label: AtomicU64::default(),
        });
        let (sender, accepted) = mpsc::channel(1);
        let (credentials, within) = (shared.credentials.clone(), shared.timing.handshake);
        shared.tasks.spawn(accept(listener, credentials, Purpose::Gate, within, sender, shared.stop.clone()));
        shared.tasks.spawn(keeper.clone().take(accepted));
        shared.tasks.spawn(dial::all(keeper.clone()));
        shared.tasks.spawn(keeper.run(claim));
    }

    async fn take(self: Arc<Self>, mut accepted: mpsc::Receiver<Secured>) {
        // Not until the senders are gone: a handshake that is under way has one.
        while let Some(Some(secured)) = self.shared.stop.run_until_cancelled(accepted.recv()).await {
            self.attach(secured, true);
        }
    }

    async fn run(self: Arc<Self>, claim: Claim) {
        while !self.shared.stop.is_cancelled() {
            if let Err(error) = self.serve().await {
                tracing::error!(error, "the gate for other nodes does not run; it is started again");
            }
            self.shared.stop.run_until_cancelled(tokio::time::sleep(AGAIN_AFTER)).await;
        }
        drop(claim);
    }

    /// One life of the node server.
    async fn serve(self: &Arc<Self>) -> Result<(), String> {
        let (server, mut server_ended) =
            Actor::spawn(None, self.node_server().await, ()).await.map_err(|error| error.to_string())?;
        let (gate, mut gate_ended) =
            Actor::spawn(None, Gate, self.shared.clone()).await.map_err(|error| error.to_string())?;
        let (sender, mut events) = mpsc::channel(EVENTS_MAX);
        let subscription = Box::new(Subscription(sender));
        // Before the first connection, so that no event is missed.
        let subscribed = server.cast(NodeServerMessage::SubscribeToEvents { id: "mesh".into(), subscription });
        subscribed.map_err(|error| error.to_string())?;
        *self.server.lock() = Some(server.clone());
        let outcome = loop {
            tokio::select! {
                () = self.shared.stop.cancelled() => break Ok(()),
                _ = &mut server_ended => break Err("the node server has ended".to_owned()),
                _ = &mut gate_ended => break Err("the gate has ended".to_owned()),
                event = events.recv() => match event {
                    Some(event) => self.on(event),
                    None => break Err("the node server says nothing more".to_owned()),
                },
            }
        };
        *self.server.lock() = None;
        self.connections.lock().drain().for_each(|(_, connection)| connection.end.cancel());
        server.stop(None);
        gate.stop(None);
        if !server_ended.is_finished() {
            server_ended.await.ok();
        }
        if !gate_ended.is_finished() {
            gate_ended.await.ok();
        }
        outcome
    }

    async fn node_server(&self) -> NodeServer {
        let me = self.shared.me.identity();
        let parked = TlsAcceptor::from(self.shared.credentials.server(Purpose::Gate).await);
        // The boot is part of the name: a session of an earlier boot that is dead without knowing it must not take part in
        // the choice between two sessions of one node.
        let name = format!("{:x}.{:x}", me.node_id, me.boot);
        let host = format!("{:x}.mesh", me.node_id);
        NodeServer::new(0, self.shared.secret.cookie(), name, host, Some(IncomingEncryptionMode::Tls(parked)), None)
            .with_listen_addr(Ipv4Addr::LOCALHOST.into())
            .with_max_inbound_frame_size(FRAME_BYTES_MAX)
    }

    /// Hands a connection to the node server. `None` = there is no node server now.
    pub(super) fn attach(&self, secured: Secured, is_server: bool) -> Option<Connection> {
        let server = self.server.lock().clone()?;
        let label = format!("c{}", self.last_label.fetch_add(1, Ordering::Relaxed));
        let connection = Connection {
            names: secured.names,
            ip: secured.remote.ip(),
            end: self.shared.stop.child_token(),
            is_ready: CancellationToken::new(),
        };
        self.connections.lock().insert(label.clone(), connection.clone());
        let stream = Guarded { stream: secured.stream, label: label.clone(), end: connection.end.clone() };
        let opened = NodeServerMessage::ConnectionOpenedExternal { stream: Box::new(stream), is_server };
        if server.cast(opened).is_err() {
            self.connections.lock().remove(&label);
            return None;
        }
        let (is_ready, end, permit) = (connection.is_ready.clone(), connection.end.clone(), secured.permit);
        self.shared.tasks.spawn(async move {
            let ready = tokio::time::timeout(READY_WITHIN, is_ready.cancelled());
            if let Some(Err(_)) = end.run_until_cancelled(ready).await {
                end.cancel();
            }
            // The place among the accepted connections is free when this one has ended.
            end.cancelled().await;
            drop(permit);
        });
        Some(connection)
    }

    fn on(self: &Arc<Self>, event: Event) {
        match event {
            Event::Ready(session) => {
                let connection = self.connections.lock().get(&session.peer_addr).cloned();
                match connection {
                    Some(connection) => {
                        connection.is_ready.cancel();
                        self.shared.tasks.spawn(session::serve(self.shared.clone(), session, connection));
                    }
                    // Not over our sockets: nobody has seen its certificate.
                    None => session.actor.stop(None),
                }
            }
            Event::Ended(session) => {
                if let Some(connection) = self.connections.lock().remove(&session.peer_addr) {
                    connection.end.cancel();
                }
            }
        }
    }
}

struct Subscription(mpsc::Sender<Event>);

impl NodeEventSubscription for Subscription {
    fn node_session_opened(&self, _: NodeServerSessionInformation) {}

    fn node_session_authenticated(&self, _: NodeServerSessionInformation) {}

    fn node_session_ready(&self, session: NodeServerSessionInformation) {
        self.0.try_send(Event::Ready(session)).ok();
    }

    fn node_session_disconnected(&self, session: NodeServerSessionInformation) {
        self.0.try_send(Event::Ended(session)).ok();
    }
}
