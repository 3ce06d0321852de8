//! A grain for the simulator: a sum that grows by named operations, with reminders, calls to other tallies and numbered events.
//!
//! What the machinery promises shows in it plainly. An operation that is done twice counts twice (only the stored reply keeps a
//! repeated command from it), every event has the next number of its tally, a reminder tells when it came, and what one tally
//! sends another must arrive exactly once, for which the receiver knows what it has taken already.

use super::court::{Court, Sight};
use super::net::Slot;
use grain_contract::{
    Code, Context, Corrupt, Decision, Grain, GrainId, GrainKind, GrainType, Message, Method, Need, OutboxMessage,
    Rejection, ReminderChange, Row, RowKey, Supply, Table, Turn,
};
use std::collections::{BTreeMap, BTreeSet};

pub const KIND: &str = "tally";

/// `operation,amount`: adds and answers the new sum.
pub const ADD: Method = Method(101);
/// Answers the sum without a commit.
pub const GET: Method = Method(102);
/// `name,milliseconds`: reminds itself.
pub const REMIND: Method = Method(103);
/// `operation,amount,key`: takes from itself and gives to another tally of its tenant, by the outbox.
pub const GIVE: Method = Method(104);
/// `operation,amount`: what another tally gave. Idempotent.
pub const TAKE: Method = Method(105);
/// `name`: the slow supply of this name is asked for first, then it adds 1 under the name.
pub const ADD_SLOWLY: Method = Method(106);

pub const NEED: &str = "slow";

pub const SUM: Table = Table(1);
pub const OPERATIONS: Table = Table(2);
const NUMBERS: Table = Table(3);
const TAKEN: Table = Table(4);

pub fn id(tenant: &str, key: &str) -> GrainId {
    GrainId::new(&tenant.into(), &KIND.into(), key)
}

pub fn number(bytes: &[u8]) -> i64 {
    bytes.try_into().map(i64::from_be_bytes).unwrap_or_default()
}

/// An event: `tally,number,what`.
pub fn event(body: &[u8]) -> Option<(u64, &str)> {
    let text = std::str::from_utf8(body).ok()?.strip_prefix("tally,")?;
    let (number, what) = text.split_once(',')?;
    Some((number.parse().ok()?, what))
}

/// Made anew for each node, which it names to the court.
pub struct Tallies {
    pub slot: Slot,
    pub court: Court,
}

impl GrainType for Tallies {
    fn kind(&self) -> GrainKind {
        KIND.into()
    }

    fn load(&self, id: &GrainId, rows: Vec<Row>) -> Result<Box<dyn Grain>, Corrupt> {
        let mut tally = Tally {
            id: id.clone(),
            slot: self.slot,
            court: self.court.clone(),
            sum: 0,
            events: 0,
            done: BTreeMap::new(),
            taken: BTreeSet::new(),
            supplied: false,
        };
        for row in rows {
            match row.key.table {
                SUM => tally.sum = number(&row.value),
                NUMBERS => tally.events = number(&row.value).unsigned_abs(),
                OPERATIONS => drop(tally.done.insert(row.key.key, number(&row.value))),
                _ => drop(tally.taken.insert(row.key.key)),
            }
        }
        Ok(Box::new(tally))
    }
}

struct Tally {
    id: GrainId,
    slot: Slot,
    court: Court,
    sum: i64,
    /// Told so far.
    events: u64,
    /// How often each operation was done.
    done: BTreeMap<Vec<u8>, i64>,
    taken: BTreeSet<Vec<u8>>,
    supplied: bool,
}

impl Grain for Tally {
    fn handle(&mut self, cx: &mut Context<'_>, message: &Message<'_>) -> Decision {
        match *message {
            Message::Wake => Decision::Commit(Turn::default()),
            Message::Reminder { name, due } => {
                let (slot, tally, name) = (self.slot, self.id.clone(), name.to_owned());
                self.court.see(Sight::Reminded { slot, tally, name: name.clone(), due, now: cx.now });
                Decision::Commit(self.tell(Turn::default(), format!("reminded,{name},{}", due.0)))
            }
            Message::Call { method, body } => {
                let text = std::str::from_utf8(body).unwrap_or_default().to_owned();
                let parts: Vec<&str> = text.split(',').collect();
                self.call(cx, method, &parts).unwrap_or_else(|| {
                    Decision::Reject(Rejection::new(Code::Invalid, format!("Expected words, but found {text:?}.")))
                })
            }
        }
    }

    fn supply(&mut self, _: &Need, supply: Supply) {
        self.supplied = supply.is_ok();
    }

    fn memory(&self) -> usize {
        256 + 64 * (self.done.len() + self.taken.len())
    }
}

impl Tally {
    fn call(&mut self, cx: &mut Context<'_>, method: Method, parts: &[&str]) -> Option<Decision> {
        Some(match (method, parts) {
            (GET, _) => Decision::Read(self.sum.to_be_bytes().to_vec()),
            (ADD, [operation, amount]) => Decision::Commit(self.add(operation, amount.parse().ok()?)),
            (ADD_SLOWLY, [operation]) => {
                if !std::mem::take(&mut self.supplied) {
                    return Some(Decision::Need(Need { kind: NEED, key: (*operation).to_owned() }));
                }
                Decision::Commit(self.add(operation, 1))
            }
            (REMIND, [name, after]) => {
                let due = cx.now.plus_ms(after.parse().ok()?);
                let set = ReminderChange::Set { name: (*name).to_owned(), due };
                let turn = Turn { reminders: vec![set], reply: due.0.to_be_bytes().to_vec(), ..Turn::default() };
                Decision::Commit(turn)
            }
            (GIVE, [operation, amount, to]) => {
                let amount: i64 = amount.parse().ok()?;
                let mut turn = self.add(operation, -amount);
                turn.outbox.push(OutboxMessage::Call {
                    target: id(self.id.tenant.as_str(), to),
                    method: TAKE,
                    body: format!("{}/{operation},{amount}", self.id.key).into_bytes(),
                    on_rejected: None,
                });
                Decision::Commit(turn)
            }
            (TAKE, [operation, amount]) => {
                let key = operation.as_bytes().to_vec();
                if !self.taken.insert(key.clone()) {
                    return Some(Decision::Read(self.sum.to_be_bytes().to_vec()));
                }
                let mut turn = self.add(operation, amount.parse().ok()?);
                turn.puts.push(Row { key: RowKey { table: TAKEN, key }, value: vec![1] });
                Decision::Commit(turn)
            }
            _ => return None,
        })
    }

    fn add(&mut self, operation: &str, amount: i64) -> Turn {
        self.sum += amount;
        let times = self.done.entry(operation.as_bytes().to_vec()).or_default();
        *times += 1;
        let (sum, times) = (self.sum.to_be_bytes().to_vec(), times.to_be_bytes().to_vec());
        let row = |table, key: &[u8], value| Row { key: RowKey { table, key: key.to_vec() }, value };
        let puts = vec![row(SUM, b"", sum.clone()), row(OPERATIONS, operation.as_bytes(), times)];
        self.tell(Turn { puts, reply: sum, ..Turn::default() }, format!("added,{operation},{amount}"))
    }

    fn tell(&mut self, mut turn: Turn, what: String) -> Turn {
        self.events += 1;
        let value = i64::try_from(self.events).unwrap_or(i64::MAX).to_be_bytes().to_vec();
        turn.puts.push(Row { key: RowKey { table: NUMBERS, key: Vec::new() }, value });
        turn.outbox.push(OutboxMessage::Event { body: format!("tally,{},{what}", self.events).into_bytes() });
        turn
    }
}
