//! What the workers saw: no attempt in two hands, no step behind a timer before its time.

use crate::cluster::definitions::NAP_SECONDS;
use crate::worker::Seen;
use std::collections::HashMap;
use std::time::Duration;

/// No nap of any trial is shorter.
const NAP: Duration = Duration::from_secs(NAP_SECONDS as u64);

/// What each worker got, in `seen`; a worker is told from another by its place.
pub fn doubled(seen: &[Vec<Seen>]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut hands: HashMap<&str, usize> = HashMap::new();
    for (worker, seen) in seen.iter().enumerate() {
        for one in seen {
            if let Some(before) = hands.insert(&one.attempt_id, worker).filter(|before| *before != worker) {
                faults.push(format!(
                    "run {}: attempt {} of step {} was given to workers {before} and {worker}",
                    one.run_id, one.attempt_id, one.step_id
                ));
            }
        }
    }
    faults
}

/// By our own clock: the step behind the timer comes no sooner than the timer's time after the step before it was first given to
/// anybody. It was reported later than that, so this never accuses an innocent; a fire that is early by more than a report
/// takes is found. Not for trials in which a timer meets another clock than the one it was set by: it is due by the owner's
/// clock, whoever that is.
pub fn early(seen: &[Vec<Seen>]) -> Vec<String> {
    let mut before = HashMap::new();
    for one in seen.iter().flatten().filter(|one| one.step_id == "before") {
        let at = before.entry(&one.run_id).or_insert(one.at);
        *at = (*at).min(one.at);
    }
    let mut faults = Vec::new();
    for one in seen.iter().flatten().filter(|one| one.step_id == "after") {
        if let Some(waited) = before.get(&one.run_id).and_then(|at| one.at.checked_duration_since(*at))
            && waited < NAP
        {
            faults.push(format!(
                "run {}: the step behind its timer of {NAP:?} at least came after {waited:?}",
                one.run_id
            ));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn seen(attempt: &str, step: &str, at: Instant) -> Seen {
        Seen { attempt_id: attempt.into(), run_id: "r".into(), step_id: step.into(), at }
    }

    #[test]
    fn two_hands_and_an_early_step_are_found() {
        let start = Instant::now();
        let late = start + NAP;
        let good = [vec![seen("1", "before", start)], vec![seen("2", "after", late)]];
        assert!(early(&good).is_empty() && doubled(&good).is_empty());
        let early = [vec![seen("1", "before", start), seen("2", "after", start + Duration::from_secs(1))]];
        assert_eq!(super::early(&early).len(), 1);
        let both = [vec![seen("1", "before", start)], vec![seen("1", "before", start)]];
        assert_eq!(doubled(&both).len(), 1);
        let again = [vec![seen("1", "before", start), seen("1", "before", start)]];
        assert!(doubled(&again).is_empty(), "the same worker may be given it again");
    }
}
