//! Why it waits: for each step that has not ended, the first reason that holds.

use super::ids;
use super::state::{Asked, FrameIx, Projection, Purpose, RunIx, StepRun, StepState};
use super::turn::Turn;
use crate::definition::{Join, Plan, StepIx, StepKind};
use grain_contract::limits::PAGE_MAX;
use granary_proto::v1::{self, Waiting};
use granary_proto::wire::Timestamp;

impl Projection {
    /// One entry a step that has not ended, at most [`PAGE_MAX`]: first those that are active, then those behind them.
    pub fn waiting(&self, plan: &Plan) -> Vec<v1::StepWaiting> {
        let mut active: Vec<RunIx> = self.active.iter().map(|(_, ix)| *ix).collect();
        active.sort_unstable();
        let active = active.into_iter().map(|ix| v1::StepWaiting {
            step_id: plan.step(self.run(ix).step).id.clone(),
            step_run_id: self.run(ix).id.to_string(),
            waiting: self.waiting_of(plan, ix),
        });
        let behind = self.half_ready.iter().map(|(frame, step)| v1::StepWaiting {
            step_id: plan.step(*step).id.clone(),
            step_run_id: self.id_of_next(plan, *frame, *step).to_string(),
            waiting: Some(self.waiting_for_edges(plan, *frame, *step)),
        });
        active.chain(behind).take(PAGE_MAX).collect()
    }

    pub(super) fn waiting_of(&self, plan: &Plan, ix: RunIx) -> Option<Waiting> {
        let run = self.run(ix);
        let step = plan.step(run.step);
        match run.state {
            StepState::WaitingForTimer => Some(match &step.kind {
                StepKind::WaitFor { check, .. } if run.failure.is_none() => self.on_condition(run, &check.kind),
                _ => self.on_timer(run),
            }),
            StepState::WaitingForHuman => Some(on_human(run)),
            StepState::Ready | StepState::Running => Some(match &step.kind {
                StepKind::SubWorkflow { .. } if run.state == StepState::Running => on_child(run),
                // Its id is Run Control's to give.
                StepKind::SubWorkflow { definition_id, .. } => {
                    waiting("child", format!("child run of {definition_id}"), run.ready_ms)
                }
                _ => on_worker(run, step.kind.queue().unwrap_or_default()),
            }),
            StepState::Pending
            | StepState::Succeeded
            | StepState::Failed
            | StepState::Skipped
            | StepState::Cancelled => None,
        }
    }

    fn on_timer(&self, run: &StepRun) -> Waiting {
        let timer = run.timers.iter().find(|timer| !timer.fired);
        let until = timer.and_then(|timer| Timestamp::from_row(timer.due_ms));
        let at = until.map(|until| until.to_string()).unwrap_or_default();
        let (on, text) = match timer.map(|timer| timer.purpose) {
            Some(Purpose::Retry) => ("retry", format!("retry {} at {at}", u64::from(run.attempt) + 1)),
            _ => ("timer", format!("timer at {at}")),
        };
        Waiting { until, ..waiting(on, text, run.started_ms) }
    }

    fn on_condition(&self, run: &StepRun, kind: &str) -> Waiting {
        let timeout = run.timers.iter().find(|timer| !timer.fired && timer.purpose == Purpose::Timeout);
        let until = timeout.and_then(|timer| Timestamp::from_row(timer.due_ms));
        let at = until.map(|until| format!(" until {until}")).unwrap_or_default();
        Waiting { until, ..waiting("condition", format!("condition {kind}{at}"), run.started_ms) }
    }

    /// A step without a step run yet.
    pub(super) fn waiting_for_edges(&self, plan: &Plan, frame: FrameIx, step_ix: StepIx) -> Waiting {
        if let StepKind::Join(join) = &plan.step(step_ix).kind {
            return self.on_join(plan, frame, step_ix, join);
        }
        let open = self.open_predecessors(plan, frame, step_ix);
        let looping = open.iter().all(|(from, leaves_loop)| *leaves_loop && self.slots.contains_key(&(frame, *from)));
        let names: Vec<&str> = open.iter().map(|(from, _)| plan.step(*from).id.as_str()).collect();
        if looping && !names.is_empty() {
            return waiting("loop", format!("loop around {} to end", names.join(", ")), 0);
        }
        waiting("predecessors", format!("steps before it: {}", names.join(", ")), 0)
    }

