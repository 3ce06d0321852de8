//! `granary skills`: load, list, show.

use super::client::Client;
use super::document::text_of;
use super::out::{say, say_part};
use super::style::Style;
use super::table::{Table, moment};
use super::{Common, Exit, Failure, draw};
use clap::Subcommand;
use granary_proto::v1;
use serde::Serialize;
use std::path::{Path, PathBuf};

const PAGE: u32 = 200;

#[derive(Subcommand, Debug)]
pub enum SkillsCommand {
    /// Load skills into the server; a version is loaded once
    #[command(after_help = "Example:\n  granary skills load examples/skills/open-app.yaml")]
    Load {
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// List the skills, or the versions of one
    #[command(after_help = "Examples:\n  granary skills list\n  granary skills list open-app --format json")]
    List { name: Option<String> },
    /// Show one skill: its parameters, and its document
    #[command(after_help = "Examples:\n  granary skills show open-app\n  granary skills show open-app@1.0.0")]
    Show { name: String },
}

pub async fn run(common: &Common, command: SkillsCommand) -> Result<Exit, Failure> {
    match command {
        SkillsCommand::Load { files } => load(common, &files).await,
        SkillsCommand::List { name } => list(common, name).await,
        SkillsCommand::Show { name } => show(common, &name).await,
    }
}

#[derive(Serialize)]
struct LoadedList {
    skills: Vec<v1::LoadSkillResponse>,
}

async fn load(common: &Common, files: &[PathBuf]) -> Result<Exit, Failure> {
    let documents: Vec<String> = files.iter().map(|file| text_of(file)).collect::<Result<_, _>>()?;
    let client = Client::connect(common).await?;
    let mut skills = Vec::new();
    for (file, document) in files.iter().zip(documents) {
        let answer = load_one(&client, document.clone()).await?;
        if !common.is_json() {
            say_loaded(file, &document, &answer);
        }
        skills.push(answer);
    }
    let all = skills.iter().all(|answer| answer.loaded);
    if common.is_json() {
        super::runs::print_json(&LoadedList { skills })?;
    }
    Ok(if all { Exit::Good } else { Exit::Failed })
}

pub async fn load_one(client: &Client, document: String) -> Result<v1::LoadSkillResponse, Failure> {
    Ok(client.skills().load_skill(v1::LoadSkillRequest { document }).await?.into_inner())
}

fn say_loaded(file: &Path, document: &str, answer: &v1::LoadSkillResponse) {
    let path = file.display().to_string();
    if !answer.findings.is_empty() {
        say_part!("{}", draw::findings(&path, document, &answer.findings, Style::of_stdout()));
    }
    match &answer.skill {
        Some(skill) if answer.loaded => {
            let how = if answer.repeated { "is there already" } else { "loaded" };
            say!("{path}: {how} as {}@{} ({}, {} calls)", skill.name, skill.version, skill.kind, skill.call_count);
        }
        _ => say!("{path}: not loaded"),
    }
}

async fn list(common: &Common, name: Option<String>) -> Result<Exit, Failure> {
    let client = Client::connect(common).await?;
    let skills = match name {
        Some(name) => {
            client.skills().list_skill_versions(v1::ListSkillVersionsRequest { name }).await?.into_inner().versions
        }
        None => all(&client).await?,
    };
    if common.is_json() {
        super::runs::print_json(&v1::ListSkillVersionsResponse { versions: skills })?;
        return Ok(Exit::Good);
    }
    let mut table = Table::new(&["SKILL", "VERSION", "KIND", "PARAMETERS", "CALLS", "LOADED"]);
    for skill in skills {
        let parameters: Vec<String> = skill.parameters.iter().map(parameter).collect();
        let loaded = moment(skill.loaded_at.as_ref());
        table.row([skill.name, skill.version, skill.kind, parameters.join(", "), skill.call_count.to_string(), loaded]);
    }
    say_part!("{}", table.render(Style::of_stdout()));
    Ok(Exit::Good)
}

/// `app*` is required.
fn parameter(parameter: &v1::SkillParameter) -> String {
    format!("{}{}: {}", parameter.name, if parameter.required { "*" } else { "" }, parameter.r#type)
}

async fn all(client: &Client) -> Result<Vec<v1::SkillVersion>, Failure> {
    let (mut found, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListSkillsRequest { page_size: PAGE, page_token };
        let page = client.skills().list_skills(request).await?.into_inner();
        found.extend(page.skills);
        if page.next_page_token.is_empty() {
            return Ok(found);
        }
        page_token = page.next_page_token;
    }
}

async fn show(common: &Common, name: &str) -> Result<Exit, Failure> {
    let client = Client::connect(common).await?;
    let (name, version) = name.split_once('@').unwrap_or((name, ""));
    let request = v1::GetSkillRequest { name: name.to_owned(), version: version.to_owned() };
    let found = client.skills().get_skill(request).await?.into_inner();
    if common.is_json() {
        super::runs::print_json(&found)?;
        return Ok(Exit::Good);
    }
    let skill = found.skill.unwrap_or_default();
    say!("{}@{} ({})", skill.name, skill.version, skill.kind);
    if !skill.description.is_empty() {
        say!("{}", skill.description);
    }
    let mut table = Table::new(&["PARAMETER", "TYPE", "REQUIRED", "DEFAULT", "DESCRIPTION"]);
    for p in skill.parameters {
        let default = p.default.map(|json| String::from_utf8_lossy(&json.text).into_owned()).unwrap_or_default();
        table.row([p.name, p.r#type, if p.required { "yes" } else { "" }.to_owned(), default, p.description]);
    }
    say_part!("{}", table.render(Style::of_stdout()));
    let document = found.document.and_then(|json| json.value().ok()).unwrap_or_default();
    say!("{}", serde_json::to_string_pretty(&document).unwrap_or_default());
    Ok(Exit::Good)
}
