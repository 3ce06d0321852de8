//! One replica of a shard: its Raft group member, from its start to its end.

use super::group::view;
use super::heads::Heads;
use super::machine::{Counters, Machine, Told};
use super::network::Network;
use super::shard::ShardInner;
use super::types::TypeConfig;
use super::{leadership, storage};
use crate::api::HostOptions;
use crate::group::{GroupView, Role};
use crate::link::NodeId;
use crate::state::writer::Checkpoints;
use crate::{Error, Timing};
use openraft::async_runtime::WatchReceiver;
use openraft::impls::BasicNode;
use openraft::storage::RaftLogStorage;
use openraft::{Config, Raft, SnapshotPolicy};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// openraft's time between two ticks, as a part of its interval of heartbeats.
const TICKS: (u64, u64) = (13, 64);

pub type Group = Raft<TypeConfig, Machine>;

/// What every replica of a node is made of.
pub struct Parts {
    pub node: NodeId,
    pub options: HostOptions,
    pub checkpoints: Arc<dyn Checkpoints>,
    pub counters: Arc<Counters>,
}

pub struct Replica {
    pub raft: Group,
    follower: Mutex<Option<JoinHandle<()>>>,
}

impl Replica {
    /// Starts on what log and rows hold.
    pub async fn start(parts: &Parts, slot: &ShardInner) -> Result<Arc<Self>, Error> {
        let shard = slot.id.0;
        let mut log = slot.wal.group(shard);
        let last = log.get_log_state().await.map_err(storage)?.last_log_id;
        let (term, applied) = watch::channel(0);
        let machine = Machine {
            overlay: slot.overlay.clone(),
            checkpoints: parts.checkpoints.clone(),
            folder: slot.folder.clone(),
            told: Told {
                term,
                outbox: slot.notices.outbox.clone(),
                snapshots: slot.snapshots.clone(),
                counters: parts.counters.clone(),
            },
            heads: Heads::default(),
            replay_until: last.map(|id| id.index),
            stage: parts.options.stage.clone(),
        };
        let config = Arc::new(config(shard, &parts.options)?);
        let network = Network::new(shard, parts.options.link.clone(), parts.options.timing);
        let raft = Raft::new(parts.node, config, network, log, machine).await.map_err(storage)?;
        let follower = tokio::spawn(leadership::follow(raft.clone(), applied, slot.notices.clone()));
        if parts.options.alone {
            found_alone(&raft, parts.node).await?;
        }
        Ok(Arc::new(Self { raft, follower: Mutex::new(Some(follower)) }))
    }

    pub fn group(&self) -> GroupView {
        let (server, data) = (self.raft.server_metrics(), self.raft.data_metrics());
        let view = view(&server.borrow_watched(), &data.borrow_watched());
        if self.has_ended() { GroupView::default() } else { view }
    }

    /// Whether its Raft runs no more, for whatever reason.
    pub fn has_ended(&self) -> bool {
        self.raft.metrics().borrow_watched().running_state.is_err()
    }

    /// Whether this replica leads, and a majority has answered it within this time.
    pub fn has_majority(&self, within: Duration) -> bool {
        let group = self.group();
        let answered = group.quorum_answered.is_some_and(|ago| ago <= within);
        group.role == Role::Leader && (answered || group.voters.len() <= 1)
    }

    /// Returns when nothing of it runs any more.
    pub async fn end(&self) {
        // openraft gives no reason when its task has panicked; there is nothing to add here.
        self.raft.shutdown().await.ok();
        let follower = self.follower.lock().take();
        if let Some(follower) = follower {
            follower.await.ok();
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(follower) = self.follower.lock().take() {
            follower.abort();
        }
    }
}

async fn found_alone(raft: &Group, node: NodeId) -> Result<(), Error> {
    if raft.is_initialized().await.map_err(storage)? {
        // Nobody else can lead, so there is no one to wait for.
        return raft.trigger().elect(false).await.map_err(storage);
    }
    raft.initialize(BTreeMap::from([(node, BasicNode::default())])).await.map_err(storage)
}

fn config(shard: u32, options: &HostOptions) -> Result<Config, Error> {
    let Timing { heartbeat, election_min, election_max } = options.timing;
    Config {
        cluster_name: format!("shard-{shard}"),
        // Of this openraft makes the time between ticks, and nothing else that matters: `pulse` beats for all groups.
        heartbeat_interval: (options.timing.tick().as_millis() as u64 * TICKS.1).div_ceil(TICKS.0),
        enable_heartbeat: false,
        election_timeout_min: election_min.as_millis() as u64,
        election_timeout_max: election_max.as_millis() as u64,
        // A follower that has just answered an append needs no heartbeat.
        heartbeat_min_interval: Some(heartbeat.as_millis() as u64 / 2),
        enable_pre_vote: Some(true),
        max_payload_entries: 512,
        max_append_entries: Some(4_096),
        // `upkeep` decides, by bytes.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: options.keep_log,
        // Above what is kept, else a small lag would cost a snapshot.
        replication_lag_threshold: options.keep_log.saturating_mul(2).max(10_000),
        // Its own documentation warns of it for state that is written behind.
        enable_leader_restore: Some(false),
        api_batch_linger_ms: 0,
        // How soon a peer that could not be reached is tried again.
        backoff: "50ms 100ms 200ms ...500ms".into(),
        ..Config::default()
    }
    .validate()
    .map_err(storage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openraft_takes_every_timing_that_leaves_room_for_two_heartbeats() {
        // (heartbeat, election_min, the tick expected), in milliseconds
        let cases =
            [(150, 400, 50), (300, 800, 100), (150, 300, 36), (10, 30, 3), (1_500, 4_000, 500), (150, 10_000, 50)];
        for (heartbeat, election_min, tick) in cases {
            let ms = Duration::from_millis;
            let timing =
                Timing { heartbeat: ms(heartbeat), election_min: ms(election_min), election_max: ms(2 * election_min) };
            let mut options = HostOptions::new("nowhere", 1);
            options.timing = timing;
            let config = config(0, &options).unwrap();
            assert_eq!(config.heartbeat_interval * TICKS.0 / TICKS.1, tick, "{timing:?}");
        }
    }
}
