//! A worker's first message, checked field by field.

use crate::api::check;
use crate::tenant::Caller;
use cluster::{HeldAttempt, WorkerHello};
use grain_contract::{QueueName, Rejection};
use granary_proto::v1;

const QUEUES_MAX: usize = 256;
const CAPACITY_MAX: u32 = 100_000;
const HELD_MAX: usize = 100_000;

pub(super) fn checked(caller: &Caller, hello: v1::Hello) -> Result<WorkerHello, Rejection> {
    let worker_id = check::id(&hello.worker_id, "workerId")?.to_string();
    if hello.queues.is_empty() || hello.queues.len() > QUEUES_MAX {
        let message = format!("Expected 1 to {QUEUES_MAX} queues, but found {}.", hello.queues.len());
        return Err(check::invalid("queues", message));
    }
    for queue in &hello.queues {
        check::name(queue, "queues")?;
        if !["agent:", "tool:", "condition:"].iter().any(|kind| queue.starts_with(kind)) {
            let message =
                format!("Expected agent:NAME, tool:NAME or condition:NAME, but found {}.", check::shown(queue));
            return Err(check::invalid("queues", message));
        }
    }
    if hello.capacity == 0 || hello.capacity > CAPACITY_MAX {
        let message = format!("Expected a capacity of 1 to {CAPACITY_MAX}, but found {}.", hello.capacity);
        return Err(check::invalid("capacity", message));
    }
    if hello.held.len() > HELD_MAX {
        return Err(check::invalid(
            "held",
            format!("Expected at most {HELD_MAX} attempts, but found {}.", hello.held.len()),
        ));
    }
    let held = hello.held.iter().map(|held| {
        let run = check::id(&held.run_id, "held.runId")?;
        Ok(HeldAttempt {
            attempt: check::id(&held.attempt_id, "held.attemptId")?,
            grain: crate::api::run_grain(&caller.tenant, run),
            token: held.lease_token.as_slice().try_into().map_err(|_| {
                check::invalid("held.leaseToken", "Expected a token of 16 bytes, but found another length.")
            })?,
        })
    });
    Ok(WorkerHello {
        worker_id,
        tenant: caller.tenant.clone(),
        capacity: hello.capacity,
        held: held.collect::<Result<_, Rejection>>()?,
        queues: hello.queues.into_iter().map(QueueName::new).collect(),
        session: hello.session,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use grain_contract::Code;
    use uuid::Uuid;

    fn hello() -> v1::Hello {
        v1::Hello {
            worker_id: Uuid::from_u128(1).to_string(),
            queues: vec!["tool:echo".into()],
            capacity: 4,
            held: vec![v1::Held {
                attempt_id: Uuid::from_u128(2).to_string(),
                run_id: Uuid::from_u128(3).to_string(),
                lease_token: vec![7; 16],
            }],
            session: 1,
        }
    }

    fn caller() -> Caller {
        Caller { tenant: "acme".into(), by: "test".into(), deadline: tokio::time::Instant::now() }
    }

    /// [C3]
    #[test]
    fn a_hello_is_checked_field_by_field() {
        let good = checked(&caller(), hello()).expect("good");
        assert_eq!(good.held[0].grain.tenant, "acme".into(), "what is held is the caller's tenant's");
        type Spoil = fn(&mut v1::Hello);
        let cases: [(&str, Spoil); 8] = [
            ("workerId", |h| h.worker_id = "me".into()),
            ("queues", |h| h.queues.clear()),
            ("queues", |h| h.queues = vec!["echo".into()]),
            ("capacity", |h| h.capacity = 0),
            ("capacity", |h| h.capacity = u32::MAX),
            ("held.runId", |h| h.held[0].run_id.clear()),
            ("held.attemptId", |h| h.held[0].attempt_id = "7".into()),
            ("held.leaseToken", |h| h.held[0].lease_token.clear()),
        ];
        for (field, spoil) in cases {
            let mut bad = hello();
            spoil(&mut bad);
            let refusal = checked(&caller(), bad).expect_err(field);
            assert_eq!((refusal.code, refusal.field.as_str()), (Code::Invalid, field));
        }
    }
}
