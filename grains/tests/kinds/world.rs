//! A whole cluster in a few lines: rows in maps, calls in a queue, a clock that jumps. It does what the machinery does with a
//! decision, and nothing more, and holds what must hold after every turn.

use crate::seen::is_terminal;
use grain_contract::{
    Context, Decision, Effect, Grain, GrainId, GrainKind, GrainType, IndexChange, Lease, Message, Method, Need, Offers,
    OutboxMessage, QueueName, Rejection, ReminderChange, Row, RowKey, Supply, TenantId, Timestamp, Turn,
};
use grains::definition::Plan;
use grains::engine::EngineOptions;
use grains::kinds::methods::{NEED_PLAN, NEED_RELEASE_OF, run};
use grains::kinds::{KindOptions, RunMode, grain_types};
use granary_proto::{calls, v1};
use prost::Message as _;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use uuid::Uuid;

pub const START: i64 = 1_790_000_000_000;
pub const TENANT: &str = "acme";

pub struct World {
    types: HashMap<GrainKind, Arc<dyn GrainType>>,
    pub now: Timestamp,
    pub stored: BTreeMap<GrainId, Stored>,
    active: BTreeMap<GrainId, Box<dyn Grain>>,
    /// True: every message meets a grain that was just read from its rows.
    pub reload: bool,
    plans: HashMap<Need, Supply>,
    pub events: Vec<v1::Event>,
    pub calls: VecDeque<Call>,
    pub index: BTreeMap<(&'static str, Vec<u8>, GrainId), Vec<u8>>,
    /// Attempts that a worker holds or may claim.
    pub work: BTreeMap<Uuid, Work>,
    pub withdrawn: Vec<Uuid>,
    pub turns: Vec<Turn>,
    places: Places,
}

#[derive(Default, Clone, PartialEq, Debug)]
pub struct Stored {
    pub rows: BTreeMap<RowKey, Vec<u8>>,
    pub reminders: BTreeMap<String, Timestamp>,
}

#[derive(Clone, Debug)]
pub struct Call {
    pub from: GrainId,
    pub target: GrainId,
    pub method: Method,
    pub body: Vec<u8>,
    pub on_rejected: Option<Method>,
}

#[derive(Clone, Debug)]
pub struct Work {
    pub run: GrainId,
    pub assignment: v1::Assignment,
    pub lease: Option<Lease>,
}

/// Free places at one worker; tokens are numbered.
#[derive(Default)]
pub struct Places {
    pub free: usize,
    tokens: u128,
}

impl Offers for Places {
    fn take(&mut self, _: &QueueName) -> Option<Lease> {
        self.free = self.free.checked_sub(1)?;
        Some(self.lease())
    }
}

impl Places {
    fn lease(&mut self) -> Lease {
        self.tokens += 1;
        Lease { worker: "w1".into(), token: self.tokens.to_be_bytes() }
    }
}

impl World {
    pub fn new(mode: RunMode) -> Self {
        Self::with(mode, EngineOptions::default())
    }

    pub fn with(mode: RunMode, engine: EngineOptions) -> Self {
        let types = grain_types(KindOptions::fixed(mode, engine));
        Self {
            types: types.into_iter().map(|t| (t.kind(), t)).collect(),
            now: Timestamp(START),
            stored: BTreeMap::new(),
            active: BTreeMap::new(),
            reload: true,
            plans: HashMap::new(),
            events: Vec::new(),
            calls: VecDeque::new(),
            index: BTreeMap::new(),
            work: BTreeMap::new(),
            withdrawn: Vec::new(),
            turns: Vec::new(),
            places: Places { free: 1_000_000, tokens: 0 },
        }
    }

    /// Free places at the worker.
    pub fn places(mut self, free: usize) -> Self {
        self.places.free = free;
        self
    }

    pub fn knows(mut self, plan: Arc<Plan>) -> Self {
        let release = Need { kind: NEED_PLAN, key: plan.release_id.clone() };
        let newest = Need { kind: NEED_RELEASE_OF, key: plan.definition_id.clone() };
        self.plans.insert(release, Ok(plan.clone()));
        self.plans.insert(newest, Ok(plan));
        self
    }

    pub fn refuses(mut self, release: &str, why: Rejection) -> Self {
        self.plans.insert(Need { kind: NEED_PLAN, key: release.into() }, Err(why));
        self
    }

    pub fn refuses_definition(mut self, need: Need, why: Rejection) -> Self {
        self.plans.insert(need, Err(why));
        self
    }

