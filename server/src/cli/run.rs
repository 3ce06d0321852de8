//! `granary run`: one workflow from file to end, with everything it needs in this process.

use super::client::Client;
use super::document::{Document, read_json};
use super::follow::{self, Follow, Show};
use super::human::Decide;
use super::out::{complain, say};
use super::style::Style;
use super::worker::{self, Overrides};
use super::{Common, Exit, Failure, draw, signals};
use clap::ValueEnum;
use granary::config::Config;
use granary::node::{Granary, Node};
use granary_proto::v1;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// When told to stop: how long commands in progress may still take. They go on in the next life.
const DRAIN: Duration = Duration::from_secs(2);
const PROJECT: &str = "local";

/// Run a workflow document to its end
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  granary run examples/repository-assessment.yaml --input examples/assessment-input.json\n  \
                        granary run examples/repository-assessment.yaml --run-id 01934c7e-0000-7000-8000-000000000001   (goes on after a kill)\n\n\
                        Without --server it starts a silo of its own on the data folder, and the worker that lies beside the document.\n\n\
                        Exit codes: 0 completed; 1 failed; 2 bad input; 3 no server; 4 cancelled; 5 not ended (waits for a decision, or ctrl-C)."
)]
pub struct RunArgs {
    /// The workflow document, YAML or JSON.
    pub file: PathBuf,
    /// File with the input as JSON; `-` is standard input.
    #[arg(long)]
    pub input: Option<PathBuf>,
    /// A UUID for the run. If a run of this id is there, it is followed instead of started.
    #[arg(long)]
    pub run_id: Option<Uuid>,
    /// Data folder of the silo.
    #[arg(long, default_value = "data/run")]
    pub data: PathBuf,
    /// How questions to people are answered; by default at the terminal, or not at all if there is none.
    #[arg(long, value_enum)]
    pub decide: Option<Rule>,
    /// The worker file; by default NAME.worker.yaml beside NAME.yaml, or that of the definition's name.
    #[arg(long)]
    pub worker: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Rule {
    /// Approve; give an escalated step one more try.
    Approve,
    /// Reject; let an escalated step fail.
    Reject,
    /// Leave it to somebody else, and end with code 5.
    Wait,
}

pub async fn run(common: &Common, args: RunArgs) -> Result<Exit, Failure> {
    // Everything that can be wrong is found before anything is started.
    let documents = Document::read(&args.file)?.with_callees()?;
    let document = documents.last().expect("a document comes with itself");
    let input = args.input.as_deref().map(read_json).transpose()?;
    let worker_file = match (&args.worker, common.server.is_empty()) {
        (Some(file), _) => Some(file.clone()),
        // Somebody else's server has its own workers, unless one is named.
        (None, false) => None,
        (None, true) => document.worker_file(),
    };
    let stop = signals::stop();
    let node = if common.server.is_empty() { Some(start_node(&args.data).await?) } else { None };
    let servers = node.as_ref().map_or_else(|| common.servers(), |node| vec![node.url()]);
    let working = work(common, &args, worker_file.as_deref(), &servers)?;
    let outcome = follow_run(common, &args, &documents, document, input, &servers, &stop).await;
    if let Some((worker, stop_worker)) = working {
        stop_worker.cancel();
        match worker.await {
            Ok(Err(failure)) if outcome.is_ok() => return Err(failure),
            _ => {}
        }
    }
    if let Some(node) = node {
        node.shutdown().await.map_err(|e| Failure::no("internal", format!("{e:#}")))?;
    }
    outcome
}

async fn start_node(data: &Path) -> Result<Node, Failure> {
    let mut config = Config::development(data);
    config.listen = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    Granary::start(config)
        .await
        .map_err(|error| Failure::usage(format!("The silo on {} did not start: {error:#}", data.display())))
}

type Working = (tokio::task::JoinHandle<Result<(), Failure>>, CancellationToken);

fn work(common: &Common, args: &RunArgs, file: Option<&Path>, servers: &[String]) -> Result<Option<Working>, Failure> {
    let Some(file) = file else { return Ok(None) };
    let overrides = Overrides {
        servers: servers.to_vec(),
        // Another tenant's worker would never be asked.
        tenant: Some(common.tenant().to_owned()),
        // Beside the data, so that a kill of everything is a kill of one folder's world.
        state: Some(args.data.join("worker")),
        drain: Some(DRAIN),
        ..Overrides::default()
    };
    let worker = worker::make(file, overrides)?;
    let stop = CancellationToken::new();
    Ok(Some((worker::spawn(worker, stop.clone()), stop)))
}

async fn follow_run(
    common: &Common,
    args: &RunArgs,
    documents: &[Document],
    document: &Document,
    input: Option<granary_proto::wire::Json>,
    servers: &[String],
    stop: &CancellationToken,
) -> Result<Exit, Failure> {
    let client = Client::connect_to(servers, common).await?;
    let run_id = args.run_id.unwrap_or_else(Uuid::now_v7).to_string();
    let style = Style::of_stdout();
    if !common.is_json() {
        // First of all, so that it is known whatever happens next.
        say!("run {run_id}");
    }
    match existing(&client, &run_id, args.run_id.is_some()).await? {
        Some(run) if run.definition_id != document.definition_id => {
            return Err(Failure::usage(format!(
                "Expected run {run_id} to be of {:?}, but found it to be of {:?}.",
                document.definition_id, run.definition_id
            )));
        }
        Some(_) if !common.is_json() => say!("{}", style.dim("it is there already: going on with it")),
        Some(_) => {}
        None => {
            let release_id = publish(common, &client, documents).await?;
            submit(&client, &run_id, release_id, input).await?;
        }
    }
    let show = if common.is_json() { Show::Nothing } else { Show::Lines };
    let exit = Follow { decide: rule(args.decide), show, style }.to_the_end(&client, &run_id, stop).await?;
    let graph = follow::whole_graph(&client, &run_id).await?;
    if common.is_json() {
        super::runs::print_json(&graph)?;
    } else if exit == Exit::Waiting {
        say_how_to_go_on(&client, common, args, &run_id).await?;
    } else {
        follow::print_end(&graph, style);
    }
    Ok(exit)
}

fn rule(decide: Option<Rule>) -> Decide {
    match decide {
        Some(Rule::Approve) => Decide::Approve,
        Some(Rule::Reject) => Decide::Reject,
        Some(Rule::Wait) => Decide::Wait,
        None if std::io::stdin().is_terminal() => Decide::Ask,
        None => Decide::Wait,
    }
}

async fn existing(client: &Client, run_id: &str, may_be_there: bool) -> Result<Option<v1::Run>, Failure> {
    if !may_be_there {
        return Ok(None);
    }
    match client.run_control().get_run(v1::GetRunRequest { run_id: run_id.to_owned() }).await {
        Ok(run) => Ok(Some(run.into_inner())),
        Err(status) if status.code() == tonic::Code::NotFound => Ok(None),
        Err(status) => Err(status.into()),
    }
}

/// Loads all documents, callees first. Gives the release of the last.
async fn publish(common: &Common, client: &Client, documents: &[Document]) -> Result<String, Failure> {
    let mut release_id = String::new();
    for document in documents {
        for file in document.skill_files() {
            load_skill(client, &file).await?;
        }
        release_id = publish_one(common, client, document).await?;
    }
    Ok(release_id)
}

async fn load_skill(client: &Client, file: &Path) -> Result<(), Failure> {
    let text = super::document::text_of(file)?;
    let answer = super::skills::load_one(client, text.clone()).await?;
    if answer.loaded {
        return Ok(());
    }
    let path = file.display().to_string();
    complain(draw::findings(&path, &text, &answer.findings, Style::plain()).trim_end());
    Err(Failure::usage(format!("Expected a valid skill, but found {} in {path}.", draw::counts(&answer.findings))))
}

/// As published if it can be, else as a draft: somebody who tries things out changes a document more often than its version.
async fn publish_one(common: &Common, client: &Client, document: &Document) -> Result<String, Failure> {
    if let Ok(answer) = client.engine().load_workflow_definition(document.load_request(false)).await
        && let v1::LoadWorkflowDefinitionResponse { version: Some(version), loaded: true, .. } = answer.into_inner()
    {
        return Ok(version.release_id);
    }
    let answer = client.engine().load_workflow_definition(document.load_request(true)).await?.into_inner();
    let path = document.path.display().to_string();
    if !answer.findings.is_empty() {
        // On standard error: standard output belongs to the run.
        complain(draw::findings(&path, &document.text, &answer.findings, Style::plain()).trim_end());
    }
    match answer.version.filter(|_| answer.loaded) {
        Some(version) => {
            if !common.is_json() {
                say!("{}", Style::of_stdout().dim(&format!("{path} runs as a draft (release {})", version.release_id)));
            }
            Ok(version.release_id)
        }
        None => Err(Failure::usage(format!(
            "Expected a valid document, but found {} in {path}.",
            draw::counts(&answer.findings)
        ))),
    }
}

async fn submit(
    client: &Client,
    run_id: &str,
    definition_release_id: String,
    input: Option<granary_proto::wire::Json>,
) -> Result<(), Failure> {
    let request = v1::SubmitRunRequest {
        run_id: run_id.to_owned(),
        definition_release_id,
        project_id: PROJECT.to_owned(),
        input: Some(input.unwrap_or_else(|| granary_proto::wire::Json::new("{}"))),
        ..Default::default()
    };
    client.run_control().submit_run(request).await?;
    Ok(())
}

async fn say_how_to_go_on(client: &Client, common: &Common, args: &RunArgs, run_id: &str) -> Result<(), Failure> {
    say!("\nrun {run_id} has not ended");
    for approval in super::approvals::all(client, "pending", run_id).await? {
        say!(
            "  {} waits for a decision: approval {} version {}",
            approval.step_id,
            approval.approval_id,
            approval.proposal_version
        );
    }
    say!("Go on with:\n  {}", again(common, args, run_id));
    Ok(())
}

/// The command line that goes on with this run.
fn again(common: &Common, args: &RunArgs, run_id: &str) -> String {
    let mut line = format!("granary run {} --run-id {run_id}", args.file.display());
    if args.data != Path::new("data/run") {
        line.push_str(&format!(" --data {}", args.data.display()));
    }
    if let Some(worker) = &args.worker {
        line.push_str(&format!(" --worker {}", worker.display()));
    }
    if !common.server.is_empty() {
        line.push_str(&format!(" --server {}", common.server.join(",")));
    }
    line
}
