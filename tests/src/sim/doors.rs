//! How clients, workers and consumers get at the nodes: each call runs on its node's strand and shares its fate.

use super::chance::Chance;
use super::net::Slot;
use cluster::{Request, Silo};
use grain_contract::{Code, CommandId, GrainId, Method, Rejection};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A node that can be spoken to.
#[derive(Clone)]
pub struct Door {
    pub slot: Slot,
    pub handle: Handle,
    /// Weak: what is outside must not keep a dead process's memory alive.
    pub inside: Weak<Inside>,
}

/// What is spoken to. Held by the process; whoever is outside takes hold of it in tasks of the node's strand only.
pub struct Inside {
    pub silo: Silo,
    pub host: shard::Host,
}

#[derive(Clone, Default)]
pub struct Doors(Arc<Mutex<Vec<Door>>>);

/// Why a call has no answer.
#[derive(Debug)]
pub enum Trouble {
    /// The grain said no.
    Refused(Rejection),
    /// Whether anything happened is not known.
    Lost,
}

impl Trouble {
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Refused(rejection) if !rejection.code.is_retryable() && rejection.code != Code::Internal)
    }
}

impl Doors {
    fn lock(&self) -> MutexGuard<'_, Vec<Door>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn open(&self, door: Door) {
        let mut doors = self.lock();
        doors.retain(|other| other.slot != door.slot);
        doors.push(door);
        doors.sort_by_key(|door| door.slot);
    }

    pub fn close(&self, slot: Slot) {
        self.lock().retain(|door| door.slot != slot);
    }

    pub fn all(&self) -> Vec<Door> {
        self.lock().clone()
    }

    pub fn any(&self, chance: &mut Chance) -> Option<Door> {
        let doors = self.lock();
        (!doors.is_empty()).then(|| chance.pick(&doors).clone())
    }
}

impl Door {
    /// Does something at the node; `None` if no answer came: the node died, or stood still for too long.
    pub async fn at<T, F>(&self, within: Duration, work: impl FnOnce(Arc<Inside>) -> F + Send + 'static) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (tell, told) = oneshot::channel();
        self.spawn(|inside| async move { drop(tell.send(work(inside).await)) });
        tokio::time::timeout(within, told).await.ok()?.ok()
    }

    /// Begins something at the node.
    pub fn spawn<F>(&self, work: impl FnOnce(Arc<Inside>) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let inside = self.inside.clone();
        self.handle.spawn(async move {
            if let Some(inside) = inside.upgrade() {
                work(inside).await;
            }
        });
    }

    pub async fn call(
        &self,
        target: GrainId,
        method: Method,
        body: Vec<u8>,
        command: Option<CommandId>,
        within: Duration,
    ) -> Result<Vec<u8>, Trouble> {
        self.call_in_time(target, method, body, command, within, within + Duration::from_millis(200)).await
    }

    /// A call that waits longer than its deadline, which counts from when the node begins with it: the node may be frozen.
    pub async fn call_in_time(
        &self,
        target: GrainId,
        method: Method,
        body: Vec<u8>,
        command: Option<CommandId>,
        within: Duration,
        patience: Duration,
    ) -> Result<Vec<u8>, Trouble> {
        let work = move |inside: Arc<Inside>| async move {
            let deadline = Instant::now() + within;
            inside.silo.call(Request { target, method, body, command, deadline }).await
        };
        match self.at(patience, work).await {
            Some(Ok(reply)) => Ok(reply),
            Some(Err(rejection)) => Err(Trouble::Refused(rejection)),
            None => Err(Trouble::Lost),
        }
    }
}
