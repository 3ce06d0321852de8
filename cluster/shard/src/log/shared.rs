//! What the threads and the groups' handles have in common.

use super::WalOptions;
use super::alive::Alive;
use super::failure::Failure;
use super::group::Group;
use super::queue::{Queue, Request};
use crate::testing::Stage;
use parking_lot::Mutex;
use std::sync::atomic::AtomicU64;

/// Locks are taken in this order: a group, then the queue or the alive segments; never two groups at once.
pub struct Shared {
    pub options: WalOptions,
    pub groups: Vec<Mutex<Group>>,
    pub queue: Queue,
    pub alive: Alive,
    pub stats: Counters,
    pub stopped: Mutex<Option<Failure>>,
    pub stage: Stage,
}

#[derive(Default)]
pub struct Counters {
    pub syncs: AtomicU64,
    pub requests: AtomicU64,
    pub bytes: AtomicU64,
}

impl Shared {
    pub fn failure(&self) -> Option<Failure> {
        self.stopped.lock().clone()
    }

    /// Only the first reason is kept.
    pub fn stop(&self, failure: Failure) {
        let mut stopped = self.stopped.lock();
        if stopped.is_none() {
            tracing::error!(why = failure.why, "the log has stopped: nothing is acknowledged any more");
            *stopped = Some(failure);
        }
    }

    /// Queues a request, or tells its sender why not. The caller holds the group's lock, so that the file has the order
    /// that memory has.
    pub fn submit(&self, request: Request) -> std::io::Result<()> {
        let (request, failure) = match self.failure() {
            Some(failure) => (request, failure),
            None => match self.queue.push(request) {
                None => return Ok(()),
                Some(request) => (request, Failure::closed()),
            },
        };
        request.done.tell(Err(&failure));
        Err(failure.to_io())
    }

    /// Keeps the caches together below their cap; each gives in proportion to its size.
    pub fn evict(&self) {
        let cap = self.options.cache_bytes as usize;
        let sizes: Vec<usize> = self.groups.iter().map(|group| group.lock().cache.bytes()).collect();
        let total: usize = sizes.iter().sum();
        if total <= cap {
            return;
        }
        // To seven eighths, so that it is not done again at the next batch.
        for (group, size) in self.groups.iter().zip(sizes) {
            let share = (size as u128 * (cap - cap / 8) as u128 / total as u128) as usize;
            let mut group = group.lock();
            let Group { cache, index, .. } = &mut *group;
            cache.shrink_to(share, index);
        }
    }
}
