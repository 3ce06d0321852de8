//! The run as it is shown: RunGraph, and the steps that Run Control should be working on.

use super::ids;
use super::state::{Asked, FrameIx, Projection, RunIx, StepState};
use crate::definition::{Edge, Guard, Plan, StepIx};
use grain_contract::limits::{PAGE_MAX, PAYLOAD_BYTES_MAX};
use granary_proto::v1;
use granary_proto::wire::{Json, Timestamp};

impl Projection {
    /// Where a page token of [`Projection::graph`] points to; `None` if it is not one of this run.
    pub fn page_start(&self, page_token: &str) -> Option<usize> {
        if page_token.is_empty() {
            return Some(0);
        }
        let digits = page_token.bytes().all(|b| b.is_ascii_digit()) && !page_token.starts_with('0');
        page_token.parse().ok().filter(|at| digits && *at < self.runs.len())
    }

    /// One page of the run's graph. `page_token` empty (or not one of this run) = from the start; `page_size` 0 = as many as a page may have. The last
    /// page also has the steps that wait for edges to be decided, as Pending; timers and compensation are on the first.
    pub fn graph(&self, plan: Option<&Plan>, page_token: &str, page_size: u32) -> v1::RunGraph {
        let from = self.page_start(page_token).unwrap_or(0);
        let size = if page_size == 0 { PAGE_MAX } else { (page_size as usize).min(PAGE_MAX) };
        let to = (from + size).min(self.runs.len());
        let h = &self.header;
        let mut graph = v1::RunGraph {
            run_id: self.run_id.to_string(),
            tenant_id: self.tenant.clone(),
            project_id: h.project_id.clone(),
            definition_release_id: h.release_id.clone(),
            graph_hash: h.graph_hash.clone(),
            state: self.state.as_str().to_owned(),
            active_step_runs: self.active.len() as u32,
            last_outcome_sequence: h.last_sequence,
            version: h.version,
            output: json(&h.output),
            failure: h.failure.clone(),
            failed_step_id: h.failed_step_id.clone(),
            compensated: h.compensated,
            follow_up: h.follow_up.clone(),
            accepted_at: Timestamp::from_row(h.accepted_ms),
            ended_at: Timestamp::from_row(h.ended_ms),
            deadline_at: Timestamp::from_row(h.deadline_ms),
            variables: json(&h.variables),
            ..Default::default()
        };
        let Some(plan) = plan else { return graph };
        graph.definition_id = plan.definition_id.clone();
        graph.definition_version = plan.version.clone();
        graph.edges = plan.edges.iter().map(|edge| edge_view(plan, edge)).collect();
        graph.step_runs = (from..to).map(|at| self.step_run_view(plan, RunIx(at as u32))).collect();
        if to < self.runs.len() {
            graph.next_page_token = to.to_string();
        } else {
            let waiting = self.half_ready.iter().take(PAGE_MAX);
            graph.step_runs.extend(waiting.map(|(frame, step)| self.pending_view(plan, *frame, *step)));
        }
        if from == 0 {
            graph.timers = self.timers_view();
            graph.compensation_entries = self.entries_view(plan);
        }
        graph
    }

    /// Steps that Run Control should have an attempt or approval for. Idempotent; at most a page of them.
    pub fn plan_next(&self, plan: &Plan) -> Vec<v1::PlannedStep> {
        let mut ready: Vec<RunIx> = self.active.iter().map(|(_, ix)| *ix).collect();
        ready.retain(|ix| matches!(self.run(*ix).state, StepState::Ready | StepState::WaitingForHuman));
        ready.sort_unstable();
        ready.truncate(PAGE_MAX);
        let planned = ready.into_iter().map(|ix| {
            let run = self.run(ix);
            let step = plan.step(run.step);
            let human = run.asked != Asked::Nothing;
            v1::PlannedStep {
                step_run_id: run.id.to_string(),
                step_id: step.id.clone(),
                kind: if human { "Human" } else { step.kind.as_str() }.to_owned(),
                action_class: step.action_class.clone(),
                input_ref: String::new(),
                input: Some(Json::new(self.input_of(plan, ix).to_vec())),
                attempt: run.attempt,
                queue: if human { String::new() } else { step.kind.target().unwrap_or_default() },
            }
        });
        planned.collect()
    }

