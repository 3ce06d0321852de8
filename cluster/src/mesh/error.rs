//! Why the mesh does not start, or must end.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Something in the options cannot be used: correct it and start again.
    #[error("{0}")]
    Settings(String),
    /// A file of the certificates cannot be read or used.
    #[error("TLS between nodes: {0}")]
    Tls(String),
    #[error("Expected to listen on {address}, but {why}")]
    Listen { address: String, why: String },
    /// Another living process has this node's id or name: a copied data folder, or a name used twice. This one must end.
    #[error("{0}")]
    Taken(String),
    /// The folder belongs to another cluster than the peers. This process must end.
    #[error("{0}")]
    OtherCluster(String),
}
