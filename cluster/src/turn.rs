//! One turn: ask the grain, fetch what it needs, commit what it decided, and only then act and answer.
//!
//! Memory is never ahead of the commit: whatever keeps a decision from being committed also drops the grain, which is read
//! again from its rows by the next turn. After a commit whose outcome is not known the rows may be ahead of the effects that
//! were done; then the grain is woken first, which makes it tell its open work again.

use crate::dispatch::Places;
use crate::hub::Hub;
use crate::metrics::count;
use crate::refusal;
use crate::reminders::wheel::{Change, Key};
use crate::room::Room;
use crate::sabotage::Sabotage;
use bytes::Bytes;
use grain_contract::{
    Code, CommandId, Context, Decision, Effect, Epoch, Grain, GrainId, GrainType, Message, Method, Need, Rejection,
    ReminderChange, Revision, Timestamp, Turn,
};
use shard::{Commit, Error};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// How often one message is decided again after a reload.
const RELOADS_MAX: u32 = 5;
/// How many things one turn may need from outside.
const NEEDS_MAX: u32 = 8;
/// Between two tries to fetch something that a grain needs.
const SUPPLY_BACKOFF: [u64; 6] = [10, 50, 200, 500, 1_000, 2_000];

/// What makes a grain take a turn.
#[derive(Clone, Debug)]
pub(crate) enum Trigger {
    Call {
        method: Method,
        body: Bytes,
        command: Option<CommandId>,
    },
    /// A call of the machinery to see after the grain, with an empty body: one that has nothing to do is dropped again.
    Visit {
        method: Method,
    },
    Reminder {
        name: String,
        due: Timestamp,
    },
    Wake,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) reply: Vec<u8>,
    /// The activation is better dropped now.
    pub(crate) deactivate: bool,
    /// The reply follows a commit of this turn. Any other comes from memory, and is worth what the ownership is worth.
    pub(crate) committed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Rejected(Rejection),
    /// This is not the owner any more; nothing happened.
    Moved,
    /// It may have happened or not.
    Unknown(Rejection),
}

impl From<Rejection> for Refusal {
    fn from(rejection: Rejection) -> Self {
        Refusal::Rejected(rejection)
    }
}

/// Why one try of a turn did not end it.
enum Failure {
    Refused(Refusal),
    /// Nothing happened, and the rows are newer than the memory was: decide again.
    Again,
}

impl From<Rejection> for Failure {
    fn from(rejection: Rejection) -> Self {
        Failure::Refused(Refusal::Rejected(rejection))
    }
}

struct Loaded {
    grain: Box<dyn Grain>,
    revision: Revision,
    reminders: BTreeMap<String, Timestamp>,
}

/// The turns of one activation.
pub(crate) struct Turns {
    id: GrainId,
    epoch: Epoch,
    behaviour: Arc<dyn GrainType>,
    hub: Arc<Hub>,
    room: Arc<Room>,
    loaded: Option<Loaded>,
    owes_wake: bool,
}

impl Turns {
    pub(crate) fn new(
        id: GrainId,
        epoch: Epoch,
        behaviour: Arc<dyn GrainType>,
        hub: Arc<Hub>,
        room: Arc<Room>,
    ) -> Self {
        Self { id, epoch, behaviour, hub, room, loaded: None, owes_wake: false }
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded.is_some()
    }

    pub(crate) fn memory(&self) -> usize {
        self.loaded.as_ref().map_or(0, |loaded| loaded.grain.memory())
    }

    pub(crate) fn room(&self) -> &Room {
        &self.room
    }

    pub(crate) fn hub(&self) -> &Hub {
        &self.hub
    }

    pub(crate) async fn run(&mut self, trigger: &Trigger, deadline: Instant) -> Result<Done, Refusal> {
        let _running = Running::begin(&self.hub);
        self.wake_if_owed(deadline).await;
        let answer = self.tries(trigger, deadline).await;
        let looks = self.hub.options.sabotage != Some(Sabotage::ReadUnconfirmed);
        let answer =
            if looks && is_from_memory(trigger, &answer) { self.confirmed(answer, deadline).await } else { answer };
        self.wake_if_owed(deadline).await;
        answer
    }

