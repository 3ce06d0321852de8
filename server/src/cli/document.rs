//! A workflow document on this machine, with the schemas it names and the workflows it calls.

use super::Failure;
use grain_contract::limits::DOCUMENT_BYTES_MAX;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub struct Document {
    pub path: PathBuf,
    pub text: String,
    /// By the reference that the document uses.
    pub schemas: BTreeMap<String, String>,
    /// As the document says; empty if it cannot be read.
    pub definition_id: String,
    /// Definition ids of its SubWorkflow steps.
    pub calls: Vec<String>,
    /// Names of the skills that its SkillInvocation steps run.
    pub skills: Vec<String>,
}

/// Only what is needed to find other files. What is wrong with the document is for the validation to say.
#[derive(Deserialize, Default)]
struct Outline {
    #[serde(default)]
    workflow: Value,
    #[serde(default)]
    input: Value,
    #[serde(default)]
    output: Value,
    #[serde(default)]
    steps: Vec<OutlineStep>,
}

#[derive(Deserialize, Default)]
struct OutlineStep {
    #[serde(default)]
    workflow: Value,
    #[serde(default)]
    skill: Value,
}

impl Document {
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = text_of(path)?;
        let outline: Outline = serde_saphyr::from_str(&text).unwrap_or_default();
        let folder = path.parent().unwrap_or(Path::new(""));
        let references = [&outline.input, &outline.output].into_iter().filter_map(Value::as_str);
        let mut schemas = BTreeMap::new();
        for reference in references {
            let schema = folder.join(reference);
            // A reference that leads nowhere is a finding, with its line; so is one that leads out of the folder.
            if is_below(reference) && schema.is_file() {
                schemas.insert(reference.to_owned(), text_of(&schema)?);
            }
        }
        let named = |value: &Value| value.as_str().map(|name| name.split('@').next().unwrap_or(name).to_owned());
        let calls = outline.steps.iter().filter_map(|step| named(&step.workflow)).collect();
        let skills = outline.steps.iter().filter_map(|step| named(&step.skill)).collect();
        let definition_id = outline.workflow.as_str().unwrap_or_default().to_owned();
        Ok(Self { path: path.to_owned(), text, schemas, definition_id, calls, skills })
    }

    /// This document and those it calls as far as they lie beside it, callees first.
    pub fn with_callees(self) -> Result<Vec<Document>, Failure> {
        let mut found: HashMap<String, Document> = HashMap::new();
        let mut order = Vec::new();
        visit(self, &mut found, &mut order)?;
        Ok(order.into_iter().filter_map(|id| found.remove(&id)).collect())
    }

    /// Files of the skills it names, as far as they lie in the folder `skills` beside it.
    pub fn skill_files(&self) -> Vec<PathBuf> {
        let files =
            self.skills.iter().filter(|name| is_below(name)).map(|name| self.beside(&format!("skills/{name}.yaml")));
        let mut files: Vec<PathBuf> = files.filter(|path| path.is_file()).collect();
        files.sort();
        files.dedup();
        files
    }

    /// A file beside this one.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(name)
    }

    /// The worker file that belongs to it: `NAME.worker.yaml` for `NAME.yaml`, else that of its definition id.
    pub fn worker_file(&self) -> Option<PathBuf> {
        let stem = self.path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
        [stem, &self.definition_id]
            .into_iter()
            .filter(|name| !name.is_empty() && is_below(name))
            .map(|name| self.beside(&format!("{name}.worker.yaml")))
            .find(|path| path.is_file())
    }

    pub fn load_request(&self, draft: bool) -> granary_proto::v1::LoadWorkflowDefinitionRequest {
        granary_proto::v1::LoadWorkflowDefinitionRequest {
            document: self.text.clone(),
            schemas: self.schemas.clone().into_iter().collect(),
            draft,
            release_id: String::new(),
        }
    }
}

/// Depth first; a cycle of definitions ends where it was entered, and the validation names it.
fn visit(document: Document, found: &mut HashMap<String, Document>, order: &mut Vec<String>) -> Result<(), Failure> {
    let id = document.definition_id.clone();
    let callees: Vec<PathBuf> = document
        .calls
        .iter()
        .filter(|name| is_below(name))
        .map(|name| document.beside(&format!("{name}.yaml")))
        .collect();
    found.insert(id.clone(), document);
    for path in callees {
        let name = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_owned();
        if !found.contains_key(&name) && path.is_file() {
            visit(Document::read(&path)?, found, order)?;
        }
    }
    if !order.contains(&id) {
        order.push(id);
    }
    Ok(())
}

/// Names in documents do not lead out of the document's folder.
fn is_below(reference: &str) -> bool {
    use std::path::Component;
    Path::new(reference).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

pub fn text_of(path: &Path) -> Result<String, Failure> {
    let wrong = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let size = std::fs::metadata(path).map_err(|e| wrong(e.to_string()))?.len();
    if size > DOCUMENT_BYTES_MAX as u64 {
        return Err(wrong(format!("Expected at most {DOCUMENT_BYTES_MAX} bytes, but found {size}.")));
    }
    std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))
}

/// Reads a JSON value from a file, or from standard input for `-`.
pub fn read_json(path: &Path) -> Result<granary_proto::wire::Json, Failure> {
    let wrong = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let text = if path == Path::new("-") {
        std::io::read_to_string(std::io::stdin()).map_err(|e| wrong(e.to_string()))?
    } else {
        std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?
    };
    serde_json::from_str::<serde::de::IgnoredAny>(&text)
        .map_err(|e| wrong(format!("Expected JSON, but found a fault: {e}")))?;
    Ok(granary_proto::wire::Json::new(text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callees_come_first_and_a_cycle_ends() {
        let dir = tempfile::tempdir().expect("dir");
        let file = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("writes");
        file(
            "a.yaml",
            "workflow: a\ninput: s/in.json\nsteps: [{ id: x, workflow: b@1.0.0 }, { id: y, workflow: gone }]",
        );
        file("b.yaml", "workflow: b\ninput: ../secret\nsteps: [{ id: x, workflow: a }]");
        std::fs::create_dir(dir.path().join("s")).expect("dir");
        file("s/in.json", "{}");
        file("a.worker.yaml", "");
        let documents = Document::read(&dir.path().join("a.yaml")).and_then(Document::with_callees).expect("reads");
        let ids: Vec<&str> = documents.iter().map(|d| d.definition_id.as_str()).collect();
        assert_eq!(ids, ["b", "a"]);
        assert_eq!(documents[1].schemas.keys().collect::<Vec<_>>(), ["s/in.json"]);
        assert!(documents[0].schemas.is_empty(), "no way out of the folder");
        assert!(documents[1].worker_file().is_some() && documents[0].worker_file().is_none());
    }
}
