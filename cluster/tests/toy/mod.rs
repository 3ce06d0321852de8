//! A grain for tests: a counter that can also set reminders, make work, call others, need things, refuse and panic. Keeps all
//! it does in rows, so that what it remembers is what was committed.

// Each test binary uses its part of it.
#![allow(dead_code)]

use grain_contract::{
    Code, Context, Corrupt, Decision, Effect, Grain, GrainId, GrainKind, GrainType, IndexChange, Lease, Message,
    Method, NOTHING_TO_TELL, Need, OutboxMessage, QueueName, Rejection, ReminderChange, Row, RowKey, Supply, Table,
    TenantId, Timestamp, Turn, WorkItem,
};
use granary_proto::calls::{CallRejected, Claim, ClaimReply, LeaseExpired};
use prost::Message as _;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

pub const KIND: &str = "toy";
pub const OPEN: &str = "open-toys";

/// Adds the amount (u64 little-endian), tells an event with the new sum, answers it.
pub const ADD: Method = Method(1);
/// Answers the sum without a commit.
pub const GET: Method = Method(2);
/// `name:due in ms`
pub const REMIND: Method = Method(3);
/// `name`
pub const CLEAR: Method = Method(4);
/// 16 bytes of attempt id and the queue's name. The same attempt again changes nothing, even when it is over: a network may bring
/// the call twice.
pub const WORK: Method = Method(5);
/// `calls::Claim`
pub const CLAIM: Method = Method(6);
/// `calls::LeaseExpired`
pub const LEASE_EXPIRED: Method = Method(7);
pub const SWEEP: Method = Method(8);
/// Key of another toy: sends it ADD 1 through the outbox. With a leading `!`: sends it REFUSE.
pub const SEND: Method = Method(9);
/// `calls::CallRejected`
pub const REJECTED: Method = Method(10);
pub const PANIC: Method = Method(11);
pub const REFUSE: Method = Method(12);
/// Needs a thing of this name, then adds its number.
pub const NEED: Method = Method(13);
/// 16 bytes of attempt id: over; with one more byte, the worker is interrupted.
pub const DONE: Method = Method(14);
/// Answers whatever [`Toy::told`] holds.
pub const TOLD: Method = Method(15);
/// Mutates, decides a commit and asks to be dropped.
pub const REST: Method = Method(16);
/// Answers one line an attempt: id, worker or `-`.
pub const ATTEMPTS: Method = Method(17);

/// Sets the sum to the amount, tells an event with it: the same again has no second effect on the sum.
pub const PUT: Method = Method(18);

/// Says in the index of open toys that it has nothing to tell.
pub const QUIET: Method = Method(19);
/// Answers so many bytes without a commit.
pub const MUCH: Method = Method(20);
/// As [`REMIND`], but nobody may make it again.
pub const REMIND_ONCE: Method = Method(21);

const SUM: Table = Table(1);
const ATTEMPT: Table = Table(2);
const TOLD_ROWS: Table = Table(3);
const OVER: Table = Table(4);

pub fn id(tenant: &str, key: &str) -> GrainId {
    GrainId::new(&TenantId::new(tenant), &GrainKind::new(KIND), key)
}

pub fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map(u64::from_le_bytes).unwrap_or_default()
}

pub struct Toys;

impl GrainType for Toys {
    fn kind(&self) -> GrainKind {
        KIND.into()
    }

    fn is_idempotent(&self, method: Method) -> bool {
        matches!(method, GET | TOLD | ATTEMPTS | CLAIM | LEASE_EXPIRED | REMIND | CLEAR | DONE | SWEEP | PUT)
    }

