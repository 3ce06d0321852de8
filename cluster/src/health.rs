//! Whether this process is alive and whether it should get traffic.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// False only if nothing but a restart helps.
    pub live: bool,
    /// True if every shard has a leader and all its services run.
    pub ready: bool,
    /// Why not, one sentence each.
    pub reasons: Vec<String>,
}
