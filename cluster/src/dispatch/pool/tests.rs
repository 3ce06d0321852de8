use super::*;
use places::token_in;

const LEASE_MS: u64 = 45_000;
const EPOCH: Epoch = Epoch(1);
const SHARD: ShardId = ShardId(0);
/// Led by somebody else.
const OTHER: ShardId = ShardId(1);

/// Its place was taken a moment ago.
fn taken() -> Taking {
    Taking { place: true, since: now(), is_late: false }
}

fn now() -> Moment {
    Moment::at(0)
}

fn pool() -> Pool {
    Pool::new(LEASE_MS, &HashMap::from([(SHARD, EPOCH)]), &HashSet::new())
}

fn grain() -> GrainId {
    GrainId::new(&"acme".into(), &"toy".into(), "k")
}

fn item(n: u128) -> WorkItem {
    WorkItem { queue: "q".into(), attempt: Uuid::from_u128(n), lease: None, body: Vec::new() }
}

fn waiting(n: u128) -> Waiting {
    Waiting { grain: grain(), shard: SHARD, item: item(n) }
}

/// A worker at node 9.
fn far(session: u64, room: u32, stamp: u64) -> FarSession {
    FarSession { worker: "far".into(), session, gone: false, queues: Some(vec!["q".into()]), room, stamp }
}

fn guest_work(n: u128, session: u64, token: u8) -> Work {
    let lease = Lease { worker: "w".into(), token: token_in(session, [token; 16]) };
    Work { grain: grain(), shard: OTHER, epoch: EPOCH, item: item(n), lease, session }
}

/// Sends work to a worker elsewhere, and gives it.
fn sent(pool: &mut Pool, n: u128) -> Work {
    let lease = pool.take(&"q".into(), [7; 16]).expect("a place");
    let actions = pool.assign((SHARD, EPOCH), &grain(), item(n), lease, taken());
    let [Action::Send { edge: 9, parcel: Parcel::Work(work) }] = &actions[..] else { panic!("{actions:?}") };
    work.clone()
}

fn never_started(actions: &[Action]) -> Vec<u128> {
    let ended = actions.iter().filter_map(|action| match action {
        Action::Expired { attempt, never_started: true, .. } => Some(attempt.as_u128()),
        _ => None,
    });
    ended.collect()
}

/// What is on its way counts against the room that was told, until the edge has counted it itself.
#[test]
fn room_elsewhere_is_what_was_told_less_what_is_on_the_way() {
    let mut pool = pool();
    pool.hear_worker(9, far(1, 2, 1));
    let (first, _second) = (sent(&mut pool, 1), sent(&mut pool, 2));
    assert_eq!(pool.take(&"q".into(), [0; 16]), None);
    pool.delivered(9, &first, Delivered::Placed { room: 1, stamp: 5 });
    assert_eq!(pool.take(&"q".into(), [0; 16]), None, "one place, and one assignment on its way");
    // An older telling says nothing new.
    pool.hear_worker(9, far(1, 100, 4));
    assert_eq!(pool.take(&"q".into(), [0; 16]), None);
    pool.hear_worker(9, far(1, 2, 6));
    assert!(pool.take(&"q".into(), [0; 16]).is_some());
}

/// [K9] Whatever room a refusal tells, the attempt does not go to the same worker again before there is word or time has gone
/// by; another has it at once.
#[test]
fn a_refused_attempt_waits_for_word_or_goes_elsewhere() {
    let refusal = Delivered::Refused { room: 2, stamp: 5 };
    let mut pool = pool();
    pool.hear_worker(9, far(1, 2, 1));
    let work = sent(&mut pool, 1);
    pool.delivered(9, &work, refusal);
    assert_eq!(pool.take(&"q".into(), [0; 16]), None);
    pool.hear_worker(9, far(1, 2, 4));
    assert_eq!(pool.take(&"q".into(), [0; 16]), None, "said before the refusal");
    assert_eq!(pool.enqueue(waiting(2)), []);
    let actions = pool.hear_worker(9, far(1, 2, 6));
    assert!(matches!(&actions[..], [Action::Claim { lease, .. }] if lease.worker == "far"), "{actions:?}");

    let work = sent(&mut pool, 3);
    pool.delivered(9, &work, Delivered::NotSent);
    assert_eq!(pool.enqueue(waiting(4)), []);
    let elsewhere = FarSession { worker: "elsewhere".into(), ..far(1, 1, 1) };
    let actions = pool.hear_worker(8, elsewhere);
    assert!(matches!(&actions[..], [Action::Claim { lease, .. }] if lease.worker == "elsewhere"), "{actions:?}");
    assert_eq!(pool.enqueue(waiting(5)), []);
    let actions = pool.at(10_000).tick();
    let claims = actions.iter().filter(|it| matches!(it, Action::Claim { lease, .. } if lease.worker == "far"));
    assert_eq!(claims.count(), 1, "{actions:?}");
}

