//! [R14] The projection is dropped and built again from the journal: the same facts at the same times give the same state.
//!
//! Nothing is published and nothing is asked for a second time: the effects of the facts happened when they were new, and
//! their ids are the same now, so Run Control would drop them anyway.

use super::plan::PlanSlot;
use super::stop::Stop;
use super::turn::Draft;
use super::{EngineSlot, RunGrain, RunMode, wire};
use crate::definition::Plan;
use crate::engine::{Decided, EngineOptions, Input, Outcome, Projection, Refusal};
use crate::run_control::{accepted_of, observation_of, outcome_of};
use grain_contract::{Code, Context, Decision, Effect, Rejection, Row, RowKey, Timestamp, Turn};
use granary_proto::v1::{JournalEntry, ReadJournalResponse};
use prost::Message as _;
use std::collections::HashSet;
use uuid::Uuid;

/// How far an external Run Control's clock may be behind ours.
const CLOCKS_APART_MS_MAX: u64 = 60_000;

impl RunGrain {
    pub(super) fn reproject(&mut self, cx: &mut Context<'_>, body: &[u8]) -> Result<Decision, Stop> {
        if self.release_id.is_empty() {
            let message = format!("Expected a run, but {} is not one.", self.run_id);
            return Err(Rejection::new(Code::NotFound, message).at("runId").into());
        }
        let journal: ReadJournalResponse = wire::body(body)?;
        self.check_whole(&journal.entries)?;
        // The old projection need not be readable: it is dropped.
        self.pinned_plan()??;
        let input = match journal.entries.first() {
            Some(first) => accepted_of(first).map_err(unreadable)?.input,
            None => return Err(unreadable("it has no entry".into()).into()),
        };
        let mut fresh = self.replay(&journal.entries)?;
        let changes = fresh.take_changes();
        let mut draft = Draft::new(cx.now);
        let stale = self.stale_rows(&changes.puts);
        self.engine = EngineSlot::Loaded(Box::new(fresh));
        self.damaged = None;
        self.run_input = input;
        // A timer that was due during the loss fires now, as any late one.
        if !self.is_over() {
            self.fire_timers(cx, &mut draft)?;
        }
        let reply = self.graph_page("", 0)?.encode_to_vec();
        Ok(match self.finish(draft, reply) {
            Decision::Commit(mut turn) => {
                turn.puts = merged(changes.puts, turn.puts);
                turn.deletes.extend(stale);
                Decision::Commit(turn)
            }
            Decision::Read(reply) => Decision::Commit(Turn {
                puts: changes.puts,
                deletes: stale,
                effects: vec![Effect::Changed],
                reply,
                ..Default::default()
            }),
            other => other,
        })
    }

    /// The journal must be there from its first entry to its last, or the run would be projected into its past.
    fn check_whole(&self, entries: &[JournalEntry]) -> Result<(), Rejection> {
        if self.options.mode == RunMode::External {
            return Ok(());
        }
        let wanted = self.authority.counters().next_journal - 1;
        for (entry, number) in entries.iter().zip(1..) {
            if entry.number != number {
                let message = format!("Expected journal entry {number}, but found {}.", entry.number);
                return Err(Rejection::new(Code::WrongState, message).at("entries"));
            }
        }
        if entries.len() as u64 != wanted {
            let message = format!("Expected the journal up to entry {wanted}, but found {}.", entries.len());
            return Err(Rejection::new(Code::WrongState, message).at("entries"));
        }
        Ok(())
    }

    fn replay(&self, entries: &[JournalEntry]) -> Result<Projection, Rejection> {
        let options = self.engine_options();
        let plan = match &self.plan {
            PlanSlot::Have { plan, .. } => Some(plan.as_ref()),
            PlanSlot::Empty | PlanSlot::Refused { .. } => None,
        };
        let mut fresh = Projection::new(&self.tenant, self.run_id);
        for entry in entries {
            let Some(input) = input_of(entry).map_err(unreadable)? else { continue };
            let at = Timestamp(entry.at.map_or(0, |at| at.millis()));
            let is_shown_only =
                matches!(input, Input::StepTaken { .. } | Input::AttemptClaimed { .. } | Input::AttemptRequeued { .. });
            let decided = match self.options.mode {
                RunMode::Bundled => fresh.decide(plan, &options, at, input).map(drop),
                RunMode::External => after_timers(&mut fresh, plan, &options, at, &input),
            };
            match decided {
                Ok(()) => {}
                // See `show_taken`: what was only shown may have been refused the first time too.
                Err(_) if is_shown_only => {}
                Err(refusal) => return Err(unreadable(format!("entry {}: {refusal:?}", entry.number))),
            }
        }
        Ok(fresh)
    }

