//! Starting an attempt of a step run: what each kind becomes.

use super::edges::Ending;
use super::state::{Asked, Purpose, RunIx, StepState};
use super::turn::Turn;
use super::{Effect, StartChild, StepReadyOrder, ids};
use crate::condition::Expression;
use crate::definition::{Ask, StepKind};
use grain_contract::limits::PAYLOAD_BYTES_MAX;
use granary_proto::v1::event::Payload;
use granary_proto::v1::{self, Failure};
use serde_json::Value;

impl Turn<'_> {
    /// The next attempt: the first, one behind a failure, or one that a human asked for.
    pub(super) fn start(&mut self, ix: RunIx) {
        if self.p.run(ix).state.is_terminal() {
            return; // Closed in this very turn.
        }
        let run = self.p.run_mut(ix);
        run.attempt += 1;
        run.asked = Asked::Nothing;
        let plan = self.plan;
        match &plan.step(self.p.run(ix).step).kind {
            StepKind::Agent { .. } | StepKind::Tool { .. } | StepKind::Compensation { .. } => self.dispatch(ix),
            StepKind::Human { ask: Ask::Approval } => self.ask_with_input(ix, Asked::Approval),
            StepKind::Human { ask: Ask::Input } => self.ask_with_input(ix, Asked::Input),
            StepKind::Condition { expression } => self.start_condition(ix, expression),
            StepKind::Timer { wait } => self.start_timer(ix, wait),
            StepKind::WaitFor { check, .. } => self.start_wait(ix, check),
            StepKind::Branch { check } => self.start_branch(ix, check),
            StepKind::SubWorkflow { definition_id, version } => self.start_child(ix, definition_id, version.as_deref()),
            StepKind::Fanout(fanout) => self.start_fanout(ix, fanout),
            // It failed when it could not pass; nothing can have arrived since.
            StepKind::Join(_) => {
                let failure = self.p.run(ix).failure.clone().unwrap_or_default();
                self.fail_step(ix, failure, false);
            }
        }
    }

    fn dispatch(&mut self, ix: RunIx) {
        if let Err(failure) = self.prepare_input(ix).and_then(|()| self.afford_order(ix)) {
            return self.fail_step(ix, failure, false);
        }
        self.p.run_mut(ix).failure = None;
        self.enter(ix, StepState::Ready);
        self.set_timeout(ix);
        self.order(ix, "");
    }

    fn ask_with_input(&mut self, ix: RunIx, asked: Asked) {
        if let Err(failure) = self.prepare_input(ix).and_then(|()| self.afford_order(ix)) {
            return self.fail_step(ix, failure, false);
        }
        self.p.run_mut(ix).failure = None;
        self.ask(ix, asked);
        self.set_timeout(ix);
    }

    /// Asks a human, through Run Control.
    pub(super) fn ask(&mut self, ix: RunIx, asked: Asked) {
        let run = self.p.run_mut(ix);
        run.asked = asked;
        run.approval_id = None;
        if run.state == StepState::Pending {
            self.enter(ix, StepState::Ready);
        }
        self.order(ix, self.reason(ix));
        self.enter(ix, StepState::WaitingForHuman);
    }

    pub(super) fn reason(&self, ix: RunIx) -> &'static str {
        match self.p.run(ix).asked {
            Asked::Nothing => "",
            Asked::Approval => "the step needs an approval",
            Asked::Input => "the step needs an input",
            Asked::Escalation => "the step failed",
        }
    }

    /// StepReady: the event, and the order to Run Control. Also used to ask again.
    pub(super) fn order(&mut self, ix: RunIx, reason: &str) {
        let order = self.ready_order(ix, reason);
        self.spend_order(ix);
        self.p.run_mut(ix).ready_ms = self.now.0;
        self.publish(Payload::StepReady(v1::StepReady {
            run_id: self.p.run_id.to_string(),
            tenant_id: self.p.tenant.clone(),
            step_run_id: order.step_run_id.to_string(),
            step_id: order.step_id.clone(),
            kind: order.kind.clone(),
            action_class: order.action_class.clone(),
            input_ref: String::new(),
            attempt: order.attempt,
            queue: order.queue.clone(),
            ask: order.ask.clone(),
            options: order.options.clone(),
            reason: order.reason.clone(),
        }));
        self.effects.push(Effect::StepReady(order));
    }

    fn ready_order(&mut self, ix: RunIx, reason: &str) -> StepReadyOrder {
        let input = self.input_to_show(ix);
        let run = self.p.run(ix);
        let step = self.plan.step(run.step);
        let human = run.asked != Asked::Nothing;
        let reason = match &run.failure {
            Some(failure) => format!("{reason}: {}: {}", failure.class, failure.message),
            None => reason.to_owned(),
        };
        StepReadyOrder {
            step_run_id: run.id,
            step_id: step.id.clone(),
            step_name: step.name.clone(),
            kind: if human { "Human" } else { step.kind.as_str() }.to_owned(),
            action_class: step.action_class.clone(),
            attempt: run.attempt,
            queue: if human { String::new() } else { step.kind.target().unwrap_or_default() },
            input,
            timeout_ms: if run.asked == Asked::Escalation { 0 } else { step.timeout_ms.unwrap_or(0) },
            ask: run.asked.as_str().to_owned(),
            options: run.asked.options().iter().map(|option| (*option).to_owned()).collect(),
            reason,
            idempotency_key: run.undoes.map_or(run.id, |forward| self.p.run(forward).id).to_string(),
        }
    }

    /// An escalation must come through, so it goes without the input where the turn has no room for it.
    fn input_to_show(&mut self, ix: RunIx) -> Vec<u8> {
        let input = self.p.input_of(self.plan, ix);
        if self.p.run(ix).asked != Asked::Escalation {
            return input.to_vec();
        }
        if !self.affords(input.len()) {
            return Vec::new();
        }
        let input = input.to_vec();
        self.spend(input.len());
        input
    }

    fn start_condition(&mut self, ix: RunIx, expression: &Expression) {
        match self.evaluate(ix, expression, "condition").and_then(|value| self.condition_output(ix, &value)) {
            Ok(output) => self.succeed(ix, output),
            Err(failure) => self.fail_step(ix, failure, false),
        }
    }

    fn condition_output(&self, ix: RunIx, value: &Value) -> Result<Vec<u8>, Failure> {
        let output = value.to_string().into_bytes();
        if output.len() <= PAYLOAD_BYTES_MAX && self.affords(output.len()) {
            return Ok(output); // Counted where it is set.
        }
        let message = format!(
            "Expected a value of at most {PAYLOAD_BYTES_MAX} bytes that this turn has room for, but that of condition {} has {}.",
            self.step_id(ix),
            output.len()
        );
        Err(Failure { class: "condition".into(), message })
    }

    fn start_child(&mut self, ix: RunIx, definition_id: &str, version: Option<&str>) {
        let depth = self.p.header.depth.saturating_add(1);
        if depth > self.options.max_depth {
            let failure = Failure {
                class: "policy-denied".into(),
                message: format!(
                    "Expected sub-workflows nested at most {} deep, but step {} of {} asks for depth {depth} with {definition_id}.",
                    self.options.max_depth,
                    self.step_id(ix),
                    self.plan.definition_id,
                ),
            };
            return self.fail_step(ix, failure, false);
        }
        if let Err(failure) = self.prepare_input(ix).and_then(|()| self.afford_order(ix)) {
            return self.fail_step(ix, failure, false);
        }
        self.p.run_mut(ix).failure = None;
        if self.options.children_by_event {
            self.enter(ix, StepState::Ready);
            self.set_timeout(ix);
            return self.order(ix, "");
        }
        self.enter(ix, StepState::Running);
        self.set_timeout(ix);
        self.order_child(ix, definition_id, version);
    }

    pub(super) fn order_child(&mut self, ix: RunIx, definition_id: &str, version: Option<&str>) {
        let run = self.p.run(ix);
        let child = StartChild {
            child_run_id: ids::child_run_id(run.id, run.attempt),
            step_run_id: run.id,
            definition_id: definition_id.to_owned(),
            version: version.map(str::to_owned),
            input: self.p.input_of(self.plan, ix).to_vec(),
            project_id: self.p.header.project_id.clone(),
            depth: self.p.header.depth.saturating_add(1),
        };
        self.p.run_mut(ix).ready_ms = self.now.0;
        self.spend_order(ix);
        self.effects.push(Effect::StartChild(child));
    }

    fn set_timeout(&mut self, ix: RunIx) {
        if let Some(timeout) = self.plan.step(self.p.run(ix).step).timeout_ms {
            self.set_timer(ix, Purpose::Timeout, self.now.plus_ms(timeout).0);
        }
    }

    /// The step run succeeded with this output; its edges say what follows.
    pub(super) fn succeed(&mut self, ix: RunIx, output: Vec<u8>) {
        self.set_output(ix, output);
        let completed_as = self.p.next_completion();
        let run = self.p.run_mut(ix);
        run.failure = None;
        run.completed_as = completed_as;
        match self.decide_edges(ix, Ending::Succeeded) {
            // What the step did is done: `completed_as` stays, so that it is compensated if it comes to that.
            Err(failure) => self.fail_step(ix, failure, false),
            Ok(decided) => {
                self.p.run_mut(ix).edges = decided.edges;
                self.enter(ix, StepState::Succeeded);
                self.follow(ix, decided.back);
                if self.p.run(ix).undoes.is_some() {
                    self.compensation_succeeded(ix);
                }
            }
        }
    }

    /// A human said: go on without it.
    pub(super) fn skip_by_human(&mut self, ix: RunIx) {
        self.set_output(ix, b"null".to_vec());
        match self.decide_edges(ix, Ending::SkippedByHuman) {
            Err(failure) => self.fail_step(ix, failure, false),
            Ok(decided) => {
                let completed_as = self.p.next_completion();
                let run = self.p.run_mut(ix);
                run.edges = decided.edges;
                run.completed_as = completed_as;
                self.enter(ix, StepState::Skipped);
                self.follow(ix, decided.back);
            }
        }
    }
}