    /// An answer that rests on no commit leaves only if this is the owner still: one that was frozen or cut off remembers what
    /// is long past (FR-001, FR-063). The question is asked after the answer was made, so what it says was true then.
    async fn confirmed(&mut self, answer: Result<Done, Refusal>, deadline: Instant) -> Result<Done, Refusal> {
        match tokio::time::timeout_at(deadline, self.room.store.confirm(self.epoch)).await {
            Ok(Ok(())) => answer,
            Ok(Err(Error::Fenced { .. } | Error::NotLeader { .. })) => {
                self.loaded = None;
                Err(Refusal::Moved)
            }
            Ok(Err(error)) => Err(refusal::of_store(error).into()),
            Err(_) => Err(refusal::unavailable("the deadline came before the ownership was confirmed").into()),
        }
    }

    /// The failure of this wake is not the caller's; it stays owed then.
    async fn wake_if_owed(&mut self, deadline: Instant) {
        if std::mem::take(&mut self.owes_wake) {
            self.owes_wake = self.tries(&Trigger::Wake, deadline).await.is_err();
        }
    }

    async fn tries(&mut self, trigger: &Trigger, deadline: Instant) -> Result<Done, Refusal> {
        for _ in 0..=RELOADS_MAX {
            if Instant::now() >= deadline {
                return Err(refusal::unavailable("the deadline came before the turn").into());
            }
            match self.once(trigger, deadline).await {
                Ok(done) => return Ok(done),
                Err(Failure::Refused(refused)) => return Err(refused),
                Err(Failure::Again) => count(&self.hub.metrics.turns_reloaded),
            }
        }
        // One of the tries may have been a commit whose outcome is not known.
        Err(Refusal::Unknown(refusal::unavailable(format!("{RELOADS_MAX} other turns came first"))))
    }

    async fn once(&mut self, trigger: &Trigger, deadline: Instant) -> Result<Done, Failure> {
        if matches!(trigger, Trigger::Wake) {
            // Who is woken may have been overtaken by its rows.
            self.loaded = None;
        }
        let fresh = self.loaded.is_none();
        if fresh {
            self.load()?;
        }
        let sabotage = self.hub.options.sabotage;
        if let Trigger::Call { command: Some(command), .. } = trigger
            && sabotage != Some(Sabotage::CommandRepeated)
            && self.loaded.as_ref().is_some_and(|loaded| loaded.revision > Revision(0))
            && let Some(reply) = self.room.store.stored_reply(&self.id, command).map_err(refusal::of_store)?
        {
            return Ok(Done { reply, ..Done::default() });
        }
        if let Trigger::Reminder { name, due } = trigger
            && sabotage != Some(Sabotage::ReminderClearedFirst)
            && self.loaded.as_ref().is_some_and(|loaded| loaded.reminders.get(name) != Some(due))
        {
            // Cleared or moved since it was armed: this setting is not in force any more.
            return Ok(Done::default());
        }
        count(&self.hub.metrics.turns);
        let mut places = Places::of(&self.hub.dispatch, &self.id.tenant);
        let mut turn = self.decide(trigger, &mut places, deadline).await?;
        if let Trigger::Reminder { name, .. } = trigger {
            clear_fired(&mut turn, name);
        }
        let effects = std::mem::take(&mut turn.effects);
        let committed = !turn.changes_nothing();
        let reply = if committed { self.commit(trigger, turn).await? } else { std::mem::take(&mut turn.reply) };
        // Nothing to do and nobody asked: memory is for those that work.
        let idle_visit = fresh && !matches!(trigger, Trigger::Call { .. }) && !has_open_work(&effects);
        let told = crate::effects::act(&self.hub, &self.room, self.epoch, &self.id, effects, &mut places);
        Ok(Done { reply, deactivate: told.deactivate || idle_visit, committed })
    }

    fn load(&mut self) -> Result<(), Rejection> {
        let rows = self.room.store.grain(&self.id).map_err(refusal::of_store)?;
        let grain = self.behaviour.load(&self.id, rows.rows).map_err(|corrupt| {
            tracing::error!(grain = %self.id, what = %corrupt, "the rows of a grain cannot be read; it is set aside");
            Rejection::new(Code::Quarantined, format!("Expected rows that this build can read, but {corrupt}."))
        })?;
        let reminders: BTreeMap<_, _> = rows.reminders.into_iter().collect();
        let key = |name: &String| Key { grain: self.id.clone(), name: name.clone() };
        self.room.reminders.committed(reminders.iter().map(|(name, due)| Change::Stands(key(name), *due)));
        self.loaded = Some(Loaded { grain, revision: rows.revision, reminders });
        Ok(())
    }

