//! What carries bytes between nodes.
//!
//! Two listeners, both behind mutual TLS. The **port** speaks gRPC: hello, Raft's streams, snapshots, and calls where nothing
//! better is there. The **gate** speaks ractor_cluster: calls. Every node dials every other one on its port, so each pair has
//! a stream in each direction; of the gate there is one connection a pair, dialled by the lower node id.
//!
//! The seeds, and where the others were met last (`known`), lead to the first of them, and everybody tells everybody of whom they have heard from themselves (`roster`). A
//! node is welcome if its certificate has the name it claims, it knows the secret, speaks a common version, belongs to the
//! same cluster or to none, and no other living process has its id or name (`judge`, `hello`).
//!
//! Nothing here decides who owns what. That a peer is attached, or not, is a hint.
//!
//! Order at start: a [`RaftPipe`] is made, the [`shard::Host`] gets it as its link, then [`Mesh::start`] connects the pipe.

mod answering;
mod calls;
mod error;
mod exchange;
mod gate;
mod hello;
mod judge;
mod known;
mod lane;
mod line;
mod link;
mod me;
mod options;
mod pipe;
mod port;
mod proof;
mod quiet;
mod raft;
mod road;
mod roster;
mod seeds;
mod session;
mod shared;
mod snapshot;
mod socket;
mod start;
#[cfg(test)]
mod tests;
mod tls;
mod wire;

pub use error::Error;
pub use options::{Carrier, MeshOptions, MeshTiming, PROTOCOL, SECRET_BYTES_MIN};
pub use pipe::RaftPipe;
pub use start::{Addresses, Mesh, MeshFigures};
pub use tls::{Pem, Tls};
