//! One list over all shards.

use crate::testing::{Cluster, soon, toy};

#[tokio::test]
async fn pages_of_all_shards_are_one_list_in_order() {
    let cluster = Cluster::start(4);
    let mut keys: Vec<String> = (0..25).map(|n| format!("k{n:02}")).collect();
    for key in keys.iter().rev() {
        cluster.add(key, 1).await.expect("added");
        cluster.call_of("other", key, toy::ADD, &1u64.to_le_bytes()).await.expect("added");
    }
    let (mut token, mut seen, mut sizes) = (String::new(), Vec::new(), Vec::new());
    loop {
        let page = cluster.silo.index_page(toy::OPEN, &"acme".into(), &token, 10, soon()).await.expect("a page");
        sizes.push(page.entries.len());
        seen.extend(page.entries.into_iter().map(|entry| entry.grain.key.to_string()));
        token = page.next_page_token;
        // What comes in before the page's end shifts nothing.
        cluster.add("a-new-one", 1).await.expect("added");
        if token.is_empty() {
            break;
        }
    }
    keys.sort();
    assert_eq!((seen, sizes), (keys, vec![10, 10, 5]));
}