    /// Asks the grain until it knows enough to decide. A refusal or a read leaves an empty turn or an error.
    async fn decide(&mut self, trigger: &Trigger, places: &mut Places, deadline: Instant) -> Result<Turn, Failure> {
        for _ in 0..NEEDS_MAX {
            match self.ask(trigger, places)? {
                Decision::Commit(turn) => return Ok(turn),
                Decision::Read(reply) => return Ok(Turn { reply, ..Turn::default() }),
                Decision::Reject(rejection) => return refused(trigger, rejection),
                Decision::Need(need) => {
                    let supply = fetch(&self.hub, &self.id, &need, deadline).await?;
                    if let Some(loaded) = &mut self.loaded {
                        loaded.grain.supply(&need, supply);
                    }
                }
            }
        }
        let message = format!("Expected at most {NEEDS_MAX} needs in one turn, but the grain asks for more.");
        Err(Rejection::new(Code::Internal, message).into())
    }

    fn ask(&mut self, trigger: &Trigger, places: &mut Places) -> Result<Decision, Failure> {
        let Some(loaded) = &mut self.loaded else { return Err(Failure::Again) };
        let message = match trigger {
            Trigger::Call { method, body, .. } => Message::Call { method: *method, body },
            Trigger::Visit { method } => Message::Call { method: *method, body: &[] },
            Trigger::Reminder { name, due } => Message::Reminder { name, due: *due },
            Trigger::Wake => Message::Wake,
        };
        let mut cx = Context { now: self.hub.clock.now(), entropy: rand::random(), offers: places };
        let grain = &mut loaded.grain;
        // A panic leaves the grain in an unknown state, which is dropped below, so nobody sees it.
        std::panic::catch_unwind(AssertUnwindSafe(|| grain.handle(&mut cx, &message))).map_err(|_| {
            self.loaded = None;
            tracing::error!(grain = %self.id, "a grain panicked in its turn; its memory is dropped");
            Rejection::new(Code::Internal, "Expected a decision, but the grain panicked; nothing was changed.").into()
        })
    }

    async fn commit(&mut self, trigger: &Trigger, mut turn: Turn) -> Result<Vec<u8>, Failure> {
        let Some(loaded) = &mut self.loaded else { return Err(Failure::Again) };
        let command = match trigger {
            Trigger::Call { command, .. } => command.clone(),
            _ => None,
        };
        // The reply goes into the log only if somebody may ask for it again.
        let reply = if command.is_some() { turn.reply.clone() } else { std::mem::take(&mut turn.reply) };
        let reminders = turn.reminders.clone();
        let has_calls = turn.outbox.iter().any(|m| matches!(m, grain_contract::OutboxMessage::Call { .. }));
        let repeatable = match trigger {
            Trigger::Call { method, .. } => command.is_some() || self.behaviour.is_idempotent(*method),
            Trigger::Visit { .. } | Trigger::Reminder { .. } | Trigger::Wake => true,
        };
        let started = Instant::now();
        let commit = Commit {
            grain: self.id.clone(),
            epoch: self.epoch,
            expected: loaded.revision,
            turn,
            command,
            at: self.hub.clock.now(),
        };
        match self.room.store.commit(commit).await {
            Ok(committed) => {
                self.hub.metrics.committed(started.elapsed());
                loaded.revision = committed.revision;
                for change in &reminders {
                    match change {
                        ReminderChange::Set { name, due } => loaded.reminders.insert(name.clone(), *due),
                        ReminderChange::Clear { name } => loaded.reminders.remove(name),
                    };
                }
                self.room.reminders.committed(reminders.into_iter().map(|change| self.to_wheel(change)));
                if has_calls {
                    self.room.calls_waiting.notify_one();
                }
                Ok(reply)
            }
            Err(error) => Err(self.not_committed(error, repeatable)),
        }
    }

    fn to_wheel(&self, change: ReminderChange) -> Change {
        match change {
            ReminderChange::Set { name, due } => Change::Set(Key { grain: self.id.clone(), name }, due),
            ReminderChange::Clear { name } => Change::Cleared(Key { grain: self.id.clone(), name }),
        }
    }

