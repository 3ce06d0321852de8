//! The committer as a task, for hosts that live in one thread with others (see `crate::testing`): the same code on the same
//! queue, but a sync takes as long as the scene says, in the time of its runtime, and a crash may come in between.

use super::bounds::LAZY_WAIT_MAX;
use super::committer::{Committer, PutDown};
use super::shared::Shared;
use crate::testing::Scene;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::Notify;

pub struct Inline {
    shared: Arc<Shared>,
    scene: Arc<Scene>,
    arrived: Arc<Notify>,
    work: Mutex<Work>,
}

struct Work {
    committer: Committer,
    put_down: Option<PutDown>,
}

impl Work {
    fn sync(&mut self) {
        if let Some(put_down) = self.put_down.take() {
            self.committer.make_durable(put_down);
        }
    }
}

impl Inline {
    /// Starts the task on the runtime that this is called in.
    pub fn start(committer: Committer, scene: Arc<Scene>) -> Arc<Self> {
        let shared = committer.shared.clone();
        let arrived = shared.queue.task.get_or_init(Arc::default).clone();
        let work = Mutex::new(Work { committer, put_down: None });
        let inline = Arc::new(Self { shared, scene, arrived, work });
        tokio::spawn(inline.clone().run());
        inline
    }

    async fn run(self: Arc<Self>) {
        loop {
            if !self.shared.queue.is_pressing() {
                if self.shared.queue.is_closing() {
                    return;
                }
                // What is lazy is written when nothing has come for a while.
                let _ = tokio::time::timeout(LAZY_WAIT_MAX, self.arrived.notified()).await;
            }
            let waits = {
                let mut work = self.work.lock();
                work.sync();
                let batch = self.shared.queue.waiting();
                work.put_down = batch.and_then(|batch| work.committer.put_down(batch));
                work.put_down.is_some()
            };
            if waits {
                tokio::time::sleep((self.scene.sync_takes)()).await;
                self.work.lock().sync();
            }
        }
    }

    /// Makes everything durable that was asked for, now: for those who cannot wait as a task does.
    pub fn settle(&self) {
        let mut work = self.work.lock();
        work.sync();
        while let Some(batch) = self.shared.queue.waiting() {
            if let Some(put_down) = work.committer.put_down(batch) {
                work.committer.make_durable(put_down);
            }
        }
    }
}
