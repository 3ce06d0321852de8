//! What a run's graph shows that it did not show before: steps that moved, reasons to wait that are new.

use super::exit;
use super::table::{cut, span};
use granary_proto::v1;
use granary_proto::wire::Json;
use std::collections::{BTreeSet, HashMap};

const DETAIL_CHARS_MAX: usize = 90;

/// What was seen so far.
#[derive(Default)]
pub struct Board {
    states: HashMap<String, String>,
    reasons: Vec<(String, String)>,
    said: BTreeSet<(String, String)>,
    /// Columns of the widest label so far.
    pub label_width: usize,
}

/// One step in a new state.
#[derive(Debug, PartialEq)]
pub struct Move {
    /// Since the run was accepted.
    pub at_ms: i64,
    pub label: String,
    pub kind: String,
    pub state: String,
    pub detail: String,
}

impl Move {
    pub fn as_json(&self) -> serde_json::Value {
        serde_json::json!({
            "atMs": self.at_ms, "step": self.label, "kind": self.kind, "state": self.state, "detail": self.detail
        })
    }
}

impl Board {
    /// The steps whose state is new, in the order in which they moved. `Pending` and `Ready` are not worth a line.
    pub fn moves(&mut self, graph: &v1::RunGraph, now_ms: i64) -> Vec<Move> {
        let accepted = graph.accepted_at.as_ref().map_or(now_ms, |at| at.millis());
        let mut moves = Vec::new();
        // Steps that are still to come count too, so that the columns stay where they are.
        let to_come = graph.edges.iter().flat_map(|edge| [&edge.from_step_id, &edge.to_step_id]);
        self.label_width = to_come.map(|id| id.chars().count()).chain([self.label_width]).max().unwrap_or(0);
        self.reasons.clear();
        for step in &graph.step_runs {
            self.label_width = self.label_width.max(label(step).chars().count());
            if let Some(waiting) = step.waiting.as_ref().filter(|w| !w.text.is_empty() && w.on != "predecessors") {
                self.reasons.push((label(step), waiting.text.clone()));
            }
            let before = self.states.insert(step.step_run_id.clone(), step.state.clone());
            if before.as_ref() == Some(&step.state) || matches!(step.state.as_str(), "Pending" | "Ready" | "") {
                continue;
            }
            moves.push(Move {
                at_ms: moved_at(step).unwrap_or(now_ms) - accepted,
                label: label(step),
                kind: step.kind.clone(),
                state: step.state.clone(),
                detail: detail(step),
            });
        }
        moves.sort_by_key(|m| m.at_ms);
        moves
    }

    /// Reasons to wait that were not said yet.
    pub fn new_reasons(&mut self) -> Vec<(String, String)> {
        let said = &mut self.said;
        self.reasons.iter().filter(|reason| said.insert((*reason).clone())).cloned().collect()
    }
}

fn moved_at(step: &v1::StepRun) -> Option<i64> {
    match step.state.as_str() {
        // `startedAt` is when the first attempt began; a later one moves when it was asked for.
        "Running" if step.attempt > 1 => step.waiting.as_ref()?.since.as_ref().map(|at| at.millis()),
        "Running" => step.started_at.as_ref().map(|at| at.millis()),
        "WaitingForHuman" | "WaitingForTimer" => step.waiting.as_ref()?.since.as_ref().map(|at| at.millis()),
        _ => step.ended_at.as_ref().map(|at| at.millis()),
    }
}

fn detail(step: &v1::StepRun) -> String {
    let attempt = if step.attempt > 1 { format!("attempt {}  ", step.attempt) } else { String::new() };
    let took = match (&step.started_at, &step.ended_at) {
        (Some(from), Some(to)) => format!("{:>8}  ", span(to.millis() - from.millis())),
        _ => String::new(),
    };
    let what = match (&step.failure, &step.waiting, &step.output) {
        (Some(failure), _, _) => exit::shown(failure),
        // Which worker has it is for the journal; who watches wants to know what is done.
        (None, Some(waiting), _) if step.state == "Running" && !waiting.queue.is_empty() => waiting.queue.clone(),
        (None, Some(waiting), _) if step.ended_at.is_none() => waiting.text.clone(),
        (None, _, Some(output)) => one_line(output),
        _ if !step.skipped_by.is_empty() => format!("{} did not lead here", step.skipped_by.join(", ")),
        _ => String::new(),
    };
    format!("{took}{attempt}{}", cut(&what, DETAIL_CHARS_MAX))
}

