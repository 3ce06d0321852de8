//! The log: one subscriber a process, whose filter can be changed while it runs.
//!
//! What is logged, the first of these says: the environment (`GRANARY_LOG`, `RUST_LOG`; it is the word of whoever starts the
//! process now), the configuration's `log`, the command.

use std::io::IsTerminal as _;
use std::sync::OnceLock;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();
static ORIGIN: OnceLock<Origin> = OnceLock::new();

/// Libraries that talk about themselves, and how much of it is heard at most unless a filter names them. Each start of a shard
/// is an election, and openraft has much to say about each.
const TALKATIVE: [(&str, LevelFilter); 5] = [
    ("openraft", LevelFilter::ERROR),
    ("ractor", LevelFilter::WARN),
    ("ractor_cluster", LevelFilter::ERROR),
    ("sled", LevelFilter::WARN),
    ("opentelemetry", LevelFilter::WARN),
];

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    Json,
}

struct Origin {
    environment: Option<String>,
    default: String,
}

/// Starts the log on standard error; a second call changes nothing. `environment` is taken as it is, `default` is what fits the
/// command.
///
/// # Errors
/// The filter is not one, e.g. `info,cluster=debug`.
pub fn init(environment: Option<&str>, default: &str, form: Form) -> Result<(), String> {
    let (layer, handle) = reload::Layer::new(parse(&in_force(environment, "", default))?);
    // A closed standard error must not end the process: the layer's own complaint about it would, by a panic.
    // Colours are for a terminal; in a file they are noise.
    let coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let lines = || fmt::layer().with_writer(std::io::stderr).with_ansi(coloured).log_internal_errors(false);
    let (text, json) = match form {
        Form::Text => (Some(lines()), None),
        Form::Json => (None, Some(fmt::layer().json().with_writer(std::io::stderr).log_internal_errors(false))),
    };
    // An embedding program may have a subscriber of its own: then its word counts.
    if tracing_subscriber::registry().with(layer).with(text).with(json).try_init().is_ok() {
        let _ = FILTER.set(handle);
        let _ = ORIGIN.set(Origin { environment: environment.map(str::to_owned), default: default.to_owned() });
    }
    Ok(())
}

/// What the configuration says (empty = nothing) is in force from now on, unless the environment said something. Nothing
/// happens if the log is not ours.
///
/// # Errors
/// `filter` is not one.
pub fn configured(filter: &str) -> Result<(), String> {
    let (Some(handle), Some(origin)) = (FILTER.get(), ORIGIN.get()) else { return Ok(()) };
    let filter = parse(&in_force(origin.environment.as_deref(), filter, &origin.default))?;
    handle.reload(filter).map_err(|e| e.to_string())
}

/// # Errors
/// `filter` is not one.
pub fn check(filter: &str) -> Result<(), String> {
    parse(filter).map(drop)
}

fn in_force(environment: Option<&str>, configured: &str, default: &str) -> String {
    match environment {
        Some(filter) => filter.to_owned(),
        None if configured.is_empty() => quietened(default),
        None => quietened(configured),
    }
}

/// `filter`, with its own words about the talkative libraries last, since the last one about a target counts.
fn quietened(filter: &str) -> String {
    let level = |directive: &str| directive.trim().parse::<LevelFilter>().ok().filter(|_| !directive.trim().is_empty());
    let general = filter.split(',').filter_map(level).next_back().unwrap_or(LevelFilter::OFF);
    let quiet = TALKATIVE.map(|(name, most)| format!("{name}={}", most.min(general)));
    format!("{},{filter}", quiet.join(","))
}

fn parse(filter: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(filter)
        .map_err(|e| format!("Expected a log filter like info,cluster=debug, but {filter:?}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [P5]
    #[test]
    fn the_environment_comes_before_the_configuration_and_that_before_the_command() {
        let quiet = "openraft=error,ractor=warn,ractor_cluster=error,sled=warn,opentelemetry=warn";
        let cases = [
            (Some("debug"), "warn", "info", "debug".to_owned()),
            (None, "", "info", format!("{quiet},info")),
            (None, "debug", "info", format!("{quiet},debug")),
            (None, "debug,openraft=debug", "info", format!("{quiet},debug,openraft=debug")),
            (
                None,
                "",
                "error",
                "openraft=error,ractor=error,ractor_cluster=error,sled=error,opentelemetry=error,error".to_owned(),
            ),
            (
                None,
                "cluster=debug",
                "info",
                "openraft=off,ractor=off,ractor_cluster=off,sled=off,opentelemetry=off,cluster=debug".to_owned(),
            ),
        ];
        for (environment, configured, default, wanted) in cases {
            let found = in_force(environment, configured, default);
            assert_eq!(found, wanted);
            check(&found).expect("a filter");
        }
        // What a filter itself says about such a library counts.
        let shown = parse(&quietened("debug,openraft=debug")).expect("a filter").to_string();
        assert!(shown.contains("openraft=debug") && !shown.contains("openraft=error"), "{shown}");
        check("info,cluster=loud").expect_err("no filter");
    }
}
