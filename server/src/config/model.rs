//! The keys, their types and defaults.

use super::ClusterConfig;
use grain_contract::limits;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// Name of this silo, shown to workers and in telemetry.
    pub name: String,
    /// gRPC and HTTP together; port 0 = one that is free.
    pub listen: SocketAddr,
    /// Fixed when the data folder is made.
    pub shards: u32,
    pub run_control: RunControlMode,
    /// Drafts may be loaded, and the tenant is taken from a header without proof.
    pub development: bool,
    /// How long a stop may take before the process ends anyway.
    pub drain_seconds: u64,
    /// A `tracing` filter, e.g. `info,cluster=debug`; empty = what fits the command. `GRANARY_LOG` comes before it. Reloadable.
    pub log: String,
    pub store: StoreConfig,
    pub cluster: ClusterConfig,
    pub workflows: WorkflowsConfig,
    pub policy: PolicyConfig,
    pub retention: RetentionConfig,
    pub limits: LimitsConfig,
    pub agent_registry: Endpoint,
    pub policy_engine: Endpoint,
    pub artifacts: Endpoint,
    pub run_control_journal: Endpoint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RunControlMode {
    /// The authority over runs is in the run's own grain.
    Bundled,
    /// Another service is the authority; its facts come by the inbound messages.
    External,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct StoreConfig {
    pub state: StateKind,
    pub data_dir: PathBuf,
    /// Memory that the state store may use as its cache. MiB.
    pub cache_mebibytes: u64,
    /// Size of one segment of the log. MiB.
    pub segment_mebibytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StateKind {
    Sled,
    Fjall,
    Memory,
}

#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct WorkflowsConfig {
    pub engine: EngineConfig,
    pub condition_kinds: ConditionKindsConfig,
}

/// What WaitForCondition and Branch can ask beside the built-in kinds. Reloadable.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ConditionKindsConfig {
    /// Names of kinds that workers answer, on the queue `condition:NAME`.
    pub served: Vec<String>,
}

/// S1's section `Workflows:Engine`. Reloadable but for `conditionLanguage` and `stuckRunSeconds`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct EngineConfig {
    /// Parallel branches of a Fanout step, at most.
    pub max_fanout: u32,
    /// Loop bound when the definition declares none.
    pub default_max_loop_iterations: u32,
    /// Step timeout when the definition declares none.
    pub default_step_timeout_minutes: u32,
    /// `jsonlogic` is the only one.
    pub condition_language: String,
    /// How deep sub-workflows may nest.
    pub max_depth: u32,
    /// How often runs are looked at for lost work.
    pub stuck_run_seconds: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PolicyConfig {
    /// Known action classes, from harmless to grave.
    pub known_action_classes: Vec<String>,
    /// Those that a published definition may use, if no Policy Engine is named.
    pub action_classes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RetentionConfig {
    /// Events are kept this long, whether or not a consumer has acknowledged them.
    pub event_hours: u64,
    /// Events of one shard that are kept at most; the oldest go before their time.
    pub events_per_shard_max: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Time for a call whose caller names none.
    pub default_deadline_seconds: u64,
    /// Open event subscriptions and run watches on this silo, together.
    pub streams: usize,
    /// Worker sessions on this silo.
    pub worker_sessions: usize,
    /// An activation without messages leaves memory after this time.
    pub idle_seconds: u64,
    /// Memory for activations, MiB.
    pub activation_mebibytes: usize,
}

/// Another service, e.g. `http://agent-registry:8080`; empty = the bundled stand-in.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Endpoint {
    pub endpoint: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: "granary-0".to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 7420)),
            shards: 16,
            run_control: RunControlMode::Bundled,
            development: false,
            drain_seconds: 20,
            log: String::new(),
            store: StoreConfig::default(),
            cluster: ClusterConfig::default(),
            workflows: WorkflowsConfig::default(),
            policy: PolicyConfig::default(),
            retention: RetentionConfig::default(),
            limits: LimitsConfig::default(),
            agent_registry: Endpoint::default(),
            policy_engine: Endpoint::default(),
            artifacts: Endpoint::default(),
            run_control_journal: Endpoint::default(),
        }
    }
}

impl Config {
    /// What `granary dev` and `granary run` start with: development mode, 8 shards.
    pub fn development(data_dir: impl Into<PathBuf>) -> Self {
        let mut config = Self { development: true, shards: 8, ..Self::default() };
        config.store.data_dir = data_dir.into();
        config
    }