    fn step_run_view(&self, plan: &Plan, ix: RunIx) -> v1::StepRun {
        let run = self.run(ix);
        let step = plan.step(run.step);
        let output = self.output_text(plan, ix, PAYLOAD_BYTES_MAX).unwrap_or_default();
        v1::StepRun {
            step_run_id: run.id.to_string(),
            step_id: step.id.clone(),
            kind: step.declared.to_owned(),
            state: run.state.as_str().to_owned(),
            iteration: run.iteration,
            attempt_ids: run.attempt_ids.iter().map(ToString::to_string).collect(),
            output_ref: run.output_ref.clone(),
            approval_id: run.approval_id.map(|id| id.to_string()).unwrap_or_default(),
            started_at: Timestamp::from_row(run.started_ms),
            ended_at: Timestamp::from_row(run.ended_ms),
            branch: self.branch_path(run.frame),
            output: json(&output),
            failure: run.failure.clone(),
            waiting: self.waiting_of(plan, ix),
            action_class: step.action_class.clone(),
            attempt: run.attempt,
            skipped_by: run.skipped_by.iter().map(|step| plan.step(*step).id.clone()).collect(),
            name: step.name.clone(),
        }
    }

    /// A step that waits for its edges has no step run yet; it is shown under the id that it will have.
    pub(super) fn pending_view(&self, plan: &Plan, frame: FrameIx, step_ix: StepIx) -> v1::StepRun {
        let step = plan.step(step_ix);
        let iteration = self.next_iteration(frame, step_ix);
        v1::StepRun {
            step_run_id: self.id_of_next(plan, frame, step_ix).to_string(),
            step_id: step.id.clone(),
            kind: step.declared.to_owned(),
            state: StepState::Pending.as_str().to_owned(),
            iteration,
            branch: self.branch_path(frame),
            waiting: Some(self.waiting_for_edges(plan, frame, step_ix)),
            action_class: step.action_class.clone(),
            name: step.name.clone(),
            ..Default::default()
        }
    }

    pub(super) fn id_of_next(&self, plan: &Plan, frame: FrameIx, step: StepIx) -> uuid::Uuid {
        let owner = self.frame(frame).owner;
        let scope = owner.map_or(self.run_id, |(owner, _)| self.run(owner).id);
        let branch = owner.map(|(_, branch)| branch);
        ids::step_run_id(scope, &plan.step(step).id, branch, self.next_iteration(frame, step))
    }

    fn timers_view(&self) -> Vec<v1::TimerEntry> {
        let mut timers = Vec::new();
        if self.header.deadline_ms != 0 {
            timers.push(v1::TimerEntry {
                timer_id: ids::timer_id(self.run_id, "deadline", 1).to_string(),
                step_run_id: String::new(),
                due_at: Timestamp::from_row(self.header.deadline_ms),
                fired: self.header.deadline_fired,
                purpose: "deadline".to_owned(),
                late_ms: 0,
            });
        }
        for run in &self.runs {
            for timer in &run.timers {
                timers.push(v1::TimerEntry {
                    timer_id: timer.id.to_string(),
                    step_run_id: run.id.to_string(),
                    due_at: Timestamp::from_row(timer.due_ms),
                    fired: timer.fired,
                    purpose: timer.purpose.as_str().to_owned(),
                    late_ms: timer.late_ms,
                });
                if timers.len() >= PAGE_MAX {
                    return timers;
                }
            }
        }
        timers
    }

    fn entries_view(&self, plan: &Plan) -> Vec<v1::CompensationEntry> {
        let entries = self.entries.iter().enumerate().map(|(at, entry)| v1::CompensationEntry {
            entry_id: entry.id.to_string(),
            for_step_run_id: self.run(entry.undoes).id.to_string(),
            compensation_step_id: plan.step(entry.step).id.clone(),
            order: at as u32 + 1,
            state: entry.state.as_str().to_owned(),
            step_run_id: entry.run.map(|ix| self.run(ix).id.to_string()).unwrap_or_default(),
        });
        entries.collect()
    }
}

fn edge_view(plan: &Plan, edge: &Edge) -> v1::Edge {
    let guard = match &edge.guard {
        Guard::Always => "",
        Guard::IsTrue => "true",
        Guard::IsFalse => "false",
        Guard::Failed => "failed",
        Guard::Succeeded => "succeeded",
        Guard::Rule(_) => "rule",
    };
    v1::Edge {
        from_step_id: plan.step(edge.from).id.clone(),
        to_step_id: plan.step(edge.to).id.clone(),
        guard: guard.to_owned(),
        is_loop_back: edge.loop_back.is_some(),
    }
}

fn json(text: &[u8]) -> Option<Json> {
    (!text.is_empty()).then(|| Json::new(text))
}
