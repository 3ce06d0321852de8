//! Rows to state. Step runs come in the order of their creation, so frames are made when a Fanout passes by and slots are
//! filled as they were; what follows from all of them together is found at the end (`rebuild`).

use super::rows::{FORMAT, HEADER_KEY, START_KEY, list_items};
use super::state::{
    Asked, Entry, Fan, FrameIx, Header, Observed, Projection, Purpose, ROOT, RunIx, RunState, Slot, Source, StepRun,
    StepState, Timer,
};
use crate::definition::{Plan, StepIx, StepKind};
use crate::kinds::methods::run::table;
use grain_contract::Row;
use granary_proto::storage::{
    CompensationRow, FactRow, ObservedFrom, RunHeaderRow, RunObservedRow, StepRunRow, TimerRow,
};
use prost::Message;
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
                table::OBSERVED => p.read_observed(decode(&row)?)?,
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
            p.rebuild(plan);
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

    fn read_observed(&mut self, row: RunObservedRow) -> Result<(), Corrupt> {
        check_format(row.format)?;
        let source = |from: Option<ObservedFrom>| {
            let from = from.unwrap_or_default();
            let (step_run_id, attempt_id) = (optional_id(&from.step_run_id)?, optional_id(&from.attempt_id)?);
            Ok(Source { at_ms: from.at_ms, step_run_id, attempt_id, by: from.by })
        };
        self.observed = Observed {
            scene_from: source(row.scene_from)?,
            world_from: source(row.world_from)?,
            scene: row.scene,
            world: row.world,
        };
        self.payload_bytes += self.observed.bytes();
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
