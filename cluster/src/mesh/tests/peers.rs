//! Finding each other, losing each other, and coming back.

use super::nodes::{Authority, Plan, soon, start};
use crate::mesh::Error;
use std::time::Duration;
use uuid::Uuid;

/// [K1]
#[tokio::test]
async fn all_find_all_through_one_seed() {
    let authority = Authority::new();
    let first = start(&authority, "a", 1, &[]).await;
    let second = start(&authority, "b", 2, &[&first]).await;
    let third = start(&authority, "c", 3, &[&first]).await;
    first.sees(&[&second, &third]).await;
    second.sees(&[&first, &third]).await;
    third.sees(&[&first, &second]).await;
    let info = first.peers().attached().borrow()[&2].clone();
    assert_eq!((&*info.name, &*info.client_address, &*info.zone), ("b", "http://b:7420", "z"));
    let mut known: Vec<_> = third.mesh.known().into_iter().map(|identity| identity.name).collect();
    known.sort();
    assert_eq!(known, ["a", "b"]);
}

/// [K1]
#[tokio::test]
async fn a_seed_that_is_the_node_itself_does_no_harm() {
    let authority = Authority::new();
    let first = start(&authority, "a", 1, &[]).await;
    let address = first.mesh.addresses().peer;
    first.stop().await;
    let mut plan = Plan::new(&authority, "a", 1, &[&first]);
    plan.options.peer_listen = address;
    let first = plan.start().await;
    let second = start(&authority, "b", 2, &[&first]).await;
    first.sees(&[&second]).await;
    assert!(first.mesh.known().iter().all(|identity| identity.name == "b"));
}

/// [K7]
#[tokio::test]
async fn a_stopped_node_is_gone_and_its_next_boot_is_there() {
    let authority = Authority::new();
    let first = start(&authority, "a", 1, &[]).await;
    let second = start(&authority, "b", 2, &[&first]).await;
    first.sees(&[&second]).await;
    let address = second.mesh.addresses().peer;
    second.stop().await;
    first.sees(&[]).await;
    // On the same address, without a seed: the first one still knows where it was.
    let mut plan = Plan::new(&authority, "b", 2, &[]);
    plan.options.peer_listen = address;
    let boot = plan.birth.boot;
    let _second = plan.start().await;
    first.until("the next boot", |attached| attached.get(&2).is_some_and(|info| info.boot == boot)).await;
}

/// [FR-122]
#[tokio::test]
async fn a_full_restart_with_new_addresses_heals_through_the_seeds() {
    let authority = Authority::new();
    let first = start(&authority, "a", 1, &[]).await;
    let second = start(&authority, "b", 2, &[&first]).await;
    first.sees(&[&second]).await;
    first.stop().await;
    second.stop().await;
    let (first, third) = (start(&authority, "a", 1, &[]).await, start(&authority, "c", 3, &[]).await);
    let second = start(&authority, "b", 2, &[&first, &third]).await;
    first.sees(&[&second, &third]).await;
    third.sees(&[&first, &second]).await;
}

#[tokio::test]
async fn a_second_process_with_the_id_of_a_living_one_must_end() {
    let authority = Authority::new();
    let first = start(&authority, "a", 1, &[]).await;
    let second = start(&authority, "b", 2, &[&first]).await;
    first.sees(&[&second]).await;
    let copy = start(&authority, "b", 2, &[&first]).await;
    assert!(matches!(soon("the bar", copy.mesh.barred()).await, Error::Taken(_)));
    first.sees(&[&second]).await;
    assert_eq!(first.call(&second, "echo.back", b"x").await.unwrap(), "x");
    copy.stop().await;
    // Once the first one is dead, the next is welcome.
    second.stop().await;
    let plan = Plan::new(&authority, "b", 2, &[&first]);
    let boot = plan.birth.boot;
    let _next = plan.start().await;
    first.until("the next boot", |attached| attached.get(&2).is_some_and(|info| info.boot == boot)).await;
}

#[tokio::test]
async fn a_name_is_good_for_one_living_process() {
    let authority = Authority::new();
    let first = start(&authority, "a", 1, &[]).await;
    let second = start(&authority, "b", 2, &[&first]).await;
    first.sees(&[&second]).await;
    let namesake = start(&authority, "b", 9, &[&first]).await;
    assert!(matches!(soon("the bar", namesake.mesh.barred()).await, Error::Taken(_)));
    namesake.stop().await;
    // A lost volume: the old process is dead, the new one has its name and another id.
    second.stop().await;
    let renewed = start(&authority, "b", 10, &[&first]).await;
    first.sees(&[&renewed]).await;
}

