//! Layers: defaults, then the file, then the environment. Each layer is held against the tree of known keys by itself,
//! so that a refusal can name the place the key came from.

use super::{Config, ENVIRONMENT_OF_THE_COMMAND_LINE};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

const PREFIX: &str = "GRANARY_";

/// Where configuration comes from.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// YAML (`.yaml`, `.yml`), JSON (`.json`) or TOML (`.toml`).
    pub file: Option<PathBuf>,
    /// The whole environment, or a made-up one in tests. `GRANARY_WORKFLOWS__ENGINE__MAX_FANOUT` is
    /// `workflows.engine.maxFanout`: two underscores between sections, one between words.
    pub environment: Vec<(String, String)>,
    /// What the keys are where neither file nor environment says so.
    pub base: Config,
}

impl Source {
    /// The process's environment, and the file if one is named.
    pub fn of_process(file: Option<PathBuf>, base: Config) -> Self {
        // A variable that is not Unicode cannot be one of ours.
        let environment = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        Self { file, environment: environment.collect(), base }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{place}: cannot read it: {why}")]
    Unreadable { place: String, why: String },
    #[error("{place}: Expected one of the keys {known}, but found {key:?}")]
    UnknownKey { place: String, key: String, known: String },
    #[error("{place}: {why}")]
    Wrong { place: String, why: String },
}

/// Reads all layers.
///
/// # Errors
/// Unreadable file, unknown key, wrong type, value out of its bounds; each names the place.
pub fn load(source: &Source) -> Result<Config, Error> {
    let known = serde_json::to_value(&source.base)
        .map_err(|e| Error::Wrong { place: "defaults".to_owned(), why: e.to_string() })?;
    let mut merged = known.clone();
    let mut places = Vec::new();
    if let Some(path) = &source.file {
        let place = path.display().to_string();
        let layer = read_file(path)?;
        hold(&layer, &known, &place, "")?;
        typed(&known, &layer, &place)?;
        merge(&mut merged, layer);
        places.push(place);
    }
    for (name, text) in &source.environment {
        let Some(path) = key_of(name) else { continue };
        let place = format!("environment variable {name}");
        let layer = nest(&path, value_of(text, at(&known, &path)));
        hold(&layer, &known, &place, "")?;
        typed(&known, &layer, &place)?;
        merge(&mut merged, layer);
        places.push(place);
    }
    let place = if places.is_empty() { "defaults".to_owned() } else { places.join(", ") };
    let config: Config =
        serde_json::from_value(merged).map_err(|e| Error::Wrong { place: place.clone(), why: e.to_string() })?;
    config.check().map_err(|why| Error::Wrong { place, why })?;
    Ok(config)
}

fn read_file(path: &Path) -> Result<Value, Error> {
    let place = path.display().to_string();
    let text =
        std::fs::read_to_string(path).map_err(|e| Error::Unreadable { place: place.clone(), why: e.to_string() })?;
    let wrong = |why: String| Error::Wrong { place: place.clone(), why };
    let value = match path.extension().and_then(|e| e.to_str()) {
        Some("toml") => config::Config::builder()
            .add_source(config::File::from_str(&text, config::FileFormat::Toml))
            .build()
            .and_then(config::Config::try_deserialize)
            .map_err(|e| wrong(e.to_string()))?,
        Some("json") => serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?,
        Some("yaml" | "yml") if text.lines().all(|l| l.trim().is_empty() || l.trim_start().starts_with('#')) => {
            Value::Object(Map::new())
        }
        Some("yaml" | "yml") => serde_saphyr::from_str(&text).map_err(|e| wrong(e.to_string()))?,
        other => {
            let found = other.unwrap_or("none");
            return Err(wrong(format!(
                "Expected a name that ends in .yaml, .yml, .json or .toml, but found {found:?}"
            )));
        }
    };
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(Value::Object(Map::new())),
        other => Err(wrong(format!("Expected sections with keys, but found {}", kind(&other)))),
    }
}

