//! Facts with everything filled in that a test does not care about.

use super::*;

pub fn accepted(input: &str, variables: &str) -> Accepted {
    Accepted {
        project_id: "project".into(),
        definition_release_id: "release".into(),
        input: input.into(),
        variables: variables.into(),
        parent_run_id: None,
        parent_step_run_id: None,
        depth: 0,
        refusal: None,
    }
}

pub fn outcome(step_run_id: Uuid, attempt: u32, kind: OutcomeKind) -> Outcome {
    Outcome {
        step_run_id,
        attempt_id: None,
        attempt,
        kind,
        output: Vec::new(),
        output_ref: String::new(),
        failure: None,
    }
}

pub fn decided(step_run_id: Uuid, decision: &str) -> Decided {
    Decided {
        step_run_id,
        approval_id: None,
        decision: decision.into(),
        proposal_version: 1,
        answer: Vec::new(),
        comment: String::new(),
        decided_by: "someone".into(),
    }
}

pub fn failure(class: &str) -> Failure {
    Failure { class: class.into(), message: "it did not work".into() }
}