    fn on_join(&self, plan: &Plan, frame: FrameIx, step_ix: StepIx, join: &Join) -> Waiting {
        let (arrived, failed, open) = match join.fanout.and_then(|fanout| self.present(frame, fanout)) {
            Some(owner) => match &self.run(owner).fan {
                Some(fan) => (fan.arrived, fan.failed, fan.branches - fan.arrived - fan.failed - fan.dry),
                None => (0, 0, 0),
            },
            None => self.roll_of_plain_join(plan, frame, step_ix),
        };
        let needed = Turn::needed(arrived, failed, open, join.quorum);
        Waiting { arrived, needed, ..waiting("join", format!("join {arrived} of {needed}"), 0) }
    }

    fn roll_of_plain_join(&self, plan: &Plan, frame: FrameIx, step: StepIx) -> (u32, u32, u32) {
        let mut from: Vec<StepIx> = plan.forward_incoming(step).map(|edge| plan.edge(edge).from).collect();
        from.dedup();
        let open: Vec<StepIx> = self.open_predecessors(plan, frame, step).into_iter().map(|(from, _)| from).collect();
        from.retain(|from| !open.contains(from));
        let arrived = from.iter().filter(|from| {
            let run = self.present(frame, **from).map(|ix| self.run(ix));
            run.is_some_and(|run| {
                let into = plan.step(**from).outgoing.iter().zip(&run.edges);
                into.into_iter().any(|(edge, how)| plan.edge(*edge).to == step && *how == super::edges::TAKEN)
            })
        });
        (arrived.count() as u32, 0, open.len() as u32)
    }

    /// Steps before it with an open edge, each once, and whether that edge leaves a loop.
    fn open_predecessors(&self, plan: &Plan, frame: FrameIx, step: StepIx) -> Vec<(StepIx, bool)> {
        let mut open: Vec<(StepIx, bool)> = Vec::new();
        for edge in plan.forward_incoming(step) {
            let from = plan.edge(edge).from;
            if self.frame(frame).owner.is_some_and(|(owner, _)| self.run(owner).step == from) {
                continue;
            }
            let leaves = plan.leaves_loop(edge);
            let ended = self.present(frame, from).is_some_and(|ix| self.run(ix).state.is_terminal());
            let decided = if leaves { self.exits_taken.contains(&(frame, edge)) } else { ended };
            if !decided && !open.iter().any(|(known, _)| *known == from) {
                open.push((from, leaves));
            }
        }
        open
    }
}

fn waiting(on: &str, text: String, since_ms: i64) -> Waiting {
    Waiting { on: on.to_owned(), text, since: Timestamp::from_row(since_ms), ..Default::default() }
}

fn on_human(run: &StepRun) -> Waiting {
    let text = match run.asked {
        Asked::Escalation => "human decision: retry, skip or fail",
        Asked::Input => "human input",
        Asked::Approval | Asked::Nothing => "human decision",
    };
    let approval_id = run.approval_id.map(|id| id.to_string()).unwrap_or_default();
    Waiting { approval_id, ..waiting("human", text.to_owned(), run.ready_ms) }
}

fn on_child(run: &StepRun) -> Waiting {
    let child_run_id = ids::child_run_id(run.id, run.attempt).to_string();
    Waiting { text: format!("child run {child_run_id}"), child_run_id, ..waiting("child", String::new(), run.ready_ms) }
}

fn on_worker(run: &StepRun, queue: String) -> Waiting {
    let on = if run.undoes.is_some() { "compensation" } else { "worker" };
    Waiting { text: format!("worker for queue {queue}"), queue, ..waiting(on, String::new(), run.ready_ms) }
}
