//! Which silos watch which grains of this one, and what they were not told yet: a value, with the time handed in.

use grain_contract::GrainId;
use parking_lot::Mutex;
use shard::NodeId;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Grains of this silo that one other silo watches. Beyond it that silo looks by itself from time to time.
const GRAINS_MAX: usize = 20_000;
/// Grains told in one call.
const TOLD_AT_ONCE: usize = 2_000;

#[derive(Default)]
pub(crate) struct Interests {
    state: Mutex<State>,
    /// So that a change that nobody watches from afar costs one look.
    watched: AtomicUsize,
    pub(super) news: Notify,
}

#[derive(Default)]
struct State {
    /// Until when, ms.
    by_grain: HashMap<GrainId, HashMap<NodeId, u64>>,
    counts: HashMap<NodeId, usize>,
    untold: HashMap<NodeId, HashSet<GrainId>>,
    telling: HashSet<NodeId>,
}

impl Interests {
    /// Whether the node had said so before and no change since can have been missed; `None` if there is no room for more.
    pub(super) fn watch(&self, now_ms: u64, within_ms: u64, node: NodeId, grain: &GrainId) -> Option<bool> {
        let mut state = self.state.lock();
        let known = state.by_grain.get(grain).and_then(|nodes| nodes.get(&node)).copied();
        if known.is_none() && state.counts.get(&node).is_some_and(|count| *count >= GRAINS_MAX) {
            return None;
        }
        if known.is_none() {
            *state.counts.entry(node).or_default() += 1;
            self.watched.fetch_add(1, Ordering::AcqRel);
        }
        state.by_grain.entry(grain.clone()).or_default().insert(node, now_ms.saturating_add(within_ms));
        Some(known.is_some_and(|until| until >= now_ms))
    }

    pub(crate) fn changed(&self, grain: &GrainId) {
        if self.watched.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut state = self.state.lock();
        let State { by_grain, untold, .. } = &mut *state;
        let Some(nodes) = by_grain.get(grain) else { return };
        for node in nodes.keys() {
            untold.entry(*node).or_default().insert(grain.clone());
        }
        drop(state);
        self.news.notify_one();
    }

    /// What each node is to be told now. Until [`Interests::told`] or [`Interests::lost`] it is told nothing else.
    pub(super) fn take(&self) -> Vec<(NodeId, Vec<GrainId>)> {
        let mut state = self.state.lock();
        let State { untold, telling, .. } = &mut *state;
        let mut batches = Vec::new();
        for (node, grains) in untold.iter_mut().filter(|(node, grains)| !telling.contains(*node) && !grains.is_empty())
        {
            let batch: Vec<GrainId> = grains.iter().take(TOLD_AT_ONCE).cloned().collect();
            batch.iter().for_each(|grain| {
                grains.remove(grain);
            });
            batches.push((*node, batch));
        }
        telling.extend(batches.iter().map(|(node, _)| *node));
        batches
    }

    pub(super) fn told(&self, node: NodeId) {
        let mut state = self.state.lock();
        state.telling.remove(&node);
        if state.untold.get(&node).is_some_and(|grains| !grains.is_empty()) {
            self.news.notify_one();
        }
    }

    /// It could not be told: it is forgotten, so that its next word begins anew and it looks again.
    pub(super) fn lost(&self, node: NodeId) {
        let mut state = self.state.lock();
        state.telling.remove(&node);
        state.untold.remove(&node);
        self.forget(&mut state, |candidate, _| candidate == node);
    }

    pub(super) fn expire(&self, now_ms: u64) {
        self.forget(&mut self.state.lock(), |_, until| until < now_ms);
    }

    fn forget(&self, state: &mut State, which: impl Fn(NodeId, u64) -> bool) {
        let State { by_grain, counts, .. } = state;
        by_grain.retain(|_, nodes| {
            nodes.retain(|node, until| {
                let goes = which(*node, *until);
                if goes {
                    self.watched.fetch_sub(1, Ordering::AcqRel);
                    if let Some(count) = counts.get_mut(node) {
                        *count -= 1;
                    }
                }
                !goes
            });
            !nodes.is_empty()
        });
        counts.retain(|_, count| *count > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grain(key: &str) -> GrainId {
        GrainId::new(&"acme".into(), &"run".into(), key)
    }

    #[test]
    fn a_change_is_told_once_to_each_who_watches() {
        let interests = Interests::default();
        assert_eq!(interests.watch(0, 100, 2, &grain("a")), Some(false));
        assert_eq!(interests.watch(1, 100, 2, &grain("a")), Some(true), "known");
        assert_eq!(interests.watch(1, 100, 3, &grain("b")), Some(false));
        for key in ["a", "a", "c"] {
            interests.changed(&grain(key));
        }
        assert_eq!(interests.take(), [(2, vec![grain("a")])]);
        interests.changed(&grain("a"));
        assert_eq!(interests.take(), [], "one word at a time");
        interests.told(2);
        assert_eq!(interests.take(), [(2, vec![grain("a")])]);
    }

    #[test]
    fn who_was_not_told_begins_anew_and_who_is_silent_is_forgotten() {
        let interests = Interests::default();
        interests.watch(0, 100, 2, &grain("a"));
        interests.watch(0, 200, 3, &grain("a"));
        interests.changed(&grain("a"));
        interests.take();
        interests.lost(2);
        assert_eq!(interests.watch(5, 100, 2, &grain("a")), Some(false), "it may have missed one");
        interests.expire(150);
        assert_eq!(interests.watch(150, 100, 2, &grain("a")), Some(false));
        assert_eq!(interests.watch(150, 100, 3, &grain("a")), Some(true));
        interests.expire(1_000);
        assert_eq!((interests.watched.load(Ordering::SeqCst), interests.state.lock().by_grain.len()), (0, 0));
    }

    #[test]
    fn one_silo_has_room_for_so_many() {
        let interests = Interests::default();
        for n in 0..GRAINS_MAX {
            interests.watch(0, 100, 2, &grain(&n.to_string()));
        }
        assert_eq!(interests.watch(0, 100, 2, &grain("one more")), None);
        assert_eq!(interests.watch(0, 100, 2, &grain("0")), Some(true));
        assert_eq!(interests.watch(0, 100, 3, &grain("one more")), Some(false));
    }
}
