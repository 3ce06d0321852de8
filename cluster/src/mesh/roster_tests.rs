use super::*;
use crate::peers::CallError;
use futures::future::BoxFuture;
use granary_proto::peers::{Envelope, EnvelopeReply};

struct Dummy;

impl Line for Dummy {
    fn call(&self, _: Envelope, _: Duration) -> BoxFuture<'static, Result<EnvelopeReply, CallError>> {
        Box::pin(std::future::ready(Err(CallError::Overloaded)))
    }

    fn answers(&self, _: Duration) -> BoxFuture<'static, bool> {
        Box::pin(std::future::ready(true))
    }

    fn close(&self) {}
}

fn node(name: &str, node_id: u64, boot: u64, address: &str) -> NodeIdentity {
    NodeIdentity { name: name.into(), node_id, boot, peer_address: address.into(), ..NodeIdentity::default() }
}

fn attach(roster: &Roster, node: NodeId, boot: u64) -> Arc<dyn Line> {
    let gate: Arc<dyn Line> = Arc::new(Dummy);
    assert!(roster.attach_gate(node, boot, &gate));
    gate
}

fn life(admission: Admission) -> CancellationToken {
    match admission {
        Admission::Admitted { life, .. } => life,
        other => panic!("not admitted: {other:?}"),
    }
}

#[test]
fn a_new_boot_ends_the_old_life_once_nothing_leads_there() {
    let (roster, now) = (Roster::default(), Instant::now());
    let first = life(roster.admit(&node("a", 1, 10, "x:1"), now));
    let gate = attach(&roster, 1, 10);
    assert!(matches!(roster.admit(&node("a", 1, 11, "x:2"), now), Admission::Occupied(1)));
    assert!(!first.is_cancelled());
    roster.detach_gate(1, &gate, now);
    let second = life(roster.admit(&node("a", 1, 11, "x:2"), now));
    assert!(first.is_cancelled() && !second.is_cancelled());
    assert!(roster.life(1, 10).is_none() && roster.life(1, 11).is_some());
    assert!(!roster.attach_gate(1, 10, &gate), "the old life attaches nothing");
}

/// [FR-122]
#[test]
fn a_lost_volume_comes_back_under_its_name_when_the_old_id_is_dead() {
    let (roster, now) = (Roster::default(), Instant::now());
    let first = life(roster.admit(&node("a", 1, 10, "x:1"), now));
    attach(&roster, 1, 10);
    assert!(matches!(roster.admit(&node("a", 2, 20, "x:1"), now), Admission::Occupied(1)));
    roster.bury(1);
    assert!(first.is_cancelled());
    life(roster.admit(&node("a", 2, 20, "x:1"), now));
    assert!(roster.to_dial(1, now).is_none(), "nobody dials the id that is gone");
    assert_eq!(roster.known(now).iter().map(|known| known.node_id).collect::<Vec<_>>(), [2]);
}

#[test]
fn hearsay_is_dialled_but_neither_believed_nor_repeated() {
    let (roster, now) = (Roster::default(), Instant::now());
    assert!(roster.hear(&node("b", 2, 20, "y:1"), now));
    assert!(!roster.hear(&node("b", 2, 20, "y:2"), now));
    assert_eq!(roster.to_dial(2, now).unwrap().0, ["y:2", "y:1"]);
    assert!(roster.known(now).is_empty() && roster.identity(2).is_none() && roster.life(2, 20).is_none());
    // What it says itself counts.
    life(roster.admit(&node("b", 2, 21, "y:3"), now));
    assert_eq!(roster.identity(2).unwrap().boot, 21);
    assert_eq!(roster.to_dial(2, now).unwrap().0[0], "y:3");
}

#[test]
fn the_dead_are_not_passed_round_for_ever() {
    let (roster, now) = (Roster::default(), Instant::now());
    life(roster.admit(&node("a", 1, 10, "x:1"), now));
    let gate = attach(&roster, 1, 10);
    let later = now + Duration::from_secs(3_600);
    assert_eq!(roster.known(later).len(), 1, "attached");
    roster.detach_gate(1, &gate, later);
    assert_eq!(roster.known(later + REPEATED_FOR).len(), 1);
    assert_eq!(roster.known(later + REPEATED_FOR * 2).len(), 0);
    assert!(roster.to_dial(1, later + DIALLED_FOR).is_some());
    assert!(roster.to_dial(1, later + DIALLED_FOR * 2).is_none());
}

#[test]
fn attached_follows_the_lines() {
    let (roster, now) = (Roster::default(), Instant::now());
    let attached = roster.attached();
    life(roster.admit(&node("a", 1, 10, "x:1"), now));
    assert!(attached.borrow().is_empty());
    let old = attach(&roster, 1, 10);
    let new = attach(&roster, 1, 10);
    roster.detach_gate(1, &old, now);
    assert_eq!(attached.borrow().keys().collect::<Vec<_>>(), [&1], "the older line is not the one in use");
    roster.detach_gate(1, &new, now);
    assert!(attached.borrow().is_empty());
}

#[test]
fn only_so_many_nodes_are_kept_in_mind() {
    let (roster, now) = (Roster::default(), Instant::now());
    for id in 1..=NODES_MAX as u64 {
        life(roster.admit(&node(&format!("n{id}"), id, 1, "x:1"), now));
    }
    assert!(matches!(roster.admit(&node("one more", 9_999, 1, "x:1"), now), Admission::Full));
    assert!(!roster.hear(&node("and one", 9_998, 1, "x:1"), now));
}
