//! A worker's hello, field by field.

use super::{WORKER_CAPACITY_MAX, WORKER_QUEUES_MAX, WorkerHello};
use grain_contract::{Code, Rejection, limits};

pub(super) fn hello(hello: &WorkerHello) -> Result<(), Rejection> {
    let invalid = |field: &str, message: String| Err(Rejection::new(Code::Invalid, message).at(field));
    if hello.worker_id.is_empty() || hello.worker_id.len() > limits::NAME_BYTES_MAX {
        let max = limits::NAME_BYTES_MAX;
        return invalid(
            "workerId",
            format!("Expected a name of 1 to {max} bytes, but found {} bytes.", hello.worker_id.len()),
        );
    }
    if hello.capacity == 0 || hello.capacity > WORKER_CAPACITY_MAX {
        return invalid(
            "capacity",
            format!("Expected 1 to {WORKER_CAPACITY_MAX} places, but found {}.", hello.capacity),
        );
    }
    if hello.queues.is_empty() || hello.queues.len() > WORKER_QUEUES_MAX {
        return invalid(
            "queues",
            format!("Expected 1 to {WORKER_QUEUES_MAX} queues, but found {}.", hello.queues.len()),
        );
    }
    let long = hello.queues.iter().position(|q| q.as_str().is_empty() || q.as_str().len() > 2 * limits::NAME_BYTES_MAX);
    if let Some(at) = long {
        return invalid(
            &format!("queues[{at}]"),
            "Expected a queue's name, but found an empty or too long one.".into(),
        );
    }
    // What was finished but not reported is held too, so more than the capacity is no mistake.
    let held_max = 4 * WORKER_CAPACITY_MAX as usize;
    if hello.held.len() > held_max {
        return invalid("held", format!("Expected at most {held_max} attempts, but found {}.", hello.held.len()));
    }
    if let Some(at) = hello.held.iter().position(|held| held.grain.tenant != hello.tenant) {
        return invalid(
            &format!("held[{at}]"),
            "Expected an attempt of the worker's tenant, but found another's.".into(),
        );
    }
    Ok(())
}
