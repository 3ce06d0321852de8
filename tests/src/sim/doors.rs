//! How clients, workers and consumers get at the nodes: each call runs on its node's strand and shares its fate.

use super::chance::Chance;
use super::net::Slot;
use cluster::{Request, Silo};
use grain_contract::{Code, CommandId, GrainId, Method, Rejection};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A node that can be spoken to.
#[derive(Clone)]
pub struct Door {
    pub slot: Slot,
    pub handle: Handle,
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
    pub async fn at<T, F>(&self, within: Duration, work: F) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (tell, told) = oneshot::channel();
        self.handle.spawn(async move { drop(tell.send(work.await)) });
        tokio::time::timeout(within, told).await.ok()?.ok()
    }

    pub async fn call(
        &self,
        target: GrainId,
        method: Method,
        body: Vec<u8>,
        command: Option<CommandId>,
        within: Duration,
    ) -> Result<Vec<u8>, Trouble> {
        let silo = self.silo.clone();
        let work = async move {
            let deadline = Instant::now() + within;
            silo.call(Request { target, method, body, command, deadline }).await
        };
        match self.at(within + Duration::from_millis(200), work).await {
            Some(Ok(reply)) => Ok(reply),
            Some(Err(rejection)) => Err(Trouble::Refused(rejection)),
            None => Err(Trouble::Lost),
        }
    }
}
