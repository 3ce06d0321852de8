//! Connections that must not get in, or not further than they may.

use super::nodes::{Authority, Node, Plan, SECRET, soon, start};
use crate::mesh::options::MeshTiming;
use crate::mesh::proof::{End, Secret};
use crate::mesh::socket::dial;
use crate::mesh::tls::{Credentials, Purpose};
use crate::mesh::wire::{channel, peers, raft};
use granary_proto::peers::hello_refusal::Kind;
use granary_proto::peers::{Envelope, HelloReply, HelloRequest, NodeIdentity, Ping, RaftFrames};
use std::io;
use tonic::Code;
use tonic::transport::Channel;

struct Stranger {
    channel: Channel,
    binding: [u8; 32],
}

impl Stranger {
    async fn dial(authority: &Authority, name: &str, to: &Node) -> io::Result<Self> {
        let credentials = Credentials::new(authority.tls(&[name])).unwrap();
        let timing = MeshTiming::default();
        let address = to.mesh.addresses().peer.to_string();
        let secured = dial(&address, &credentials, Purpose::Peer, timing.handshake).await?;
        let binding = secured.binding;
        Ok(Self { channel: channel(secured.stream, &timing).await.map_err(io::Error::other)?, binding })
    }

    async fn hello(&self, me: NodeIdentity, secret: [u8; 32]) -> Result<HelloReply, tonic::Status> {
        let proof = Secret::new(&secret).prove(End::Dialler, &self.binding);
        let request = HelloRequest { me: Some(me), known: Vec::new(), proof };
        peers(self.channel.clone()).hello(request).await.map(tonic::Response::into_inner)
    }
}

fn identity(name: &str, node_id: u64) -> NodeIdentity {
    NodeIdentity {
        name: name.into(),
        node_id,
        boot: 5,
        protocol_min: 1,
        protocol_max: 1,
        peer_address: "127.0.0.1:1".into(),
        ..NodeIdentity::default()
    }
}

/// [P3]
#[tokio::test]
async fn a_certificate_of_another_authority_gets_no_byte_through() {
    let authority = Authority::new();
    let first = start(&authority, "a", 1, &[]).await;
    let Ok(stranger) = Stranger::dial(&Authority::new(), "b", &first).await else { return };
    // In TLS 1.3 the dialler learns of the refusal with its first read.
    assert!(stranger.hello(identity("b", 2), SECRET).await.is_err());
    assert!(first.mesh.known().is_empty());
}

/// [P3]
#[tokio::test]
async fn each_hello_that_is_not_good_is_told_why() {
    let authority = Authority::new();
    let first = start(&authority, "a", 1, &[]).await;
    let cases = [
        ("another's name", identity("c", 2), SECRET, Kind::Name),
        ("another secret", identity("b", 2), [8; 32], Kind::Secret),
        ("too new", NodeIdentity { protocol_min: 9, protocol_max: 9, ..identity("b", 2) }, SECRET, Kind::Protocol),
        ("no identity", NodeIdentity::default(), SECRET, Kind::BadRequest),
        ("the node's own id", identity("b", 1), SECRET, Kind::Taken),
    ];
    let stranger = Stranger::dial(&authority, "b", &first).await.unwrap();
    for (case, me, secret, kind) in cases {
        let reply = stranger.hello(me, secret).await.unwrap();
        assert_eq!(reply.refused.map(|refused| refused.kind()), Some(kind), "{case}");
        assert!(reply.known.is_empty() && reply.proof.is_empty(), "{case}: nothing else is told");
    }
    assert!(first.mesh.known().is_empty());
}

/// [P3]
#[tokio::test]
async fn nothing_is_served_before_the_hello() {
    let authority = Authority::new();
    let first = start(&authority, "a", 1, &[]).await;
    let stranger = Stranger::dial(&authority, "b", &first).await.unwrap();
    let mut calls = peers(stranger.channel.clone());
    let mut rafts = raft(stranger.channel.clone());
    let envelope = Envelope { from_node: 2, method: "echo.back".into(), ..Envelope::default() };
    assert_eq!(calls.call(envelope).await.unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(calls.alive(Ping { boot: 1 }).await.unwrap_err().code(), Code::Unauthenticated);
    let exchange = rafts.exchange(tokio_stream::iter([RaftFrames::default()])).await;
    assert_eq!(exchange.unwrap_err().code(), Code::Unauthenticated);
    let snapshot = rafts.snapshot(tokio_stream::iter([])).await;
    assert_eq!(snapshot.unwrap_err().code(), Code::Unauthenticated);
}

/// [P3]
#[tokio::test]
async fn a_call_in_anothers_name_is_refused() {
    let authority = Authority::new();
    let first = start(&authority, "a", 1, &[]).await;
    let stranger = Stranger::dial(&authority, "b", &first).await.unwrap();
    assert_eq!(stranger.hello(identity("b", 2), SECRET).await.unwrap().refused, None);
    let call = |from_node, from_boot| {
        let mut peers = peers(stranger.channel.clone());
        let method = "echo.from".to_owned();
        let envelope = Envelope { protocol: 1, from_node, from_boot, within_ms: 60_000, method, ..Envelope::default() };
        async move { peers.call(envelope).await.unwrap().into_inner().answer.unwrap() }
    };
    use granary_proto::peers::{envelope_error::Kind, envelope_reply::Answer};
    for (node, boot) in [(3, 5), (2, 6)] {
        let answer = call(node, boot).await;
        assert!(matches!(answer, Answer::Error(error) if error.kind() == Kind::NotMe));
    }
    assert_eq!(call(2, 5).await, Answer::Ok("2".into()));
}

/// [P3]
#[tokio::test]
async fn a_node_with_another_secret_is_left_out_by_both_sides() {
    let authority = Authority::new();
    let first = start(&authority, "a", 1, &[]).await;
    let mut plan = Plan::new(&authority, "x", 9, &[&first]);
    plan.options.secret = vec![8; 40];
    let stranger = plan.start().await;
    let second = start(&authority, "b", 2, &[&first, &stranger]).await;
    soon("the right one", async {
        first.sees(&[&second]).await;
        second.sees(&[&first]).await;
    })
    .await;
    assert!(stranger.mesh.known().is_empty());
}