/// [C3] What the edge says of an assignment, and what the grain hears of it.
#[test]
fn only_what_surely_never_arrived_was_never_started() {
    let cases = [
        (Delivered::Placed { room: 0, stamp: 2 }, Vec::new()),
        (Delivered::Refused { room: 0, stamp: 2 }, vec![1]),
        (Delivered::NotSent, vec![1]),
        (Delivered::Unknown, Vec::new()),
    ];
    for (answer, told) in cases {
        let mut pool = pool();
        pool.hear_worker(9, far(1, 1, 1));
        pool.completed(SHARD, 9);
        let work = sent(&mut pool, 1);
        assert_eq!(never_started(&pool.delivered(9, &work, answer)), told, "{answer:?}");
        // A later session that does not list it settles the doubt; what was placed before, it lost with its stream.
        let later = never_started(&pool.hear_worker(9, far(2, 1, 3)));
        assert_eq!(later.len() + told.len(), 1, "{answer:?}");
    }
}

/// [C3] [K7] Claimed too long ago, it goes nowhere, wherever its worker is, and the place is free.
#[test]
fn what_is_late_is_given_back_by_its_owner() {
    let late = Taking { is_late: true, ..taken() };
    for is_far in [false, true] {
        let mut pool = pool();
        let (mut near, _) = pool.connect("near", 1, vec![if is_far { "other" } else { "q" }.into()], 1, &[]);
        pool.hear_worker(9, far(1, 1, 1));
        let lease = pool.take(&"q".into(), [7; 16]).expect("a place");
        assert_eq!(lease.worker, if is_far { "far" } else { "near" });
        let actions = pool.assign((SHARD, EPOCH), &grain(), item(1), lease.clone(), late);
        assert_eq!((never_started(&actions), actions.len()), (vec![1], 1), "and nothing is sent");
        assert!(near.try_recv().is_err());
        assert_eq!(pool.expiry_told(Uuid::from_u128(1), &lease), []);
        assert_eq!((pool.leases(), pool.take(&"q".into(), [8; 16]).map(|l| l.worker)), (0, Some(lease.worker)));
    }
}

/// [C3] [K7] What the last look before the worker's stream keeps back, in whatever state it is meanwhile.
#[test]
fn what_is_not_handed_out_leaves_nothing_behind() {
    for (what, is_told) in
        [("ours", true), ("taken in", true), ("not wanted", false), ("over", false), ("a guest", true)]
    {
        let mut pool = pool();
        let (_session, _) = pool.connect("w", 1, vec!["q".into()], 1, &[]);
        let work = guest_work(1, 1, 1);
        let (attempt, lease) = (work.item.attempt, work.lease.clone());
        if matches!(what, "a guest" | "taken in") {
            assert!(pool.place(2, &work, 3, now()).placed);
        } else {
            let place = pool.take(&"q".into(), lease.token).expect("a place");
            assert_eq!(place, lease);
            pool.assign((SHARD, EPOCH), &grain(), item(1), place, taken());
        }
        match what {
            "taken in" => drop(pool.opened(OTHER, EPOCH)),
            "not wanted" => drop(pool.withdraw(attempt, true, "cancelled")),
            "over" => drop(pool.at(LEASE_MS).tick()),
            _ => {}
        }
        let told = never_started(&pool.not_handed_out(grain(), attempt, lease.clone()));
        assert_eq!(told.len(), usize::from(is_told), "{what}");
        pool.expiry_told(attempt, &lease);
        assert_eq!((pool.leases(), pool.not_handed_out(grain(), attempt, lease)), (0, Vec::new()), "{what}");
        assert!(pool.take(&"q".into(), [9; 16]).is_some(), "{what}: the place is free");
    }
}

/// [C3] Of a worker elsewhere nothing is concluded before its node has told all.
#[test]
fn an_expected_lease_waits_until_the_edge_has_told_all() {
    let mut pool = pool();
    pool.hear_worker(9, far(3, 1, 1));
    let lease = Lease { worker: "far".into(), token: token_in(3, [1; 16]) };
    assert_eq!(pool.expect(SHARD, &grain(), Uuid::from_u128(1), lease.clone()), []);
    assert_eq!(never_started(&pool.completed(SHARD, 9)), [1]);
    // A lease of a later session than is known here: whoever has that session will tell.
    let later = Lease { worker: "far".into(), token: token_in(4, [2; 16]) };
    assert_eq!(pool.expect(SHARD, &grain(), Uuid::from_u128(2), later), []);
}

/// [C3] Places are counted whoever owns what takes them: two owners never fill one place.
#[test]
fn a_worker_with_one_place_never_gets_two() {
    let mut pool = pool();
    let (mut receiver, _) = pool.connect("w", 1, vec!["q".into()], 1, &[]);
    assert!(pool.place(2, &guest_work(1, 1, 1), 3, now()).placed);
    assert!(!pool.place(3, &guest_work(2, 1, 2), 3, now()).placed);
    assert_eq!(pool.take(&"q".into(), [0; 16]), None);
    assert!(pool.place(2, &guest_work(1, 1, 1), 3, now()).placed, "the same again has its place already");
    let messages = std::iter::from_fn(|| receiver.try_recv().ok()).count();
    assert_eq!(messages, 1);
    pool.finished("w", Uuid::from_u128(1));
    pool.release("w", Uuid::from_u128(1));
    assert!(pool.take(&"q".into(), [0; 16]).is_some());
}

