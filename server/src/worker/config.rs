//! The worker file: which agents and tools there are, and what does them.
//!
//! ```yaml
//! capacity: 4                      # attempts at once; default 4
//! state: .worker                   # what survives a kill of the worker; default: nothing
//! environment: [GITHUB_TOKEN]      # variables that commands may see besides PATH, HOME, LANG, LC_ALL, TMPDIR, USER
//! agents:
//!   triage-agent:
//!     command: [sh, tools/triage.sh]
//!     timeout: 2m
//! tools:
//!   notify:
//!     http: { method: POST, url: "https://example.org/notes/{id}", headers: { Authorization: "Bearer ${TOKEN}" } }
//!   same-again:
//!     echo: true
//! ```
//!
//! Relative paths start at the file's folder. Unknown keys are refused.

use super::{Command, Error, Handler, HttpCall, Outcome, Work};
use grain_contract::limits::PAYLOAD_BYTES_MAX;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, StatusCode};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const CAPACITY: u32 = 4;
const CAPACITY_MAX: u32 = 10_000;
const FILE_BYTES_MAX: u64 = 1024 * 1024;
const DRAIN_SECONDS: u64 = 60;
const TRIES_MAX: u32 = 10;
const ALWAYS_VISIBLE: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "USER"];

/// A worker file, read and checked.
pub struct WorkerConfig {
    /// Empty = not said.
    pub servers: Vec<String>,
    pub tenant: Option<String>,
    pub capacity: u32,
    pub state: Option<PathBuf>,
    pub drain: Duration,
    /// Queue (`agent:NAME`, `tool:NAME`) and what does it.
    pub handlers: Vec<(String, Arc<dyn Handler>)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(default)]
    server: Servers,
    tenant: Option<String>,
    capacity: Option<u32>,
    state: Option<PathBuf>,
    drain_seconds: Option<u64>,
    #[serde(default)]
    environment: Vec<String>,
    #[serde(default)]
    agents: BTreeMap<String, Entry>,
    #[serde(default)]
    tools: BTreeMap<String, Entry>,
    /// Condition kinds (`workflows.conditionKinds.served`).
    #[serde(default)]
    conditions: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    command: Option<Vec<String>>,
    http: Option<HttpEntry>,
    echo: Option<bool>,
    working_directory: Option<PathBuf>,
    /// More variables that the command may see.
    #[serde(default)]
    environment: Vec<String>,
    /// Variables with their values.
    #[serde(default)]
    variables: BTreeMap<String, String>,
    timeout: Option<Span>,
    output_bytes_max: Option<usize>,
    idempotent: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HttpEntry {
    url: String,
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    idempotency_header: Option<String>,
    retryable: Option<Vec<u16>>,
    uncertain: Option<Vec<u16>>,
    tries: Option<u32>,
}

/// One address, several with commas, or a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum Servers {
    Text(String),
    List(Vec<String>),
}

