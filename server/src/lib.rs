//! The edge of Granary and the place where both halves meet: the grains decide, the cluster commits and acts, and here
//! they are wired, spoken to by gRPC and HTTP, configured and observed.

pub mod api;
pub mod artifacts;
pub mod certs;
pub mod config;
pub mod grpc;
pub mod http;
mod journal_client;
pub mod library;
pub mod metrics;
pub mod node;
mod outside;
mod policy;
mod registry;
pub mod shutdown;
pub mod telemetry;
pub mod tenant;
pub mod worker;
