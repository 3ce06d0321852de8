//! What can go wrong with a shard, named by what the caller can do.

/// See each variant for the way on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Drop the activation and load it again: another owner or another turn came first. Nothing was changed.
    #[error("fenced: expected {expected}, but found {found}")]
    Fenced { expected: String, found: String },
    /// Ask the leader.
    #[error("this node does not lead shard {shard}; leader: {leader:?}")]
    NotLeader { shard: u32, leader: Option<u64> },
    /// There is no replica of it here. Ask elsewhere.
    #[error("this node hosts no replica of shard {shard}")]
    NotHosted { shard: u32 },
    /// What this node has of the shard is damaged and set aside; nothing of it runs here. Ask elsewhere; it has to be wiped
    /// before it can come again.
    #[error("what this node has of shard {shard} is set aside: {why}")]
    SetAside { shard: u32, why: String },
    /// The group does not take this change of its members or its leader now. Look at the group and decide again.
    #[error("the group of shard {shard} was not changed: {why}")]
    Change { shard: u32, why: String },
    /// The outcome is not known. Drop the activation and load it again; the caller may repeat.
    #[error("the outcome of the commit is not known: {0}")]
    Unknown(String),
    /// Refused before it was proposed.
    #[error("a turn of {found} bytes is above the limit of {limit} bytes")]
    TooLarge { limit: usize, found: usize },
    /// Too many commits wait; try again.
    #[error("shard {shard} has {limit} commits in flight")]
    Overloaded { shard: u32, limit: usize },
    /// The disk says no (full, failed sync). The node has stopped acknowledging.
    #[error("storage: {0}")]
    Storage(String),
    /// Bytes that cannot be a crash's work. The node does not start, since it might have forgotten what it promised.
    #[error("damaged: {file} at byte {offset}: {what}")]
    Damaged { file: String, offset: u64, what: String },
    #[error("the data folder {folder} is in use by another process")]
    FolderInUse { folder: String },
    #[error("the data folder has format {found}, but this build knows up to {known}")]
    NewerFormat { known: u32, found: u32 },
    /// Another cluster's or another shape of data.
    #[error("the data folder does not fit: expected {expected}, but found {found}")]
    WrongFolder { expected: String, found: String },
    /// An entry or a row of this grain cannot be read by this build. It is set aside; the shard goes on without it.
    #[error("grain {grain} is quarantined: {why}")]
    Quarantined { grain: String, why: String },
    #[error("the store is closed")]
    Closed,
}
