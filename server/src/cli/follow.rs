//! Follows a run to its end: one line a step as it moves.

use super::board::{Board, Move, pretty};
use super::client::Client;
use super::human::{self, Decide, Decided};
use super::out::say;
use super::style::Style;
use super::table::span;
use super::{Exit, Failure, exit, out};
use granary_proto::v1;
use granary_proto::wire::Json;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A server that is away for longer than this is given up.
const AWAY_MAX: Duration = Duration::from_secs(30);
const RECONNECT: Duration = Duration::from_millis(200);
/// When nothing moves: how often it is said why, and children are looked at for questions to people.
const QUIET: Duration = Duration::from_secs(3);
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

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64)
}
