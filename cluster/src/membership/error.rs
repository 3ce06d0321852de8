//! Why a node cannot be in its cluster.

/// None of these passes by itself: the node must not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{why} Give this node another name than {name}, or stop the other one.")]
    NameTaken { name: String, why: String },
    #[error(
        "Expected node {node:016x} to be a member, but it was taken out of the cluster. To come back as a new node, start \
         with an empty data folder."
    )]
    Removed { node: u64 },
    /// It was told something else than the cluster.
    #[error("{0}")]
    Options(String),
    #[error("the notes of the founding in {file} cannot be used: {why}")]
    Founding { file: String, why: String },
    #[error(transparent)]
    Shard(#[from] shard::Error),
}
