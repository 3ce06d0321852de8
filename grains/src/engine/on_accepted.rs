//! Run Control accepted the run: open the projection and start the first steps.

use super::inputs::variables;
use super::state::{Due, Projection, ROOT, RunState};
use super::turn::{Turn, Work};
use super::{Accepted, Effect, RunEnd};
use grain_contract::Timestamp;
use granary_proto::v1::event::Payload;
use granary_proto::v1::{self, Failure};

impl Turn<'_> {
    pub(super) fn on_accepted(&mut self, accepted: Accepted) {
        let merged = variables(self.plan, &accepted.variables);
        self.spend(2 * (accepted.input.len() + accepted.variables.len())); // Here and in the journal.
        self.p.remember(self.now, accepted);
        self.p.header.graph_hash = self.plan.graph_hash.clone();
        self.p.state = RunState::Running;
        self.publish(Payload::RunStarted(v1::WorkflowRunStarted {
            run_id: self.p.run_id.to_string(),
            tenant_id: self.p.tenant.clone(),
            definition_release_id: self.p.header.release_id.clone(),
            graph_hash: self.p.header.graph_hash.clone(),
        }));
        if let Some(parameters) = &self.plan.parameters {
            match parameters.check(&self.p.header.input) {
                Ok(complete) => self.p.replace_input(complete),
                Err(failure) => return self.fail_run("", failure),
            }
        }
        match merged {
            Ok(merged) => self.p.header.variables = merged,
            Err(failure) => return self.fail_run("", failure),
        }
        if let Some(deadline) = self.plan.deadline_ms {
            let due = self.now.plus_ms(deadline).0;
            self.p.header.deadline_ms = due;
            self.p.due.insert((due, Due::Deadline));
        }
        for entry in &self.plan.entries {
            self.work.push_back(Work::Begin(ROOT, *entry));
        }
    }
}

impl Projection {
    fn remember(&mut self, now: Timestamp, accepted: Accepted) {
        self.start_changed = true;
        self.header_changed = true;
        self.payload_bytes += accepted.input.len() + accepted.variables.len();
        let header = &mut self.header;
        header.project_id = accepted.project_id;
        header.release_id = accepted.definition_release_id;
        header.input = accepted.input;
        header.variables = accepted.variables;
        header.accepted_ms = now.0;
        header.parent_run_id = accepted.parent_run_id;
        header.parent_step_run_id = accepted.parent_step_run_id;
        header.depth = accepted.depth;
    }

    /// The arguments of a skill, with its defaults.
    fn replace_input(&mut self, input: Vec<u8>) {
        self.payload_bytes += input.len();
        self.payload_bytes -= std::mem::replace(&mut self.header.input, input).len();
    }

    /// The release is unknown or refused: the run fails at acceptance, saying why.
    pub(super) fn on_refused_acceptance(&mut self, now: Timestamp, accepted: &Accepted) -> Vec<Effect> {
        let failure = accepted.refusal.clone().unwrap_or_else(|| Failure {
            class: "infrastructure".into(),
            message: format!("Expected release {}, but it is not there.", accepted.definition_release_id),
        });
        self.remember(now, accepted.clone());
        self.state = RunState::Failed;
        self.header.ended_ms = now.0;
        self.header.version += 1;
        self.header.failure = Some(failure.clone());
        let event = self.publish(
            now,
            Payload::RunFailed(v1::WorkflowRunFailed {
                run_id: self.run_id.to_string(),
                tenant_id: self.tenant.clone(),
                failed_step_id: String::new(),
                failure_class: failure.class.clone(),
                compensated: false,
            }),
        );
        let end = RunEnd::Failed { failed_step_id: String::new(), failure, compensated: false, output: Vec::new() };
        vec![event, Effect::RunEnded(end)]
    }
}
