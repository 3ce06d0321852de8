//! The end of a turn, and the end of the run: exactly one terminal event, and nothing after it.

use super::state::{ROOT, RunState};
use super::turn::Turn;
use super::{Effect, RunEnd};
use crate::definition::{Plan, StepIx};
use grain_contract::limits::PAYLOAD_BYTES_MAX;
use granary_proto::v1::event::Payload;
use granary_proto::v1::{self, Failure};

impl Turn<'_> {
    /// What the run is now that everything is done that could be.
    pub(super) fn settle(&mut self) {
        if self.p.state.is_terminal() || matches!(self.p.state, RunState::Pending | RunState::Compensating) {
            return;
        }
        if self.p.active.is_empty() {
            return self.complete();
        }
        let counts = &self.p.counts;
        // Between the two kinds of waiting S1 knows the way through Running, which nobody can see from outside.
        let state = match (counts.working, counts.on_human, counts.on_timer) {
            (0, 0, _) => RunState::WaitingForTimer,
            (0, _, _) => RunState::WaitingForHuman,
            _ => RunState::Running,
        };
        if self.p.state != state {
            self.p.state = state;
            self.p.header_changed = true;
        }
    }

    fn complete(&mut self) {
        if let Some((_, step)) = self.p.half_ready.first().copied() {
            // Cannot happen with a plan whose loops and Fanouts nest. Then better a loud end than a silent or no end.
            let id = self.plan.step(step).id.clone();
            let message = format!("Expected every edge into step {id} to be decided, but one never will be.");
            return self.fail_run(&id, Failure { class: "infrastructure".into(), message });
        }
        match self.run_output() {
            Err(failure) => self.fail_run("", failure),
            Ok(output) => {
                self.end(RunState::Completed);
                self.p.header.output = output.clone();
                self.publish(Payload::RunCompleted(v1::WorkflowRunCompleted {
                    run_id: self.p.run_id.to_string(),
                    tenant_id: self.p.tenant.clone(),
                    output_ref: format!("/runs/{}#/output", self.p.run_id),
                }));
                self.effects.push(Effect::RunEnded(RunEnd::Completed { output }));
            }
        }
    }

    fn run_output(&self) -> Result<Vec<u8>, Failure> {
        let failed = |message: String| Failure { class: "mapping".into(), message };
        let output = match &self.plan.output {
            Some(rule) => self.p.evaluate_in(self.plan, ROOT, None, rule, "mapping")?.to_string().into_bytes(),
            None => self.terminal_outputs().map_err(failed)?,
        };
        if output.len() > PAYLOAD_BYTES_MAX {
            return Err(failed(format!(
                "Expected the run's output to have at most {PAYLOAD_BYTES_MAX} bytes, but it has {}.",
                output.len()
            )));
        }
        Ok(output)
    }

    fn terminal_outputs(&self) -> Result<Vec<u8>, String> {
        let plan: &Plan = self.plan;
        let mut found: Vec<(StepIx, Vec<u8>)> = Vec::new();
        for step in &plan.terminals {
            if let Some(output) = self.p.outputs_of_step(plan, *step) {
                found.push((*step, output.map_err(|e| e.to_string())?));
            }
        }
        if found.len() <= 1 {
            return Ok(found.pop().map_or_else(|| b"null".to_vec(), |(_, output)| output));
        }
        let mut text = Vec::new();
        for (step, output) in found {
            text.push(if text.is_empty() { b'{' } else { b',' });
            text.extend_from_slice(serde_json::Value::from(plan.step(step).id.as_str()).to_string().as_bytes());
            text.push(b':');
            text.extend_from_slice(&output);
        }
        text.push(b'}');
        Ok(text)
    }

    /// The run is over. `step_id` empty: no step is to blame.
    pub(super) fn fail_run(&mut self, step_id: &str, failure: Failure) {
        self.close_all("the run failed");
        self.end(RunState::Failed);
        let compensated = self.p.header.compensated;
        self.p.header.failed_step_id = step_id.to_owned();
        self.p.header.failure = Some(failure.clone());
        self.publish(Payload::RunFailed(v1::WorkflowRunFailed {
            run_id: self.p.run_id.to_string(),
            tenant_id: self.p.tenant.clone(),
            failed_step_id: step_id.to_owned(),
            failure_class: failure.class.clone(),
            compensated,
        }));
        self.effects.push(Effect::RunEnded(RunEnd::Failed {
            failed_step_id: step_id.to_owned(),
            failure,
            compensated,
            output: Vec::new(),
        }));
    }

    pub(super) fn end(&mut self, state: RunState) {
        self.p.state = state;
        self.p.header.ended_ms = self.now.0;
        self.p.header_changed = true;
        self.p.due.clear();
        self.p.half_ready.clear();
        self.work.clear();
    }
}
