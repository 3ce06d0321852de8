//! `granary definitions`: load and list.

use super::client::Client;
use super::document::Document;
use super::out::{say, say_part};
use super::style::Style;
use super::table::{Table, moment};
use super::{Common, Exit, Failure, draw};
use clap::Subcommand;
use granary_proto::v1;
use serde::Serialize;
use std::path::PathBuf;

const PAGE: u32 = 200;

#[derive(Subcommand, Debug)]
pub enum DefinitionsCommand {
    /// Load a definition into the server, with the workflows it calls
    #[command(after_help = "Example:\n  granary definitions load examples/repository-assessment.yaml")]
    Load {
        file: PathBuf,
        /// As a draft: may leave things out; development mode only.
        #[arg(long)]
        draft: bool,
        /// Release id; by default `definition@version`.
        #[arg(long)]
        release_id: Option<String>,
    },
    /// List the definitions, or the versions of one
    #[command(
        after_help = "Examples:\n  granary definitions list\n  granary definitions list repository-assessment --format json"
    )]
    List { definition: Option<String> },
}

pub async fn run(common: &Common, command: DefinitionsCommand) -> Result<Exit, Failure> {
    match command {
        DefinitionsCommand::Load { file, draft, release_id } => load(common, &file, draft, release_id).await,
        DefinitionsCommand::List { definition } => list(common, definition).await,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LoadedList {
    definitions: Vec<v1::LoadWorkflowDefinitionResponse>,
}

async fn load(
    common: &Common,
    file: &std::path::Path,
    draft: bool,
    release_id: Option<String>,
) -> Result<Exit, Failure> {
    let documents = Document::read(file)?.with_callees()?;
    let client = Client::connect(common).await?;
    let mut answers = Vec::new();
    let last = documents.len() - 1;
    for (n, document) in documents.iter().enumerate() {
        let mut request = document.load_request(draft);
        if n == last {
            request.release_id = release_id.clone().unwrap_or_default();
        }
        let answer = client.engine().load_workflow_definition(request).await?.into_inner();
        let loaded = answer.loaded;
        if !common.is_json() {
            say(document, &answer);
        }
        answers.push(answer);
        if !loaded {
            break;
        }
    }
    let all = answers.len() == documents.len() && answers.iter().all(|a| a.loaded);
    if common.is_json() {
        super::runs::print_json(&LoadedList { definitions: answers })?;
    }
    Ok(if all { Exit::Good } else { Exit::Failed })
}

fn say(document: &Document, answer: &v1::LoadWorkflowDefinitionResponse) {
    let path = document.path.display().to_string();
    if !answer.findings.is_empty() {
        say_part!("{}", draw::findings(&path, &document.text, &answer.findings, Style::of_stdout()));
    }
    match &answer.version {
        Some(version) if answer.loaded => {
            say!("{path}: loaded as release {} (graph hash {})", version.release_id, version.graph_hash);
        }
        _ => say!("{path}: not loaded"),
    }
}

async fn list(common: &Common, definition: Option<String>) -> Result<Exit, Failure> {
    let client = Client::connect(common).await?;
    let versions = match definition {
        Some(definition_id) => {
            let request = v1::ListWorkflowDefinitionVersionsRequest { definition_id };
            client.engine().list_workflow_definition_versions(request).await?.into_inner().versions
        }
        None => all(&client).await?,
    };
    if common.is_json() {
        super::runs::print_json(&v1::ListWorkflowDefinitionVersionsResponse { versions })?;
        return Ok(Exit::Good);
    }
    let mut table = Table::new(&["DEFINITION", "VERSION", "RELEASE", "STEPS", "LOADED", "GRAPH HASH"]);
    for v in versions {
        let mut hash = v.graph_hash;
        hash.truncate(16);
        let version = if v.draft { format!("{} (draft)", v.version) } else { v.version };
        table.row([
            v.definition_id,
            version,
            v.release_id,
            v.step_count.to_string(),
            moment(v.loaded_at.as_ref()),
            hash,
        ]);
    }
    say_part!("{}", table.render(Style::of_stdout()));
    Ok(Exit::Good)
}

async fn all(client: &Client) -> Result<Vec<v1::DefinitionVersion>, Failure> {
    let mut found = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = v1::ListWorkflowDefinitionsRequest { page_size: PAGE, page_token };
        let page = client.engine().list_workflow_definitions(request).await?.into_inner();
        found.extend(page.definitions);
        if page.next_page_token.is_empty() {
            return Ok(found);
        }
        page_token = page.next_page_token;
    }
}