/// Every key of `layer` must be in `known`.
fn hold(layer: &Value, known: &Value, place: &str, path: &str) -> Result<(), Error> {
    let (Value::Object(layer), Value::Object(known)) = (layer, known) else { return Ok(()) };
    for (key, value) in layer {
        let full = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let Some(inner) = known.get(key) else {
            let known = known.keys().cloned().collect::<Vec<_>>().join(", ");
            return Err(Error::UnknownKey { place: place.to_owned(), key: full, known });
        };
        hold(value, inner, place, &full)?;
    }
    Ok(())
}

/// The layer by itself over the defaults must have the right types, so that a fault names its own place.
fn typed(known: &Value, layer: &Value, place: &str) -> Result<(), Error> {
    let mut alone = known.clone();
    merge(&mut alone, layer.clone());
    let found: Result<Config, _> = serde_json::from_value(alone.clone());
    let Err(error) = found else { return Ok(()) };
    // serde_json says what is wrong but not where: the first leaf that fails alone is the place.
    let path = first_wrong(known, layer, known, "").unwrap_or_default();
    let why = if path.is_empty() { error.to_string() } else { format!("at {path}: {error}") };
    Err(Error::Wrong { place: place.to_owned(), why })
}

fn first_wrong(root: &Value, layer: &Value, known: &Value, path: &str) -> Option<String> {
    let Value::Object(keys) = layer else { return None };
    for (key, value) in keys {
        let full = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if let (Value::Object(_), Some(inner @ Value::Object(_))) = (value, known.get(key)) {
            if let Some(found) = first_wrong(root, value, inner, &full) {
                return Some(found);
            }
            continue;
        }
        let mut alone = root.clone();
        merge(&mut alone, nest(&full.split('.').map(str::to_owned).collect::<Vec<_>>(), value.clone()));
        if serde_json::from_value::<Config>(alone).is_err() {
            return Some(full);
        }
    }
    None
}

fn merge(into: &mut Value, layer: Value) {
    match (into, layer) {
        (Value::Object(into), Value::Object(layer)) => {
            for (key, value) in layer {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, layer) => *into = layer,
    }
}

/// `GRANARY_WORKFLOWS__ENGINE__MAX_FANOUT` → `workflows`, `engine`, `maxFanout`.
fn key_of(name: &str) -> Option<Vec<String>> {
    if ENVIRONMENT_OF_THE_COMMAND_LINE.contains(&name) {
        return None;
    }
    let rest = name.strip_prefix(PREFIX)?;
    Some(rest.split("__").map(camel).collect())
}

fn camel(words: &str) -> String {
    let mut out = String::with_capacity(words.len());
    for (i, word) in words.split('_').filter(|w| !w.is_empty()).enumerate() {
        let lower = word.to_ascii_lowercase();
        if i == 0 {
            out.push_str(&lower);
        } else {
            let mut chars = lower.chars();
            out.extend(chars.next().map(|c| c.to_ascii_uppercase()));
            out.push_str(chars.as_str());
        }
    }
    out
}

fn at<'a>(tree: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(tree, |at, key| at.get(key))
}

/// A variable is text; what it should be, the default tells.
fn value_of(text: &str, default: Option<&Value>) -> Value {
    match default {
        Some(Value::Array(_)) => {
            text.split(',').map(str::trim).filter(|t| !t.is_empty()).map(|t| Value::String(t.to_owned())).collect()
        }
        Some(Value::Number(_) | Value::Bool(_)) => {
            serde_json::from_str(text.trim()).unwrap_or_else(|_| Value::String(text.to_owned()))
        }
        _ => Value::String(text.to_owned()),
    }
}

