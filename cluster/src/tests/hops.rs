//! Any silo takes any call and reaches the owner in one hop, whatever the network does.

use crate::testing::many::Many;
use crate::testing::net::Fate;
use crate::testing::{next, request, settle, toy, until};
use futures::future::join_all;
use grain_contract::{Code, GrainId};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// [FR-021, K4, K6] Three hundred first calls of a cold grain, through three silos: one activation at its owner, its rows read
/// once, no addition lost.
#[tokio::test]
async fn concurrent_first_calls_through_three_silos_share_one_activation() {
    let many = Many::start(3, 4);
    let shard = many.shard_of(&toy::id("acme", "r"));
    let calls = (0..300).map(|n| {
        let many = &many;
        async move {
            while let Err(rejection) = many.add(n % 3 + 1, "r", 1).await {
                assert_eq!(rejection.code, Code::Overloaded);
                tokio::task::yield_now().await;
            }
        }
    });
    next("all calls", join_all(calls)).await;
    assert_eq!(many.sum(1, "r").await, Ok(300));
    let created: u64 = many.nodes.values().map(|node| node.silo.metrics().activations_created).sum();
    let loads: usize = many
        .nodes
        .values()
        .map(|n| n.stores[shard].loads.lock().get(&toy::id("acme", "r")).copied().unwrap_or(0))
        .sum();
    assert_eq!((created, loads, many.commits(shard)), (1, 1, 300));
}

/// [K6] One hop, and none for the owner.
#[tokio::test]
async fn a_call_hops_once_and_not_at_all_at_its_owner() {
    let many = Many::start(3, 4);
    let owner = many.owner("r");
    assert_eq!(many.add(owner, "r", 1).await, Ok(1));
    assert_eq!(many.net.arrived("grain.call"), 0);
    for (n, id) in many.nodes.keys().filter(|id| **id != owner).enumerate() {
        assert_eq!(many.add(*id, "r", 1).await, Ok(n as u64 + 2));
        assert_eq!(many.net.arrived("grain.call"), n + 1);
    }
}

/// [K6] A silo without a replica does not know the leader: somebody with one tells it, and from then on it is one hop.
#[tokio::test]
async fn a_silo_without_a_replica_learns_the_owner_by_asking() {
    let many = Many::with(5, 5, 3, |_| {});
    for n in 0..20 {
        let key = n.to_string();
        for id in 1..=5 {
            many.add(id, &key, 1).await.expect("added");
        }
        assert_eq!(many.sum(n % 5 + 1, &key).await, Ok(5));
    }
    let before = many.net.arrived("grain.call");
    let strangers = (0..20).map(|n| many.stranger(&n.to_string()));
    for (n, id) in strangers.enumerate() {
        assert_eq!(many.sum(id, &n.to_string()).await, Ok(5));
    }
    assert_eq!(many.net.arrived("grain.call") - before, 20);
}

/// [K6] What the grain refuses, it refuses over the hop in the same words.
#[tokio::test]
async fn a_refusal_comes_over_the_hop_as_it_was_said() {
    let many = Many::start(2, 2);
    let (owner, stranger) = (many.owner("r"), many.stranger("r"));
    let at_home = many.call(owner, "r", toy::REFUSE, b"").await;
    assert_eq!(many.call(stranger, "r", toy::REFUSE, b"").await, at_home);
    assert_eq!(at_home.map_err(|r| r.code), Err(Code::Invalid));
}

/// [P2] The tenant is part of the name that hops.
#[tokio::test]
async fn tenants_are_apart_over_the_hop() {
    let many = Many::start(2, 2);
    for (tenant, amount) in [("acme", 3u64), ("umbrella", 5)] {
        for id in 1..=2 {
            let call = request(tenant, "same", toy::ADD, &amount.to_le_bytes(), None);
            many.silo(id).call(call).await.expect("added");
        }
    }
    for (tenant, sum) in [("acme", 6), ("umbrella", 10), ("other", 0)] {
        for id in 1..=2 {
            let reply = many.silo(id).call(request(tenant, "same", toy::GET, b"", None)).await.expect("a sum");
            assert_eq!(toy::number(&reply), sum, "{tenant} at {id}");
        }
    }
}

/// [K6] The owner moves; who took the former one for it asks it, is told, and goes there.
#[tokio::test]
async fn a_moved_owner_is_found_inside_the_deadline() {
    let many = Many::with(4, 1, 3, |_| {});
    for round in 0..20u64 {
        many.lead(0, round % 3 + 1);
        // Node 4 has no replica: it knows the owner of before.
        assert_eq!(many.add(4, "r", 1).await, Ok(round + 1));
    }
}

