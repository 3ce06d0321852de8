//! This node's copy of the book: pulled every few seconds, so that a push that was lost is made good (FR-151); and the book's
//! record of this node.

use super::book::{self, to_view};
use super::enter::take_up::take_up;
use super::ground::Inner;
use crate::directory::MemberState;
use granary_proto::peers::ReadBook;
use std::sync::Arc;

pub(super) async fn run(inner: Arc<Inner>) {
    loop {
        tokio::time::sleep(inner.options.pull_every).await;
        let known = inner.ground.directory.view().version;
        match inner.ask(book::READ, &ReadBook { since: known }).await {
            Ok(view) if view.version > known => {
                if let Some(view) = to_view(&view).filter(|view| view.cluster == inner.cluster()) {
                    inner.ground.directory.learn(view);
                }
            }
            Ok(_) => {}
            Err(rejection) => tracing::debug!(why = rejection.message, "the book could not be read"),
        }
        look_at_myself(&inner).await;
    }
}

/// The book may have taken this node out, or may not know its present start (another node's older book was restored, or its
/// call came late).
async fn look_at_myself(inner: &Inner) {
    let view = inner.ground.directory.view();
    if view.version == 0 {
        return;
    }
    let me = view.members.get(&inner.me()).filter(|member| member.state != MemberState::Gone);
    let Some(me) = me else {
        let was_removed = inner.removed.send_if_modified(|removed| !std::mem::replace(removed, true));
        if was_removed {
            tracing::error!("this node was taken out of the cluster; to come back it needs an empty data folder");
        }
        return;
    };
    let options = &inner.options;
    let is_known = me.boot == inner.ground.boot
        && me.client_address == options.client_address
        && me.zone == options.zone
        && me.build == options.build;
    if !is_known && let Err(error) = take_up(inner).await {
        tracing::warn!(%error, "the book does not take this node's present start");
    }
}