fn nest(path: &[String], value: Value) -> Value {
    path.iter().rev().fold(value, |inner, key| Value::Object(Map::from_iter([(key.clone(), inner)])))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{RunControlMode, StateKind};

    fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("write");
        (dir, path)
    }

    fn load_with(name: &str, text: &str, environment: &[(&str, &str)]) -> Result<Config, Error> {
        let (_dir, path) = file(name, text);
        let environment = environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        load(&Source { file: Some(path), environment, base: Config::default() })
    }

    /// [P5]
    #[test]
    fn yaml_json_and_toml_say_the_same() {
        let yaml = "runControl: external\nstore: { state: fjall }\nworkflows:\n  engine:\n    maxFanout: 4\n";
        let json = r#"{"runControl":"external","store":{"state":"fjall"},"workflows":{"engine":{"maxFanout":4}}}"#;
        let toml = "runControl = \"external\"\n[store]\nstate = \"fjall\"\n[workflows.engine]\nmaxFanout = 4\n";
        for (name, text) in [("a.yaml", yaml), ("a.json", json), ("a.toml", toml)] {
            let config = load_with(name, text, &[]).expect(name);
            assert_eq!(config.run_control, RunControlMode::External, "{name}");
            assert_eq!(config.store.state, StateKind::Fjall, "{name}");
            assert_eq!(config.workflows.engine.max_fanout, 4, "{name}");
            assert_eq!(config.workflows.engine.default_max_loop_iterations, 10, "{name}");
        }
    }

    /// [P5]
    #[test]
    fn the_environment_wins_over_the_file() {
        let environment = [
            ("GRANARY_WORKFLOWS__ENGINE__MAX_FANOUT", "7"),
            ("GRANARY_RUN_CONTROL", "external"),
            ("GRANARY_POLICY__ACTION_CLASSES", "read, sandbox"),
            ("GRANARY_DEVELOPMENT", "true"),
            ("GRANARY_STORE__DATA_DIR", "/var/lib/granary"),
            ("GRANARY_NAME", "7"),
            ("GRANARY_SERVER", "http://elsewhere"),
            ("PATH", "/bin"),
        ];
        let config = load_with("a.yaml", "workflows: { engine: { maxFanout: 4 } }", &environment).expect("loads");
        assert_eq!(config.workflows.engine.max_fanout, 7);
        assert_eq!(config.run_control, RunControlMode::External);
        assert_eq!(config.policy.action_classes, ["read", "sandbox"]);
        assert!(config.development);
        assert_eq!(config.store.data_dir, PathBuf::from("/var/lib/granary"));
        assert_eq!(config.name, "7", "text stays text, also if it looks like a number");
    }

    /// [P5] Each refusal names the key and the place it came from.
    #[test]
    fn refusals_name_key_and_place() {
        type Case = (&'static str, &'static str, &'static [(&'static str, &'static str)], &'static [&'static str]);
        let cases: [Case; 12] = [
            ("a.yaml", "maxFanout: 3", &[], &["a.yaml", "\"maxFanout\""]),
            ("a.yaml", "workflows: { engine: { maxFanOut: 3 } }", &[], &["a.yaml", "workflows.engine.maxFanOut"]),
            ("a.toml", "[workflows.engin]\nmaxFanout = 3", &[], &["a.toml", "workflows.engin"]),
            ("a.yaml", "{}", &[("GRANARY_MAXFANOUT", "1")], &["GRANARY_MAXFANOUT", "maxfanout"]),
            ("a.yaml", "shards: many", &[], &["a.yaml", "at shards"]),
            ("a.yaml", "{}", &[("GRANARY_SHARDS", "many")], &["GRANARY_SHARDS", "at shards"]),
            ("a.yaml", "shards: 0", &[], &["a.yaml", "shards between 1 and 4096", "found 0"]),
            ("a.yaml", "runControl: mixed", &[], &["a.yaml", "at runControl"]),
            ("a.yaml", "shards: 3\nshards: 4", &[], &["a.yaml", "duplicate"]),
            ("a.yaml", "log: 'info,cluster=loud'", &[], &["a.yaml", "at log", "cluster=loud"]),
            ("a.yaml", "- shards", &[], &["a.yaml", "a list"]),
            ("a.yaml", "agentRegistry: { endpoint: \"registry\" }", &[], &["agentRegistry.endpoint", "registry"]),
        ];
        for (name, text, environment, wanted) in cases {
            let error = load_with(name, text, environment).expect_err(text).to_string();
            for part in wanted {
                assert!(error.contains(part), "{text}: expected {part:?} in {error:?}");
            }
        }
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        for text in ["", "# nothing\n", "{}"] {
            assert_eq!(load_with("a.yaml", text, &[]).expect("loads"), Config::default(), "{text:?}");
        }
    }

    /// [P5] The example names every key, with its default.
    #[test]
    fn the_example_file_lists_every_key_with_its_default() {
        let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.example.yaml"));
        let layer = read_file(&path).expect("reads");
        let defaults = serde_json::to_value(Config::default()).expect("json");
        assert_eq!(layer, defaults);
    }
}
