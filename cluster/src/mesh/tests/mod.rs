//! Several meshes in one process, over real sockets; Raft's end is a stand-in.

mod calls;
mod child;
mod figures;
mod gates;
mod hosts;
mod nodes;
mod peers;
mod raft;
mod sockets;
mod strangers;

pub(crate) use nodes::Authority;
