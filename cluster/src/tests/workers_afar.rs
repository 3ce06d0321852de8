//! Workers that are connected to another silo than the one that owns their work.

use crate::testing::many::Many;
use crate::testing::net::Fate;
use crate::testing::{hello, next, settle, toy, until};
use crate::{HeldAttempt, ToWorker, WorkerHello, WorkerSession};
use futures::FutureExt;
use grain_contract::{Code, Lease};
use std::collections::HashMap;
use std::time::Duration;
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(45);

fn attempt(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

/// A key that this node owns; another for each number.
fn key_at(many: &Many, owner: u64, n: usize) -> String {
    (0..).map(|n| format!("k{n}")).filter(|key| many.owner(key) == owner).nth(n).expect("endless")
}

async fn connect(many: &Many, at: u64, id: &str, capacity: u32, held: Vec<HeldAttempt>) -> WorkerSession {
    many.silo(at).connect_worker(hello("acme", id, capacity, held)).await.expect("connected")
}

async fn work(many: &Many, at: u64, key: &str, id: Uuid) {
    let body = [id.as_bytes(), &b"q"[..]].concat();
    many.call(at, key, toy::WORK, &body).await.expect("work made");
}

async fn assigned(worker: &mut WorkerSession) -> (Uuid, Lease) {
    match next("an assignment", worker.recv()).await {
        Some(ToWorker::Assign { item, lease, .. }) => (item.attempt, lease),
        other => panic!("expected an assignment, but found {other:?}"),
    }
}

fn held(key: &str, attempt: Uuid, lease: &Lease) -> HeldAttempt {
    HeldAttempt { attempt, grain: toy::id("acme", key), token: lease.token }
}

/// The owner has heard of the worker once it has room for it, which a queue that waits shows: it empties.
async fn heard_of(many: &Many, owner: u64, worker: &mut WorkerSession) {
    let (key, id) = (key_at(many, owner, 99), attempt(9_999));
    work(many, owner, &key, id).await;
    let (got, _) = assigned(worker).await;
    assert_eq!(got, id);
    many.call(owner, &key, toy::DONE, id.as_bytes()).await.expect("done");
    worker.finished(id);
    worker.release(id);
    until("its place is free at the owner", || many.silo(owner).metrics().leases == 0).await;
}

async fn done(many: &Many, at: u64, key: &str, id: Uuid, worker: &WorkerSession) {
    worker.finished(id);
    many.call(at, key, toy::DONE, id.as_bytes()).await.expect("done");
    worker.release(id);
}

/// [C3] [K6] Work waits at its owner; a worker that comes to another silo gets it.
#[tokio::test]
async fn waiting_work_reaches_a_worker_at_another_silo() {
    let many = Many::start(3, 3);
    let key = key_at(&many, 1, 0);
    work(&many, 1, &key, attempt(1)).await;
    let mut worker = connect(&many, 2, "w", 1, Vec::new()).await;
    let (got, lease) = assigned(&mut worker).await;
    assert_eq!((got, lease.worker.as_str()), (attempt(1), "w"));
    done(&many, 2, &key, got, &worker).await;
    until("the lease is over", || many.silo(1).metrics().leases == 0).await;
    assert!(many.told(1, &key).await.is_empty(), "no lease ended");
}

/// [C3] A place at another silo is taken before the commit, so created and leased are one commit there too.
#[tokio::test]
async fn work_for_a_free_worker_elsewhere_is_one_commit() {
    let many = Many::start(3, 3);
    let mut worker = connect(&many, 2, "w", 4, Vec::new()).await;
    heard_of(&many, 1, &mut worker).await;
    let mut made = 0;
    // The room that was used above is told anew within moments; until then work waits first, which is two commits.
    let is_one = async {
        loop {
            let key = key_at(&many, 1, made);
            let id = attempt(made as u128 + 1);
            let shard = many.shard_of(&toy::id("acme", &key));
            let before = many.commits(shard);
            work(&many, 1, &key, id).await;
            assert_eq!(assigned(&mut worker).await.0, id);
            let commits = many.commits(shard) - before;
            done(&many, 2, &key, id, &worker).await;
            made += 1;
            if commits == 1 {
                return;
            }
            assert!(made < 50, "work for a free worker takes {commits} commits");
        }
    };
    is_one.await;
}

/// [C3] The owner believes in a place that is gone: the attempt was never started, nothing is uncertain, another gets it.
#[tokio::test]
async fn work_for_a_place_that_is_gone_goes_to_another() {
    let many = Many::start(3, 3);
    let mut first = connect(&many, 2, "w1", 1, Vec::new()).await;
    heard_of(&many, 1, &mut first).await;
    until("the room is told", || many.silo(1).metrics().work_queued == 0).await;
    // From here on the edge tells nothing.
    many.net.judge(|from, _, method| if from == 2 && method == "relay.tell" { Fate::NotSent } else { Fate::Arrives });
    drop(first);
    let key = key_at(&many, 1, 0);
    work(&many, 1, &key, attempt(1)).await;
    let mut second = connect(&many, 3, "w2", 1, Vec::new()).await;
    assert_eq!(assigned(&mut second).await.0, attempt(1));
    let told = many.told(1, &key).await;
    assert!(told.iter().all(|line| line.ends_with("never_started true")), "{told:?}");
}

/// [C3, K7] The owner dies: the worker, connected to another silo, notices nothing and keeps its attempt.
#[tokio::test]
async fn a_worker_keeps_its_attempt_when_the_owner_dies() {
    let mut many = Many::start(3, 3);
    let mut worker = connect(&many, 2, "w", 1, Vec::new()).await;
    let key = key_at(&many, 1, 0);
    work(&many, 1, &key, attempt(1)).await;
    let (got, _) = assigned(&mut worker).await;
    let _dead = many.kill(1);
    // Twice the lease's time, in steps of which a renewal may miss one or two.
    for _ in 0..9 {
        many.advance(Duration::from_secs(10));
        settle().await;
        assert_eq!(worker.renew(&[got]), Vec::<Uuid>::new());
        let heard = many.net.arrived("relay.tell");
        until("it is told", || many.net.arrived("relay.tell") > heard).await;
    }
    assert!(many.told(2, &key).await.is_empty(), "no lease ended");
    done(&many, 3, &key, got, &worker).await;
    assert!(worker.recv().now_or_never().is_none(), "and it got it once");
}

/// [C3, K7] The owner dies between its commit and the delivery: the next owner offers the attempt again, and nothing is
/// uncertain.
#[tokio::test]
async fn an_attempt_that_was_committed_and_not_delivered_is_offered_again() {
    let mut many = Many::start(3, 3);
    let mut worker = connect(&many, 2, "w", 1, Vec::new()).await;
    heard_of(&many, 1, &mut worker).await;
    many.net.judge(|from, _, method| if from == 1 && method == "relay.assign" { Fate::NotSent } else { Fate::Arrives });
    let key = key_at(&many, 1, 0);
    work(&many, 1, &key, attempt(1)).await;
    until("it is leased", || many.silo(1).metrics().leases == 1).await;
    let _dead = many.kill(1);
    assert_eq!(assigned(&mut worker).await.0, attempt(1));
    let told = many.told(2, &key).await;
    assert!(told.iter().all(|line| line.ends_with("never_started true")), "{told:?}");
    assert!(worker.recv().now_or_never().is_none(), "once");
}

/// [C3, K7] The worker's silo dies: it goes to another with what it holds, and keeps it.
#[tokio::test]
async fn a_worker_takes_its_attempt_along_to_another_silo() {
    let mut many = Many::start(3, 3);
    let mut worker = connect(&many, 2, "w", 1, Vec::new()).await;
    let key = key_at(&many, 1, 0);
    work(&many, 1, &key, attempt(1)).await;
    let (got, lease) = assigned(&mut worker).await;
    let _dead = many.kill(2);
    drop(worker);
    many.advance(Duration::from_secs(30));
    let mut worker = connect(&many, 3, "w", 1, vec![held(&key, got, &lease)]).await;
    let heard = many.net.arrived("relay.tell");
    until("it is told", || many.net.arrived("relay.tell") > heard + 2).await;
    many.advance(Duration::from_secs(30));
    settle().await;
    assert_eq!(worker.renew(&[got]), Vec::<Uuid>::new());
    assert!(many.told(1, &key).await.is_empty(), "no lease ended");
    done(&many, 3, &key, got, &worker).await;
    assert!(worker.recv().now_or_never().is_none());
}

/// [C3, K7] Owner and worker's silo die together.
#[tokio::test]
async fn a_worker_keeps_its_attempt_when_owner_and_edge_die() {
    let mut many = Many::start(5, 5);
    let mut worker = connect(&many, 2, "w", 1, Vec::new()).await;
    let key = key_at(&many, 1, 0);
    work(&many, 1, &key, attempt(1)).await;
    let (got, lease) = assigned(&mut worker).await;
    let _dead = (many.kill(2), many.kill(1));
    drop(worker);
    let worker = connect(&many, 3, "w", 1, vec![held(&key, got, &lease)]).await;
    many.advance(Duration::from_secs(30));
    assert_eq!(worker.renew(&[got]), Vec::<Uuid>::new());
    done(&many, 3, &key, got, &worker).await;
    assert!(many.told(3, &key).await.is_empty(), "no lease ended");
}

/// [C3] The worker is gone for good with its silo: the owner's clock ends the lease, and only after its time.
#[tokio::test]
async fn a_lease_of_a_worker_that_is_gone_ends_at_the_owner() {
    let mut many = Many::start(3, 3);
    let mut worker = connect(&many, 2, "w", 1, Vec::new()).await;
    let key = key_at(&many, 1, 0);
    work(&many, 1, &key, attempt(1)).await;
    assigned(&mut worker).await;
    let _dead = many.kill(2);
    many.advance(LEASE - Duration::from_secs(1));
    settle().await;
    assert!(many.told(1, &key).await.is_empty());
    many.advance(Duration::from_secs(2));
    assert_eq!(many.until_told(1, &key).await, [format!("lease expired {} never_started false", attempt(1))]);
}

/// [C3] The same worker at two silos: the newer session is in force, the older is ended.
#[tokio::test]
async fn a_later_session_at_another_silo_ends_the_earlier() {
    let many = Many::start(3, 3);
    let mut first = connect(&many, 2, "w", 1, Vec::new()).await;
    heard_of(&many, 1, &mut first).await;
    let hello = WorkerHello { session: u64::MAX / 2, ..hello("acme", "w", 1, Vec::new()) };
    let mut second = many.silo(3).connect_worker(hello).await.expect("connected");
    assert_eq!(next("the end of the first", first.recv()).await, None);
    drop(first);
    let key = key_at(&many, 2, 0);
    work(&many, 2, &key, attempt(1)).await;
    assert_eq!(assigned(&mut second).await.0, attempt(1));
}

/// [C3, P6] A silo that drains sends its workers elsewhere, where they keep what they hold.
#[tokio::test]
async fn a_draining_silo_sends_its_workers_elsewhere() {
    let many = Many::start(3, 3);
    let mut worker = connect(&many, 2, "w", 1, Vec::new()).await;
    let key = key_at(&many, 1, 0);
    work(&many, 1, &key, attempt(1)).await;
    let (got, lease) = assigned(&mut worker).await;
    let silo = many.silo(2).clone();
    let drain = tokio::spawn(async move { silo.drain(Duration::from_secs(20)).await });
    assert_eq!(next("the end of the session", worker.recv()).await, None);
    drop(worker);
    let worker = connect(&many, 3, "w", 1, vec![held(&key, got, &lease)]).await;
    drain.await.expect("drained");
    done(&many, 3, &key, got, &worker).await;
    assert!(many.told(1, &key).await.is_empty(), "no lease ended");
}

/// [FR-181] A worker waits at one silo while the owner at another is overloaded. The load ends, nothing else happens: the
/// worker gets its work without a new session.
#[tokio::test]
async fn work_of_an_overloaded_owner_comes_when_the_load_ends() {
    let many = Many::start(3, 3);
    let key = key_at(&many, 1, 0);
    work(&many, 1, &key, attempt(1)).await;
    let shard = many.shard_of(&toy::id("acme", &key));
    many.node(1).stores[shard].hold();
    let silo = many.silo(1).clone();
    let load: Vec<_> = (0..200)
        .map(|_| {
            let (silo, body) = (silo.clone(), 1u64.to_le_bytes());
            let request = crate::testing::request("acme", &key, toy::ADD, &body, None);
            tokio::spawn(async move { silo.call(request).await.map_err(|rejection| rejection.code) })
        })
        .collect();
    settle().await;
    let mut worker = connect(&many, 2, "w", 1, Vec::new()).await;
    settle().await;
    assert!(worker.recv().now_or_never().is_none(), "the owner can commit nothing now");
    many.node(1).stores[shard].release_all();
    assert_eq!(assigned(&mut worker).await.0, attempt(1));
    let mut refused = 0;
    for call in load {
        refused += usize::from(call.await.expect("ends") == Err(Code::Overloaded));
    }
    assert!(refused > 0, "the owner was overloaded");
}

/// [FR-182] A thousand reports to one slow grain: those that find no room are refused to be tried again; nobody loses its
/// state, no service starts anew.
#[tokio::test]
async fn reports_to_a_full_grain_are_refused_for_now_and_nobody_falls() {
    let many = Many::start(3, 3);
    let key = key_at(&many, 1, 0);
    let shard = many.shard_of(&toy::id("acme", &key));
    let mut worker = connect(&many, 2, "w", 1_000, Vec::new()).await;
    for n in 0..1_000 {
        work(&many, 1, &key, attempt(n)).await;
    }
    let mut got = Vec::new();
    while got.len() < 1_000 {
        next("assignments", worker.recv_many(&mut got, 1_000)).await;
    }
    many.node(1).stores[shard].hold();
    let reports: Vec<_> = (0..1_000)
        .map(|n| {
            let silo = many.silo(2).clone();
            let key = key.clone();
            tokio::spawn(async move {
                let mut refused = 0;
                loop {
                    let body = *attempt(n).as_bytes();
                    match silo.call(crate::testing::request("acme", &key, toy::DONE, &body, None)).await {
                        Ok(_) => return refused,
                        Err(rejection) => {
                            assert!(rejection.code.is_retryable(), "{rejection}");
                            refused += 1;
                            tokio::task::yield_now().await;
                        }
                    }
                }
            })
        })
        .collect();
    settle().await;
    many.node(1).stores[shard].release_all();
    for report in reports {
        report.await.expect("ends");
    }
    for n in 0..1_000 {
        worker.finished(attempt(n));
        worker.release(attempt(n));
    }
    assert!(many.told(1, &key).await.is_empty(), "no lease ended");
    for node in 1..=3 {
        assert_eq!(many.silo(node).metrics().service_restarts, 0);
    }
}

/// [C3, K7, K9] Three silos, two workers each, a thousand attempts, answers lost, calls twice or not sent, owners that change:
/// every attempt is done once, no worker has more than it has places, no lease runs out.
#[tokio::test]
async fn a_thousand_attempts_over_three_silos_are_done_once_each() {
    let many = Many::start(3, 6);
    let mut n = 0u32;
    many.net.judge(move |_, _, method| {
        n = n.wrapping_add(1);
        match n % 23 {
            3 if method.starts_with("relay") => Fate::AnswerLost,
            7 | 15 => Fate::Twice,
            11 => Fate::NotSent,
            _ => Fate::Arrives,
        }
    });
    let workers: Vec<_> = (0..6u64).map(|n| (n % 3 + 1, format!("w{n}"), n as u32 % 3 + 1)).collect();
    let doing = workers.iter().map(|(at, id, capacity)| do_all(&many, *at, id, *capacity));
    let making = async {
        for n in 0..1_000u128 {
            let body = [attempt(n).as_bytes(), &b"q"[..]].concat();
            let key = format!("k{n}");
            while let Err(rejection) = many.call(n as u64 % 3 + 1, &key, toy::WORK, &body).await {
                assert!(rejection.code.is_retryable(), "{rejection}");
            }
            if n % 100 == 99 {
                many.lead(n as usize / 100 % 6, n as u64 / 100 % 3 + 1);
            }
        }
    };
    let all = async {
        making.await;
        for n in 0..1_000u128 {
            let key = format!("k{n}");
            let until = tokio::time::Instant::now() + Duration::from_secs(60);
            loop {
                let left = many.call(1, &key, toy::ATTEMPTS, b"").await;
                if left.as_ref().is_ok_and(Vec::is_empty) {
                    break;
                }
                assert!(tokio::time::Instant::now() < until, "{key} has {left:?}");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    };
    let done = tokio::select! {
        () = all => true,
        _ = futures::future::join_all(doing) => false,
    };
    assert!(done, "workers work for ever");
    many.net.fair();
    for n in 0..1_000u128 {
        let told = many.told(2, &format!("k{n}")).await;
        assert!(told.iter().all(|line| line.ends_with("never_started true")), "{n}: {told:?}");
    }
}

/// Does whatever it is given; fails if it has more than it has places, or is given the same twice.
async fn do_all(many: &Many, at: u64, id: &str, capacity: u32) {
    let mut session = connect(many, at, id, capacity, Vec::new()).await;
    let mut given: HashMap<Uuid, u32> = HashMap::new();
    loop {
        match session.recv().await {
            Some(ToWorker::Assign { grain, item, .. }) => {
                let times = given.entry(item.attempt).or_default();
                *times += 1;
                assert_eq!(*times, 1, "{id} was given {} again", item.attempt);
                while many.call(at, &grain.key, toy::DONE, item.attempt.as_bytes()).await.is_err() {
                    tokio::task::yield_now().await;
                }
                session.finished(item.attempt);
                session.release(item.attempt);
            }
            Some(ToWorker::Interrupt { .. }) => {}
            None => return,
        }
    }
}
