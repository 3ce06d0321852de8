//! The journal of a run adds up: one end, each step done as often as it should be, no attempt with two ends, no step with two
//! workers at the same time, no timer early.

use crate::cluster::definitions::Kind;
use granary_proto::v1;
use std::collections::HashMap;

pub fn faults(journal: &[v1::JournalEntry], kind: Kind) -> Vec<String> {
    let mut faults = crate::proof::order_faults(journal);
    faults.extend(ending(journal));
    faults.extend(successes(journal, kind));
    faults.extend(leases(journal));
    faults
}

/// An accepted run of ours has nothing to fail with: whatever was broken, it completes.
fn ending(journal: &[v1::JournalEntry]) -> Option<String> {
    let last = journal.last().map_or("nothing", |entry| entry.r#type.as_str());
    (last != "RunCompleted").then(|| format!("the journal ends with {last}"))
}

fn successes(journal: &[v1::JournalEntry], kind: Kind) -> Vec<String> {
    let count = |step: &str| {
        let good = |e: &&v1::JournalEntry| e.r#type == "AttemptOutcomeRecorded" && e.outcome == "Succeeded";
        journal.iter().filter(good).filter(|e| e.step_id == step).count()
    };
    let wrong = kind.steps().iter().map(|(step, wanted)| (step, *wanted as usize, count(step)));
    wrong
        .filter(|(_, wanted, found)| wanted != found)
        .map(|(step, wanted, found)| format!("step {step} succeeded {found} times instead of {wanted}"))
        .collect()
}

/// A step run has at most one attempt that a worker holds: the next is claimed only after the one before has its outcome, or was
/// put back because its worker never started it.
fn leases(journal: &[v1::JournalEntry]) -> Vec<String> {
    let mut faults = Vec::new();
    // Step run → the attempt that is out, and who has it.
    let mut out: HashMap<&str, (&str, &str)> = HashMap::new();
    for entry in journal {
        match entry.r#type.as_str() {
            "AttemptClaimed" => {
                let claim = (entry.attempt_id.as_str(), entry.by.as_str());
                if let Some((attempt, by)) = out.insert(&entry.step_run_id, claim) {
                    faults.push(format!(
                        "entry {}: step run {} was claimed by {} (attempt {}) while {by} held attempt {attempt}",
                        entry.number, entry.step_run_id, entry.by, entry.attempt_id
                    ));
                }
            }
            "AttemptOutcomeRecorded" | "AttemptRequeued" => {
                out.remove(entry.step_run_id.as_str());
            }
            _ => {}
        }
    }
    faults
}

/// The owners' clocks say when the timer was set and when it fired and brought about the next step. Where clocks are wrong, the
/// next step as the workers saw it counts instead (see `workers`).
pub fn early_timers(journal: &[v1::JournalEntry], kind: Kind) -> Option<String> {
    let nap = i64::try_from(kind.nap_ms()?).ok()?;
    let good = |e: &&v1::JournalEntry| e.r#type == "AttemptOutcomeRecorded" && e.outcome == "Succeeded";
    let set = journal.iter().filter(good).find(|e| e.step_id == "before").and_then(millis)?;
    let next = journal.iter().find(|e| e.r#type == "AttemptCreated" && e.step_id == "after").and_then(millis)?;
    (next < set + nap).then(|| format!("its timer of {nap} ms fired after {} ms", next - set))
}

fn millis(entry: &v1::JournalEntry) -> Option<i64> {
    entry.at.as_ref().map(|at| at.seconds * 1_000 + i64::from(at.nanos) / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64, kind: &str, step: &str, attempt: &str, outcome: &str, at: i64) -> v1::JournalEntry {
        v1::JournalEntry {
            number,
            r#type: kind.into(),
            step_id: step.into(),
            step_run_id: step.into(),
            attempt_id: attempt.into(),
            outcome: outcome.into(),
            at: Some(second(at)),
            by: "w".into(),
            ..Default::default()
        }
    }

    fn second(seconds: i64) -> granary_proto::wire::Timestamp {
        granary_proto::wire::Timestamp { seconds, nanos: 0 }
    }

    fn nap() -> Vec<v1::JournalEntry> {
        vec![
            entry(1, "RunAccepted", "", "", "", 0),
            entry(2, "AttemptClaimed", "before", "1", "", 0),
            entry(3, "AttemptOutcomeRecorded", "before", "1", "Succeeded", 1),
            entry(4, "TimerFired", "nap", "", "", 3),
            entry(5, "AttemptCreated", "after", "2", "", 3),
            entry(6, "AttemptClaimed", "after", "2", "", 3),
            entry(7, "AttemptOutcomeRecorded", "after", "2", "Succeeded", 4),
            entry(8, "RunCompleted", "", "", "", 4),
        ]
    }

    #[test]
    fn a_good_journal_has_no_fault() {
        assert_eq!(faults(&nap(), Kind::Nap(2)), Vec::<String>::new());
    }

    #[test]
    fn two_leases_at_the_same_time_are_found_and_one_after_the_other_are_not() {
        let claim = |n, attempt| entry(n, "AttemptClaimed", "s", attempt, "", 0);
        assert_eq!(leases(&[claim(1, "x"), claim(2, "y")]).len(), 1);
        let back = entry(2, "AttemptRequeued", "s", "x", "", 0);
        assert!(leases(&[claim(1, "x"), back, claim(3, "x")]).is_empty());
        let lost = entry(2, "AttemptOutcomeRecorded", "s", "x", "Uncertain", 0);
        assert!(leases(&[claim(1, "x"), lost, claim(3, "y")]).is_empty());
    }

    #[test]
    fn an_early_fire_is_found() {
        let mut early = nap();
        early[4].at = Some(second(2));
        assert_eq!(early_timers(&early, Kind::Nap(2)).as_deref(), Some("its timer of 2000 ms fired after 1000 ms"));
        assert_eq!(early_timers(&nap(), Kind::Nap(2)), None);
    }

    #[test]
    fn a_run_that_failed_is_a_fault() {
        let mut failed = nap();
        failed[7].r#type = "RunFailed".into();
        assert_eq!(faults(&failed, Kind::Nap(2)), ["the journal ends with RunFailed"]);
    }
}
