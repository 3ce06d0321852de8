//! Assignments that an edge finds long after they were made.

use super::super::State;
use crate::dispatch::pool::{Parcel, Work};
use crate::dispatch::tenants::Tenants;
use crate::{Moment, ToWorker};
use grain_contract::{Epoch, GrainId, Lease, TenantId, WorkItem};
use granary_proto::peers::{Assign, AssignAnswer};
use shard::{NodeId, ShardId};
use tokio::sync::mpsc::UnboundedReceiver;
use uuid::Uuid;

const LEASE_MS: u64 = 45_000;
const OWNER: NodeId = 1;
const EDGE: NodeId = 2;
const SESSION: u64 = 7;

struct Pair {
    owner: (State, Tenants),
    edge: (State, Tenants),
    worker: UnboundedReceiver<ToWorker>,
}

impl Pair {
    /// A worker with room for two is at the edge.
    fn new() -> Self {
        let node = |process| (State::new(4, LEASE_MS, 1, process), Tenants::new(LEASE_MS));
        let (owner, edge) = (node(11), node(22));
        let pool = edge.1.pool(&TenantId::new("acme"));
        let (worker, _) = pool.lock().at(0).connect("w", SESSION, vec!["q".into()], 2, &[]);
        Self { owner, edge, worker }
    }

    /// The edge tells the owner, by its clock; the owner's is another.
    fn tell(&mut self, edge_ms: u64) {
        for _ in 0..2 {
            let (tell, record) = self.edge.0.tell(OWNER, &self.edge.1, 1, edge_ms);
            let (answer, _) = self.owner.0.hear(EDGE, tell, &self.owner.1, 5, 900_000);
            self.edge.0.told(OWNER, record, Some(answer), &self.edge.1, edge_ms);
        }
    }

    fn send(&mut self, n: u128) {
        let grain = GrainId::new(&"acme".into(), &"toy".into(), "k");
        let mut token = [0; 16];
        token[8..].copy_from_slice(&SESSION.to_be_bytes());
        let lease = Lease { worker: "w".to_owned(), token };
        let item = WorkItem { queue: "q".into(), attempt: Uuid::from_u128(n), lease: None, body: Vec::new() };
        let work = Work { grain, shard: ShardId(0), epoch: Epoch(1), item, lease, session: SESSION };
        self.owner.0.send(EDGE, Parcel::Work(work));
    }

    fn batch(&mut self) -> Assign {
        self.owner.0.next_batch(EDGE, 900_000).expect("a batch")
    }

    fn place(&mut self, batch: &Assign, edge_ms: u64) -> AssignAnswer {
        self.edge.0.place(OWNER, batch.clone(), &self.edge.1, 1, Moment::at(edge_ms)).0
    }

    fn given(&mut self) -> usize {
        std::iter::from_fn(|| self.worker.try_recv().ok()).count()
    }
}

/// [C3] [K7] A third of the lease's time after the edge was heard, by its own clock, and whatever the owner's says.
#[test]
fn what_was_made_long_ago_by_the_edges_own_clock_is_not_handed_out() {
    for (edge_ms, is_taken) in [(1_000, true), (16_000, true), (16_001, false), (90_000, false)] {
        let mut pair = Pair::new();
        pair.tell(1_000);
        pair.send(1);
        let batch = pair.batch();
        let answer = pair.place(&batch, edge_ms);
        let placed: Vec<bool> = answer.placed.iter().map(|placed| placed.placed).collect();
        assert_eq!((placed, pair.given()), (vec![is_taken], usize::from(is_taken)), "at {edge_ms}");
        assert_eq!(pair.place(&batch, edge_ms + 1), answer, "the same batch again has the same answer");
        assert_eq!(pair.given(), 0);
        if !is_taken {
            assert_eq!(answer.placed[0].room, 0, "the owner tries no more until it is told anew");
        }
    }
}

/// What waited in the lane is as old as its oldest parcel, however late the batch is made.
#[test]
fn a_batch_is_as_old_as_its_oldest_parcel() {
    let mut pair = Pair::new();
    pair.tell(1_000);
    pair.send(1);
    pair.tell(14_000);
    pair.send(2);
    let batch = pair.batch();
    assert_eq!((batch.parcels.len(), batch.heard_ms), (2, 1_000));
    pair.place(&batch, 20_000);
    assert_eq!(pair.given(), 0);
}

/// An owner of an older build says nothing, and is trusted as before.
#[test]
fn an_owner_that_does_not_say_is_believed() {
    let mut pair = Pair::new();
    pair.tell(1_000);
    pair.send(1);
    let batch = Assign { heard_ms: 0, ..pair.batch() };
    pair.place(&batch, 90_000);
    assert_eq!(pair.given(), 1);
}
