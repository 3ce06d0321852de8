//! `granary runs`: start, list, show, watch, cancel, observe, journal.

use super::client::Client;
use super::document::read_json;
use super::follow::{self, Follow, Show};
use super::human::Decide;
use super::out::{say, say_part};
use super::style::Style;
use super::table::{Table, cut, moment, span};
use super::{Common, Exit, Failure, board, exit};
use clap::Subcommand;
use granary_proto::v1;
use granary_proto::wire::Timestamp;
use serde::Serialize;
use std::path::PathBuf;
use uuid::Uuid;

/// Rows asked for at a time.
const PAGE: u32 = 200;
const VALUE_CHARS_MAX: usize = 80;

#[derive(Subcommand, Debug)]
pub enum RunsCommand {
    /// Start a run of a loaded definition
    #[command(
        after_help = "Example:\n  granary runs start repository-assessment --input examples/assessment-input.json --key nightly-1 --watch"
    )]
    Start(StartArgs),
    /// List runs, newest first
    #[command(
        after_help = "Examples:\n  granary runs list --state Running --waiting-on human\n  granary runs list --definition repository-assessment --limit 20"
    )]
    List(ListArgs),
    /// Show one run with its steps and why each of them waits
    #[command(after_help = "Example:\n  granary runs show 01934c7e-0000-7000-8000-000000000001")]
    Show { run_id: String },
    /// Follow a run to its end
    #[command(after_help = "Example:\n  granary runs watch 01934c7e-0000-7000-8000-000000000001")]
    Watch { run_id: String },
    /// Cancel a run; what it did is not undone
    #[command(
        after_help = "Example:\n  granary runs cancel 01934c7e-0000-7000-8000-000000000001 --reason \"wrong input\""
    )]
    Cancel {
        run_id: String,
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Tell a run what is seen in its world; what waits for it looks at once
    #[command(
        after_help = "Examples:\n  granary runs observe 01934c7e-0000-7000-8000-000000000001 scene '{\"text\":\"Inbox\"}'\n  granary runs observe 01934c7e-0000-7000-8000-000000000001 world '{\"unread\":3}'"
    )]
    Observe {
        run_id: String,
        /// scene (takes the place of the one before) or world (an object of variables)
        kind: String,
        /// JSON
        value: String,
    },
    /// Read the journal of a run: every fact and order, numbered
    #[command(after_help = "Example:\n  granary runs journal 01934c7e-0000-7000-8000-000000000001 --format json")]
    Journal {
        run_id: String,
        /// Only entries behind this number.
        #[arg(long, default_value_t = 0)]
        after: u64,
    },
}

#[derive(clap::Args, Debug)]
pub struct StartArgs {
    /// A definition id (its newest version), `definition@version`, or a release id.
    pub definition: String,
    /// File with the input as JSON; `-` is standard input.
    #[arg(long)]
    pub input: Option<PathBuf>,
    /// File with variables as a JSON object.
    #[arg(long)]
    pub variables: Option<PathBuf>,
    /// Starting again with the same key gives the same run.
    #[arg(long, default_value = "", conflicts_with = "run_id")]
    pub key: String,
    /// A UUID of your choice for the run; starting it again gives the same run.
    #[arg(long, default_value = "")]
    pub run_id: String,
    #[arg(long, default_value = "")]
    pub project: String,
    /// Follow it to its end; the exit code tells how it ended.
    #[arg(long)]
    pub watch: bool,
}

#[derive(clap::Args, Debug)]
pub struct ListArgs {
    /// Only runs in this state; may be given more than once.
    #[arg(long)]
    pub state: Vec<String>,
    #[arg(long, default_value = "")]
    pub definition: String,
    /// Only runs that wait for: worker, timer, human, join, retry, child.
    #[arg(long, default_value = "")]
    pub waiting_on: String,
    /// With `--waiting-on worker`: only this queue, e.g. tool:knowledge-search.
    #[arg(long, default_value = "")]
    pub queue: String,
    /// Accepted after this moment, RFC 3339.
    #[arg(long)]
    pub after: Option<Timestamp>,
    /// Accepted before this moment, RFC 3339.
    #[arg(long)]
    pub before: Option<Timestamp>,
    /// How many at most.
    #[arg(long, default_value_t = 50)]
    pub limit: usize,
}

pub async fn run(common: &Common, command: RunsCommand) -> Result<Exit, Failure> {
    let client = Client::connect(common).await?;
    match command {
        RunsCommand::Start(args) => start(common, &client, args).await,
        RunsCommand::List(args) => list(common, &client, args).await,
        RunsCommand::Show { run_id } => show(common, &client, run_id).await,
        RunsCommand::Watch { run_id } => watch(common, &client, &run_id).await,
        RunsCommand::Cancel { run_id, reason } => cancel(common, &client, run_id, reason).await,
        RunsCommand::Observe { run_id, kind, value } => {
            let value = granary_proto::wire::Json::new(value);
            client.run_control().observe(v1::ObserveRequest { run_id, kind, value: Some(value) }).await?;
            Ok(Exit::Good)
        }
        RunsCommand::Journal { run_id, after } => journal(common, &client, run_id, after).await,
    }
}

