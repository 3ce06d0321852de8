//! The gate, between processes: kill, freeze, stall, restart, sockets that do not belong there.

use super::child::{Birth, Child};
use super::nodes::{Authority, Node, PATIENCE, Plan, soon};
use crate::mesh::Carrier;
use crate::peers::CallError;
use bytes::Bytes;
use ractor::{ActorCell, ActorId};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, MutexGuard};

/// There is one gate a process.
static GATE: Mutex<()> = Mutex::const_new(());

async fn node(authority: &Authority, id: u64) -> (MutexGuard<'static, ()>, Node) {
    let guard = GATE.lock().await;
    let mut plan = Plan::new(authority, "a", id, &[]);
    plan.options.carrier = Carrier::Mesh;
    plan.options.timing.handshake = Duration::from_secs(1);
    let node = plan.start().await;
    assert!(node.mesh.addresses().mesh.is_some(), "this process has its gate");
    (guard, node)
}

impl Node {
    async fn calls(&self, child: &Child, method: &'static str, body: &[u8]) -> Result<Bytes, CallError> {
        self.peers().call(child.id, method, Bytes::copy_from_slice(body), PATIENCE).await
    }

    async fn sees_children(&self, ids: &[u64]) {
        self.until("the children", |attached| attached.keys().eq(ids)).await;
    }
}

/// The actors of this process that other nodes can see.
fn visible() -> Vec<ActorCell> {
    let actors = ractor::registry::get_all_pids().into_iter().filter(|actor| actor.supports_remoting());
    actors.filter(|actor| matches!(actor.get_id(), ActorId::Local(_))).collect()
}

/// [P3] Both directions of dialling: the lower id dials.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_go_over_the_gate_whoever_dialled_and_one_actor_is_visible() {
    let authority = Authority::new();
    let (_gate, first) = node(&authority, 5).await;
    let lower = Birth::new("b", 2, Carrier::Mesh).start(&authority, &first.seed()).await;
    let greater = Birth::new("c", 9, Carrier::Mesh).start(&authority, &first.seed()).await;
    let plain = Birth::new("d", 12, Carrier::Tonic).start(&authority, &first.seed()).await;
    first.has_gates(&[2, 9]).await;
    first.sees_children(&[2, 9, 12]).await;
    for child in [&lower, &greater, &plain] {
        assert_eq!(first.calls(child, "echo.back", b"hello").await.unwrap(), "hello");
        assert_eq!(first.calls(child, "echo.from", b"").await.unwrap(), "5");
        assert!(matches!(first.calls(child, "echo.panic", b"").await, Err(CallError::Unknown(_))));
        assert!(matches!(first.calls(child, "nobody.there", b"").await, Err(CallError::Refused(_))));
        assert_eq!(first.calls(child, "echo.back", &[3; 200 << 10]).await.unwrap().len(), 200 << 10);
        assert_eq!(first.calls(child, "echo.back", &[3; 4 << 20]).await.unwrap().len(), 4 << 20);
        assert_eq!(first.calls(child, "echo.big", b"").await.unwrap().len(), 3 << 20);
    }
    let visible = visible();
    assert_eq!(visible.len(), 1);
    assert!(visible[0].get_name().is_none());
    first.stop().await;
}

/// Until the new gate is reached, calls go over gRPC.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_that_has_died_is_made_again() {
    let authority = Authority::new();
    let (_gate, first) = node(&authority, 5).await;
    let child = Birth::new("b", 2, Carrier::Mesh).start(&authority, &first.seed()).await;
    first.has_gates(&[2]).await;
    let (dead, mut gates) = (visible()[0].get_id(), first.mesh.gates());
    visible()[0].kill();
    assert!(matches!(first.calls(&child, "echo.back", b"x").await, Ok(_) | Err(CallError::Unknown(_))));
    soon("the new gate", async {
        let is_new = || visible().len() == 1 && visible()[0].get_id() != dead;
        while !(is_new() && gates.borrow_and_update().contains(&2)) {
            gates.changed().await.unwrap();
        }
    })
    .await;
    assert_eq!(first.calls(&child, "echo.back", b"x").await.unwrap(), "x");
    first.stop().await;
}

/// [K7]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_node_ends_its_calls_and_comes_back_on_the_same_address() {
    let authority = Authority::new();
    let (_gate, first) = node(&authority, 5).await;
    let mut child = Birth::new("b", 2, Carrier::Mesh).start(&authority, &first.seed()).await;
    for _ in 0..3 {
        first.has_gates(&[2]).await;
        let calls: Vec<_> = (0..64)
            .map(|_| tokio::spawn(first.peers().call(2, "echo.wait", Bytes::new(), Duration::from_secs(3_600))))
            .collect();
        assert_eq!(first.calls(&child, "echo.back", b"x").await.unwrap(), "x");
        let (peer, gate) = (child.peer.clone(), child.gate.clone());
        child.kill().await;
        for call in calls {
            assert!(matches!(soon("the outcome", call).await.unwrap(), Err(CallError::Unknown(_))));
        }
        first.sees_children(&[]).await;
        first.has_gates(&[]).await;
        let birth = Birth { peer: &peer, gate: &gate, ..Birth::new("b", 2, Carrier::Mesh) };
        child = birth.start(&authority, &first.seed()).await;
    }
    first.has_gates(&[2]).await;
    assert_eq!(first.calls(&child, "echo.back", b"x").await.unwrap(), "x");
    first.stop().await;
}

