//! Calls over gRPC.

use super::nodes::{Authority, PATIENCE, soon, start};
use crate::peers::{CALL_BYTES_MAX, CallError, Refused};
use crate::trace::Trace;
use bytes::Bytes;
use std::time::Duration;

#[tokio::test]
async fn each_outcome_says_what_the_caller_may_do() {
    let authority = Authority::new();
    let first = start(&authority, "a", 1, &[]).await;
    let second = start(&authority, "b", 2, &[&first]).await;
    first.sees(&[&second]).await;
    second.sees(&[&first]).await;
    assert_eq!(first.call(&second, "echo.back", b"hello").await.unwrap(), "hello");
    assert_eq!(second.call(&first, "echo.from", b"").await.unwrap(), "2");
    assert_eq!(first.call(&second, "echo.big", b"").await.unwrap().len(), 3 << 20);
    let refused = |refused| Err(CallError::Refused(refused));
    assert_eq!(first.call(&second, "echo.no", b"").await, refused(Refused::Other("no".into())));
    let unknown = first.call(&second, "nobody.there", b"").await;
    assert_eq!(unknown, refused(Refused::UnknownMethod("nobody.there".into())));
    assert!(matches!(first.call(&second, "echo.panic", b"").await, Err(CallError::Unknown(_))));
    let late = first.peers().call(2, "echo.wait", Bytes::new(), Duration::from_millis(20)).await;
    assert!(matches!(late, Err(CallError::Unknown(_))));
    assert!(matches!(first.peers().call(77, "echo.back", Bytes::new(), PATIENCE).await, Err(CallError::NotSent(_))));
    let large = Bytes::from(vec![0; CALL_BYTES_MAX + 1]);
    assert!(matches!(first.peers().call(2, "echo.back", large, PATIENCE).await, Err(CallError::NotSent(_))));
    let largest = first.call(&second, "echo.back", &vec![5; CALL_BYTES_MAX]).await.unwrap();
    assert_eq!(largest.len(), CALL_BYTES_MAX);
    assert_eq!(first.call(&first, "echo.from", b"").await.unwrap(), "1", "a call to oneself stays at home");
}

/// [K9]
#[tokio::test]
async fn permits_bound_what_is_under_way_to_one_peer() {
    let authority = Authority::new();
    let first = start(&authority, "a", 1, &[]).await;
    let second = start(&authority, "b", 2, &[&first]).await;
    first.sees(&[&second]).await;
    let waiting: Vec<_> =
        (0..1_024).map(|_| tokio::spawn(first.peers().call(2, "echo.wait", Bytes::new(), PATIENCE))).collect();
    assert_eq!(first.call(&second, "echo.back", b"x").await, Err(CallError::Overloaded));
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    for call in waiting {
        assert!(call.await.unwrap_err().is_cancelled());
    }
    assert_eq!(first.call(&second, "echo.back", b"x").await.unwrap(), "x");
}

/// [K7]
#[tokio::test]
async fn calls_in_flight_to_a_node_that_ends_are_unknown_at_once() {
    let authority = Authority::new();
    let first = start(&authority, "a", 1, &[]).await;
    let second = start(&authority, "b", 2, &[&first]).await;
    first.sees(&[&second]).await;
    let call = tokio::spawn(first.peers().call(2, "echo.wait", Bytes::new(), Duration::from_secs(3_600)));
    soon("the call", second.echo.arrived.notified()).await;
    second.stop().await;
    assert!(matches!(soon("the outcome", call).await.unwrap(), Err(CallError::Unknown(_))));
    first.sees(&[]).await;
    assert!(matches!(first.call(&second, "echo.back", b"x").await, Err(CallError::NotSent(_))));
}

/// [P6]
#[tokio::test]
async fn a_node_that_stops_answers_what_it_has_taken_and_takes_no_more() {
    let authority = Authority::new();
    let first = start(&authority, "a", 1, &[]).await;
    let second = start(&authority, "b", 2, &[&first]).await;
    first.sees(&[&second]).await;
    let taken = tokio::spawn(first.peers().call(2, "echo.wait", Bytes::new(), Duration::from_millis(300)));
    soon("the call", second.echo.arrived.notified()).await;
    let stopping = tokio::spawn({
        let mesh = second.mesh.clone();
        async move { mesh.stop(PATIENCE).await }
    });
    // The stop waits for the call that was taken, so until then a new one is told to go elsewhere.
    let refused = loop {
        match first.call(&second, "echo.back", b"x").await {
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, CallError::Refused(Refused::Overloaded));
    assert!(matches!(taken.await.unwrap(), Err(CallError::Unknown(_))));
    soon("the stop", stopping).await.unwrap();
}

/// [P4] One trace on both nodes, in a span of its own on the second.
#[tokio::test]
async fn a_trace_goes_on_at_the_other_node() {
    let authority = Authority::new();
    let first = start(&authority, "a", 1, &[]).await;
    let second = start(&authority, "b", 2, &[&first]).await;
    first.sees(&[&second]).await;
    assert_eq!(first.call(&second, "echo.trace", b"").await.unwrap(), "", "nobody traces it");
    let trace = Trace::begin();
    for to in [&second, &first] {
        let told = trace.follow(first.call(to, "echo.trace", b"")).await.unwrap();
        let told = Trace::parse(std::str::from_utf8(&told).unwrap()).expect("a trace");
        assert_ne!(told, trace);
        assert_eq!(told.to_string()[..36], trace.to_string()[..36], "the same trace");
    }
}
