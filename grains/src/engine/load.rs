//! Rows to state. Step runs come in the order of their creation, so everything that follows from them is made again by
//! going through them once: frames when a Fanout passes by, slots as they are filled, and at the end what is present,
//! what is active, what is due.

use super::edges::TAKEN;
use super::rows::{FORMAT, HEADER_KEY, START_KEY, list_items};
use super::state::{
    Asked, Branch, Due, Entry, Fan, FrameIx, Projection, Purpose, ROOT, RunIx, RunState, Slot, StepRun, StepState,
    Timer,
};
use super::turn::Turn;
use super::{EngineOptions, state::Header};
use crate::definition::{Plan, StepIx, StepKind};
use crate::kinds::methods::run::table;
use grain_contract::{Row, Timestamp};
use granary_proto::storage::{CompensationRow, FactRow, RunHeaderRow, StepRunRow, TimerRow};
use prost::Message;
use std::collections::{HashSet, VecDeque};
use uuid::Uuid;

/// The rows cannot be what this engine wrote for this plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Corrupt(pub String);

impl Projection {
    /// The run as its rows have it; rows of other tables are passed over. `plan` may be absent only for a run without step
    /// runs (refused at acceptance, or not accepted).
    ///
    /// # Errors
    /// [`Corrupt`] if the rows are of a newer format, or do not belong together or to this plan.
    pub fn load(tenant: &str, run_id: Uuid, mut rows: Vec<Row>, plan: Option<&Plan>) -> Result<Self, Corrupt> {
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        let mut p = Self::new(tenant, run_id);
        let mut entries = Vec::new();
        for row in rows {
            match row.key.table {
                table::HEADER if row.key.key == START_KEY => p.read_start(decode(&row)?)?,
                table::HEADER if row.key.key == HEADER_KEY => p.read_header(decode(&row)?)?,
                table::STEP_RUNS => {
                    let plan = plan.ok_or_else(|| Corrupt("Expected the plan of a run with step runs.".into()))?;
                    p.read_step_run(plan, &row.key.key, decode(&row)?)?;
                }
                table::COMPENSATION => entries.push(decode::<CompensationRow>(&row)?),
                table::FACTS => {
                    let fact: FactRow = decode(&row)?;
                    p.facts.insert(fact.sequence, fact.hash);
                }
                _ => {}
            }
        }
        for entry in entries {
            p.read_entry(entry)?;
        }
        if let Some(plan) = plan {
            p.follow_from(plan);
        }
        Ok(p)
    }

    fn read_start(&mut self, row: RunHeaderRow) -> Result<(), Corrupt> {
        check_format(row.format)?;
        self.payload_bytes += row.input.len() + row.variables.len();
        self.header = Header {
            project_id: row.project_id,
            release_id: row.definition_release_id,
            graph_hash: row.graph_hash,
            input: row.input,
            variables: row.variables,
            accepted_ms: row.accepted_ms,
            deadline_ms: row.deadline_ms,
            parent_run_id: optional_id(&row.parent_run_id)?,
            parent_step_run_id: optional_id(&row.parent_step_run_id)?,
            depth: row.depth,
            ..std::mem::take(&mut self.header)
        };
        Ok(())
    }

    fn read_header(&mut self, row: RunHeaderRow) -> Result<(), Corrupt> {
        check_format(row.format)?;
        self.state = word(&RunState::ALL, RunState::as_str, &row.state)?;
        self.header = Header {
            last_sequence: row.last_outcome_sequence,
            last_digest: row.last_fact_hash,
            version: row.version,
            ended_ms: row.ended_ms,
            output: row.output,
            failure: row.failure,
            failed_step_id: row.failed_step_id,
            compensated: row.compensated,
            follow_up: row.follow_up,
            events: row.event_sequence,
            completions: row.completion_counter,
            open_step_runs: row.open_step_runs,
            deadline_fired: row.deadline_fired,
            ..std::mem::take(&mut self.header)
        };
        Ok(())
    }

