//! What can be asked of Granary, apart from how it travels: gRPC and HTTP are two thin skins over this.
//!
//! Each operation checks the request at the edge (so that a grain meets only well-formed bodies), scopes it to the caller's
//! tenant, and calls the grain that decides.

pub mod approvals;
pub mod check;
pub mod cluster;
pub mod definitions;
pub mod events;
pub mod facts;
pub mod graph;
pub mod journal;
pub mod list;
pub mod runs;
pub mod skills;

use crate::config::{Live, RunControlMode};
use crate::journal_client::JournalClient;
use crate::library::Library;
use crate::tenant::Caller;
use ::cluster::{Membership, MetricsSnapshot, Request, Silo};
use grain_contract::{Code, GrainId, GrainKind, Method, Rejection, Row, TenantId};
use grains::kinds::methods;
use granary_proto::storage;
use parking_lot::Mutex;
use prost::Message;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use uuid::Uuid;

/// The operations of one node. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub silo: Silo,
    pub live: Live,
    pub library: Arc<Library>,
    pub journal: Option<JournalClient>,
    pub streams: Arc<Semaphore>,
    pub sessions: Arc<Semaphore>,
    /// Streams and sessions that found no place.
    pub turned_away: AtomicU64,
    /// Set once the node belongs to its cluster.
    pub membership: OnceLock<Membership>,
    pub recent_approvals: Mutex<approvals::Recent>,
    /// True once the node stops: streams end so that the server can.
    pub stopping: watch::Receiver<bool>,
}

impl Api {
    pub(crate) fn new(
        silo: Silo,
        live: Live,
        library: Arc<Library>,
        journal: Option<JournalClient>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let limits = live.get().limits.clone();
        Self {
            inner: Arc::new(Inner {
                silo,
                live,
                library,
                journal,
                streams: Arc::new(Semaphore::new(limits.streams)),
                sessions: Arc::new(Semaphore::new(limits.worker_sessions)),
                turned_away: AtomicU64::new(0),
                membership: OnceLock::new(),
                recent_approvals: Mutex::new(approvals::Recent::default()),
                stopping,
            }),
        }
    }

    pub fn silo(&self) -> &Silo {
        &self.inner.silo
    }

    pub fn library(&self) -> &Library {
        &self.inner.library
    }

    pub fn live(&self) -> &Live {
        &self.inner.live
    }

    /// Ends once the node stops.
    pub async fn stopping(&self) {
        let mut stopping = self.inner.stopping.clone();
        // A sender that is gone means the same.
        let _ = stopping.wait_for(|stop| *stop).await;
    }

    pub fn is_stopping(&self) -> bool {
        *self.inner.stopping.borrow()
    }

    /// A place for a long stream (events, watches).
    pub fn stream_place(&self) -> Result<OwnedSemaphorePermit, Rejection> {
        self.place(&self.inner.streams, "open streams")
    }

    /// A place for a worker's session.
    pub fn session_place(&self) -> Result<OwnedSemaphorePermit, Rejection> {
        self.place(&self.inner.sessions, "worker sessions")
    }

    fn place(&self, places: &Arc<Semaphore>, what: &str) -> Result<OwnedSemaphorePermit, Rejection> {
        Arc::clone(places).try_acquire_owned().map_err(|_| {
            self.inner.turned_away.fetch_add(1, Ordering::Relaxed);
            Rejection::new(Code::Overloaded, format!("Expected fewer {what} on this silo, but all places are taken."))
        })
    }

    /// The silo's figures, with what was refused for want of a place before it came to the silo: back-pressure that no figure
    /// shows looks like a node without work (FR-131).
    pub fn metrics(&self) -> MetricsSnapshot {
        let mut metrics = self.inner.silo.metrics();
        let turned_away = self.inner.turned_away.load(Ordering::Relaxed);
        let overloaded = Code::Overloaded.as_str();
        metrics.rejections.iter_mut().filter(|(code, _)| *code == overloaded).for_each(|(_, n)| *n += turned_away);
        metrics
    }

    pub(crate) async fn call<A: Message + Default>(
        &self,
        caller: &Caller,
        target: GrainId,
        method: Method,
        body: Vec<u8>,
    ) -> Result<A, Rejection> {
        call(&self.inner.silo, target, method, body, caller.deadline).await
    }

    /// The bundled authority's operations are off while another service is the authority.
    pub(crate) fn bundled(&self) -> Result<(), Rejection> {
        match self.inner.live.get().run_control {
            RunControlMode::Bundled => Ok(()),
            RunControlMode::External => Err(Rejection::new(
                Code::WrongState,
                "Expected runControl: bundled for this call, but runs belong to an external Run Control here.",
            )),
        }
    }

    pub(crate) fn external(&self) -> Result<(), Rejection> {
        match self.inner.live.get().run_control {
            RunControlMode::External => Ok(()),
            RunControlMode::Bundled => Err(Rejection::new(
                Code::WrongState,
                "Expected runControl: external for inbound messages, but runs belong to the bundled Run Control here.",
            )),
        }
    }
}

pub(crate) async fn call<A: Message + Default>(
    silo: &Silo,
    target: GrainId,
    method: Method,
    body: Vec<u8>,
    deadline: tokio::time::Instant,
) -> Result<A, Rejection> {
    let reply = silo.call(Request { target, method, body, command: None, deadline }).await?;
    A::decode(reply.as_slice())
        .map_err(|e| Rejection::new(Code::Internal, format!("Expected a reply that decodes, but: {e}.")))
}

/// A run's header lies in a few rows whose fields do not overlap: what is fixed and what moves.
pub(crate) const HEADER_ROWS_MAX: usize = 8;

/// The header of these rows; rows that this build does not read add nothing.
pub(crate) fn header(rows: &[Row]) -> storage::RunHeaderRow {
    let mut header = storage::RunHeaderRow::default();
    for row in rows {
        // What was merged before a fault stays: the fields that matter here are either whole or not there.
        let _ = header.merge(row.value.as_slice());
    }
    header
}

pub(crate) fn run_grain(tenant: &TenantId, run_id: Uuid) -> GrainId {
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    grain(tenant, methods::run::KIND, run_id.as_hyphenated().encode_lower(&mut text))
}

pub(crate) fn grain(tenant: &TenantId, kind: &str, key: &str) -> GrainId {
    GrainId::new(tenant, &GrainKind::new(kind), key)
}
