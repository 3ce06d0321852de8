//! Ids follow from what they name, so that the same ask made again has the same id.

use uuid::Uuid;

/// Attempt `number` (from 1) of a step run.
pub fn attempt_id(step_run: Uuid, number: u32) -> Uuid {
    Uuid::new_v5(&step_run, format!("attempt/{number}").as_bytes())
}

/// The approval that a step run asks for with its ask `number` (from 1).
pub fn approval_id(step_run: Uuid, number: u32) -> Uuid {
    Uuid::new_v5(&step_run, format!("approval/{number}").as_bytes())
}