async fn frozen_and_thawed(carrier: Carrier) {
    let authority = Authority::new();
    let (_gate, first) = node(&authority, 5).await;
    let child = Birth::new("b", 9, carrier).start(&authority, &first.seed()).await;
    let gates: &[u64] = if carrier == Carrier::Mesh { &[9] } else { &[] };
    first.sees_children(&[9]).await;
    first.has_gates(gates).await;
    child.freeze();
    let call = tokio::spawn(first.peers().call(9, "echo.back", Bytes::new(), Duration::from_secs(3_600)));
    first.sees_children(&[]).await;
    let outcome = soon("the outcome", call).await.unwrap();
    assert!(matches!(outcome, Err(CallError::Unknown(_))), "{outcome:?}");
    assert!(matches!(first.calls(&child, "echo.back", b"x").await, Err(CallError::NotSent(_))));
    child.thaw();
    first.sees_children(&[9]).await;
    first.has_gates(gates).await;
    assert_eq!(first.calls(&child, "echo.back", b"x").await.unwrap(), "x");
    first.stop().await;
}

/// [K7]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_node_is_detached_and_attached_again_over_the_gate() {
    frozen_and_thawed(Carrier::Mesh).await;
}

/// [K7]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_node_is_detached_and_attached_again_over_grpc() {
    frozen_and_thawed(Carrier::Tonic).await;
}

/// [K9]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_node_holds_no_more_than_its_permits() {
    const CALLS: usize = 1_500;
    const FIT: usize = (16 << 20) / (256 << 10);
    let authority = Authority::new();
    let (_gate, first) = node(&authority, 5).await;
    let child = Birth::new("b", 9, Carrier::Mesh).start(&authority, &first.seed()).await;
    first.has_gates(&[9]).await;
    child.freeze();
    let body = Bytes::from(vec![1; 256 << 10]);
    let calls: Vec<_> = (0..CALLS)
        .map(|_| tokio::spawn(first.peers().call(9, "echo.back", body.clone(), Duration::from_secs(3_600))))
        .collect();
    let mut unknown = 0;
    for call in calls {
        match soon("the outcome", call).await.unwrap() {
            Err(CallError::Unknown(_)) => unknown += 1,
            // The rest was never sent: too much was under way, or the node was detached meanwhile.
            Err(CallError::Overloaded | CallError::NotSent(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(unknown <= FIT, "{unknown} calls were under way");
    first.sees_children(&[]).await;
    child.thaw();
    first.has_gates(&[9]).await;
    assert_eq!(first.calls(&child, "echo.back", b"x").await.unwrap(), "x");
    first.stop().await;
}

/// [P3]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_and_garbage_sockets_stand_in_no_gates_way() {
    let authority = Authority::new();
    let (_gate, first) = node(&authority, 5).await;
    let address = first.mesh.addresses().mesh.unwrap();
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut garbage = TcpStream::connect(address).await.unwrap();
    garbage.write_all(&[0xff; 4_096]).await.ok();
    soon("the end of the garbage", garbage.read_to_end(&mut Vec::new())).await.ok();
    let child = Birth::new("b", 2, Carrier::Mesh).start(&authority, &first.seed()).await;
    first.has_gates(&[2]).await;
    for mut socket in silent {
        let closed = soon("the end of the silence", socket.read(&mut [0; 1])).await;
        assert!(matches!(closed, Ok(0) | Err(_)));
    }
    assert_eq!(first.calls(&child, "echo.back", b"x").await.unwrap(), "x");
    first.stop().await;
}

/// A connection with a good certificate whose other end speaks no protocol of the gate's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_that_does_not_get_on_is_ended() {
    use crate::mesh::socket::dial;
    use crate::mesh::tls::{Credentials, Purpose};
    let authority = Authority::new();
    let (_gate, first) = node(&authority, 5).await;
    let address = first.mesh.addresses().mesh.unwrap().to_string();
    let credentials = Credentials::new(authority.tls(&["x"])).unwrap();
    let mut silent = dial(&address, &credentials, Purpose::Gate, PATIENCE).await.unwrap();
    let mut garbage = dial(&address, &credentials, Purpose::Gate, PATIENCE).await.unwrap();
    garbage.stream.write_all(&[0xff; 4_096]).await.ok();
    soon("the end of the garbage", garbage.stream.read_to_end(&mut Vec::new())).await.ok();
    soon("the end of the silence", silent.stream.read_to_end(&mut Vec::new())).await.ok();
    assert!(first.mesh.gates().borrow().is_empty());
    let wrong_port = dial(&first.mesh.addresses().peer.to_string(), &credentials, Purpose::Gate, PATIENCE).await;
    assert!(wrong_port.is_err(), "the two ports do not understand each other");
    first.stop().await;
}

/// The second node of a process says so and works over gRPC.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_has_one_gate() {
    let authority = Authority::new();
    let (_gate, first) = node(&authority, 5).await;
    let mut plan = Plan::new(&authority, "b", 6, &[&first]);
    plan.options.carrier = Carrier::Mesh;
    let second = plan.start().await;
    assert_eq!(second.mesh.addresses().mesh, None);
    first.sees(&[&second]).await;
    assert_eq!(first.call(&second, "echo.back", b"x").await.unwrap(), "x");
    second.stop().await;
    first.stop().await;
}