    fn read_step_run(&mut self, plan: &Plan, key: &[u8], row: StepRunRow) -> Result<(), Corrupt> {
        let ix = RunIx(self.runs.len() as u32);
        if key != ix.0.to_be_bytes() {
            return Err(Corrupt(format!("Expected the row of step run {}, but found key {key:?}.", ix.0)));
        }
        let step = StepIx(row.step);
        let kind = match plan.steps.get(row.step as usize) {
            Some(step) => &step.kind,
            None => return Err(Corrupt(format!("Expected a step of the plan, but found number {}.", row.step))),
        };
        let frame = self.frame_of(row.scope, row.branch.first().copied())?;
        let mut run = read_run(&row, step, frame)?;
        self.payload_bytes += row.output.len() + row.input.len();
        let is_undo = matches!(kind, StepKind::Compensation { .. });
        if !is_undo {
            run.previous = self.slots.insert((frame, step), Slot { run: ix, present: true }).map(|slot| slot.run);
        }
        let opened = run.fan.is_some();
        if self.by_id.contains_key(&run.id) {
            return Err(Corrupt(format!("Expected step run {} once, but found it twice.", run.id)));
        }
        self.push(run);
        if opened {
            self.open_frames(ix);
        }
        Ok(())
    }

    fn frame_of(&self, scope: u32, branch: Option<u32>) -> Result<FrameIx, Corrupt> {
        let Some(owner) = scope.checked_sub(1) else { return Ok(ROOT) };
        let fan = self.runs.get(owner as usize).and_then(|owner| owner.fan.as_ref());
        match (fan, branch) {
            (Some(fan), Some(branch)) if branch < fan.branches => Ok(FrameIx(fan.first_frame + branch)),
            _ => Err(Corrupt(format!("Expected a branch of step run {owner}, but found {branch:?}."))),
        }
    }

    fn read_entry(&mut self, row: CompensationRow) -> Result<(), Corrupt> {
        let find = |id: &str| -> Result<RunIx, Corrupt> {
            let known = self.by_id.get(&id_of(id)?).copied();
            known.ok_or_else(|| Corrupt(format!("Expected a step run to compensate, but found {id}.")))
        };
        let undoes = find(&row.for_step_run_id)?;
        let run = if row.step_run_id.is_empty() { None } else { Some(find(&row.step_run_id)?) };
        if let Some(run) = run {
            self.runs[run.0 as usize].undoes = Some(undoes);
        }
        self.entries.push(Entry {
            id: id_of(&row.entry_id)?,
            undoes,
            step: StepIx(row.compensation_step),
            state: word(&StepState::ALL, StepState::as_str, &row.state)?,
            run,
            changed: false,
        });
        Ok(())
    }

    /// Everything that is not in rows, since it follows from them.
    fn follow_from(&mut self, plan: &Plan) {
        for ix in (0..self.runs.len() as u32).map(RunIx) {
            self.runs[ix.0 as usize].changed = false;
            self.note_iterations(plan, ix);
        }
        self.changed_runs.clear();
        self.note_present(plan);
        for ix in (0..self.runs.len() as u32).map(RunIx) {
            self.note_active(ix);
            self.note_exits(plan, ix);
        }
        // The output of a Join is read from its branches, of an ended run too.
        self.note_branches(plan);
        if !self.is_terminal() && self.state != RunState::Compensating {
            if self.header.deadline_ms != 0 && !self.header.deadline_fired {
                self.due.insert((self.header.deadline_ms, Due::Deadline));
            }
            self.note_half_ready(plan);
        }
    }

    /// Each iteration of a loop begins with a step run of its head, so the newest one tells how far the loop is.
    fn note_iterations(&mut self, plan: &Plan, ix: RunIx) {
        let run = &self.runs[ix.0 as usize];
        let (frame, step) = (run.frame, run.step);
        let own: Vec<(u32, u32)> = plan.own_loops(step).zip(run.loops.iter().copied()).collect();
        for (at, (of_loop, made)) in own.iter().enumerate() {
            if plan.loops[*of_loop as usize].head != step {
                continue;
            }
            let outer_moved = own[..at].iter().any(|(outer, made)| self.iteration(frame, *outer) < *made);
            debug_assert!(!outer_moved, "the outer head comes first");
            if self.iteration(frame, *of_loop) != *made {
                self.forget_inner(plan, frame, *of_loop);
                self.iterations.insert((frame, *of_loop), *made);
            }
        }
    }

    fn forget_inner(&mut self, plan: &Plan, frame: FrameIx, outer: u32) {
        for inner in 0..plan.loops.len() as u32 {
            if plan.is_inner_loop(inner, outer) {
                self.iterations.remove(&(frame, inner));
            }
        }
    }