/// `step`, `step[2]` in the third branch of a fan-out, `step#2` in the second iteration of a loop.
pub fn label(step: &v1::StepRun) -> String {
    let branch: String = step.branch.iter().map(|n| format!("[{n}]")).collect();
    let iteration = if step.iteration > 1 { format!("#{}", step.iteration) } else { String::new() };
    format!("{}{branch}{iteration}", step.step_id)
}

pub fn one_line(json: &Json) -> String {
    // As it was written, in the author's order, if that is one line.
    if !json.text.contains(&b'\n') {
        return String::from_utf8_lossy(&json.text).into_owned();
    }
    json.value().map_or_else(|_| String::from_utf8_lossy(&json.text).into_owned(), |value| value.to_string())
}

pub fn pretty(json: &Json) -> String {
    json.value()
        .ok()
        .and_then(|value| serde_json::to_string_pretty(&value).ok())
        .unwrap_or_else(|| String::from_utf8_lossy(&json.text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use granary_proto::wire::Timestamp;

    fn step(id: &str, state: &str, started: i64, ended: i64) -> v1::StepRun {
        v1::StepRun {
            step_run_id: id.to_owned(),
            step_id: id.to_owned(),
            kind: "Tool".to_owned(),
            state: state.to_owned(),
            started_at: Timestamp::from_row(started),
            ended_at: Timestamp::from_row(ended),
            ..Default::default()
        }
    }

    fn graph(step_runs: Vec<v1::StepRun>) -> v1::RunGraph {
        v1::RunGraph { accepted_at: Some(Timestamp::from_millis(1_000)), step_runs, ..Default::default() }
    }

    #[test]
    fn a_step_has_a_line_when_it_moves_and_none_when_it_does_not() {
        let mut board = Board::default();
        let shown =
            |moves: Vec<Move>| moves.iter().map(|m| format!("{} {} {}", m.at_ms, m.label, m.state)).collect::<Vec<_>>();
        let first = graph(vec![
            step("b", "Running", 1_500, 0),
            step("a", "Succeeded", 1_100, 1_400),
            step("c", "Pending", 0, 0),
        ]);
        assert_eq!(shown(board.moves(&first, 9_000)), ["400 a Succeeded", "500 b Running"]);
        assert_eq!(shown(board.moves(&first, 9_000)), Vec::<String>::new());
        let mut again = step("b", "Running", 1_500, 0);
        again.attempt = 2;
        again.waiting = Some(v1::Waiting { since: Timestamp::from_row(1_900), ..Default::default() });
        assert_eq!(
            shown(board.moves(&graph(vec![step("b", "WaitingForTimer", 1_500, 0)]), 2_600)),
            ["1600 b WaitingForTimer"]
        );
        assert_eq!(shown(board.moves(&graph(vec![again]), 9_000)), ["900 b Running"]);
        let second = graph(vec![step("b", "Failed", 1_500, 2_000)]);
        assert_eq!(shown(board.moves(&second, 9_000)), ["1000 b Failed"]);
    }

    #[test]
    fn a_reason_to_wait_is_said_once() {
        let mut waits = step("a", "Ready", 0, 0);
        waits.waiting = Some(v1::Waiting {
            on: "worker".to_owned(),
            text: "worker for queue tool:x".to_owned(),
            ..Default::default()
        });
        let mut board = Board::default();
        board.moves(&graph(vec![waits]), 0);
        assert_eq!(board.new_reasons(), [("a".to_owned(), "worker for queue tool:x".to_owned())]);
        assert!(board.new_reasons().is_empty());
    }

    #[test]
    fn a_label_tells_branch_and_iteration() {
        let mut it = step("s", "Running", 0, 0);
        (it.branch, it.iteration) = (vec![1, 0], 3);
        assert_eq!(label(&it), "s[1][0]#3");
    }
}