/// [K6, FR-015] Without a leader a call waits for one; it is "unavailable" at its deadline, never "not found".
#[tokio::test]
async fn a_leaderless_shard_is_waited_for_and_then_unavailable() {
    let many = Many::start(3, 1);
    many.add(1, "r", 1).await.expect("added");
    many.leaderless(0);
    let mut call = request("acme", "r", toy::GET, b"", None);
    call.deadline = Instant::now() + Duration::from_millis(120);
    assert_eq!(many.silo(2).call(call).await.map_err(|r| r.code), Err(Code::Unavailable));
    let waits = many.sum(2, "r");
    let elects = async {
        settle().await;
        many.lead(0, 3);
    };
    let (sum, ()) = next("both", async { tokio::join!(waits, elects) }).await;
    assert_eq!(sum, Ok(1));
}

/// [FR-035, K6] The answer of a call is lost. It is made again if a second time has no second effect, or if its reply is
/// stored; otherwise the caller is told that nobody knows.
#[tokio::test]
async fn only_what_may_be_repeated_is_repeated() {
    let many = Many::start(2, 1);
    let stranger = many.stranger("r");
    let lose_one = || {
        let left = Arc::new(AtomicUsize::new(1));
        many.net.judge(move |_, _, method| {
            let lost = method == "grain.call" && left.swap(0, Ordering::SeqCst) == 1;
            if lost { Fate::AnswerLost } else { Fate::Arrives }
        });
    };
    lose_one();
    assert_eq!(many.put(stranger, "r", 7).await, Ok(7));
    lose_one();
    assert_eq!(many.command(stranger, "r", "c-1", 1).await, Ok(8));
    lose_one();
    let unknown = many.add(stranger, "r", 1).await.expect_err("nobody knows");
    assert!(unknown.code == Code::Unavailable && unknown.message.contains("not known"), "{unknown}");
    assert_eq!(many.sum(stranger, "r").await, Ok(9), "it took place, once");
}

/// [FR-035, K6, K7] Questions and answers are lost and come twice, the owner changes in between: commands of three silos are
/// each done exactly once.
#[tokio::test]
async fn commands_are_done_once_over_a_bad_network() {
    for seed in 0..8 {
        let many = Many::start(3, 2);
        let mut dice = StdRng::seed_from_u64(seed);
        many.net.judge(move |_, _, _| match dice.random_range(0..10) {
            0 => Fate::AnswerLost,
            1 => Fate::Twice,
            2 => Fate::NotSent,
            _ => Fate::Arrives,
        });
        let calls = join_all((0..150u64).map(|n| {
            let many = &many;
            async move {
                let (key, command) = ((n % 5).to_string(), format!("c-{n}"));
                while let Err(rejection) = many.command(n % 3 + 1, &key, &command, 1).await {
                    assert!(rejection.code.is_retryable(), "{rejection}");
                    tokio::task::yield_now().await;
                }
            }
        }));
        let moves = async {
            for n in 0..12u64 {
                settle().await;
                many.lead((n % 2) as usize, n % 3 + 1);
            }
        };
        next("all done", async { tokio::join!(calls, moves) }).await;
        many.net.fair();
        for key in 0..5 {
            assert_eq!(many.sum(1, &key.to_string()).await, Ok(30), "seed {seed}");
        }
    }
}

/// [FR-001, FR-063, FR-020, K7] The owner is frozen and another takes over. When it wakes it believes that it leads still: it
/// commits nothing, and what it remembers it tells nobody, neither by call nor by rows nor by list.
#[tokio::test]
async fn a_frozen_owner_that_wakes_commits_nothing_and_tells_nothing_stale() {
    let many = Many::start(3, 1);
    many.lead(0, 1);
    assert_eq!(many.add(1, "r", 1).await, Ok(1));
    // It hears nothing from here on; its own word is that it leads.
    many.fail_over(1);
    let new_owner = many.leader(0).expect("another");
    assert_eq!(many.add(new_owner, "r", 1).await, Ok(2));
    // Its clients reach it, and it reaches the others: what it cannot answer it brings from there.
    assert_eq!(many.sum(1, "r").await, Ok(2));
    let soon = crate::testing::soon();
    let id = toy::id("acme", "r");
    let rows = many.silo(1).rows(&id, grain_contract::Table(1), None, 9, soon).await.map_err(|r| r.code);
    match rows {
        Ok(rows) => assert_eq!(toy::number(&rows[0].value), 2),
        Err(code) => assert_eq!(code, Code::Unavailable),
    }
    let answer = many.put(1, "r", 9).await;
    assert!(matches!(answer, Ok(9)), "{answer:?}");
    assert_eq!(many.node(1).stores[0].commits.lock().len(), 1, "none after the freeze");
    many.rejoin(1);
    assert_eq!(many.sum(1, "r").await, Ok(9));
    until("nothing left", || many.silo(1).metrics().activations == 0).await;
}

