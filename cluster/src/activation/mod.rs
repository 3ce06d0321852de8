//! One grain in memory.
//!
//! States: Creating (its actor is being spawned), Activating (its rows are being read), Valid (it takes turns), Deactivating
//! (idle: closed to new messages, the actor stops), Invalid (the shard's leadership is gone: what it still decides is refused
//! by the epoch). A grain has at most one activation that is open; a former one may still be finishing its last turn, whose
//! commit the epoch or the revision fences.

mod actor;
pub(crate) mod gate;

use crate::hub::Hub;
use crate::metrics::{Metrics, count};
use crate::room::Room;
use crate::turn::{Done, Refusal, Trigger, Turns};
use gate::{Gate, Refused};
use grain_contract::{Epoch, GrainId, GrainType};
use ractor::{ActorRef, ActorRuntime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// What an actor and its mailbox take besides the grain's own memory, bytes (measured, see the notes on ractor).
const BYTES_BESIDES: u64 = 8 * 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum State {
    Creating,
    Activating,
    Valid,
    Deactivating,
    Invalid,
}

pub(crate) struct Activation {
    pub(crate) id: GrainId,
    gate: Gate,
    state: AtomicU8,
    last_used_ms: AtomicU64,
    bytes: AtomicU64,
    metrics: Arc<Metrics>,
    mailbox: ActorRef<Envelope>,
}

type Answer = Result<Done, Refusal>;

/// One message on its way to a turn.
pub(crate) struct Envelope {
    trigger: Trigger,
    deadline: Instant,
    reply: Option<oneshot::Sender<Answer>>,
    permit: Permit,
}

/// Local to this process: nothing of it can be sent to another node.
impl ractor::Message for Envelope {}

/// A message that was never handled has changed nothing: its sender may try another activation.
impl Drop for Envelope {
    fn drop(&mut self) {
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(Err(Refusal::Moved));
        }
    }
}

/// The right to be inside one activation; left when dropped.
pub(crate) struct Permit {
    activation: Arc<Activation>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.activation.gate.leave();
    }
}

impl Activation {
    /// Makes the activation and its actor; nothing is read yet.
    pub(crate) fn create(
        id: &GrainId,
        epoch: Epoch,
        behaviour: &Arc<dyn GrainType>,
        hub: &Arc<Hub>,
        room: &Arc<Room>,
    ) -> Option<Arc<Self>> {
        let turns = Turns::new(id.clone(), epoch, behaviour.clone(), hub.clone(), room.clone());
        // Unnamed: names are process-global in ractor. The join handle is not kept: the actor ends by `stop` alone, and what
        // has to outlast it (a commit on its way) is fenced by the epoch, not by waiting.
        let (mailbox, _) = ActorRuntime::spawn_instant(None, actor::Turner, turns).ok()?;
        count(&hub.metrics.activations_created);
        hub.metrics.activation_bytes.fetch_add(BYTES_BESIDES, Relaxed);
        Some(Arc::new(Self {
            id: id.clone(),
            gate: Gate::default(),
            state: AtomicU8::new(State::Creating as u8),
            last_used_ms: AtomicU64::new(hub.clock.monotonic_ms()),
            bytes: AtomicU64::new(BYTES_BESIDES),
            metrics: hub.metrics.clone(),
            mailbox,
        }))
    }

    pub(crate) fn enter(self: &Arc<Self>, limit: usize, now_ms: u64) -> Result<Permit, Refused> {
        self.gate.enter(limit)?;
        self.last_used_ms.store(now_ms, Relaxed);
        Ok(Permit { activation: self.clone() })
    }

    /// Closes it if nobody is inside. The caller holds the catalog's lock, so nobody can be on the way in.
    pub(crate) fn close_if_idle(&self) -> bool {
        let closed = self.gate.close_if_idle();
        if closed {
            self.set(State::Deactivating);
            self.mailbox.stop(None);
        }
        closed
    }

    /// Closes it whoever is inside. The turn in progress runs on into the fence; what waits behind it is sent elsewhere.
    pub(crate) fn invalidate(&self) {
        self.gate.close();
        self.set(State::Invalid);
        self.mailbox.stop(None);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.gate.is_idle()
    }

    pub(crate) fn last_used_ms(&self) -> u64 {
        self.last_used_ms.load(Relaxed)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub(crate) fn set(&self, state: State) {
        self.state.store(state as u8, Relaxed);
    }

    fn weigh(&self, grain_bytes: usize) {
        let bytes = BYTES_BESIDES + grain_bytes as u64;
        let before = self.bytes.swap(bytes, Relaxed);
        self.metrics.activation_bytes.fetch_add(bytes, Relaxed);
        self.metrics.activation_bytes.fetch_sub(before, Relaxed);
    }
}

impl Drop for Activation {
    fn drop(&mut self) {
        self.metrics.activation_bytes.fetch_sub(self.bytes.load(Relaxed), Relaxed);
        count(&self.metrics.activations_dropped);
    }
}

impl Permit {
    /// Puts the message behind those that wait; the answer comes on the receiver.
    ///
    /// # Errors
    /// `Moved` if the actor is gone.
    pub(crate) fn send(
        self,
        trigger: Trigger,
        deadline: Instant,
    ) -> Result<oneshot::Receiver<Answer>, (Refusal, Arc<Activation>)> {
        let (reply, answer) = oneshot::channel();
        let activation = self.activation.clone();
        let envelope = Envelope { trigger, deadline, reply: Some(reply), permit: self };
        match activation.mailbox.send_message(envelope) {
            Ok(()) => Ok(answer),
            Err(_) => Err((Refusal::Moved, activation)),
        }
    }
}