async fn start(common: &Common, client: &Client, args: StartArgs) -> Result<Exit, Failure> {
    // A release id is opaque, but those that are given by default have an `@`; a definition id never has one.
    let (definition_id, release) =
        if args.definition.contains('@') { (String::new(), args.definition) } else { (args.definition, String::new()) };
    // A call that is made again must not be a second run.
    let has_name = !(args.key.is_empty() && args.run_id.is_empty());
    let run_id = if has_name { args.run_id } else { Uuid::now_v7().to_string() };
    let request = v1::SubmitRunRequest {
        client_key: args.key,
        definition_release_id: release,
        definition_id,
        version: String::new(),
        project_id: args.project,
        input: args.input.as_deref().map(read_json).transpose()?,
        variables: args.variables.as_deref().map(read_json).transpose()?,
        run_id,
    };
    let answer = client.run_control().submit_run(request).await?.into_inner();
    let run_id = answer.run.as_ref().map(|run| run.run_id.clone()).unwrap_or_default();
    if args.watch {
        return watch(common, client, &run_id).await;
    }
    if common.is_json() {
        print_json(&answer)?;
    } else {
        say!("{run_id}{}", if answer.repeated { " (started before)" } else { "" });
    }
    Ok(Exit::Good)
}

async fn list(common: &Common, client: &Client, args: ListArgs) -> Result<Exit, Failure> {
    let mut request = v1::ListRunsRequest {
        states: args.state,
        definition_id: args.definition,
        waiting_on: args.waiting_on,
        queue: args.queue,
        accepted_after: args.after,
        accepted_before: args.before,
        ..Default::default()
    };
    let mut runs = Vec::new();
    loop {
        request.page_size = PAGE.min((args.limit - runs.len()) as u32);
        if request.page_size == 0 {
            break;
        }
        let page = client.run_control().list_runs(request.clone()).await?.into_inner();
        runs.extend(page.runs);
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() || runs.len() >= args.limit {
            break;
        }
    }
    runs.truncate(args.limit);
    if common.is_json() {
        print_json(&v1::ListRunsResponse { runs, next_page_token: request.page_token })?;
        return Ok(Exit::Good);
    }
    let mut table = Table::new(&["RUN", "DEFINITION", "STATE", "ACCEPTED", "TOOK", "WAITS FOR / FAILED BY"]);
    for run in &runs {
        let definition = format!("{} {}", run.definition_id, run.definition_version);
        table.row([
            run.run_id.clone(),
            definition,
            run.state.clone(),
            moment(run.accepted_at.as_ref()),
            took(run.accepted_at.as_ref(), run.ended_at.as_ref()),
            why(run),
        ]);
    }
    say_part!("{}", table.render(Style::of_stdout()));
    Ok(Exit::Good)
}

