//! Sockets that speak no TLS, or nothing at all.

use super::nodes::{Authority, Plan, soon, start};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// [P3]
#[tokio::test]
async fn silent_and_garbage_sockets_stand_in_nobodys_way() {
    let authority = Authority::new();
    let mut plan = Plan::new(&authority, "a", 1, &[]);
    plan.options.timing.handshake = Duration::from_millis(500);
    let first = plan.start().await;
    let address = first.mesh.addresses().peer;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut garbage = TcpStream::connect(address).await.unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").await.ok();
    let mut rest = Vec::new();
    soon("the end of the garbage", garbage.read_to_end(&mut rest)).await.ok();
    // The silent ones lose their places by the handshake's deadline, and the others come in.
    let second = start(&authority, "b", 2, &[&first]).await;
    first.sees(&[&second]).await;
    for mut socket in silent {
        let closed = soon("the end of the silence", socket.read(&mut [0; 1])).await;
        assert!(matches!(closed, Ok(0) | Err(_)));
    }
}