    fn load(&self, id: &GrainId, rows: Vec<Row>) -> Result<Box<dyn Grain>, Corrupt> {
        let mut toy = Toy {
            id: id.clone(),
            is_new: rows.is_empty(),
            sum: 0,
            attempts: BTreeMap::new(),
            over: BTreeSet::new(),
            told: Vec::new(),
            supplied: None,
        };
        for row in rows {
            match row.key.table {
                SUM if row.value == b"corrupt" => return Err(Corrupt { what: "the sum is no number".to_owned() }),
                SUM => toy.sum = number(&row.value),
                ATTEMPT => {
                    let (attempt, held) = read_attempt(&row);
                    toy.attempts.insert(attempt, held);
                }
                OVER => {
                    toy.over.insert(Uuid::from_slice(&row.key.key).expect("an id"));
                }
                _ => toy.told.push(String::from_utf8_lossy(&row.value).into_owned()),
            }
        }
        Ok(Box::new(toy))
    }
}

struct Held {
    queue: QueueName,
    lease: Option<Lease>,
}

struct Toy {
    id: GrainId,
    is_new: bool,
    sum: u64,
    attempts: BTreeMap<Uuid, Held>,
    over: BTreeSet<Uuid>,
    /// One line for each thing that came from the machinery: reminders, lease ends, refusals, sweeps.
    told: Vec<String>,
    supplied: Option<u64>,
}

impl Grain for Toy {
    fn handle(&mut self, cx: &mut Context<'_>, message: &Message<'_>) -> Decision {
        match *message {
            Message::Call { method, body } => self.call(cx, method, body),
            Message::Reminder { name, due } => {
                let line = format!("reminder {name} due {} late {}", due.0, cx.now.since(due));
                let early = cx.now < due;
                assert!(!early, "a reminder came early");
                Decision::Commit(self.note(line))
            }
            Message::Wake => {
                let effects = self.attempts.iter().map(|(attempt, held)| open_work(*attempt, held)).collect();
                Decision::Commit(Turn { effects, ..Turn::default() })
            }
        }
    }

    fn supply(&mut self, _: &Need, supply: Supply) {
        self.supplied = supply.ok().and_then(|thing| thing.downcast::<u64>().ok()).map(|number| *number);
    }

    fn memory(&self) -> usize {
        64 + self.told.len() * 64
    }
}

impl Toy {
    fn call(&mut self, cx: &mut Context<'_>, method: Method, body: &[u8]) -> Decision {
        match method {
            ADD => Decision::Commit(self.add(number(body))),
            PUT if self.sum == number(body) && !self.is_new => Decision::Read(self.sum.to_le_bytes().to_vec()),
            PUT => {
                self.sum = 0;
                Decision::Commit(self.add(number(body)))
            }
            QUIET => {
                let sort = self.id.key.as_bytes().to_vec();
                let index = vec![IndexChange::Put { index: OPEN, sort, value: NOTHING_TO_TELL.to_vec() }];
                Decision::Commit(Turn { index, ..Turn::default() })
            }
            MUCH => Decision::Read(vec![7; usize::try_from(number(&body[..8])).expect("a size")]),
            GET => Decision::Read(self.sum.to_le_bytes().to_vec()),
            TOLD => Decision::Read(self.told.join("\n").into_bytes()),
            ATTEMPTS => Decision::Read(self.list().into_bytes()),
            REMIND | REMIND_ONCE => {
                let text = String::from_utf8_lossy(body);
                let (name, due) = text.rsplit_once(':').expect("name:due");
                let due = Timestamp(due.parse().expect("a number"));
                let reminders = vec![ReminderChange::Set { name: name.to_owned(), due }];
                Decision::Commit(Turn { reminders, ..Turn::default() })
            }
            CLEAR => {
                let reminders = vec![ReminderChange::Clear { name: String::from_utf8_lossy(body).into_owned() }];
                Decision::Commit(Turn { reminders, ..Turn::default() })
            }
            WORK => self.work(cx, body),
            CLAIM => self.claim(&Claim::decode(body).expect("a claim")),
            LEASE_EXPIRED => self.lease_expired(&LeaseExpired::decode(body).expect("a lease's end")),
            DONE => self.done(body),
            SWEEP => Decision::Commit(self.note("sweep".to_owned())),
            SEND => self.send(body),
            REJECTED => {
                let told = CallRejected::decode(body).expect("a refusal");
                Decision::Commit(self.note(format!("rejected {} by {}", told.code, told.target)))
            }
            NEED => match self.supplied.take() {
                Some(number) => Decision::Commit(self.add(number)),
                None => Decision::Need(Need { kind: "thing", key: String::from_utf8_lossy(body).into_owned() }),
            },
            REST => {
                let mut turn = self.add(1);
                turn.effects.push(Effect::Deactivate);
                Decision::Commit(turn)
            }
            PANIC => {
                self.sum = 666;
                panic!("told to");
            }
            _ => Decision::Reject(Rejection::new(Code::Invalid, "Expected another call, but this toy refuses.")),
        }
    }

