//! Figures of the Raft groups on this node and of its neighbours, in Prometheus' text form.
//!
//! Read when asked for; only changes of leadership are counted as they come. Each shard has its own label, up to a bound.

use super::silo::head;
use cluster::mesh::{Mesh, MeshFigures};
use futures::StreamExt as _;
use futures::stream::select_all;
use shard::{GroupView, Host, Role, ShardId};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use tokio_stream::wrappers::WatchStream;

/// Shards with a label of their own: those of the lowest numbers.
const SHARDS_SHOWN_MAX: usize = 256;

#[derive(Default)]
pub struct Groups {
    host: OnceLock<Host>,
    mesh: OnceLock<Arc<Mesh>>,
    gained: AtomicU64,
    lost: AtomicU64,
}

impl Groups {
    /// `mesh` = the way to the neighbours; `None` if the node is alone.
    pub(crate) fn attach(&self, host: Host, mesh: Option<Arc<Mesh>>) {
        let _ = self.host.set(host);
        if let Some(mesh) = mesh {
            let _ = self.mesh.set(mesh);
        }
    }

    /// Counts changes of leadership until it is dropped.
    pub(crate) async fn follow(&self) {
        let Some(host) = self.host.get() else { return };
        let shards = (0..host.shards()).filter_map(|n| host.shard(ShardId(n)));
        let mut changes = select_all(shards.map(|shard| {
            let mut led = false;
            WatchStream::new(shard.leadership()).filter_map(move |now| {
                let (before, now) = (led, now.epoch.is_some());
                led = now;
                std::future::ready((before != now).then_some(now))
            })
        }));
        while let Some(gained) = changes.next().await {
            let counter = if gained { &self.gained } else { &self.lost };
            counter.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn write(&self, text: &mut String) {
        let Some(host) = self.host.get() else { return };
        let hosted = host.hosted();
        let groups: Vec<(u32, GroupView)> =
            hosted.iter().filter_map(|id| Some((id.0, host.shard(*id)?.group()))).collect();
        write(&groups, host.node_id(), text);
        write_set_aside(host.set_aside().len(), text);
        let mesh = self.mesh.get().map(|mesh| mesh.figures()).unwrap_or_default();
        write_rest(mesh, self.gained.load(Relaxed), self.lost.load(Relaxed), text);
    }
}

fn write_set_aside(shards: usize, text: &mut String) {
    const SET_ASIDE: &str = "granary_raft_set_aside";
    head(text, SET_ASIDE, "gauge", "Shards whose replica here is damaged and set aside.");
    let _ = writeln!(text, "{SET_ASIDE} {shards}");
}

fn write_rest(mesh: MeshFigures, gained: u64, lost: u64, text: &mut String) {
    let rows: [(&str, &str, &str, u64); 6] = [
        ("granary_raft_leaderships_gained_total", "counter", "Leaderships of shards that came here.", gained),
        ("granary_raft_leaderships_lost_total", "counter", "Leaderships of shards that went from here.", lost),
        ("granary_raft_snapshots_sent_total", "counter", "Whole snapshots sent to other silos.", mesh.snapshots_sent),
        ("granary_raft_snapshots_received_total", "counter", "Whole snapshots from other silos.", {
            mesh.snapshots_received
        }),
        ("granary_peers_attached", "gauge", "Other silos that can be called now.", mesh.attached as u64),
        ("granary_peers_by_mesh", "gauge", "Those of them that are called over the mesh.", mesh.gates as u64),
    ];
    for (name, kind, help, value) in rows {
        head(text, name, kind, help);
        let _ = writeln!(text, "{name} {value}");
    }
}

type Gauge = (&'static str, &'static str, fn(&GroupView) -> Option<u64>);

const OF_EACH: [Gauge; 4] = [
    ("granary_raft_term", "Term of a shard's group: the epoch of its owner.", |g| Some(g.term.0)),
    ("granary_raft_leader", "1 if the shard is led here.", |g| Some(u64::from(g.role == Role::Leader))),
    ("granary_raft_committed", "Index of the last committed entry known here.", |g| Some(g.committed)),
    ("granary_raft_unapplied", "Committed entries that are not applied here yet.", |g| {
        Some(g.committed.saturating_sub(g.applied))
    }),
];

fn write(groups: &[(u32, GroupView)], me: u64, text: &mut String) {
    let led = || groups.iter().filter(|(_, group)| group.role == Role::Leader);
    let totals: [(&str, &str, usize); 4] = [
        ("granary_raft_groups", "Shards with a replica here.", groups.len()),
        ("granary_raft_led", "Shards that are led here.", led().count()),
        ("granary_raft_leaderless", "Shards with a replica here and no known leader.", {
            groups.iter().filter(|(_, group)| group.leader.is_none()).count()
        }),
        ("granary_shard_moves", "Shards led here whose replicas are being changed.", {
            led().filter(|(_, group)| !group.settled || !group.learners.is_empty()).count()
        }),
    ];
    for (name, help, value) in totals {
        head(text, name, "gauge", help);
        let _ = writeln!(text, "{name} {value}");
    }
    for (name, help, value) in OF_EACH {
        head(text, name, "gauge", help);
        for (shard, group) in groups.iter().take(SHARDS_SHOWN_MAX) {
            if let Some(value) = value(group) {
                let _ = writeln!(text, "{name}{{shard=\"{shard}\"}} {value}");
            }
        }
    }
    const LAG: &str = "granary_raft_replica_lag";
    head(text, LAG, "gauge", "Entries that the slowest other replica of a shard led here has still to get.");
    for (shard, group) in led().take(SHARDS_SHOWN_MAX) {
        let others = group.replicas.keys().filter(|node| **node != me);
        if let Some(lag) = others.filter_map(|node| group.lag(*node)).max() {
            let _ = writeln!(text, "{LAG}{{shard=\"{shard}\"}} {lag}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grain_contract::Epoch;
    use shard::ReplicaView;

    /// [P4]
    #[test]
    fn a_led_shard_shows_its_slowest_replica_and_a_followed_one_does_not() {
        let replica = |matched| ReplicaView { matched: Some(matched), answered: None };
        let led = GroupView {
            role: Role::Leader,
            term: Epoch(3),
            leader: Some(1),
            settled: true,
            last_log: 100,
            committed: 99,
            applied: 90,
            replicas: [(1, replica(100)), (2, replica(100)), (3, replica(60))].into(),
            ..GroupView::default()
        };
        let followed = GroupView { role: Role::Follower, term: Epoch(7), ..GroupView::default() };
        let mut text = String::new();
        write(&[(0, led), (5, followed)], 1, &mut text);
        for line in [
            "granary_raft_groups 2",
            "granary_raft_led 1",
            "granary_raft_leaderless 1",
            "granary_shard_moves 0",
            "granary_raft_term{shard=\"5\"} 7",
            "granary_raft_leader{shard=\"0\"} 1",
            "granary_raft_leader{shard=\"5\"} 0",
            "granary_raft_unapplied{shard=\"0\"} 9",
            "granary_raft_replica_lag{shard=\"0\"} 40",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert!(!text.contains("replica_lag{shard=\"5\"}"));
    }

    #[test]
    fn labels_are_bounded() {
        let groups: Vec<_> = (0..1_000).map(|n| (n, GroupView::default())).collect();
        let mut text = String::new();
        write(&groups, 1, &mut text);
        assert_eq!(text.lines().filter(|l| l.starts_with("granary_raft_term{")).count(), SHARDS_SHOWN_MAX);
        assert!(text.contains("granary_raft_groups 1000"));
    }
}
