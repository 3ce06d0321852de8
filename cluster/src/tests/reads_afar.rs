//! Rows and lists whose owners are elsewhere.

use crate::RowsOf;
use crate::testing::many::Many;
use crate::testing::{next, soon, toy};
use grain_contract::{Code, RowKey, Table};
use std::time::Duration;
use tokio::time::Instant;

const SUM: Table = Table(1);

/// [C2, K6] From every silo the same list, in order, page by page, in one call a peer.
#[tokio::test]
async fn every_silo_gives_the_same_list() {
    let many = Many::with(4, 8, 2, |_| {});
    let mut keys: Vec<String> = (0..25).map(|n| format!("k{n:02}")).collect();
    for key in keys.iter().rev() {
        many.add(1, key, 1).await.expect("added");
    }
    keys.sort();
    for id in 1..=4 {
        let (mut token, mut seen) = (String::new(), Vec::new());
        loop {
            let page = many.silo(id).index_page(toy::OPEN, &"acme".into(), &token, 10, soon()).await.expect("a page");
            seen.extend(page.entries.into_iter().map(|entry| entry.grain.key.to_string()));
            token = page.next_page_token;
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(seen, keys, "at {id}");
    }
    let before = many.net.arrived("grain.index");
    many.silo(2).index_page(toy::OPEN, &"acme".into(), "", 10, soon()).await.expect("a page");
    assert_eq!(many.net.arrived("grain.index") - before, 3, "one call a peer");
}

/// [C2, K7] A list misses no shard: without a leader it waits for one, and says so at its deadline.
#[tokio::test]
async fn a_list_without_one_shard_is_no_list() {
    let many = Many::start(3, 3);
    many.add(1, "r", 1).await.expect("added");
    many.leaderless(1);
    let deadline = Instant::now() + Duration::from_millis(120);
    let page = many.silo(1).index_page(toy::OPEN, &"acme".into(), "", 10, deadline).await;
    assert_eq!(page.map_err(|r| r.code), Err(Code::Unavailable));
    let tenant = "acme".into();
    let asks = many.silo(1).index_page(toy::OPEN, &tenant, "", 10, soon());
    let elects = async {
        crate::testing::settle().await;
        many.lead(1, 3);
    };
    let (page, ()) = next("a page", async { tokio::join!(asks, elects) }).await;
    assert_eq!(page.expect("a page").entries.len(), 1);
}

/// [K6] Rows of many grains come in the order of the questions, in one call an owner.
#[tokio::test]
async fn rows_of_many_grains_come_in_one_call_an_owner() {
    let many = Many::start(3, 6);
    let keys: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    for (n, key) in keys.iter().enumerate() {
        many.put(1, key, n as u64 + 1).await.expect("put");
    }
    let before = many.net.arrived("grain.rows");
    let ask = |key: &String| RowsOf { grain: toy::id("acme", key), table: SUM, after: None, limit: 9 };
    let rows = many.silo(2).rows_of(keys.iter().map(ask).collect(), soon()).await.expect("rows");
    let sums: Vec<u64> = rows.iter().map(|rows| toy::number(&rows[0].value)).collect();
    assert_eq!(sums, (1..=40).collect::<Vec<_>>());
    assert_eq!(many.net.arrived("grain.rows") - before, 2);
    assert_eq!(many.silo(2).rows(&toy::id("other", "1"), SUM, None, 9, soon()).await, Ok(Vec::new()));
}

/// Rows above what one call may carry come all the same.
#[tokio::test]
async fn large_rows_come_from_the_owner() {
    let many = Many::start(2, 1);
    let (owner, stranger) = (many.owner("r"), many.stranger("r"));
    let key = RowKey { table: Table(200), key: b"j".to_vec() };
    many.node(owner).stores[0].spoil(&toy::id("acme", "r"), key, &vec![5; 9_000_000]);
    let rows = many.silo(stranger).rows(&toy::id("acme", "r"), Table(200), None, 9, soon()).await.expect("rows");
    assert_eq!(rows[0].value.len(), 9_000_000);
}

/// [FR-063, FR-001] A silo that is cut off with its belief to lead answers no read.
#[tokio::test]
async fn a_cut_off_owner_answers_no_read() {
    let many = Many::start(3, 1);
    many.lead(0, 1);
    many.add(1, "r", 1).await.expect("added");
    many.cut_stores(1);
    many.net.isolate(1);
    let deadline = || Instant::now() + Duration::from_millis(100);
    let mut get = crate::testing::request("acme", "r", toy::GET, b"", None);
    get.deadline = deadline();
    assert_eq!(many.silo(1).call(get).await.map_err(|r| r.code), Err(Code::Unavailable));
    let rows = many.silo(1).rows(&toy::id("acme", "r"), SUM, None, 9, deadline()).await;
    assert_eq!(rows.map_err(|r| r.code), Err(Code::Unavailable));
    let page = many.silo(1).index_page(toy::OPEN, &"acme".into(), "", 10, deadline()).await;
    assert_eq!(page.map_err(|r| r.code), Err(Code::Unavailable));
}
