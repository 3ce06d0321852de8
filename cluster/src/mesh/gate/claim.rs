//! ractor's registries are global: two gates in one process would each be shown as if it belonged to both nodes.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_CLAIMED: AtomicBool = AtomicBool::new(false);

/// The right to the process's one gate; given back when dropped.
pub(in crate::mesh) struct Claim(());

impl Claim {
    pub(in crate::mesh) fn take() -> Option<Self> {
        (!IS_CLAIMED.swap(true, Ordering::AcqRel)).then_some(Self(()))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        IS_CLAIMED.store(false, Ordering::Release);
    }
}