    fn note_present(&mut self, plan: &Plan) {
        let mut past = Vec::new();
        for ((frame, step), slot) in &self.slots {
            let run = self.run(slot.run);
            let present = plan.own_loops(*step).zip(run.loops.iter()).all(|(l, at)| self.iteration(*frame, l) == *at);
            if !present {
                past.push((*frame, *step));
            }
        }
        for key in past {
            if let Some(slot) = self.slots.get_mut(&key) {
                slot.present = false;
            }
        }
    }

    fn note_active(&mut self, ix: RunIx) {
        let run = self.run(ix);
        let (state, frame) = (run.state, run.frame);
        if state.is_terminal() {
            return;
        }
        let due: Vec<_> =
            run.timers.iter().filter(|t| !t.fired).map(|t| (t.due_ms, Due::Step(ix, t.purpose))).collect();
        self.due.extend(due);
        self.active.insert((frame, ix));
        self.count(state, 1);
    }

    fn note_exits(&mut self, plan: &Plan, ix: RunIx) {
        let run = self.run(ix);
        let frame = run.frame;
        let mut taken = Vec::new();
        for (edge, how) in plan.step(run.step).outgoing.iter().zip(&run.edges) {
            let of_edge = plan.edge(*edge);
            if *how != TAKEN || of_edge.loop_back.is_some() || !plan.leaves_loop(*edge) {
                continue;
            }
            if self.is_of_now(plan, ix, of_edge.to) {
                taken.push((frame, *edge));
            }
        }
        self.exits_taken.extend(taken);
    }

    /// How each branch ended: by the same rule that found it the first time. A branch that was closed before it ended may
    /// look dry now; its Join is decided, so nobody asks any more.
    fn note_branches(&mut self, plan: &Plan) {
        let failed = self.failed_branches(plan);
        let busy = self.busy_frames();
        for frame in (1..self.frames.len() as u32).map(FrameIx) {
            let Some((owner, _)) = self.frame(frame).owner else { continue };
            let Some(join) = plan.join_of(self.run(owner).step) else { continue };
            let how = if failed.contains(&frame) && !self.had_arrived(plan, frame, join) {
                Branch::Failed
            } else {
                self.with_turn(plan, |turn| turn.branch_state(owner, frame, join))
            };
            self.note_branch(frame, how);
            let decided = self.slots.get(&(self.frame(frame).parent, join)).is_some_and(|slot| slot.run > owner);
            self.frame_mut(frame).closed = failed.contains(&frame) || (decided && !busy.contains(&frame));
        }
    }

    /// Frames of the branches that a failure ended which no edge took.
    fn failed_branches(&self, plan: &Plan) -> HashSet<FrameIx> {
        let lost = self.runs.iter().filter(|run| run.is_lost() && run.undoes.is_none());
        lost.filter_map(|run| self.failing_branch(plan, run.frame)).collect()
    }

    /// Whether a failed branch had reached its Join before it failed: none of the steps before the Join was part of that.
    fn had_arrived(&self, plan: &Plan, frame: FrameIx, join: StepIx) -> bool {
        let before = plan.forward_incoming(join).filter_map(|edge| self.slots.get(&(frame, plan.edge(edge).from)));
        let mut before = before.map(|slot| self.run(slot.run)).peekable();
        before.peek().is_some()
            && before.all(|run| run.state.is_terminal() && run.state != StepState::Cancelled && !run.is_lost())
    }

    /// Frames with something active in them, or in a Fanout opened in them.
    pub(super) fn busy_frames(&self) -> HashSet<FrameIx> {
        let mut busy = HashSet::new();
        for (frame, _) in &self.active {
            let mut frame = *frame;
            while busy.insert(frame) && self.frame(frame).owner.is_some() {
                frame = self.frame(frame).parent;
            }
        }
        busy
    }

    fn note_half_ready(&mut self, plan: &Plan) {
        let mut targets = Vec::new();
        for (run, ix) in self.runs.iter().zip((0..).map(RunIx)).filter(|(run, _)| run.state.is_terminal()) {
            let (frame, step) = (run.frame, plan.step(run.step));
            let forward = step.outgoing.iter().map(|edge| plan.edge(*edge)).filter(|edge| edge.loop_back.is_none());
            let beside = forward.map(|edge| edge.to).filter(|to| {
                let target = plan.step(*to);
                target.scope.len() == step.scope.len() && !target.is_fanout_join()
            });
            let all = beside.chain(plan.join_of(run.step));
            let open = all.filter(|to| self.is_of_now(plan, ix, *to) && self.present(frame, *to).is_none());
            targets.extend(open.map(|to| (frame, to)));
        }
        targets.retain(|(frame, _)| !self.is_closed(*frame));
        self.half_ready.extend(targets);
    }