    /// `repeatable`: the message may be decided again although it may have been committed, since the reload shows it.
    fn not_committed(&mut self, error: Error, repeatable: bool) -> Failure {
        self.loaded = None;
        let led = self.room.store.leadership().borrow().epoch == Some(self.epoch);
        match error {
            Error::Fenced { .. } | Error::NotLeader { .. } if !led => Failure::Refused(Refusal::Moved),
            Error::Fenced { .. } => {
                // The rows are ahead of what this memory knows: by another writer, or by a commit of ours whose outcome was
                // not known and which had not been applied yet when the grain was woken for it. Nobody has done its effects.
                self.owes_wake = true;
                Failure::Again
            }
            Error::NotLeader { .. } => Failure::Refused(Refusal::Moved),
            Error::Unknown(what) => {
                self.owes_wake = true;
                self.room.owed.add(&self.id);
                tracing::warn!(grain = %self.id, what, "the outcome of a commit is not known; the grain is read again");
                if repeatable && led {
                    Failure::Again
                } else {
                    let rejection = refusal::unavailable("the outcome of the commit is not known; repeat it");
                    Failure::Refused(Refusal::Unknown(rejection))
                }
            }
            other => refusal::of_store(other).into(),
        }
    }
}

/// A call's reply without a commit, or what the grain refused it with. A passing fault rests on nothing.
fn is_from_memory(trigger: &Trigger, answer: &Result<Done, Refusal>) -> bool {
    matches!(trigger, Trigger::Call { .. })
        && match answer {
            Ok(done) => !done.committed,
            Err(Refusal::Rejected(rejection)) => {
                !matches!(rejection.code, Code::Unavailable | Code::Overloaded | Code::Internal)
            }
            Err(Refusal::Moved | Refusal::Unknown(_)) => false,
        }
}

/// Counts a turn for as long as it runs, so that a stop can wait for the last one.
struct Running(Arc<Hub>);

impl Running {
    fn begin(hub: &Arc<Hub>) -> Self {
        hub.turns_running.fetch_add(1, Ordering::AcqRel);
        Self(hub.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.turns_running.fetch_sub(1, Ordering::AcqRel) == 1 && self.0.stop.is_cancelled() {
            self.0.turn_ended.notify_waiters();
        }
    }
}

/// A reminder fires once: unless its turn said something about this name, the row goes with the turn.
fn clear_fired(turn: &mut Turn, fired: &str) {
    let touched = turn.reminders.iter().any(|change| match change {
        ReminderChange::Set { name, .. } | ReminderChange::Clear { name } => name == fired,
    });
    if !touched {
        turn.reminders.push(ReminderChange::Clear { name: fired.to_owned() });
    }
}

/// A call gets its refusal. A reminder that is refused for good is over; one refused for now comes again.
fn refused(trigger: &Trigger, rejection: Rejection) -> Result<Turn, Failure> {
    let for_good = !rejection.code.is_retryable() && !matches!(rejection.code, Code::Internal | Code::Quarantined);
    match trigger {
        Trigger::Reminder { .. } if for_good => Ok(Turn::default()),
        _ => Err(rejection.into()),
    }
}

fn has_open_work(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Offer(_) | Effect::Expect { .. }))
}

async fn fetch(
    hub: &Hub,
    grain: &GrainId,
    need: &Need,
    deadline: Instant,
) -> Result<grain_contract::Supply, Rejection> {
    let mut backoff = SUPPLY_BACKOFF.iter().copied().chain(std::iter::repeat(2_000));
    loop {
        let fault = match tokio::time::timeout_at(deadline, hub.supplier.supply(grain, need)).await {
            Ok(Ok(supply)) => return Ok(supply),
            Ok(Err(fault)) => fault,
            Err(_) => return Err(refusal::unavailable(format!("{} {:?} did not come in time", need.kind, need.key))),
        };
        let again = Instant::now() + Duration::from_millis(backoff.next().unwrap_or(2_000));
        if again >= deadline {
            return Err(fault);
        }
        tokio::select! {
            () = tokio::time::sleep_until(again) => {}
            () = hub.stop.cancelled() => return Err(fault),
        }
    }
}