    /// Rows of the old projection that the new one does not have.
    fn stale_rows(&self, fresh: &[Row]) -> Vec<RowKey> {
        let mut keys = match &self.engine {
            EngineSlot::Loaded(projection) => projection.row_keys(),
            EngineSlot::Rows(rows) => rows.iter().map(|row| row.key.clone()).collect(),
        };
        let kept: HashSet<&RowKey> = fresh.iter().map(|row| &row.key).collect();
        keys.retain(|key| !kept.contains(key));
        keys
    }
}

/// A fact of an external journal, which does not say when the engine's timers fired. Those due by the time of a fact fire
/// with it; but it may be of a step that only they begin, and Run Control's clock may be behind ours. So if it does not fit, the
/// next timer fires first.
fn after_timers(
    fresh: &mut Projection,
    plan: Option<&Plan>,
    options: &EngineOptions,
    at: Timestamp,
    input: &Input,
) -> Result<(), Refusal> {
    let mut now = at;
    // Each round fires what is due, and each timer fires once.
    loop {
        let refusal = match fresh.decide(plan, options, now, input.clone()) {
            Err(refusal @ Refusal::DoesNotFit { .. }) => refusal,
            decided => return decided.map(drop),
        };
        now = match fresh.next_due().map(|due| due.max(now)) {
            Some(due) if !fresh.is_terminal() && due.since(at) <= CLOCKS_APART_MS_MAX => due,
            _ => return Err(refusal),
        };
        fresh.decide(plan, options, now, Input::TimersDue)?;
    }
}

/// The later value of a row wins.
fn merged(mut first: Vec<Row>, later: Vec<Row>) -> Vec<Row> {
    let newer: HashSet<&RowKey> = later.iter().map(|row| &row.key).collect();
    first.retain(|row| !newer.contains(&row.key));
    first.extend(later);
    first
}

fn unreadable(what: String) -> Rejection {
    Rejection::new(Code::Internal, format!("Expected a journal that can be replayed, but {what}."))
}

/// What the engine was told by an entry; nothing for entries that are only Run Control's own books.
fn input_of(entry: &JournalEntry) -> Result<Option<Input>, String> {
    let id = |text: &str| Uuid::try_parse(text).map_err(|e| format!("entry {}: {e}", entry.number));
    let optional = |text: &str| if text.is_empty() { Ok(None) } else { id(text).map(Some) };
    let data = || entry.data.as_ref().map(|json| json.text.clone()).unwrap_or_default();
    let sequence = entry.sequence;
    let input = match (entry.r#type.as_str(), sequence) {
        ("RunAccepted", 1..) => Input::RunAccepted { sequence, accepted: accepted_of(entry)? },
        ("AttemptOutcomeRecorded" | "ChildRunEnded", 1..) => Input::AttemptOutcomeRecorded {
            sequence,
            outcome: Outcome {
                step_run_id: id(&entry.step_run_id)?,
                attempt_id: optional(&entry.attempt_id)?,
                attempt: entry.attempt,
                kind: outcome_of(&entry.outcome).ok_or_else(|| format!("entry {}: unknown outcome", entry.number))?,
                output: data(),
                output_ref: String::new(),
                failure: entry.failure.clone(),
            },
        },
        ("ApprovalDecided", 1..) => Input::ApprovalDecided {
            sequence,
            decided: Decided {
                step_run_id: id(&entry.step_run_id)?,
                approval_id: optional(&entry.approval_id)?,
                decision: entry.decision.clone(),
                proposal_version: entry.proposal_version,
                answer: data(),
                comment: entry.text.clone(),
                decided_by: entry.by.clone(),
            },
        },
        ("RunCancelled", 1..) => Input::RunCancelled { sequence, reason: entry.text.clone() },
        ("Observed", 1..) => match observation_of(entry) {
            Some(observation) => Input::Observed { sequence, observation },
            None => return Err(format!("entry {}: unknown observation {:?}", entry.number, entry.text)),
        },
        ("TimerFired", _) => Input::TimersDue,
        ("StuckChecked", _) => {
            let open = serde_json::from_slice(&data()).map_err(|e| format!("entry {}: {e}", entry.number))?;
            Input::CheckStuck { open }
        }
        ("AttemptCreated", _) => Input::StepTaken {
            step_run_id: id(&entry.step_run_id)?,
            attempt_id: optional(&entry.attempt_id)?,
            approval_id: None,
        },
        ("AttemptClaimed", _) => Input::AttemptClaimed { step_run_id: id(&entry.step_run_id)?, attempt: entry.attempt },
        ("AttemptRequeued", _) => {
            Input::AttemptRequeued { step_run_id: id(&entry.step_run_id)?, attempt: entry.attempt }
        }
        ("ApprovalRequested", _) => Input::StepTaken {
            step_run_id: id(&entry.step_run_id)?,
            attempt_id: None,
            approval_id: optional(&entry.approval_id)?,
        },
        _ => return Ok(None),
    };
    Ok(Some(input))
}
