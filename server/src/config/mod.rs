//! Configuration: one value, from defaults, a file and the environment.
//!
//! Keys are camelCase as in S1's options; `docs/configuration.example.yaml` lists all of them. An unknown key is an error
//! at the start that names the key and where it stood. The keys of `workflows.engine`, `policy` and `log` are
//! taken over while the process runs when the file changes; all others need a restart.

mod cluster;
mod load;
mod model;
mod watch;

pub use cluster::{CarrierKind, ClusterConfig, SECRET_BYTES_MIN, TlsConfig, check_name};
pub use load::{Error, Source, load};
pub use model::{
    Config, Endpoint, EngineConfig, LimitsConfig, PolicyConfig, RetentionConfig, RunControlMode, StateKind,
    StoreConfig, WorkflowsConfig,
};
pub use watch::{Live, Watcher};

/// Environment variables that are not configuration keys although they begin like them: the command line reads them.
pub const ENVIRONMENT_OF_THE_COMMAND_LINE: [&str; 6] =
    ["GRANARY_SERVER", "GRANARY_TENANT", "GRANARY_USER", "GRANARY_CONFIG", "GRANARY_LOG", "GRANARY_FORMAT"];