    pub fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_seconds)
    }

    /// Bounds that a type cannot say. The text names the key.
    pub fn check(&self) -> Result<(), String> {
        let engine = &self.workflows.engine;
        let bounds: [(&str, u64, u64, u64); 11] = [
            ("shards", u64::from(self.shards), 1, 4_096),
            ("drainSeconds", self.drain_seconds, 0, 3_600),
            ("store.cacheMebibytes", self.store.cache_mebibytes, 1, 1 << 20),
            ("store.segmentMebibytes", self.store.segment_mebibytes, 1, 1_024),
            ("workflows.engine.maxFanout", u64::from(engine.max_fanout), 1, limits::STEP_RUNS_MAX as u64),
            ("workflows.engine.defaultMaxLoopIterations", u64::from(engine.default_max_loop_iterations), 1, 100_000),
            (
                "workflows.engine.defaultStepTimeoutMinutes",
                u64::from(engine.default_step_timeout_minutes),
                1,
                5_256_000,
            ),
            ("workflows.engine.maxDepth", u64::from(engine.max_depth), 0, u64::from(limits::SUBWORKFLOW_DEPTH_MAX)),
            ("workflows.engine.stuckRunSeconds", engine.stuck_run_seconds, 1, 86_400),
            ("limits.defaultDeadlineSeconds", self.limits.default_deadline_seconds, 1, 3_600),
            ("retention.eventHours", self.retention.event_hours, 1, 24 * 3_660),
        ];
        for (key, found, least, most) in bounds {
            if found < least || found > most {
                return Err(format!("Expected {key} between {least} and {most}, but found {found}"));
            }
        }
        self.cluster.check(&self.name)?;
        crate::telemetry::check(&self.log).map_err(|why| format!("at log: {why}"))?;
        if engine.condition_language != "jsonlogic" {
            return Err(format!(
                "Expected workflows.engine.conditionLanguage to be \"jsonlogic\", but found {:?}",
                engine.condition_language
            ));
        }
        for class in &self.policy.action_classes {
            if !self.policy.known_action_classes.contains(class) {
                return Err(format!(
                    "Expected policy.actionClasses to hold only classes of policy.knownActionClasses ({}), but found {class:?}",
                    self.policy.known_action_classes.join(", ")
                ));
            }
        }
        for (key, endpoint) in [
            ("agentRegistry.endpoint", &self.agent_registry),
            ("policyEngine.endpoint", &self.policy_engine),
            ("artifacts.endpoint", &self.artifacts),
            ("runControlJournal.endpoint", &self.run_control_journal),
        ] {
            let text = &endpoint.endpoint;
            let fine = text.is_empty()
                || text.parse::<http::Uri>().is_ok_and(|uri| uri.authority().is_some() && uri.scheme().is_some());
            if !fine {
                return Err(format!("Expected {key} to be empty or a URL like http://host:port, but found {text:?}"));
            }
        }
        Ok(())
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self { state: StateKind::Sled, data_dir: PathBuf::from("data"), cache_mebibytes: 16, segment_mebibytes: 64 }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            max_fanout: 16,
            default_max_loop_iterations: 10,
            default_step_timeout_minutes: 60,
            condition_language: "jsonlogic".to_owned(),
            max_depth: limits::SUBWORKFLOW_DEPTH_MAX,
            stuck_run_seconds: 300,
        }
    }
}

impl EngineConfig {
    pub fn options(&self) -> grains::engine::EngineOptions {
        grains::engine::EngineOptions {
            max_fanout: self.max_fanout,
            default_max_loop_iterations: self.default_max_loop_iterations,
            default_step_timeout_ms: u64::from(self.default_step_timeout_minutes) * 60_000,
            max_depth: self.max_depth,
            stuck_after_ms: self.stuck_run_seconds * 1_000,
            ..grains::engine::EngineOptions::default()
        }
    }
}

impl Default for PolicyConfig {
    fn default() -> Self {
        let classes: Vec<String> = ["read", "sandbox", "shared-write"].map(str::to_owned).to_vec();
        Self { known_action_classes: classes.clone(), action_classes: classes }
    }
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self { event_hours: 7 * 24, events_per_shard_max: 1_000_000 }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            default_deadline_seconds: 10,
            streams: 1_024,
            worker_sessions: 1_024,
            idle_seconds: limits::IDLE_MS / 1_000,
            activation_mebibytes: 256,
        }
    }
}
