//! Each figure of the relay moves when what it counts happens, and not before.

use crate::ToWorker;
use crate::testing::many::Many;
use crate::testing::net::Fate;
use crate::testing::{hello, next, toy, until};
use uuid::Uuid;

const OWNER: u64 = 1;
const EDGE: u64 = 2;

/// Of the owner: assigned, refused, unanswered.
fn figures(many: &Many) -> (u64, u64, u64) {
    let metrics = many.silo(OWNER).metrics();
    (metrics.relay_assigned, metrics.relay_refused, metrics.relay_unanswered)
}

async fn work(many: &Many, owner: u64, n: u128) {
    let key = (0..).map(|i| format!("k{n}-{i}")).find(|key| many.owner(key) == owner).expect("endless");
    many.call(owner, &key, toy::WORK, &[Uuid::from_u128(n).as_bytes(), &b"q"[..]].concat()).await.expect("work made");
}

/// A worker with one place at the edge, of which the owner has heard.
async fn start() -> (Many, crate::WorkerSession) {
    let many = Many::start(3, 3);
    let worker = many.silo(EDGE).connect_worker(hello("acme", "w", 1, Vec::new())).await.expect("connected");
    until("the owner has heard of the place", || many.silo(OWNER).metrics().relay_far_places == 1).await;
    assert_eq!(figures(&many), (0, 0, 0));
    (many, worker)
}

/// From now on, what this node is asked or told by that one goes so.
fn judge(many: &Many, from: u64, to: u64, method: &'static str, fate: Fate) {
    many.net.judge(move |f, t, m| if (f, t, m) == (from, to, method) { fate } else { Fate::Arrives });
}

async fn assigned(worker: &mut crate::WorkerSession) -> u128 {
    match next("an assignment", worker.recv()).await {
        Some(ToWorker::Assign { item, .. }) => item.attempt.as_u128(),
        other => panic!("expected an assignment, but found {other:?}"),
    }
}

#[tokio::test]
async fn far_places_are_those_of_workers_elsewhere() {
    let (many, worker) = start().await;
    assert_eq!(many.silo(EDGE).metrics().relay_far_places, 0, "its own are not far");
    drop(worker);
    until("the owner has heard that it left", || many.silo(OWNER).metrics().relay_far_places == 0).await;
}

#[tokio::test]
async fn tellings_count_what_is_said_of_workers_here() {
    let (many, _worker) = start().await;
    let before = many.silo(EDGE).metrics().relay_tellings;
    assert!(before > 0, "the owner was told");
    let _other = many.silo(EDGE).connect_worker(hello("acme", "x", 1, Vec::new())).await.expect("connected");
    until("the next telling", || many.silo(EDGE).metrics().relay_tellings > before).await;
    let heard = many.net.arrived("relay.tell") as u64;
    let told: u64 = (1..=3).map(|node| many.silo(node).metrics().relay_tellings).sum();
    assert!(told >= heard, "{heard} arrived of {told}");
}

#[tokio::test]
async fn an_attempt_that_is_taken_there_is_assigned() {
    let (many, mut worker) = start().await;
    work(&many, OWNER, 1).await;
    assert_eq!(assigned(&mut worker).await, 1);
    until("it is counted", || figures(&many) == (1, 0, 0)).await;
    assert_eq!(many.silo(EDGE).metrics().relay_assigned, 0, "the owner's to count");
}

#[tokio::test]
async fn an_attempt_without_a_place_there_is_refused() {
    let (many, mut worker) = start().await;
    // The owner does not hear that the place is taken.
    judge(&many, EDGE, OWNER, "relay.tell", Fate::QuestionLost);
    work(&many, EDGE, 1).await;
    assert_eq!(assigned(&mut worker).await, 1);
    work(&many, OWNER, 2).await;
    until("it is counted", || figures(&many) == (0, 1, 0)).await;
}

#[tokio::test]
async fn a_request_without_an_answer_is_unanswered() {
    let (many, mut worker) = start().await;
    judge(&many, OWNER, EDGE, "relay.assign", Fate::AnswerLost);
    work(&many, OWNER, 1).await;
    until("it is counted", || figures(&many).2 > 0).await;
    assert_eq!((figures(&many).0, figures(&many).1), (0, 0), "nobody knows");
    many.net.fair();
    assert_eq!(assigned(&mut worker).await, 1);
    until("the same batch again has its answer", || figures(&many).0 == 1).await;
}
