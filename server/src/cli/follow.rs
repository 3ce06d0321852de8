//! Follows a run to its end: one line a step as it moves.

use super::client::Client;
use super::human::{self, Decide, Decided};
use super::out::say;
use super::style::Style;
use super::table::{cut, span};
use super::{Exit, Failure, exit, out};
use granary_proto::v1;
use granary_proto::wire::Json;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A server that is away for longer than this is given up.
const AWAY_MAX: Duration = Duration::from_secs(30);
const RECONNECT: Duration = Duration::from_millis(200);
/// When nothing moves: how often it is said why, and children are looked at for questions to people.
const QUIET: Duration = Duration::from_secs(3);
const DETAIL_CHARS_MAX: usize = 90;
/// Pages of one graph at most: 500 step runs each.
const PAGES_MAX: usize = 1_000;

pub struct Follow {
    pub decide: Decide,
    pub show: Show,
    pub style: Style,
}

/// How moves are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Show {
    /// An aligned line each.
    Lines,
    /// A JSON object a line each.
    Json,
    Nothing,
}

/// Why one look at the stream ended.
enum Seen {
    Graph(Box<v1::RunGraph>),
    Quiet,
    Stopped,
    Broken(tonic::Status),
}

impl Follow {
    /// `stop` ends the watching, not the run.
    pub async fn to_the_end(&self, client: &Client, run_id: &str, stop: &CancellationToken) -> Result<Exit, Failure> {
        let mut board = Board::default();
        let mut decided = Decided::default();
        let mut away_since: Option<Instant> = None;
        loop {
            let request = v1::WatchRunRequest { run_id: run_id.to_owned() };
            let mut stream = match client.run_control().watch_run(request).await {
                Ok(response) => response.into_inner(),
                Err(status) => {
                    pause_or_give_up(status, &mut away_since, stop).await?;
                    if stop.is_cancelled() {
                        return Ok(Exit::Waiting);
                    }
                    continue;
                }
            };
            loop {
                match next(&mut stream, stop).await {
                    Seen::Graph(graph) => {
                        away_since = None;
                        let graph = completed(client, *graph).await?;
                        if let Some(exit) = self.look(client, &graph, &mut board, &mut decided, stop).await? {
                            return Ok(exit);
                        }
                    }
                    Seen::Quiet => {
                        self.say_why_it_waits(&mut board);
                        let graph = whole_graph(client, run_id).await;
                        if let Ok(graph) = graph
                            && let Some(exit) = self.look(client, &graph, &mut board, &mut decided, stop).await?
                        {
                            return Ok(exit);
                        }
                    }
                    Seen::Stopped => return Ok(Exit::Waiting),
                    Seen::Broken(status) => {
                        client.elsewhere();
                        pause_or_give_up(status, &mut away_since, stop).await?;
                        break;
                    }
                }
            }
        }
    }

    /// Prints what moved and answers what is asked. Gives the exit if there is nothing more to follow.
    async fn look(
        &self,
        client: &Client,
        graph: &v1::RunGraph,
        board: &mut Board,
        decided: &mut Decided,
        stop: &CancellationToken,
    ) -> Result<Option<Exit>, Failure> {
        for step in board.moves(graph, now_ms()) {
            self.print(&step, board.label_width);
        }
        if let Some(exit) = Exit::of_run(&graph.state) {
            return Ok(Some(exit));
        }
        // Who only watches has nothing left to do. A run of this command's own goes on, read or not.
        if self.decide == Decide::Nothing && out::is_closed() {
            return Ok(Some(Exit::Waiting));
        }
        human::answer(client, graph, &self.decide, decided, stop).await
    }

    fn print(&self, step: &Move, width: usize) {
        match self.show {
            Show::Nothing => return,
            Show::Json => {
                say!("{}", step.as_json());
                return;
            }
            Show::Lines => {}
        }
        let since = self.style.dim(&format!("{:>9}", span(step.at_ms)));
        let state = self.style.state(&step.state, &format!("{:<15}", step.state));
        let line = format!("{since}  {:<width$}  {:<12} {state} {}", step.label, step.kind, step.detail);
        say!("{}", line.trim_end());
    }

    fn say_why_it_waits(&self, board: &mut Board) {
        if self.show != Show::Lines {
            return;
        }
        for (label, text) in board.new_reasons() {
            say!("{}", self.style.dim(&format!("{:>9}  {label}: waits for {text}", "")));
        }
    }
}

async fn next(stream: &mut tonic::Streaming<v1::RunGraph>, stop: &CancellationToken) -> Seen {
    tokio::select! {
        message = stream.message() => match message {
            Ok(Some(graph)) => Seen::Graph(Box::new(graph)),
            Ok(None) => Seen::Broken(tonic::Status::unavailable("the server ended the stream")),
            Err(status) => Seen::Broken(status),
        },
        () = tokio::time::sleep(QUIET) => Seen::Quiet,
        () = stop.cancelled() => Seen::Stopped,
    }
}