    fn add(&mut self, amount: u64) -> Turn {
        self.sum += amount;
        let reply = self.sum.to_le_bytes().to_vec();
        Turn {
            puts: vec![Row { key: RowKey { table: SUM, key: b"sum".to_vec() }, value: reply.clone() }],
            index: self.open(),
            outbox: vec![OutboxMessage::Event { body: reply.clone() }],
            effects: vec![Effect::Changed],
            reply,
            ..Turn::default()
        }
    }

    fn open(&mut self) -> Vec<IndexChange> {
        if !std::mem::take(&mut self.is_new) {
            return Vec::new();
        }
        vec![IndexChange::Put { index: OPEN, sort: self.id.key.as_bytes().to_vec(), value: Vec::new() }]
    }

    fn note(&mut self, line: String) -> Turn {
        let key = u32::try_from(self.told.len()).expect("few").to_be_bytes().to_vec();
        self.told.push(line.clone());
        Turn {
            puts: vec![Row { key: RowKey { table: TOLD_ROWS, key }, value: line.into_bytes() }],
            effects: vec![Effect::Changed],
            ..Turn::default()
        }
    }

    fn work(&mut self, cx: &mut Context<'_>, body: &[u8]) -> Decision {
        let attempt = Uuid::from_slice(&body[..16]).expect("an id");
        if self.attempts.contains_key(&attempt) || self.over.contains(&attempt) {
            return Decision::Read(Vec::new());
        }
        let queue = QueueName::new(String::from_utf8_lossy(&body[16..]));
        let held = Held { lease: cx.offers.take(&queue), queue };
        let turn = Turn {
            puts: vec![attempt_row(attempt, &held)],
            index: self.open(),
            effects: vec![offer(attempt, &held)],
            ..Turn::default()
        };
        self.attempts.insert(attempt, held);
        Decision::Commit(turn)
    }

    fn claim(&mut self, claim: &Claim) -> Decision {
        let attempt: Uuid = claim.attempt_id.parse().expect("an id");
        let token: [u8; 16] = claim.token.as_slice().try_into().expect("a token");
        let lease = Lease { worker: claim.worker.clone(), token };
        let claimed = match self.attempts.get_mut(&attempt) {
            Some(held) if held.lease.is_none() && claim.held => false,
            Some(held) if held.lease.is_none() => {
                held.lease = Some(lease);
                true
            }
            Some(held) => {
                return Decision::Read(ClaimReply { claimed: held.lease.as_ref() == Some(&lease) }.encode_to_vec());
            }
            None => false,
        };
        let puts = self.attempts.get(&attempt).map(|held| attempt_row(attempt, held)).into_iter().collect();
        Decision::Commit(Turn { puts, reply: ClaimReply { claimed }.encode_to_vec(), ..Turn::default() })
    }

