//! One process that hosts activations.

use crate::{
    Clock, EventReader, Health, IndexPage, MetricsSnapshot, ReadEvents, SiloOptions, Watch, WorkerHello, WorkerSession,
};
use futures::future::BoxFuture;
use grain_contract::{Code, CommandId, GrainId, GrainType, Method, Need, Rejection, Row, Supply, Table, TenantId};
use std::sync::Arc;
use std::time::Duration;

/// Fetches what a grain needs and does not own.
pub trait Supplier: Send + Sync {
    /// # Errors
    /// A passing fault: it is asked again inside the caller's deadline. A final answer is `Ok(Err(…))`.
    fn supply<'a>(&'a self, grain: &'a GrainId, need: &'a Need) -> BoxFuture<'a, Result<Supply, Rejection>>;
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("two grain types have the kind {0}")]
    DoubledKind(String),
    #[error(transparent)]
    Shard(#[from] shard::Error),
}

/// A call of a grain.
#[derive(Clone, Debug)]
pub struct Request {
    pub target: GrainId,
    pub method: Method,
    pub body: Vec<u8>,
    /// Repeats of the same command get the stored reply.
    pub command: Option<CommandId>,
    pub deadline: tokio::time::Instant,
}

/// Handle of a running silo; cheap to clone.
#[derive(Clone)]
pub struct Silo {}

fn starting() -> Rejection {
    Rejection::new(Code::Unavailable, "Expected a running silo, but it is still starting.")
}

impl Silo {
    pub async fn start(
        _host: shard::Host,
        _options: SiloOptions,
        _types: Vec<Arc<dyn GrainType>>,
        _supplier: Arc<dyn Supplier>,
        _clock: Arc<dyn Clock>,
    ) -> Result<Silo, Error> {
        Ok(Silo {})
    }

    pub async fn call(&self, _request: Request) -> Result<Vec<u8>, Rejection> {
        Err(starting())
    }

    pub fn rows(&self, _: &GrainId, _: Table, _after: Option<&[u8]>, _limit: usize) -> Result<Vec<Row>, Rejection> {
        Err(starting())
    }

    pub fn index_page(
        &self,
        _index: &str,
        _tenant: &TenantId,
        _page_token: &str,
        _limit: usize,
    ) -> Result<IndexPage, Rejection> {
        Err(starting())
    }

    pub fn watch(&self, _target: &GrainId) -> Watch {
        Watch { changes: tokio::sync::watch::channel(0).1 }
    }

    pub async fn events(&self, _request: ReadEvents) -> Result<EventReader, Rejection> {
        Err(starting())
    }

    pub async fn connect_worker(&self, _hello: WorkerHello) -> Result<WorkerSession, Rejection> {
        Err(starting())
    }

    pub fn health(&self) -> Health {
        Health::default()
    }

    pub fn metrics(&self) -> MetricsSnapshot {
        MetricsSnapshot::default()
    }

    pub async fn drain(&self, _deadline: Duration) {}
}
