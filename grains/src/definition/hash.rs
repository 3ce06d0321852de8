//! The identity of a graph: BLAKE3 over the RFC 8785 form of the canonical document.
//!
//! Canonical is what the author wrote, less key order, comments, spacing and spelling (YAML or JSON, an expression as text or
//! native). Defaults are not part of it: a run takes those of the cluster that runs it.

use serde_json::Value;

pub(super) fn canonical(document: &Value) -> Vec<u8> {
    serde_json_canonicalizer::to_vec(document)
        .expect("a JSON value has string keys and finite numbers, so it has a canonical form")
}

pub(super) fn of(canonical: &[u8]) -> String {
    blake3::hash(canonical).to_hex().to_string()
}
