//! The projection says what the journal says.

use crate::cluster::definitions::Kind;
use granary_proto::v1;

pub fn faults(graph: &v1::RunGraph, journal: &[v1::JournalEntry], kind: Kind) -> Vec<String> {
    let mut faults = Vec::new();
    if graph.state != "Completed" {
        faults.push(format!("the graph says {}", graph.state));
    }
    for (step, wanted) in kind.steps() {
        let found = graph.step_runs.iter().filter(|run| run.step_id == *step && run.state == "Succeeded").count();
        if found != *wanted as usize {
            faults.push(format!("the graph has {found} good runs of step {step} instead of {wanted}"));
        }
    }
    for run in graph.step_runs.iter().filter(|run| run.state != "Succeeded") {
        faults.push(format!("the graph has step {} in {}", run.step_id, run.state));
    }
    let last = journal.iter().map(|entry| entry.sequence).max().unwrap_or(0);
    if graph.last_outcome_sequence != last {
        faults.push(format!("the graph stands at fact {} and the journal at {last}", graph.last_outcome_sequence));
    }
    // Timers of other purposes (an attempt's time-out, the pause before the next) are set and cleared as faults have it.
    let naps: Vec<bool> = graph.timers.iter().filter(|t| t.purpose == "step").map(|t| t.fired).collect();
    let wanted = if kind.nap_ms().is_some() { vec![true] } else { Vec::new() };
    if naps != wanted {
        faults.push(format!("the graph has timers that fired ({naps:?}), and should have ({wanted:?})"));
    }
    let fired = graph.timers.iter().filter(|timer| timer.fired).count();
    let told = journal.iter().filter(|entry| entry.r#type == "TimerFired").count();
    // The pause before another attempt is a timer too, and leaves the graph with the attempt's end.
    let is_retried =
        |entry: &&v1::JournalEntry| entry.r#type == "AttemptOutcomeRecorded" && entry.outcome != "Succeeded";
    let retried = journal.iter().filter(is_retried).count();
    if !(fired..=fired + retried).contains(&told) {
        faults.push(format!(
            "{fired} timers fired in the graph, {told} in the journal, with {retried} attempts made again"
        ));
    }
    faults
}
