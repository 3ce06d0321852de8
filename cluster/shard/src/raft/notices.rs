//! What a shard tells its listeners, whichever replica it has at the time, or none.

use crate::api::Leadership;
use crate::group::GroupView;
use tokio::sync::watch;

#[derive(Clone)]
pub struct Notices {
    pub leadership: watch::Sender<Leadership>,
    pub group: watch::Sender<GroupView>,
    /// The number that the next outbox row gets.
    pub outbox: watch::Sender<u64>,
}

impl Notices {
    pub fn new(outbox_next: u64) -> Self {
        Self {
            leadership: watch::channel(Leadership::default()).0,
            group: watch::channel(GroupView::default()).0,
            outbox: watch::channel(outbox_next).0,
        }
    }

    /// There is no replica any more.
    pub fn none(&self) {
        self.leadership.send_replace(Leadership::default());
        self.group.send_replace(GroupView::default());
    }
}
