//! Calls over ractor_cluster: one gate actor a node, over connections that are dialled, accepted and watched here.
//!
//! Of ractor_cluster only this is used: its framing, and request and reply between two actors. It has no failure detector, no
//! reconnect, no handshake deadline and no bound anywhere, so all of these are here: our own sockets ([`super::socket`])
//! guarded in both directions (`guarded`), a deadline for its handshake, a ping in both directions, permits before every
//! send, and one life a node. Its own listener is parked on loopback behind mutual TLS and never told to anybody.
//!
//! Its registries are global to the process, so there is one gate a process (`claim`).
//!
//! The gate is the only actor that is visible to other nodes: a visible actor costs every node memory and a message at each
//! of its starts and stops. It is unnamed, since a name of another node's actor can throw out one of this node.

mod actor;
mod claim;
mod dial;
mod guarded;
mod keeper;
mod line;
mod session;

pub(super) use claim::Claim;
pub(super) use keeper::Keeper;

/// The group that each node's gate is in.
const SCOPE: &str = "granary";
const GROUP: &str = "gate";
