//! Open attempts as work for workers: when they are made, and again after the owner's memory was lost.

use super::runs_sort;
use super::state::{Ask, Attempt, AttemptState, Step};
use super::{Authority, Record};
use crate::kinds::methods::index::OPEN_RUNS;
use grain_contract::{Effect, IndexChange, NOTHING_TO_TELL, Offers, QueueName, WorkItem};
use granary_proto::v1::{Assignment, Waiting};
use granary_proto::wire::Json;
use prost::Message as _;
use uuid::Uuid;

impl Authority {
    /// Offers the newest attempt of a step run, which is Queued. If a worker has a free place, the attempt is committed as
    /// Claimed at once: one commit instead of two.
    pub(super) fn offer_new(&mut self, record: &mut Record, step_run: Uuid, offers: &mut dyn Offers, run_input: &[u8]) {
        let Some(step) = self.steps.get(&step_run) else { return };
        let Ask::Attempt(attempt) = &step.ask else { return };
        let (id, queue) = (attempt.id, QueueName::new(&step.queue));
        let body = self.assignment(step, attempt, run_input);
        let lease = offers.take(&queue);
        record.effects.push(Effect::Offer(WorkItem { queue, attempt: id, lease: lease.clone(), body }));
        if let Some(lease) = lease {
            self.record_claim(record, id, lease);
        }
    }

    /// After a takeover, and by the sweep: what waits is offered, what is claimed is expected to be renewed by its worker.
    /// Whoever knows it already learns nothing new; an overfull queue may have dropped the one, and effects that were lost with
    /// a commit of unknown outcome the other.
    pub fn offer_all(&self, record: &mut Record, run_input: &[u8]) {
        for (step, attempt) in self.open_attempts() {
            record.effects.push(match &attempt.lease {
                Some(lease) if attempt.state == AttemptState::Claimed => Effect::Expect {
                    attempt: attempt.id,
                    queue: QueueName::new(&step.queue),
                    lease: lease.clone(),
                    body: self.assignment(step, attempt, run_input),
                },
                _ => Effect::Offer(self.waiting_item(step, attempt, run_input)),
            });
        }
    }

    /// At the end of a turn: the index of open runs says whether the run has attempts that live in an owner's memory. So a new
    /// owner loads only those that do, of a hundred thousand that wait (R15). One index row when that changes, none otherwise.
    pub fn note_work(&mut self, record: &mut Record) {
        let Some(run) = self.run.as_ref().filter(|run| !run.state.is_terminal()) else { return };
        let has_work = self.open_attempts > 0;
        if has_work == self.told_work {
            return;
        }
        self.told_work = has_work;
        let value = if has_work { Vec::new() } else { NOTHING_TO_TELL.to_vec() };
        record.index.push(IndexChange::Put { index: OPEN_RUNS, sort: runs_sort(run.accepted), value });
    }

    /// Says who is at it, where the engine can only say that a worker is waited for.
    pub fn name_workers<'a>(&self, waiting: impl Iterator<Item = (&'a str, &'a mut Waiting)>) {
        for (step_run, waiting) in waiting.filter(|(_, w)| !w.queue.is_empty()) {
            let Some(step) = Uuid::try_parse(step_run).ok().and_then(|id| self.steps.get(&id)) else { continue };
            if let Ask::Attempt(Attempt { state: AttemptState::Claimed, lease: Some(lease), .. }) = &step.ask {
                waiting.text = format!("worker {} of queue {} to report", lease.worker, step.queue);
            }
        }
    }

    fn open_attempts(&self) -> impl Iterator<Item = (&Step, &Attempt)> {
        self.open.iter().filter_map(|id| {
            let step = self.steps.get(id)?;
            match &step.ask {
                Ask::Attempt(attempt) => Some((step, attempt)),
                Ask::Approval(_) | Ask::Child(_) => None,
            }
        })
    }

    fn waiting_item(&self, step: &Step, attempt: &Attempt, run_input: &[u8]) -> WorkItem {
        let body = self.assignment(step, attempt, run_input);
        WorkItem { queue: QueueName::new(&step.queue), attempt: attempt.id, lease: None, body }
    }

    fn assignment(&self, step: &Step, attempt: &Attempt, run_input: &[u8]) -> Vec<u8> {
        let input = if step.run_input { run_input } else { &step.input };
        Assignment {
            attempt_id: attempt.id.to_string(),
            run_id: self.run_id.to_string(),
            step_run_id: step.step_run_id.to_string(),
            step_id: step.step_id.clone(),
            kind: step.kind.clone(),
            // The worker looks for whoever does it, not for what the author calls the step.
            name: step.queue.split_once(':').map_or(step.name.as_str(), |(_, name)| name).to_owned(),
            action_class: step.action_class.clone(),
            input: Some(Json::new(if input.is_empty() { &b"null"[..] } else { input })),
            attempt: step.number,
            lease_token: Vec::new(),
            timeout_ms: step.timeout_ms,
            tenant_id: self.tenant.clone(),
            definition_id: self.run.as_ref().map_or_else(String::new, |run| run.definition_id.clone()),
            idempotency_key: step.idempotency_key.clone(),
        }
        .encode_to_vec()
    }
}
