//! `granary approvals`: list and decide.

use super::client::Client;
use super::document::read_json;
use super::out::{say, say_part};
use super::runs::print_json;
use super::style::Style;
use super::table::{Table, moment};
use super::{Common, Exit, Failure};
use clap::Subcommand;
use granary_proto::v1;
use std::path::PathBuf;

const PAGE: u32 = 200;

#[derive(Subcommand, Debug)]
pub enum ApprovalsCommand {
    /// List what people are asked
    #[command(after_help = "Example:\n  granary approvals list --state pending")]
    List {
        /// pending, approved, rejected, answered, retry, skip, fail, withdrawn
        #[arg(long, default_value = "pending")]
        state: String,
        /// Only of this run.
        #[arg(long, default_value = "")]
        run: String,
    },
    /// Approve
    #[command(
        after_help = "Example:\n  granary approvals approve 6d1c5c1e-0000-5000-8000-000000000001 --comment \"looks right\""
    )]
    Approve(DecisionArgs),
    /// Reject
    #[command(
        after_help = "Example:\n  granary approvals reject 6d1c5c1e-0000-5000-8000-000000000001 --comment \"too risky\""
    )]
    Reject(DecisionArgs),
    /// Answer a question, or an escalation with one of its options
    #[command(
        after_help = "Examples:\n  granary approvals answer 6d1c5c1e-0000-5000-8000-000000000001 --answer answer.json\n  \
                            granary approvals answer 6d1c5c1e-0000-5000-8000-000000000001 --option retry"
    )]
    Answer {
        #[command(flatten)]
        decision: DecisionArgs,
        /// File with the answer as JSON; `-` is standard input.
        #[arg(long, required_unless_present = "option")]
        answer: Option<PathBuf>,
        /// For an escalation: retry, skip or fail.
        #[arg(long, conflicts_with = "answer")]
        option: Option<String>,
    },
}

#[derive(clap::Args, Debug)]
pub struct DecisionArgs {
    pub approval_id: String,
    /// The version of the proposal that you have seen; by default the one pending now.
    #[arg(long)]
    pub version: Option<u32>,
    /// The run it belongs to, if you know it.
    #[arg(long, default_value = "")]
    pub run: String,
    #[arg(long, default_value = "")]
    pub comment: String,
    /// Who decides; by default --user.
    #[arg(long)]
    pub by: Option<String>,
}

pub async fn run(common: &Common, command: ApprovalsCommand) -> Result<Exit, Failure> {
    let client = Client::connect(common).await?;
    match command {
        ApprovalsCommand::List { state, run } => list(common, &client, state, run).await,
        ApprovalsCommand::Approve(args) => decide(common, &client, args, "approve", None).await,
        ApprovalsCommand::Reject(args) => decide(common, &client, args, "reject", None).await,
        ApprovalsCommand::Answer { decision, answer, option } => {
            let word = option.unwrap_or_else(|| "answer".to_owned());
            let answer = answer.as_deref().map(read_json).transpose()?;
            decide(common, &client, decision, &word, answer).await
        }
    }
}

async fn list(common: &Common, client: &Client, state: String, run_id: String) -> Result<Exit, Failure> {
    let approvals = all(client, &state, &run_id).await?;
    if common.is_json() {
        print_json(&v1::ListApprovalsResponse { approvals, next_page_token: String::new() })?;
        return Ok(Exit::Good);
    }
    let mut table = Table::new(&["APPROVAL", "KIND", "STATE", "RUN", "STEP", "VERSION", "SINCE", "ASKED"]);
    for a in &approvals {
        table.row([
            a.approval_id.clone(),
            a.kind.clone(),
            a.state.clone(),
            a.run_id.clone(),
            a.step_id.clone(),
            a.proposal_version.to_string(),
            moment(a.requested_at.as_ref()),
            a.reason.clone(),
        ]);
    }
    say_part!("{}", table.render(Style::of_stdout()));
    Ok(Exit::Good)
}

pub async fn all(client: &Client, state: &str, run_id: &str) -> Result<Vec<v1::Approval>, Failure> {
    let mut found = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = v1::ListApprovalsRequest {
            state: state.to_owned(),
            run_id: run_id.to_owned(),
            page_size: PAGE,
            page_token,
        };
        let page = client.run_control().list_approvals(request).await?.into_inner();
        found.extend(page.approvals);
        if page.next_page_token.is_empty() {
            return Ok(found);
        }
        page_token = page.next_page_token;
    }
}

async fn decide(
    common: &Common,
    client: &Client,
    args: DecisionArgs,
    decision: &str,
    answer: Option<granary_proto::wire::Json>,
) -> Result<Exit, Failure> {
    let mut request = v1::DecideApprovalRequest {
        approval_id: args.approval_id,
        decision: decision.to_owned(),
        proposal_version: args.version.unwrap_or(0),
        answer,
        comment: args.comment,
        decided_by: args.by.unwrap_or_else(|| client.user().to_owned()),
        run_id: args.run,
    };
    if args.version.is_none() {
        // "The one pending now" is looked up here, so that the server still gets an exact version to decide on.
        let pending = all(client, "pending", &request.run_id).await?;
        let found = pending.iter().find(|a| a.approval_id == request.approval_id).ok_or_else(|| {
            let id = &request.approval_id;
            Failure::no(
                "not-found",
                format!("Expected a pending approval {id}, but found none (see: granary approvals list)."),
            )
        })?;
        request.proposal_version = found.proposal_version;
        request.run_id.clone_from(&found.run_id);
    }
    let approval = client.run_control().decide_approval(request).await?.into_inner();
    if common.is_json() {
        print_json(&approval)?;
    } else {
        say!("{}", approval.state);
    }
    Ok(Exit::Good)
}