    /// One message, to the commit and its effects.
    pub fn send(&mut self, target: &GrainId, message: &Message<'_>) -> Result<Vec<u8>, Rejection> {
        let mut grain = self.take(target);
        let decision = loop {
            let mut cx = Context { now: self.now, entropy: [0; 16], offers: &mut self.places };
            match grain.handle(&mut cx, message) {
                Decision::Need(need) => {
                    let unknown = || {
                        let message = format!("Expected a loaded release, but {} is none.", need.key);
                        Err(Rejection::new(grain_contract::Code::NotFound, message))
                    };
                    let supply = self.plans.get(&need).cloned().unwrap_or_else(unknown);
                    grain.supply(&need, supply);
                }
                other => break other,
            }
        };
        if !self.reload {
            self.active.insert(target.clone(), grain);
        }
        match decision {
            Decision::Commit(turn) => Ok(self.commit(target, turn, message)),
            Decision::Read(reply) => {
                if let Message::Reminder { name, .. } = message {
                    self.stored.entry(target.clone()).or_default().reminders.remove(*name);
                }
                Ok(reply)
            }
            Decision::Reject(rejection) => {
                assert!(rejection.message.starts_with("Expected "), "a refusal says both: {rejection}");
                Err(rejection)
            }
            Decision::Need(need) => panic!("{need:?} was supplied"),
        }
    }

    fn take(&mut self, target: &GrainId) -> Box<dyn Grain> {
        if let Some(grain) = self.active.remove(target) {
            return grain;
        }
        let rows = self.loaded_rows(target);
        self.types[&target.kind].load(target, rows).expect("rows that were committed")
    }

    pub fn loaded_rows(&self, target: &GrainId) -> Vec<Row> {
        let Some(stored) = self.stored.get(target) else { return Vec::new() };
        let rows = stored.rows.iter().filter(|(key, _)| key.table.is_loaded());
        rows.map(|(key, value)| Row { key: key.clone(), value: value.clone() }).collect()
    }

    fn commit(&mut self, target: &GrainId, turn: Turn, message: &Message<'_>) -> Vec<u8> {
        self.turns.push(turn.clone());
        let stored = self.stored.entry(target.clone()).or_default();
        let mut keys: Vec<&RowKey> = turn.puts.iter().map(|r| &r.key).chain(&turn.deletes).collect();
        keys.sort();
        assert!(keys.windows(2).all(|w| w[0] != w[1]), "a turn touches each row once: {keys:?}");
        for row in turn.puts {
            stored.rows.insert(row.key, row.value);
        }
        for key in turn.deletes {
            stored.rows.remove(&key);
        }
        if let Message::Reminder { name, .. } = message {
            stored.reminders.remove(*name);
        }
        for change in turn.reminders {
            match change {
                ReminderChange::Set { name, due } => stored.reminders.insert(name, due),
                ReminderChange::Clear { name } => stored.reminders.remove(&name),
            };
        }
        for change in turn.index {
            match change {
                IndexChange::Put { index, sort, value } => self.index.insert((index, sort, target.clone()), value),
                IndexChange::Delete { index, sort } => {
                    let gone = self.index.remove(&(index, sort, target.clone()));
                    assert!(gone.is_some(), "only what is there is deleted from {index}");
                    gone
                }
            };
        }
        for message in turn.outbox {
            match message {
                OutboxMessage::Event { body } => self.publish(&body),
                OutboxMessage::Call { target: to, method, body, on_rejected } => {
                    self.calls.push_back(Call { from: target.clone(), target: to, method, body, on_rejected });
                }
            }
        }
        for effect in turn.effects {
            self.act(target, effect);
        }
        turn.reply
    }

    /// [V1] Events of a subject are numbered without a gap, and nothing follows a terminal one.
    fn publish(&mut self, body: &[u8]) {
        for event in v1::EventBatch::decode(body).expect("a batch").events {
            let before = self.events.iter().rev().find(|e| e.subject == event.subject);
            assert_eq!(
                event.sequence,
                before.map_or(1, |e| e.sequence + 1),
                "numbers of {} have no gap",
                event.subject
            );
            assert!(!before.is_some_and(is_terminal), "nothing follows a terminal event: {event:?}");
            self.events.push(event);
        }
    }

    fn act(&mut self, run: &GrainId, effect: Effect) {
        match effect {
            Effect::Offer(item) => {
                let assignment = v1::Assignment::decode(item.body.as_slice()).expect("an assignment");
                self.work.insert(item.attempt, Work { run: run.clone(), assignment, lease: item.lease });
            }
            Effect::Expect { attempt, lease, body, .. } => {
                let assignment = v1::Assignment::decode(body.as_slice()).expect("an assignment");
                self.work.insert(attempt, Work { run: run.clone(), assignment, lease: Some(lease) });
            }
            Effect::Withdraw { attempt, .. } => {
                self.work.remove(&attempt);
                self.withdrawn.push(attempt);
            }
            Effect::Deactivate => {
                self.active.remove(run);
            }
            Effect::Changed => {}
        }
    }

    pub fn call<R: prost::Message + Default>(
        &mut self,
        target: &GrainId,
        method: Method,
        body: &impl prost::Message,
    ) -> Result<R, Rejection> {
        let reply = self.send(target, &Message::Call { method, body: &body.encode_to_vec() })?;
        Ok(R::decode(reply.as_slice()).expect("the reply that the method names"))
    }