    /// Never started: offered again under the same id. Otherwise over.
    fn lease_expired(&mut self, told: &LeaseExpired) -> Decision {
        let attempt: Uuid = told.attempt_id.parse().expect("an id");
        let Some(held) = self.attempts.get_mut(&attempt) else { return Decision::Read(Vec::new()) };
        if held.lease.as_ref().is_none_or(|lease| lease.worker != told.worker || lease.token[..] != told.token[..]) {
            return Decision::Read(Vec::new());
        }
        let mut turn = self.note(format!("lease expired {attempt} never_started {}", told.never_started));
        if told.never_started {
            if let Some(held) = self.attempts.get_mut(&attempt) {
                held.lease = None;
                turn.puts.push(attempt_row(attempt, held));
                turn.effects.push(offer(attempt, held));
            }
        } else {
            self.attempts.remove(&attempt);
            turn.deletes.push(RowKey { table: ATTEMPT, key: attempt.as_bytes().to_vec() });
        }
        Decision::Commit(turn)
    }

    fn done(&mut self, body: &[u8]) -> Decision {
        let attempt = Uuid::from_slice(&body[..16]).expect("an id");
        self.attempts.remove(&attempt);
        self.over.insert(attempt);
        Decision::Commit(Turn {
            puts: vec![Row { key: RowKey { table: OVER, key: attempt.as_bytes().to_vec() }, value: Vec::new() }],
            deletes: vec![RowKey { table: ATTEMPT, key: attempt.as_bytes().to_vec() }],
            effects: vec![Effect::Withdraw { attempt, interrupt: body.len() > 16, reason: "done".to_owned() }],
            ..Turn::default()
        })
    }

    fn send(&mut self, body: &[u8]) -> Decision {
        let text = String::from_utf8_lossy(body);
        let (key, method) = match text.strip_prefix('!') {
            Some(key) => (key, REFUSE),
            None => (&*text, ADD),
        };
        let target = GrainId::new(&self.id.tenant, &self.id.kind, key);
        let body = 1u64.to_le_bytes().to_vec();
        let outbox = vec![OutboxMessage::Call { target, method, body, on_rejected: Some(REJECTED) }];
        Decision::Commit(Turn { outbox, ..Turn::default() })
    }

    fn list(&self) -> String {
        let line = |(attempt, held): (&Uuid, &Held)| {
            format!("{attempt} {}", held.lease.as_ref().map_or("-", |lease| lease.worker.as_str()))
        };
        self.attempts.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

fn offer(attempt: Uuid, held: &Held) -> Effect {
    Effect::Offer(WorkItem {
        queue: held.queue.clone(),
        attempt,
        lease: held.lease.clone(),
        body: attempt.as_bytes().to_vec(),
    })
}

fn open_work(attempt: Uuid, held: &Held) -> Effect {
    match &held.lease {
        None => offer(attempt, held),
        Some(lease) => Effect::Expect {
            attempt,
            queue: held.queue.clone(),
            lease: lease.clone(),
            body: attempt.as_bytes().to_vec(),
        },
    }
}

fn attempt_row(attempt: Uuid, held: &Held) -> Row {
    let mut value = held.queue.as_str().as_bytes().to_vec();
    if let Some(lease) = &held.lease {
        value.push(0);
        value.extend_from_slice(&lease.token);
        value.extend_from_slice(lease.worker.as_bytes());
    }
    Row { key: RowKey { table: ATTEMPT, key: attempt.as_bytes().to_vec() }, value }
}

fn read_attempt(row: &Row) -> (Uuid, Held) {
    let attempt = Uuid::from_slice(&row.key.key).expect("an id");
    let end = row.value.iter().position(|byte| *byte == 0).unwrap_or(row.value.len());
    let queue = QueueName::new(String::from_utf8_lossy(&row.value[..end]));
    let lease = row.value.get(end + 1..).map(|rest| Lease {
        token: rest[..16].try_into().expect("a token"),
        worker: String::from_utf8_lossy(&rest[16..]).into_owned(),
    });
    (attempt, Held { queue, lease })
}
