//! Two reminders a run: `wake` for the earliest of the engine's timers, `stuck` for the check of R15.
//!
//! A step turn writes no reminder row as a rule. `wake` is only moved to be earlier: a reminder that stands too early fires,
//! finds nothing due, and is set to the right moment then. Most steps end before their timeout, so this is far cheaper than
//! to follow each timer. `stuck` is set once and again whenever it fires; the longer nothing happens, the later: a run that waits
//! for weeks is looked at a few times, not every five minutes.

use super::turn::{Draft, Fired};
use super::{EngineSlot, RunGrain};
use grain_contract::{Decision, ReminderChange, Timestamp, Turn};

pub(super) const WAKE: &str = "wake";
pub(super) const STUCK: &str = "stuck";
/// Between two checks of a run at most, unless the option asks for longer.
const STUCK_MS_MAX: u64 = 24 * 60 * 60 * 1_000;

impl RunGrain {
    /// Changes of the reminders at the end of a turn; notes where they stand.
    pub(super) fn reminders(&mut self, draft: &Draft) -> Vec<ReminderChange> {
        let before = self.authority.counters();
        let accepted = !self.release_id.is_empty();
        let (wake, stuck) = if self.is_over() || !accepted {
            (None, None)
        } else {
            let wake = wake_at(before.wake, self.next_due(), draft.fired == Fired::Wake);
            let stuck_after = (self.options.engine)().stuck_after_ms;
            let stuck = match before.stuck {
                Some(stands) if draft.fired != Fired::Stuck => stands,
                Some(_) => draft
                    .record
                    .now
                    .plus_ms(self.quiet_for(draft.record.now).clamp(stuck_after, STUCK_MS_MAX.max(stuck_after))),
                None => draft.record.now.plus_ms(stuck_after),
            };
            (wake, Some(stuck))
        };
        let mut changes = Vec::new();
        // A reminder that fired stands as a row until the grain moves or clears it.
        change(&mut changes, WAKE, before.wake, wake, draft.fired == Fired::Wake);
        change(&mut changes, STUCK, before.stuck, stuck, draft.fired == Fired::Stuck);
        self.authority.set_reminders(wake, stuck);
        changes
    }

    /// Milliseconds since a step last began or was asked for.
    fn quiet_for(&self, now: Timestamp) -> u64 {
        match &self.engine {
            EngineSlot::Loaded(projection) => now.since(projection.last_begun()),
            EngineSlot::Rows(_) => 0,
        }
    }

    /// A reminder that this build does not set: it is cleared, or it would fire for ever (FR-117).
    pub(super) fn forget_reminder(&mut self, draft: Draft, name: &str) -> Decision {
        let decision = self.finish(draft, Vec::new());
        let clear = ReminderChange::Clear { name: name.to_owned() };
        match decision {
            Decision::Commit(mut turn) => {
                turn.reminders.push(clear);
                Decision::Commit(turn)
            }
            Decision::Read(_) => Decision::Commit(Turn { reminders: vec![clear], ..Turn::default() }),
            other => other,
        }
    }

    fn next_due(&self) -> Option<Timestamp> {
        match &self.engine {
            EngineSlot::Loaded(projection) => projection.next_due(),
            EngineSlot::Rows(_) => self.authority.counters().wake,
        }
    }
}

fn wake_at(stands: Option<Timestamp>, due: Option<Timestamp>, fired: bool) -> Option<Timestamp> {
    match (stands, due) {
        (_, due) if fired => due,
        (Some(stands), Some(due)) => Some(stands.min(due)),
        (Some(stands), None) => Some(stands),
        (None, due) => due,
    }
}

fn change(
    changes: &mut Vec<ReminderChange>,
    name: &str,
    before: Option<Timestamp>,
    after: Option<Timestamp>,
    fired: bool,
) {
    match after {
        Some(due) if fired || before != after => changes.push(ReminderChange::Set { name: name.into(), due }),
        None if fired || before.is_some() => changes.push(ReminderChange::Clear { name: name.into() }),
        Some(_) | None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_moves_only_to_be_earlier_until_it_fires() {
        let t = |ms| Some(Timestamp(ms));
        // (stands, due, fired) → wake
        let table = [
            (None, None, false, None),
            (None, t(5), false, t(5)),
            (t(5), t(9), false, t(5)),
            (t(5), t(3), false, t(3)),
            (t(5), None, false, t(5)),
            (t(5), t(9), true, t(9)),
            (t(5), None, true, None),
        ];
        for (stands, due, fired, wanted) in table {
            assert_eq!(wake_at(stands, due, fired), wanted, "{stands:?} {due:?} {fired}");
        }
    }

    #[test]
    fn only_what_moved_or_fired_is_written() {
        let t = |ms| Some(Timestamp(ms));
        let set = |ms| vec![ReminderChange::Set { name: "wake".into(), due: Timestamp(ms) }];
        let clear = || vec![ReminderChange::Clear { name: "wake".into() }];
        let table = [
            (None, None, false, vec![]),
            (t(5), t(5), false, vec![]),
            (t(5), t(5), true, set(5)),
            (t(5), t(4), false, set(4)),
            (t(5), None, false, clear()),
            (None, None, true, clear()),
        ];
        for (before, after, fired, wanted) in table {
            let mut changes = Vec::new();
            change(&mut changes, "wake", before, after, fired);
            assert_eq!(changes, wanted, "{before:?} {after:?} {fired}");
        }
    }
}