impl Default for Servers {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl Servers {
    fn list(self) -> Vec<String> {
        match self {
            Self::Text(text) => {
                text.split(',').map(|url| url.trim().to_owned()).filter(|url| !url.is_empty()).collect()
            }
            Self::List(list) => list,
        }
    }
}

/// `90s`, `2m`, `1.5h`, or a number of seconds.
#[derive(Deserialize)]
#[serde(untagged)]
enum Span {
    Seconds(f64),
    Text(String),
}

/// Reads a worker file. `variable` gives the variables of this process's environment.
///
/// # Errors
/// [`Error::Config`] with the file's name and the place in it.
pub fn read(path: &Path, variable: &dyn Fn(&str) -> Option<String>) -> Result<WorkerConfig, Error> {
    let file = path.display().to_string();
    let wrong = |message: String| Error::Config { file: file.clone(), message };
    let size = std::fs::metadata(path).map_err(|e| wrong(e.to_string()))?.len();
    if size > FILE_BYTES_MAX {
        return Err(wrong(format!("Expected at most {FILE_BYTES_MAX} bytes, but found {size}.")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
    // An empty parent is the current folder.
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.canonicalize().map_err(|e| wrong(e.to_string()))?;
    parse(&text, &folder, variable).map_err(wrong)
}

fn parse(text: &str, folder: &Path, variable: &dyn Fn(&str) -> Option<String>) -> Result<WorkerConfig, String> {
    let file: File = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
    let capacity = file.capacity.unwrap_or(CAPACITY);
    if !(1..=CAPACITY_MAX).contains(&capacity) {
        return Err(format!("capacity: Expected 1 to {CAPACITY_MAX}, but found {capacity}."));
    }
    let context = Context { folder, variable, environment: &file.environment, client: client()? };
    let mut handlers = Vec::new();
    let sections =
        [("agents", "agent", file.agents), ("tools", "tool", file.tools), ("conditions", "condition", file.conditions)];
    for (section, prefix, entries) in sections {
        for (name, entry) in entries {
            let handler = context.handler(entry).map_err(|why| format!("{section}.{name}: {why}"))?;
            handlers.push((format!("{prefix}:{name}"), handler));
        }
    }
    if handlers.is_empty() {
        return Err("Expected at least one entry under agents, tools or conditions, but found none.".to_owned());
    }
    Ok(WorkerConfig {
        servers: file.server.list(),
        tenant: file.tenant,
        capacity,
        state: file.state.map(|state| folder.join(state)),
        drain: Duration::from_secs(file.drain_seconds.unwrap_or(DRAIN_SECONDS)),
        handlers,
    })
}

fn client() -> Result<Client, String> {
    Client::builder().redirect(reqwest::redirect::Policy::limited(5)).build().map_err(|e| e.to_string())
}

struct Context<'a> {
    folder: &'a Path,
    variable: &'a dyn Fn(&str) -> Option<String>,
    environment: &'a [String],
    client: Client,
}

impl Context<'_> {
    fn handler(&self, entry: Entry) -> Result<Arc<dyn Handler>, String> {
        let timeout =
            entry.timeout.as_ref().map(Span::duration).transpose().map_err(|why| format!("timeout: {why}"))?;
        match (&entry.command, &entry.http, entry.echo) {
            (Some(argv), None, None) => Ok(Arc::new(self.command(argv, &entry, timeout)?)),
            (None, Some(http), None) => Ok(Arc::new(self.http(http, &entry, timeout)?)),
            (None, None, Some(true)) => Ok(Arc::new(|work: Work| async move { Outcome::Succeeded(work.input) })),
            _ => Err("Expected exactly one of command, http and echo: true, but found another number.".to_owned()),
        }
    }

    fn command(&self, argv: &[String], entry: &Entry, timeout: Option<Duration>) -> Result<Command, String> {
        if argv.first().is_none_or(String::is_empty) {
            return Err("command: Expected a program, but found none.".to_owned());
        }
        let output_bytes_max = entry.output_bytes_max.unwrap_or(PAYLOAD_BYTES_MAX);
        if output_bytes_max > PAYLOAD_BYTES_MAX {
            return Err(format!("outputBytesMax: Expected at most {PAYLOAD_BYTES_MAX}, but found {output_bytes_max}."));
        }
        let visible =
            ALWAYS_VISIBLE.into_iter().chain(self.environment.iter().chain(&entry.environment).map(String::as_str));
        let mut environment: BTreeMap<String, String> =
            visible.filter_map(|name| Some((name.to_owned(), (self.variable)(name)?))).collect();
        environment.extend(entry.variables.clone());
        let folder = entry.working_directory.as_ref().map_or_else(|| self.folder.to_owned(), |f| self.folder.join(f));
        if !folder.is_dir() {
            return Err(format!("workingDirectory: Expected a folder, but found none at {}.", folder.display()));
        }
        Ok(Command {
            timeout,
            output_bytes_max,
            environment: environment.into_iter().collect(),
            idempotent: entry.idempotent.unwrap_or(false),
            ..Command::new(argv.iter().cloned(), folder)
        })
    }

    fn http(&self, http: &HttpEntry, entry: &Entry, timeout: Option<Duration>) -> Result<HttpCall, String> {
        let of_commands = [
            ("workingDirectory", entry.working_directory.is_some()),
            ("environment", !entry.environment.is_empty()),
            ("variables", !entry.variables.is_empty()),
            ("outputBytesMax", entry.output_bytes_max.is_some()),
        ];
        if let Some((key, _)) = of_commands.iter().find(|(_, given)| *given) {
            return Err(format!("Expected {key} beside a command only, but found it beside http."));
        }
        let method = http.method.as_deref().unwrap_or("POST");
        let method = Method::from_bytes(method.as_bytes())
            .map_err(|_| format!("http.method: Expected an HTTP method, but found {method:?}."))?;
        if !(http.url.starts_with("http://") || http.url.starts_with("https://")) {
            return Err(format!("http.url: Expected a URL with http or https, but found {:?}.", http.url));
        }
        let mut call = HttpCall::new(self.client.clone(), method, http.url.clone());
        call.headers = self.headers(&http.headers)?;
        if let Some(name) = &http.idempotency_header {
            call.idempotency_header = header_name(name)?;
        }
        if let Some(timeout) = timeout {
            call.timeout = timeout;
        }
        if let Some(tries) = http.tries {
            if !(1..=TRIES_MAX).contains(&tries) {
                return Err(format!("http.tries: Expected 1 to {TRIES_MAX}, but found {tries}."));
            }
            call.tries = tries;
        }
        if let Some(list) = &http.retryable {
            call.retryable = statuses(list).map_err(|why| format!("http.retryable: {why}"))?;
        }
        if let Some(list) = &http.uncertain {
            call.uncertain = statuses(list).map_err(|why| format!("http.uncertain: {why}"))?;
        }
        if let Some(idempotent) = entry.idempotent {
            call.idempotent = idempotent;
        }
        Ok(call)
    }

    /// `${NAME}` in a value is that variable, so that secrets need not stand in the file.
    fn headers(&self, given: &BTreeMap<String, String>) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, text) in given {
            let value = self.expanded(text).map_err(|why| format!("http.headers.{name}: {why}"))?;
            let mut value = HeaderValue::from_str(&value)
                .map_err(|_| format!("http.headers.{name}: Expected a header value, but found something else."))?;
            value.set_sensitive(text.contains("${"));
            headers.insert(header_name(name)?, value);
        }
        Ok(headers)
    }