/// [K7, K6] The owner stands still in the middle of a call. Who can ask another does so as soon as that one leads, and waits
/// for no deadline.
#[tokio::test]
async fn a_frozen_owner_holds_up_nobody() {
    let many = Many::start(3, 1);
    many.lead(0, 1);
    many.add(1, "r", 1).await.expect("added");
    many.net.cut_silently(1);
    let mut call = request("acme", "r", toy::GET, b"", None);
    call.deadline = Instant::now() + Duration::from_secs(3_600);
    let asks = many.silo(2).call(call);
    let elects = async {
        settle().await;
        many.fail_over(1);
    };
    let (reply, ()) = next("an answer long before the deadline", async { tokio::join!(asks, elects) }).await;
    assert_eq!(reply.map(|reply| toy::number(&reply)), Ok(1));
}

/// [K7, FR-035] The owner hears a silo and is not heard by it: what was asked takes place, the caller is told that nobody knows,
/// and once the cut is healed a repeat has no second effect.
#[tokio::test]
async fn a_cut_in_one_direction_is_an_unknown_outcome() {
    let many = Many::start(2, 1);
    many.lead(0, 1);
    many.net.cut_one_way(1, 2);
    let mut call = request("acme", "r", toy::PUT, &7u64.to_le_bytes(), None);
    call.deadline = Instant::now() + Duration::from_millis(100);
    let unknown = many.silo(2).call(call).await.expect_err("no answer arrives");
    assert!(unknown.code == Code::Unavailable && unknown.message.contains("not known"), "{unknown}");
    assert_eq!((many.sum(1, "r").await, many.commits(0)), (Ok(7), 1));
    many.net.heal();
    assert_eq!(many.put(2, "r", 7).await, Ok(7));
    assert_eq!(many.commits(0), 1);
}

/// [K9] A full grain says so over the hop; so does a node that has too much to do, when the deadline comes.
#[tokio::test]
async fn overload_is_told_over_the_hop() {
    let many = Many::start(2, 1);
    many.lead(0, 1);
    many.node(1).stores[0].hold();
    let calls = join_all((0..200).map(|_| many.add(2, "r", 1)));
    let releases = async {
        settle().await;
        many.node(1).stores[0].release_all();
    };
    let (answers, ()) = next("all answered", async { tokio::join!(calls, releases) }).await;
    let refused = answers.iter().filter(|answer| answer.as_ref().is_err_and(|r| r.code == Code::Overloaded)).count();
    let done = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!((done + refused, done >= 64), (200, true), "{done} done");
    assert_eq!(many.sum(2, "r").await, Ok(done as u64));
}

/// Replies and bodies above what one call may carry come in parts.
#[tokio::test]
async fn large_bodies_come_over_the_hop_in_parts() {
    let many = Many::start(2, 1);
    let stranger = many.stranger("r");
    let mut body = 9_000_000u64.to_le_bytes().to_vec();
    body.resize(11_000_000, 1);
    let reply = many.call(stranger, "r", toy::MUCH, &body).await.expect("a reply");
    assert_eq!((reply.len(), reply.iter().all(|byte| *byte == 7)), (9_000_000, true));
    assert!(many.net.arrived("grain.part") >= 2 && many.net.arrived("grain.fetch") >= 2);
}

/// A silo of another build asks for what this one does not know, or in words that it cannot read.
#[tokio::test]
async fn strange_questions_are_refused_and_do_no_harm() {
    use crate::peers::{CallError, Peers, Refused};
    let many = Many::start(2, 1);
    let asker: Arc<dyn Peers> = many.net.plug(9, Arc::default());
    let ask = |method: &'static str, body: &'static [u8]| asker.call(1, method, body.into(), Duration::from_secs(5));
    for method in
        ["grain.call", "grain.rows", "grain.index", "grain.heads", "grain.outbox", "grain.cursors", "grain.watch"]
    {
        let answer = ask(method, b"\xff\xff\xff").await;
        assert!(matches!(answer, Err(CallError::Refused(Refused::BadRequest(_)))), "{method}: {answer:?}");
    }
    assert!(matches!(ask("grain.dance", b"").await, Err(CallError::Refused(Refused::UnknownMethod(_)))));
    assert!(matches!(ask("other.call", b"").await, Err(CallError::Refused(Refused::UnknownMethod(_)))));
    assert_eq!(many.add(1, "r", 1).await, Ok(1));
}

/// The grain that the cluster keeps about itself is in shard 0 wherever it is asked for.
#[test]
fn the_clusters_own_grain_is_found_in_shard_0() {
    let book = GrainId::new(&crate::placement::OWN_TENANT.into(), &"cluster".into(), "book");
    assert_eq!(crate::placement::home_of(&book, 7).0, 0);
}
