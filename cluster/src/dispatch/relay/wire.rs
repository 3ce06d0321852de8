//! Between what pools say and what goes over the wire. Whatever cannot be read gives `None`: a peer is trusted, not infallible.

use crate::dispatch::pool::{self, FarSession, GuestHeld};
use grain_contract::{Epoch, GrainId, Lease, QueueName, TenantId, WorkItem};
use granary_proto::peers::{self, FarWorker, Holding, LedShard, parcel::What};
use shard::ShardId;
use uuid::Uuid;

pub(super) fn led_shard((shard, epoch): (ShardId, Epoch)) -> LedShard {
    LedShard { shard: shard.0, epoch: epoch.0 }
}

pub(super) fn led(told: &LedShard) -> (ShardId, Epoch) {
    (ShardId(told.shard), Epoch(told.epoch))
}

pub(super) fn token_of(bytes: &[u8]) -> Option<[u8; 16]> {
    bytes.try_into().ok()
}

/// A grain of this tenant.
fn grain_of(bytes: &[u8], tenant: &str) -> Option<GrainId> {
    let (grain, read) = GrainId::from_storage_bytes(bytes)?;
    (read == bytes.len() && grain.tenant.as_str() == tenant).then_some(grain)
}

pub(super) fn holding(held: GuestHeld) -> Holding {
    Holding {
        tenant: held.grain.tenant.as_str().to_owned(),
        grain: held.grain.storage_bytes(),
        attempt: held.attempt.as_bytes().to_vec(),
        worker: held.lease.worker,
        token: held.lease.token.to_vec(),
        session: held.session,
        age_ms: held.age_ms,
    }
}

pub(super) fn guest_held(told: &Holding) -> Option<GuestHeld> {
    Some(GuestHeld {
        grain: grain_of(&told.grain, &told.tenant)?,
        attempt: Uuid::from_slice(&told.attempt).ok()?,
        lease: Lease { worker: told.worker.clone(), token: token_of(&told.token)? },
        session: told.session,
        age_ms: told.age_ms,
    })
}

pub(super) fn far_worker(tenant: &TenantId, session: &FarSession) -> FarWorker {
    let queues = session.queues.iter().flatten().map(|queue| queue.as_str().to_owned()).collect();
    FarWorker {
        tenant: tenant.as_str().to_owned(),
        worker: session.worker.clone(),
        session: session.session,
        gone: session.gone,
        queues,
        room: session.room,
        stamp: session.stamp,
    }
}

pub(super) fn far_session(told: FarWorker) -> FarSession {
    let queues: Vec<QueueName> = told.queues.iter().map(QueueName::new).collect();
    FarSession {
        worker: told.worker,
        session: told.session,
        gone: told.gone,
        // A worker serves one queue at least, so none means that nothing changed.
        queues: (!queues.is_empty()).then_some(queues),
        room: told.room,
        stamp: told.stamp,
    }
}

pub(super) fn parcel(parcel: &pool::Parcel) -> peers::Parcel {
    let what = match parcel {
        pool::Parcel::Work(work) => What::Work(peers::Work {
            tenant: work.grain.tenant.as_str().to_owned(),
            grain: work.grain.storage_bytes(),
            shard: work.shard.0,
            epoch: work.epoch.0,
            attempt: work.item.attempt.as_bytes().to_vec(),
            queue: work.item.queue.as_str().to_owned(),
            worker: work.lease.worker.clone(),
            session: work.session,
            token: work.lease.token.to_vec(),
            body: work.item.body.clone(),
        }),
        pool::Parcel::Stop(stop) => What::Stop(peers::Stop {
            tenant: stop.tenant.as_str().to_owned(),
            attempt: stop.attempt.as_bytes().to_vec(),
            token: stop.token.to_vec(),
            reason: stop.reason.clone(),
            lost: stop.lost,
        }),
    };
    peers::Parcel { what: Some(what) }
}

pub(super) fn work(told: peers::Work) -> Option<pool::Work> {
    let lease = Lease { worker: told.worker, token: token_of(&told.token)? };
    let attempt = Uuid::from_slice(&told.attempt).ok()?;
    let queue = QueueName::new(&told.queue);
    Some(pool::Work {
        grain: grain_of(&told.grain, &told.tenant)?,
        shard: ShardId(told.shard),
        epoch: Epoch(told.epoch),
        item: WorkItem { queue, attempt, lease: Some(lease.clone()), body: told.body },
        lease,
        session: told.session,
    })
}

pub(super) fn stop(told: peers::Stop) -> Option<pool::Stop> {
    Some(pool::Stop {
        tenant: TenantId::new(&told.tenant),
        attempt: Uuid::from_slice(&told.attempt).ok()?,
        token: token_of(&told.token)?,
        reason: told.reason,
        lost: told.lost,
    })
}
