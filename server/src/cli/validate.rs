//! `granary validate`: judges a document without a server.

use super::document::Document;
use super::out::{say, say_part};
use super::style::Style;
use super::{Common, Exit, Failure, draw};
use grains::definition::{self, Environment, Mode};
use granary_proto::v1;
use std::path::PathBuf;

/// Judge a workflow document, offline
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  granary validate examples/repository-assessment.yaml --publish")]
pub struct ValidateArgs {
    /// The document, YAML or JSON. Schemas are looked for relative to it.
    pub file: PathBuf,
    /// Judge as for publication: what a draft may leave out is an error then.
    #[arg(long)]
    pub publish: bool,
}

pub fn run(common: &Common, args: &ValidateArgs) -> Result<Exit, Failure> {
    let documents = Document::read(&args.file)?.with_callees()?;
    let document = documents.last().expect("a document comes with itself");
    let mode = if args.publish { Mode::Publish } else { Mode::Draft };
    let response = judge(document, mode, &documents);
    let valid = response.valid;
    if common.is_json() {
        say!("{}", serde_json::to_string_pretty(&response).map_err(|e| Failure::no("internal", e.to_string()))?);
    } else {
        let path = document.path.display().to_string();
        say_part!("{}", draw::findings(&path, &document.text, &response.findings, Style::of_stdout()));
        if valid {
            say!("{path}: valid ({} steps, graph hash {})", response.step_count, response.graph_hash);
        }
    }
    Ok(if valid { Exit::Good } else { Exit::Usage })
}

/// The same answer as the server's ValidateWorkflowDefinition gives.
pub fn judge(document: &Document, mode: Mode, known: &[Document]) -> v1::ValidateWorkflowDefinitionResponse {
    let environment = Environment {
        schemas: document.schemas.clone(),
        sub_workflows: known.iter().map(|d| (d.definition_id.clone(), d.calls.clone())).collect(),
        ..Environment::default()
    };
    let loaded = definition::load(&document.text, mode, &environment);
    let findings: Vec<v1::Finding> = loaded.findings.iter().map(v1::Finding::from).collect();
    v1::ValidateWorkflowDefinitionResponse {
        valid: findings.iter().all(|f| f.severity != "error"),
        findings,
        definition_id: loaded.definition_id,
        version: loaded.version,
        graph_hash: loaded.graph_hash,
        step_count: loaded.plan.map_or(0, |plan| plan.steps.len() as u32),
    }
}
