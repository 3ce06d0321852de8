//! The log: one subscriber a process, whose filter can be changed while it runs.

use std::sync::OnceLock;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    Json,
}

/// Starts the log on standard error. A second call in one process changes the filter only.
///
/// # Errors
/// `filter` is not one, e.g. `info,cluster=debug`.
pub fn init(filter: &str, form: Form) -> Result<(), String> {
    if FILTER.get().is_some() {
        return set_filter(filter);
    }
    let (layer, handle) = reload::Layer::new(parse(filter)?);
    let (text, json) = match form {
        Form::Text => (Some(fmt::layer().with_writer(std::io::stderr)), None),
        Form::Json => (None, Some(fmt::layer().json().with_writer(std::io::stderr))),
    };
    // An embedding program may have a subscriber of its own: then its word counts.
    if tracing_subscriber::registry().with(layer).with(text).with(json).try_init().is_ok() {
        let _ = FILTER.set(handle);
    }
    Ok(())
}

/// Changes what is logged from now on; nothing happens if the log is not ours.
///
/// # Errors
/// `filter` is not one.
pub fn set_filter(filter: &str) -> Result<(), String> {
    let parsed = parse(filter)?;
    match FILTER.get() {
        Some(handle) => handle.reload(parsed).map_err(|e| e.to_string()),
        None => Ok(()),
    }
}

fn parse(filter: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(filter)
        .map_err(|e| format!("Expected a log filter like info,cluster=debug, but {filter:?}: {e}"))
}