async fn pause_or_give_up(
    status: tonic::Status,
    away_since: &mut Option<Instant>,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    use tonic::Code;
    let passing = matches!(
        status.code(),
        Code::Unavailable
            | Code::Unknown
            | Code::Cancelled
            | Code::ResourceExhausted
            | Code::DeadlineExceeded
            | Code::Aborted
    );
    let since = *away_since.get_or_insert_with(Instant::now);
    if !passing || since.elapsed() > AWAY_MAX {
        return Err(status.into());
    }
    tokio::select! {
        () = tokio::time::sleep(RECONNECT) => {}
        () = stop.cancelled() => {}
    }
    Ok(())
}

/// What was seen so far.
#[derive(Default)]
struct Board {
    states: HashMap<String, String>,
    reasons: Vec<(String, String)>,
    said: BTreeSet<(String, String)>,
    label_width: usize,
}

/// One step in a new state.
#[derive(Debug, PartialEq)]
struct Move {
    /// Since the run was accepted.
    at_ms: i64,
    label: String,
    kind: String,
    state: String,
    detail: String,
}

impl Move {
    fn as_json(&self) -> serde_json::Value {
        serde_json::json!({
            "atMs": self.at_ms, "step": self.label, "kind": self.kind, "state": self.state, "detail": self.detail
        })
    }
}

impl Board {
    /// The steps whose state is new, in the order in which they moved. `Pending` and `Ready` are not worth a line.
    fn moves(&mut self, graph: &v1::RunGraph, now_ms: i64) -> Vec<Move> {
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
    fn new_reasons(&mut self) -> Vec<(String, String)> {
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

/// The graph with all its pages.
pub async fn whole_graph(client: &Client, run_id: &str) -> Result<v1::RunGraph, Failure> {
    let request = v1::GetRunGraphRequest { run_id: run_id.to_owned(), ..Default::default() };
    let graph = client.engine().get_run_graph(request).await?.into_inner();
    completed(client, graph).await
}

async fn completed(client: &Client, mut graph: v1::RunGraph) -> Result<v1::RunGraph, Failure> {
    for _ in 0..PAGES_MAX {
        if graph.next_page_token.is_empty() {
            break;
        }
        let page_token = std::mem::take(&mut graph.next_page_token);
        let request = v1::GetRunGraphRequest { run_id: graph.run_id.clone(), page_token, page_size: 0 };
        let page = client.engine().get_run_graph(request).await?.into_inner();
        graph.step_runs.extend(page.step_runs);
        graph.next_page_token = page.next_page_token;
    }
    Ok(graph)
}

/// How it ended, for people.
pub fn print_end(graph: &v1::RunGraph, style: Style) {
    let took = match (&graph.accepted_at, &graph.ended_at) {
        (Some(from), Some(to)) => format!(" in {}", span(to.millis() - from.millis())),
        _ => String::new(),
    };
    say!("\nrun {} {}{took}", graph.run_id, style.state(&graph.state, &graph.state));
    if let Some(failure) = &graph.failure {
        let at = if graph.failed_step_id.is_empty() { String::new() } else { format!("at {}: ", graph.failed_step_id) };
        say!("failed      {at}{}", exit::shown(failure));
        if !graph.compensation_entries.is_empty() {
            let done: Vec<String> =
                graph.compensation_entries.iter().map(|e| format!("{} {}", e.compensation_step_id, e.state)).collect();
            say!("compensated {} ({})", if graph.compensated { "yes" } else { "no" }, done.join(", "));
        }
    }
    if let Some(follow_up) = graph.follow_up.as_ref().filter(|f| !f.reason.is_empty()) {
        say!("follow up   {}", follow_up.reason);
        say!("  undone      {}", follow_up.undone_step_ids.join(", "));
        say!("  not undone  {}", follow_up.not_undone_step_ids.join(", "));
    }
    let Some(output) = &graph.output else { return };
    say!("output\n{}", pretty(output));
    for (name, path) in files_in(output) {
        say!("{name:<11} {path}");
    }
}

/// Fields of the output that are paths of files that are there.
fn files_in(output: &Json) -> Vec<(String, String)> {
    let Ok(serde_json::Value::Object(fields)) = output.value() else { return Vec::new() };
    let path = |(name, value): (String, serde_json::Value)| {
        let path = value.as_str()?.to_owned();
        (path.contains('/') && Path::new(&path).is_file()).then_some((name, path))
    };
    fields.into_iter().filter_map(path).collect()
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

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64)
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
