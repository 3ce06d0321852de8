//! Workers: processes that do the attempts of Agent, Tool and Compensation steps.
//!
//! A [`Worker`] keeps one stream to a silo, takes attempts for the queues it has a [`Handler`] for, renews their leases,
//! and reports each outcome until the silo has taken it. It deliberately knows nothing of workflows: an attempt is a name, an
//! input and a lease. [`config`] makes handlers out of a file: local commands, HTTP calls and an echo.

mod backoff;
mod command;
pub mod config;
mod handler;
mod held;
mod http;
mod journal;
mod orphans;
mod runtime;
mod session;
mod work;

pub use command::Command;
pub use handler::Handler;
pub use http::HttpCall;
pub use journal::Journal;
pub use runtime::{Worker, WorkerOptions};
pub use work::{Outcome, Work};

/// What can go wrong with a worker itself, as opposed to an attempt.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{file}: {message}")]
    Config { file: String, message: String },
    #[error("Expected a server address like http://127.0.0.1:7420, but found {url:?}: {source}")]
    Address { url: String, source: tonic::transport::Error },
    #[error("Expected at least one server address, but found none")]
    NoAddress,
    #[error("worker state folder {folder}: {source}")]
    State { folder: String, source: std::io::Error },
    #[error("Expected that no other worker uses the state folder {0}, but one does")]
    StateInUse(String),
    /// The server answered, and will give the same answer again.
    #[error("the server refuses this worker: {0}")]
    Refused(String),
}
