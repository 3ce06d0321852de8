//! One fact through both machines: the engine decides whether it fits and what follows, the authority records it and what
//! follows from that.

use super::turn::Draft;
use super::{EngineSlot, RunGrain, RunMode};
use crate::engine::{Effect, EngineOptions, Input, Refusal};
use crate::run_control::{Authority, Record};
use grain_contract::limits::FACTS_PER_TURN_MAX;
use grain_contract::{Code, Context, Rejection};
use granary_proto::v1::{JournalEntry, event::Payload};
use granary_proto::wire::Json;
use uuid::Uuid;

impl RunGrain {
    /// Gives the engine one input. Refused: nothing changed. Otherwise `record` notes the fact itself, and then everything
    /// that the engine wants is done.
    pub(super) fn advance(
        &mut self,
        cx: &mut Context<'_>,
        draft: &mut Draft,
        input: Input,
        record: impl FnOnce(&mut Authority, &mut Record),
    ) -> Result<(), Rejection> {
        let effects = self.decide(cx, input)?;
        record(&mut self.authority, &mut draft.record);
        self.follow(cx, draft, effects);
        Ok(())
    }

    /// Fires the timers that are due. An early wake finds none and changes nothing.
    pub(super) fn fire_timers(&mut self, cx: &mut Context<'_>, draft: &mut Draft) -> Result<(), Rejection> {
        let effects = self.decide(cx, Input::TimersDue)?;
        let published = |payload: &Payload| matches!(payload, Payload::TimerFired(_));
        let happened = effects.iter().any(|effect| !matches!(effect, Effect::WakeAt(_)));
        let told = effects
            .iter()
            .any(|e| matches!(e, Effect::Publish(event) if event.payload.as_ref().is_some_and(published)));
        if happened && !told && self.options.mode == RunMode::Bundled {
            // The journal must say when timers fired, or the projection could not be built again.
            self.authority.record_note(
                &mut draft.record,
                JournalEntry { r#type: "TimerFired".into(), ..JournalEntry::default() },
            );
        }
        self.follow(cx, draft, effects);
        Ok(())
    }

    /// [R15] Compares what the engine waits for with what is open.
    pub(super) fn check_stuck(&mut self, cx: &mut Context<'_>, draft: &mut Draft) -> Result<(), Rejection> {
        // An external Run Control keeps its own books and drops what it has already; here it counts as having nothing.
        let open = match self.options.mode {
            RunMode::Bundled => self.authority.open_step_runs(),
            RunMode::External => Vec::new(),
        };
        let effects = self.decide(cx, Input::CheckStuck { open: open.clone() })?;
        if effects.iter().any(|effect| !matches!(effect, Effect::WakeAt(_))) && self.options.mode == RunMode::Bundled {
            let entry =
                JournalEntry { r#type: "StuckChecked".into(), data: Some(Json::of(&open)), ..JournalEntry::default() };
            self.authority.record_note(&mut draft.record, entry);
        }
        self.follow(cx, draft, effects);
        Ok(())
    }

    fn decide(&mut self, cx: &Context<'_>, input: Input) -> Result<Vec<Effect>, Rejection> {
        let options = self.engine_options();
        let plan = self.plan();
        let mode = self.options.mode;
        let EngineSlot::Loaded(projection) = &mut self.engine else {
            return Err(Rejection::new(Code::Internal, "Expected a loaded projection, but it is still in rows."));
        };
        projection.decide(plan.as_deref(), &options, cx.now, input).map_err(|refusal| rejection(refusal, mode))
    }

    pub(super) fn engine_options(&self) -> EngineOptions {
        let mut options = (self.options.engine)();
        // The bundled journal holds the facts themselves; digests beside it would be written for nobody.
        options.keep_fact_digests = self.options.mode == RunMode::External;
        options.children_by_event = self.options.mode == RunMode::External;
        options
    }

    fn follow(&mut self, cx: &mut Context<'_>, draft: &mut Draft, effects: Vec<Effect>) {
        debug_assert!(effects.len() <= FACTS_PER_TURN_MAX * 16, "one fact has bounded consequences");
        for effect in effects {
            if let Effect::Publish(event) = effect {
                if self.options.mode == RunMode::Bundled {
                    self.note_timer(draft, event.payload.as_ref());
                }
                draft.events.push(event);
            } else if self.options.mode == RunMode::Bundled {
                self.order(cx, draft, effect);
            }
            // An external Run Control learns of everything else by the events.
        }
        self.show_taken(cx, draft);
        self.authority.settle();
    }

    /// Tells the engine which attempts and approvals were made and which attempts are being worked on, so that its graph
    /// shows them. In the order of the journal, from which a re-projection tells it the same.
    pub(super) fn show_taken(&mut self, cx: &mut Context<'_>, draft: &mut Draft) {
        for taken in std::mem::take(&mut draft.record.taken) {
            // It decides nothing, so a run that does not take it any more need not.
            if let Ok(effects) = self.decide(cx, taken) {
                self.follow(cx, draft, effects);
            }
        }
    }

    fn order(&mut self, cx: &mut Context<'_>, draft: &mut Draft, effect: Effect) {
        let record = &mut draft.record;
        match effect {
            Effect::StepReady(order) => self.authority.record_step_ready(record, order, cx.offers, &self.run_input),
            Effect::CloseStep { step_run_id, closing } => self.authority.record_close(record, step_run_id, closing),
            Effect::StartChild(start) => {
                let step_id = step_of(&draft.events, start.step_run_id);
                self.authority.record_start_child(record, step_id, start);
            }
            Effect::CancelChild { child_run_id, reason } => {
                self.authority.record_cancel_child(record, child_run_id, &reason)
            }
            Effect::RunEnded(end) => self.authority.record_run_ended(record, end),
            // Reminders follow from the projection at the end of the turn; events were published by the caller.
            Effect::WakeAt(_) | Effect::Publish(_) => {}
        }
    }

    fn note_timer(&mut self, draft: &mut Draft, payload: Option<&Payload>) {
        if let Some(Payload::TimerFired(fired)) = payload {
            let entry = JournalEntry {
                r#type: "TimerFired".into(),
                step_run_id: fired.step_run_id.clone(),
                data: Some(Json::of(&serde_json::json!({ "timerId": fired.timer_id, "lateMs": fired.late_ms }))),
                ..JournalEntry::default()
            };
            self.authority.record_note(&mut draft.record, entry);
        }
    }
}

/// The step's name, from the change of state that was published just before.
fn step_of(events: &[granary_proto::v1::Event], step_run: Uuid) -> String {
    let wanted = step_run.to_string();
    let found = events.iter().rev().find_map(|event| match &event.payload {
        Some(Payload::StepRunStateChanged(changed)) if changed.step_run_id == wanted => Some(changed.step_id.clone()),
        _ => None,
    });
    found.unwrap_or_default()
}

fn rejection(refusal: Refusal, mode: RunMode) -> Rejection {
    match (refusal, mode) {
        (Refusal::Gap { expected, found }, RunMode::External) => {
            let message = format!("Expected fact {expected} next, but found {found}: the facts between are missing.");
            Rejection::new(Code::Gap, message).at("sequence")
        }
        (Refusal::OtherContent { sequence }, RunMode::External) => {
            let message = format!("Expected fact {sequence} as it was applied before, but found another content.");
            Rejection::new(Code::Conflict, message).at("sequence")
        }
        // The authority counts for the engine beside it, so this is a fault of ours; the run can be projected again.
        (Refusal::Gap { expected, found }, RunMode::Bundled) => {
            let message =
                format!("Expected the engine to be at fact {found}, but it is at {expected}; project the run again.");
            Rejection::new(Code::Internal, message)
        }
        (Refusal::OtherContent { sequence }, RunMode::Bundled) => {
            let message = format!("Expected fact {sequence} to be new, but the engine has it; project the run again.");
            Rejection::new(Code::Internal, message)
        }
        (Refusal::DoesNotFit { message, .. }, _) => Rejection::new(Code::WrongState, message),
    }
}
