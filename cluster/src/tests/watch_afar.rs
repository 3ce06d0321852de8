//! Watching a grain that is owned elsewhere.

use crate::testing::many::Many;
use crate::testing::net::Fate;
use crate::testing::{next, settle};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// [C2, K7] A watcher sees every change in the end, from whatever silo it watches, through changes of the owner.
#[tokio::test]
async fn a_watcher_elsewhere_sees_the_last_change() {
    let many = Many::with(4, 1, 3, |_| {});
    // Node 4 has no replica; node 2 has one and does not lead.
    for watcher in [4, 2] {
        many.lead(0, 1);
        let key = format!("r{watcher}");
        let mut watch = many.silo(watcher).watch(&crate::testing::toy::id("acme", &key));
        many.sum(watcher, &key).await.expect("a sum");
        for round in 1..=6u64 {
            let changes = async {
                settle().await;
                many.add(1, &key, 1).await.expect("added");
                if round % 2 == 0 {
                    many.lead(0, round / 2 % 3 + 1);
                }
            };
            let sees = async {
                while many.sum(watcher, &key).await != Ok(round) {
                    next("a change", watch.changed()).await;
                }
            };
            next("both", async { tokio::join!(changes, sees) }).await;
        }
    }
}

/// [V2] The word of a change is lost on the way: the watcher looks again all the same.
#[tokio::test]
async fn a_lost_word_of_a_change_is_made_good() {
    let many = Many::start(2, 1);
    many.lead(0, 1);
    let mut watch = many.silo(2).watch(&crate::testing::toy::id("acme", "r"));
    let lost = Arc::new(AtomicUsize::new(0));
    let counts = lost.clone();
    many.net.judge(move |_, _, method| {
        if method == "grain.changed" && counts.fetch_add(1, Ordering::SeqCst) == 0 {
            Fate::NotSent
        } else {
            Fate::Arrives
        }
    });
    // The owner has heard of the watch: what it tells first is that it is new.
    next("the first look", watch.changed()).await;
    many.add(1, "r", 1).await.expect("added");
    while many.sum(2, "r").await != Ok(1) || lost.load(Ordering::SeqCst) == 0 {
        next("a change", watch.changed()).await;
    }
    next("another look, since a word was lost", watch.changed()).await;
}