    fn is_closed(&self, mut frame: FrameIx) -> bool {
        loop {
            if self.frame(frame).closed {
                return true;
            }
            if self.frame(frame).owner.is_none() {
                return false;
            }
            frame = self.frame(frame).parent;
        }
    }

    /// Asks the rules of a turn without taking one.
    fn with_turn<T>(&mut self, plan: &Plan, ask: impl FnOnce(&mut Turn<'_>) -> T) -> T {
        let options = EngineOptions::default();
        let mut turn =
            Turn { p: self, plan, options: &options, now: Timestamp(0), effects: Vec::new(), work: VecDeque::new() };
        ask(&mut turn)
    }
}

impl StepRun {
    /// Failed, and no edge took the failure.
    fn is_lost(&self) -> bool {
        self.state == StepState::Failed && !self.routed
    }
}

fn read_run(row: &StepRunRow, step: StepIx, frame: FrameIx) -> Result<StepRun, Corrupt> {
    let fan = match row.branches.checked_sub(1) {
        Some(branches) => {
            let items = list_items(&row.items).map_err(|e| Corrupt(format!("Expected the Fanout's items: {e}.")))?;
            Some(Fan::new(branches, items))
        }
        None => None,
    };
    Ok(StepRun {
        iteration: row.iteration,
        loops: row.loops.clone().into(),
        state: word(&StepState::ALL, StepState::as_str, &row.state)?,
        attempt: row.attempt,
        asked: word(&Asked::ALL, Asked::as_str, &row.asked)?,
        approval_id: optional_id(&row.approval_id)?,
        attempt_ids: row.attempt_ids.iter().map(|id| id_of(id)).collect::<Result<_, _>>()?,
        started_ms: row.started_ms,
        ended_ms: row.ended_ms,
        ready_ms: row.ready_ms,
        input: (!row.input.is_empty()).then(|| row.input.clone()),
        output: row.output.clone(),
        output_ref: row.output_ref.clone(),
        failure: row.failure.clone(),
        completed_as: row.completed_as,
        routed: row.routed,
        edges: row.edges.clone(),
        timers: row.timers.iter().map(read_timer).collect::<Result<_, _>>()?,
        skipped_by: row.skipped_by.iter().filter_map(|step| step.parse().ok().map(StepIx)).collect(),
        fan,
        asked_again: row.last_ready_sequence,
        late: row.late,
        ..StepRun::pending(id_of(&row.step_run_id)?, step, frame)
    })
}

fn read_timer(row: &TimerRow) -> Result<Timer, Corrupt> {
    Ok(Timer {
        id: id_of(&row.timer_id)?,
        purpose: word(&Purpose::ALL, Purpose::as_str, &row.purpose)?,
        due_ms: row.due_ms,
        fired: row.fired,
        late_ms: row.late_ms,
    })
}

fn decode<M: Message + Default>(row: &Row) -> Result<M, Corrupt> {
    M::decode(row.value.as_slice()).map_err(|e| Corrupt(format!("Expected a row of table {}: {e}.", row.key.table.0)))
}

fn check_format(found: u32) -> Result<(), Corrupt> {
    if found == FORMAT {
        return Ok(());
    }
    Err(Corrupt(format!("Expected rows of format {FORMAT}, but found {found}.")))
}

fn word<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str, found: &str) -> Result<T, Corrupt> {
    let known = all.iter().copied().find(|word| name(*word) == found);
    known.ok_or_else(|| Corrupt(format!("Expected a word this build knows, but found {found:?}.")))
}

fn id_of(text: &str) -> Result<Uuid, Corrupt> {
    Uuid::parse_str(text).map_err(|_| Corrupt(format!("Expected an id, but found {text:?}.")))
}

fn optional_id(text: &str) -> Result<Option<Uuid>, Corrupt> {
    if text.is_empty() { Ok(None) } else { id_of(text).map(Some) }
}