/// In one line: what an open run waits for, or what ended a failed one.
fn why(run: &v1::Run) -> String {
    if let Some(failure) = &run.failure {
        let step = if run.failed_step_id.is_empty() { String::new() } else { format!("{}: ", run.failed_step_id) };
        return format!("{step}{}", exit::shown(failure));
    }
    let of_step = |w: &v1::StepWaiting| Some(format!("{}: {}", w.step_id, w.waiting.as_ref()?.text));
    let waits: Vec<String> = run.waiting.iter().filter_map(of_step).take(3).collect();
    let more = run.waiting.len().saturating_sub(waits.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", waits.join("; "))
}

fn took(from: Option<&Timestamp>, to: Option<&Timestamp>) -> String {
    match (from, to) {
        (Some(from), Some(to)) => span(to.millis() - from.millis()),
        _ => "-".to_owned(),
    }
}

async fn show(common: &Common, client: &Client, run_id: String) -> Result<Exit, Failure> {
    let run = client.run_control().get_run(v1::GetRunRequest { run_id: run_id.clone() }).await?.into_inner();
    let graph = follow::whole_graph(client, &run_id).await?;
    if common.is_json() {
        #[derive(Serialize)]
        struct Shown {
            run: v1::Run,
            graph: v1::RunGraph,
        }
        print_json(&Shown { run, graph })?;
        return Ok(Exit::Good);
    }
    let style = Style::of_stdout();
    let line = |name: &str, value: &str| {
        if !value.is_empty() && value != "-" {
            say!("{name:<12}{value}");
        }
    };
    line("run", &run.run_id);
    line(
        "definition",
        &format!("{} {} (release {})", run.definition_id, run.definition_version, run.definition_release_id),
    );
    line("state", &style.state(&run.state, &format!("{} / {}", run.state, graph.state)));
    line("accepted", &moment(run.accepted_at.as_ref()));
    line("ended", &moment(run.ended_at.as_ref()));
    line("took", &took(run.accepted_at.as_ref(), run.ended_at.as_ref()));
    line("parent", &run.parent_run_id);
    if let Some(failure) = &run.failure {
        line("failed", &format!("{} {}", run.failed_step_id, exit::shown(failure)));
        line("compensated", if run.compensated { "yes" } else { "no" });
    }
    if let Some(follow_up) = graph.follow_up.as_ref().filter(|f| !f.reason.is_empty()) {
        line("follow up", &follow_up.reason);
        line("undone", &follow_up.undone_step_ids.join(", "));
        line("not undone", &follow_up.not_undone_step_ids.join(", "));
    }
    say!();
    say_part!("{}", steps_table(&graph).render(style));
    if let Some(output) = &run.output {
        say!("\noutput\n{}", board::pretty(output));
    }
    Ok(Exit::Good)
}

fn steps_table(graph: &v1::RunGraph) -> Table {
    let mut table = Table::new(&["STEP", "KIND", "STATE", "ATTEMPTS", "TOOK", "WAITS FOR / OUTPUT"]);
    for step in &graph.step_runs {
        let last = if let Some(failure) = &step.failure {
            exit::shown(failure)
        } else if let Some(waiting) = step.waiting.as_ref().filter(|w| !w.text.is_empty()) {
            waiting.text.clone()
        } else if !step.skipped_by.is_empty() {
            format!("skipped by {}", step.skipped_by.join(", "))
        } else {
            step.output.as_ref().map(board::one_line).unwrap_or_default()
        };
        table.row([
            board::label(step),
            step.kind.clone(),
            step.state.clone(),
            step.attempt.to_string(),
            took(step.started_at.as_ref(), step.ended_at.as_ref()),
            cut(&last, VALUE_CHARS_MAX),
        ]);
    }
    table
}

async fn watch(common: &Common, client: &Client, run_id: &str) -> Result<Exit, Failure> {
    let show = if common.is_json() { Show::Json } else { Show::Lines };
    let follow = Follow { decide: Decide::Nothing, show, style: Style::of_stdout() };
    let stop = super::signals::stop();
    follow.to_the_end(client, run_id, &stop).await
}

async fn cancel(common: &Common, client: &Client, run_id: String, reason: String) -> Result<Exit, Failure> {
    let run =
        client.run_control().cancel_run(v1::CancelRunRequest { run_id, reason, by: String::new() }).await?.into_inner();
    if common.is_json() {
        print_json(&run)?;
    } else {
        say!("{}", run.state);
    }
    Ok(Exit::Good)
}

async fn journal(common: &Common, client: &Client, run_id: String, after: u64) -> Result<Exit, Failure> {
    let mut request = v1::ReadJournalRequest { run_id, after, page_size: PAGE };
    let mut entries = Vec::new();
    loop {
        let page = client.run_control().read_journal(request.clone()).await?.into_inner();
        let read = page.entries.len();
        entries.extend(page.entries);
        if page.next_after == 0 || read == 0 {
            break;
        }
        request.after = page.next_after;
    }
    if common.is_json() {
        print_json(&v1::ReadJournalResponse { entries, next_after: 0 })?;
        return Ok(Exit::Good);
    }
    let mut table = Table::new(&["NUMBER", "AT", "ENTRY", "STEP", "ATTEMPT", "OUTCOME", "BY", "DETAIL"]);
    for e in &entries {
        let attempt = if e.attempt == 0 { String::new() } else { e.attempt.to_string() };
        let outcome = if e.outcome.is_empty() { e.decision.clone() } else { e.outcome.clone() };
        let detail = match (&e.failure, &e.data) {
            (Some(failure), _) => exit::shown(failure),
            (None, Some(data)) if e.text.is_empty() => board::one_line(data),
            _ => e.text.clone(),
        };
        table.row([
            e.number.to_string(),
            moment(e.at.as_ref()),
            e.r#type.clone(),
            e.step_id.clone(),
            attempt,
            outcome,
            e.by.clone(),
            cut(&detail, VALUE_CHARS_MAX),
        ]);
    }
    say_part!("{}", table.render(Style::of_stdout()));
    Ok(Exit::Good)
}

pub fn print_json<T: Serialize>(value: &T) -> Result<(), Failure> {
    say!("{}", serde_json::to_string_pretty(value).map_err(|e| Failure::no("internal", e.to_string()))?);
    Ok(())
}