/// [FR-122]
#[tokio::test]
async fn a_node_of_another_cluster_is_refused_and_told() {
    let authority = Authority::new();
    let (ours, theirs) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let first = Plan::new(&authority, "a", 1, &[]).of_cluster(ours).start().await;
    let stranger = Plan::new(&authority, "x", 9, &[&first]).of_cluster(theirs).start().await;
    assert!(matches!(soon("the bar", stranger.mesh.barred()).await, Error::OtherCluster(_)));
    // One that has no cluster yet is welcome, and known to be of ours once it says so.
    let second = start(&authority, "b", 2, &[&first]).await;
    first.sees(&[&second]).await;
    second.mesh.set_cluster(ours);
    first.until("the cluster", |attached| attached.get(&2).is_some_and(|info| info.cluster == Some(ours))).await;
    assert!(!first.peers().attached().borrow().contains_key(&9));
    // One that turns to another cluster is shown out.
    second.mesh.set_cluster(theirs);
    first.sees(&[]).await;
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_at_the_start() {
    let authority = Authority::new();
    let plan = Plan::new(&authority, "a", 1, &[]);
    let mut cases = vec![plan.clone(), plan.clone(), plan.clone(), plan.clone()];
    cases[0].options.name = "b".into();
    cases[1].options.secret = vec![1; 31];
    cases[2].options.seeds = vec!["nowhere".into()];
    cases[3].options.timing.deadline = cases[3].options.timing.ping;
    for case in cases {
        assert!(matches!(case.try_start().await.err(), Some(Error::Settings(_))));
    }
    let first = plan.clone().start().await;
    let mut taken = plan;
    taken.options.peer_listen = first.mesh.addresses().peer;
    assert!(matches!(taken.try_start().await.err(), Some(Error::Listen { .. })));
}

/// [K1] [FR-122] Its only seed is no more; where the others were met last is in its folder.
#[tokio::test]
async fn a_node_finds_the_others_where_they_were_met_last() {
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("peers");
    let first = start(&authority, "a", 1, &[]).await;
    let second = start(&authority, "b", 2, &[&first]).await;
    let mut plan = Plan::new(&authority, "c", 3, &[&first]);
    plan.options.known = Some(file.clone());
    let third = plan.start().await;
    third.sees(&[&first, &second]).await;
    let all = [format!("a {}\n", first.seed()), format!("b {}\n", second.seed())];
    let written = async {
        let is_written = || std::fs::read_to_string(&file).is_ok_and(|text| all.iter().all(|line| text.contains(line)));
        while !is_written() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("the file", written).await;
    third.stop().await;
    first.stop().await;
    second.sees(&[]).await;

    // Nobody seeds the second one, which does not know the third one's new address. Nothing listens at the seed.
    let mut plan = Plan::new(&authority, "c", 3, &[]);
    plan.options.seeds = vec!["127.0.0.1:1".into()];
    plan.options.known = Some(file);
    let third = plan.start().await;
    third.sees(&[&second]).await;
    second.sees(&[&third]).await;
}

/// [P6] Nobody is told by a call: it is part of who a node is.
#[tokio::test]
async fn a_node_that_is_about_to_stop_is_known_as_such_to_all() {
    let authority = Authority::new();
    let first = start(&authority, "a", 1, &[]).await;
    let second = start(&authority, "b", 2, &[&first]).await;
    first.sees(&[&second]).await;
    second.sees(&[&first]).await;
    second.peers().say_leaving();
    let told = async {
        while !first.peers().leaving().contains(&2) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("its word", told).await;
    assert!(first.peers().attached().borrow().contains_key(&2), "it is called all the same");
    assert!(second.peers().leaving().is_empty());
    second.stop().await;
    let plan = Plan::new(&authority, "b", 2, &[&first]);
    let boot = plan.birth.boot;
    let _next = plan.start().await;
    first.until("the next boot", |attached| attached.get(&2).is_some_and(|info| info.boot == boot)).await;
    assert!(first.peers().leaving().is_empty(), "the next start is another life");
}
