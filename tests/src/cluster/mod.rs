//! A cluster of real processes, made to suffer, and the proof afterwards.
//!
//! A [`trial`](stage::trial) starts a [`Fleet`] of real `granary` processes on a [`Net`](net::Net) of its own, keeps an open-loop
//! load of runs going against all of them, with workers and event consumers that hop from node to node, and hands the fleet to
//! the test, which breaks things. Afterwards everything is healed, every run must end, and the [checkers](check) read the
//! journal, the graph and the events of every run from any node.
//!
//! A fleet of one process is the same code with fewer addresses.

pub mod check;
pub mod client;
pub mod consumer;
pub mod definitions;
pub mod fleet;
pub mod load;
pub mod net;
pub mod node;
pub mod pace;
pub mod prove;
pub mod serial;
pub mod setup;
pub mod shell;
pub mod slow_disk;
pub mod stage;
pub mod trial;

pub use client::Clients;
pub use fleet::Fleet;
pub use stage::{bare, trial};
pub use trial::{ENDS_MAX, Plan, Trial};
