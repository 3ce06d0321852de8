//! The edge of Granary and the place where both halves meet: the grains decide, the cluster commits and acts, and here
//! they are wired, spoken to by gRPC and HTTP, configured and observed.

pub mod config;
pub mod node;
pub mod worker;