    fn expanded(&self, text: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (name, behind) = after.split_once('}').ok_or("Expected a closing brace, but found none.")?;
            let value = (self.variable)(name)
                .ok_or_else(|| format!("Expected the environment variable {name}, but found it unset."))?;
            out.push_str(before);
            out.push_str(&value);
            rest = behind;
        }
        out.push_str(rest);
        Ok(out)
    }
}

fn header_name(name: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| format!("http.headers: Expected a header name, but found {name:?}."))
}

fn statuses(list: &[u16]) -> Result<Vec<StatusCode>, String> {
    let status =
        |code: &u16| StatusCode::from_u16(*code).map_err(|_| format!("Expected HTTP statuses, but found {code}."));
    list.iter().map(status).collect()
}

impl Span {
    fn duration(&self) -> Result<Duration, String> {
        let (number, factor) = match self {
            Span::Seconds(seconds) => (Some(*seconds), 1.0),
            Span::Text(text) => {
                let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
                let factor = match &text[unit_at..] {
                    "ms" => 0.001,
                    "" | "s" => 1.0,
                    "m" => 60.0,
                    "h" => 3_600.0,
                    _ => f64::NAN,
                };
                (text[..unit_at].trim().parse().ok(), factor)
            }
        };
        number
            .and_then(|n: f64| Duration::try_from_secs_f64(n * factor).ok())
            .filter(|duration| !duration.is_zero())
            .ok_or_else(|| "Expected a duration above 0 like 90s, 2m or 1h, but found something else.".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<WorkerConfig, String> {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        parse(text, Path::new("/tmp"), &|name| (name == "TOKEN").then(|| "secret".to_owned()))
    }

    #[test]
    fn a_file_names_queues() {
        let text = "
capacity: 2
agents:
  a: { command: [sh, -c, 'true'], timeout: 2m, idempotent: true }
tools:
  h: { http: { method: PUT, url: 'http://x/{id}', headers: { Authorization: 'Bearer ${TOKEN}' }, retryable: [503] }, timeout: 3 }
  e: { echo: true }
";
        let config = parsed(text).map_err(|e| panic!("{e}")).expect("reads");
        let queues: Vec<(&str, bool)> = config.handlers.iter().map(|(q, h)| (q.as_str(), h.is_idempotent())).collect();
        assert_eq!(queues, [("agent:a", true), ("tool:e", false), ("tool:h", true)]);
        assert_eq!((config.capacity, config.drain), (2, Duration::from_secs(60)));
        assert!(config.servers.is_empty());
    }

    #[test]
    fn servers_are_one_or_several() {
        for (text, wanted) in [
            ("http://a:1", &["http://a:1"][..]),
            ("http://a:1, http://b:2", &["http://a:1", "http://b:2"]),
            ("[a, b]", &["a", "b"]),
        ] {
            let config = parsed(&format!(
                "server: {}\ntools: {{ e: {{ echo: true }} }}",
                if text.starts_with('[') { text.to_owned() } else { format!("'{text}'") }
            ));
            assert_eq!(config.map(|config| config.servers).expect("reads"), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, wanted) in [
            ("tools: {}", "at least one entry"),
            ("capacity: 0\ntools: { a: { echo: true } }", "capacity: Expected 1 to"),
            ("tools: { a: { echo: true, comand: [x] } }", "comand"),
            ("tools: { a: {} }", "tools.a: Expected exactly one of command, http and echo"),
            ("tools: { a: { command: [] } }", "tools.a: command: Expected a program"),
            ("agents: { a: { command: [x], timeout: soon } }", "agents.a: timeout: Expected a duration"),
            ("agents: { a: { command: [x], workingDirectory: /no/such } }", "Expected a folder"),
            ("tools: { a: { http: { url: 'ftp://x' } } }", "http.url: Expected a URL"),
            ("tools: { a: { http: { url: 'http://x', headers: { A: '${NO}' } } } }", "variable NO"),
            ("tools: { a: { http: { url: 'http://x', retryable: [7] } } }", "http.retryable: Expected HTTP statuses"),
            ("tools: { a: { http: { url: 'http://x' }, outputBytesMax: 3 } }", "beside a command only"),
            ("tools: { a: { command: [x], outputBytesMax: 99999999 } }", "outputBytesMax"),
        ] {
            match parsed(text) {
                Ok(_) => panic!("accepted: {text}"),
                Err(error) => assert!(error.contains(wanted), "{text}\n{error}"),
            }
        }
    }
}
