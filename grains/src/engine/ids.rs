//! Ids that follow from what they name, so that a projection built again has the same ones and Run Control can tell
//! a repeated order from a new one.

use uuid::Uuid;

/// A step run: inside a Fanout under the Fanout's own step run, else under the run; so branch path and the iterations of
/// everything around it are part of the name.
pub fn step_run_id(scope: Uuid, step_id: &str, branch: Option<u32>, iteration: u32) -> Uuid {
    match branch {
        Some(branch) => named(scope, &format!("step/{step_id}/{branch}/{iteration}")),
        None => named(scope, &format!("step/{step_id}/{iteration}")),
    }
}

/// The step run that undoes `forward`.
pub fn compensation_run_id(forward: Uuid) -> Uuid {
    named(forward, "undo")
}

pub fn compensation_entry_id(forward: Uuid) -> Uuid {
    named(forward, "undo-entry")
}

/// The n-th attempt of a step run, from 1.
pub fn attempt_id(step_run_id: Uuid, attempt: u32) -> Uuid {
    named(step_run_id, &format!("attempt/{attempt}"))
}

/// What a human is asked at the n-th attempt of a step run, from 1.
pub fn approval_id(step_run_id: Uuid, attempt: u32) -> Uuid {
    named(step_run_id, &format!("approval/{attempt}"))
}

/// The child run of a SubWorkflow step's n-th attempt, from 1.
pub fn child_run_id(step_run_id: Uuid, attempt: u32) -> Uuid {
    named(step_run_id, &format!("child/{attempt}"))
}

/// A timer of a step run (or, for the deadline, of the run).
pub fn timer_id(of: Uuid, purpose: &str, attempt: u32) -> Uuid {
    named(of, &format!("timer/{purpose}/{attempt}"))
}

fn named(scope: Uuid, name: &str) -> Uuid {
    Uuid::new_v5(&scope, name.as_bytes())
}
