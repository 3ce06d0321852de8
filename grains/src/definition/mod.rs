//! Definitions: from the author's text to the plan that the engine runs.
//!
//! [`load`] is the way of a document from outside: it gives all findings at once, and a plan if none of them is an error.
//! [`compile_stored`] is the way of a stored release, on any node.

mod environment;
mod finding;
pub mod plan;

pub use environment::{Environment, Mode};
pub use finding::{Finding, Severity, Spot};
pub use plan::*;

/// What came of a document.
#[derive(Debug)]
pub struct Loaded {
    /// `None` if a finding is an error. Its `release_id` is empty until the caller sets it.
    pub plan: Option<Plan>,
    /// In the order of the text.
    pub findings: Vec<Finding>,
    /// The document as canonical JSON (RFC 8785): what is stored. Empty if it could not be read.
    pub canonical: Vec<u8>,
    /// BLAKE3 of `canonical`, hex.
    pub graph_hash: String,
    pub definition_id: String,
    pub version: String,
}

/// Reads and judges a document, YAML or JSON.
pub fn load(text: &str, _mode: Mode, _env: &Environment) -> Loaded {
    let size = text.len();
    Loaded {
        plan: None,
        findings: vec![Finding::error(
            "syntax",
            Spot::default(),
            "",
            format!("Expected a reader, but none reads these {size} bytes yet"),
        )],
        canonical: Vec::new(),
        graph_hash: String::new(),
        definition_id: String::new(),
        version: String::new(),
    }
}

/// The plan of a stored release.
///
/// # Errors
/// The findings that keep it from being run: it was stored by another version, or is damaged.
pub fn compile_stored(
    canonical: &[u8],
    release_id: &str,
    _draft: bool,
    _env: &Environment,
) -> Result<Plan, Vec<Finding>> {
    let message = format!("Expected a reader, but none reads the {} bytes of {release_id} yet", canonical.len());
    Err(vec![Finding::error("syntax", Spot::default(), "", message)])
}