    /// Delivers the calls that wait, in order, each as often as `times`; a refusal goes back to the sender.
    pub fn deliver(&mut self, times: usize) {
        while let Some(call) = self.calls.pop_front() {
            for _ in 0..times {
                let answer = self.send(&call.target, &Message::Call { method: call.method, body: &call.body });
                if let (Err(rejection), Some(method)) = (answer, call.on_rejected) {
                    let rejected = calls::CallRejected {
                        code: rejection.code.as_str().into(),
                        message: rejection.message,
                        target: call.target.to_string(),
                        method: u32::from(call.method.0),
                        body: call.body.clone(),
                    };
                    let _: () = self.call(&call.from, method, &rejected).expect("a sender takes its rejection");
                }
            }
        }
    }

    /// Jumps to the next reminder and fires it; false if there is none.
    pub fn next_reminder(&mut self) -> bool {
        let next =
            self.stored.iter().flat_map(|(id, s)| s.reminders.iter().map(move |(name, due)| (*due, id, name))).min();
        let Some((due, id, name)) = next.map(|(due, id, name)| (due, id.clone(), name.clone())) else { return false };
        self.now = self.now.max(due);
        self.send(&id, &Message::Reminder { name: &name, due }).expect("a reminder is taken");
        true
    }

    /// Reports an attempt that is held, or claims it first.
    pub fn report(&mut self, attempt: Uuid, outcome: &str, output: &str) -> Result<v1::ReportResult, Rejection> {
        let work = self.work.get(&attempt).cloned().expect("an attempt that was offered");
        let lease = match work.lease {
            Some(lease) => lease,
            None => self.claim(attempt).expect("a claim"),
        };
        let report = v1::Report {
            attempt_id: attempt.to_string(),
            run_id: work.assignment.run_id.clone(),
            lease_token: lease.token.to_vec(),
            outcome: outcome.into(),
            output: (!output.is_empty()).then(|| granary_proto::wire::Json::new(output)),
            ..v1::Report::default()
        };
        let result = self.call(&work.run, run::REPORT, &calls::ReportCall { report: Some(report) });
        if result.is_ok() {
            self.work.remove(&attempt);
        }
        result
    }

    pub fn claim(&mut self, attempt: Uuid) -> Option<Lease> {
        let lease = self.places.lease();
        let run = self.work.get(&attempt)?.run.clone();
        let claim = calls::Claim {
            attempt_id: attempt.to_string(),
            worker: lease.worker.clone(),
            token: lease.token.to_vec(),
            held: false,
        };
        let reply: calls::ClaimReply = self.call(&run, run::CLAIM, &claim).expect("a claim is answered");
        if !reply.claimed {
            return None;
        }
        self.work.get_mut(&attempt)?.lease = Some(lease.clone());
        Some(lease)
    }

    /// Decides every pending approval of the run.
    pub fn decide_all(&mut self, run: &GrainId, decision: &str) -> usize {
        let request = v1::ListApprovalsRequest::default();
        let list: v1::ListApprovalsResponse = self.call(run, run::APPROVALS, &request).expect("a list");
        for approval in &list.approvals {
            let request = v1::DecideApprovalRequest {
                approval_id: approval.approval_id.clone(),
                decision: decision.into(),
                proposal_version: approval.proposal_version,
                decided_by: "ann".into(),
                ..Default::default()
            };
            let _: v1::Approval = self.call(run, run::DECIDE, &request).expect("decided");
        }
        list.approvals.len()
    }

    /// One thing that can happen next for this run; false if there is none. `answer` gives outcome and output of a step.
    pub fn step(&mut self, run: &GrainId, answer: impl Fn(&v1::Assignment) -> (&'static str, String)) -> bool {
        if !self.calls.is_empty() {
            self.deliver(1);
            return true;
        }
        if let Some((attempt, work)) = self.work.iter().next() {
            let (attempt, (outcome, output)) = (*attempt, answer(&work.assignment));
            self.report(attempt, outcome, &output).expect("taken");
            return true;
        }
        if self.get(run).is_ok_and(|seen| seen.ended_at.is_none()) {
            return self.decide_all(run, "approve") > 0 || self.next_reminder();
        }
        false
    }
}

pub fn run_id(number: u128) -> GrainId {
    let key = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + number).to_string();
    GrainId::new(&TenantId::new(TENANT), &GrainKind::new(run::KIND), &key)
}

pub fn submit(release: &str, input: &str) -> calls::Submit {
    calls::Submit {
        request: Some(v1::SubmitRunRequest {
            definition_release_id: release.into(),
            input: (!input.is_empty()).then(|| granary_proto::wire::Json::new(input)),
            ..Default::default()
        }),
        release_id: release.into(),
        by: "ann".into(),
        ..Default::default()
    }
}