/// In another session than it was meant for, an assignment is not handed out.
#[test]
fn an_assignment_for_an_earlier_session_is_refused() {
    let mut pool = pool();
    let _first = pool.connect("w", 1, vec!["q".into()], 4, &[]);
    let _second = pool.connect("w", 2, vec!["q".into()], 4, &[]);
    assert!(!pool.place(2, &guest_work(1, 1, 1), 3, now()).placed);
    assert!(pool.place(2, &guest_work(1, 2, 1), 3, now()).placed);
}

/// [K9] Work that waits at several owners gets places in turn, those here among them.
#[test]
fn places_go_round_among_those_that_wait() {
    let mut pool = pool();
    let _session = pool.connect("w", 1, vec!["q".into()], 1, &[]);
    let busy = pool.take(&"q".into(), [0; 16]).expect("the only place");
    for n in 0..10 {
        assert_eq!(pool.enqueue(waiting(n)), []);
    }
    pool.hear_want(2, &"q".into(), 10);
    pool.hear_want(3, &"q".into(), 10);
    let mut got = [0; 3];
    let mut free = busy.worker;
    for round in 0..9u64 {
        pool.at(round * 2_000);
        let mut actions = pool.give_back(&free);
        actions.extend(pool.tick());
        if let Some(Action::Claim { lease, .. }) = actions.first() {
            got[0] += 1;
            free = lease.worker.clone();
            continue;
        }
        for (at, node) in [(1, 2), (2, 3)] {
            got[at] += pool.room_for("w", node, 3);
        }
    }
    assert_eq!(got.iter().sum::<u32>(), 9, "{got:?}");
    assert!(got.iter().all(|places| *places >= 2), "{got:?}");
}

/// A promise that nobody uses is void after a while.
#[test]
fn an_unused_promise_frees_its_place() {
    let mut pool = pool();
    let _session = pool.connect("w", 1, vec!["q".into()], 1, &[]);
    pool.hear_want(2, &"q".into(), 1);
    assert_eq!((pool.room_for("w", 2, 3), pool.room_for("w", 3, 3)), (1, 0));
    assert_eq!(pool.take(&"q".into(), [0; 16]), None);
    pool.at(1_000).tick();
    assert!(pool.take(&"q".into(), [0; 16]).is_some());
}

/// [C3, K7] A shard that is lost and led again: what workers here hold of it stays theirs all the while.
#[test]
fn what_workers_hold_outlives_a_change_of_owners() {
    let mut pool = pool();
    let _session = pool.connect("w", 1, vec!["q".into()], 2, &[]);
    let lease = pool.take(&"q".into(), [1; 16]).expect("a place");
    pool.assign((SHARD, EPOCH), &grain(), item(1), lease.clone(), taken());
    pool.left(SHARD);
    assert_eq!((pool.leases(), pool.renew("w", &[Uuid::from_u128(1)])), (0, Vec::new()));
    let (told, all) = pool.guests_to_tell(&|shard| shard == SHARD, 10);
    assert_eq!((told.len(), all), (1, true));
    let verify = Action::Verify { grain: grain(), attempt: Uuid::from_u128(1), lease: lease.clone() };
    assert_eq!(pool.opened(SHARD, Epoch(2)), [verify]);
    assert_eq!(pool.expect(SHARD, &grain(), Uuid::from_u128(1), lease), []);
    assert_eq!((pool.leases(), pool.renew("w", &[Uuid::from_u128(1)])), (1, Vec::new()));
}

impl Pool {
    /// For a test that failed.
    pub(crate) fn describe(&self) -> String {
        let mut text = String::new();
        for (id, w) in &self.workers {
            let seat = match &w.seat {
                Seat::Away => "away".to_owned(),
                Seat::Here(h) => format!("here placed {} of {} promised {:?}", h.placed, h.capacity, h.promises),
                Seat::Far(f) => format!("at {} room {} sent {}", f.edge, f.room, f.sent),
            };
            text += &format!("  {id} session {} taken {} {seat}\n", w.session, w.taken);
        }
        for (id, l) in self.leases.iter() {
            text += &format!(
                "  lease {id} {:?} {:?} session {} place {} {:?}\n",
                l.lease, l.standing, l.session, l.has_place, l.delivery
            );
        }
        for (id, g) in self.guests.iter() {
            text += &format!("  guest {id} {:?} session {} place {}\n", g.lease, g.session, g.has_place);
        }
        for (name, q) in &self.queues {
            text += &format!("  queue {name} waiting {} wants {:?}\n", q.waiting.len(), q.wants);
        }
        text + &format!("  claiming {} untold {}\n", self.claiming.len(), self.untold.len())
    }
}
