//! Why a node cannot be in its cluster.

/// None of these passes by itself: the node must not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "Expected the name {name} to be free, but node {holder:016x} has it and lives. Give this node another name."
    )]
    NameTaken { name: String, holder: u64 },
    #[error(
        "Expected node {node:016x} to be a member, but it was taken out of the cluster. To come back as a new node, start \
         with an empty data folder."
    )]
    Removed { node: u64 },
    #[error("Expected the options of a node, but {0}")]
    Options(String),
    #[error("the notes of the founding cannot be kept in {file}: {why}")]
    Founding { file: String, why: String },
    #[error(transparent)]
    Shard(#[from] shard::Error),
}
