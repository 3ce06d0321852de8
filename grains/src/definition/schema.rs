//! JSON Schema of inputs and outputs. References to other documents fail closed: nothing is fetched.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use std::collections::BTreeMap;

/// Faults told of one value.
const FAULTS_MAX: usize = 50;
/// Text of one fault; it may quote the value.
const FAULT_CHARS_MAX: usize = 300;

/// Schemas that are always there: `builtin:any` takes every value, `builtin:object` every object.
pub fn is_builtin(reference: &str) -> bool {
    matches!(reference, "builtin" | "builtin:any" | "builtin:object")
}

/// A place in a value, as a JSON pointer (empty = the whole), and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaFault {
    pub path: String,
    pub message: String,
}

/// A compiled schema. Compiling costs much more than checking a small value: keep it.
#[derive(Debug)]
pub struct Schema(Validator);

impl Schema {
    /// # Errors
    /// The text is no JSON, or the JSON is no schema, or it refers to another document.
    pub fn compile(text: &str) -> Result<Self, String> {
        let schema: Value = serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
        // The default pattern engine backtracks; a pattern of the author's must not be able to burn the caller's time.
        jsonschema::options()
            .should_validate_formats(true)
            .with_pattern_options(PatternOptions::regex())
            .build(&schema)
            .map(Self)
            .map_err(|error| format!("it is no usable schema: {}", short(&error.to_string())))
    }

    pub fn check(&self, value: &Value) -> Vec<SchemaFault> {
        self.0
            .iter_errors(value)
            .take(FAULTS_MAX)
            .map(|error| SchemaFault { path: error.instance_path().to_string(), message: short(&error.to_string()) })
            .collect()
    }
}

/// Checks a value against the schema of this reference. An unknown reference takes any value: publication refused it, a draft
/// was warned.
///
/// # Errors
/// The schema itself cannot be used.
pub fn check_value(
    schemas: &BTreeMap<String, String>,
    reference: &str,
    value: &Value,
) -> Result<Vec<SchemaFault>, String> {
    if reference == "builtin:object" && !value.is_object() {
        return Ok(vec![SchemaFault {
            path: String::new(),
            message: "Expected an object, but found another value".into(),
        }]);
    }
    match schemas.get(reference) {
        Some(text) if !is_builtin(reference) => Schema::compile(text).map(|schema| schema.check(value)),
        _ => Ok(Vec::new()),
    }
}

fn short(text: &str) -> String {
    text.chars().take(FAULT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn faults_have_their_place() {
        let text = r#"{"type":"object","required":["repo"],"properties":{"depth":{"type":"integer","minimum":1}}}"#;
        let schemas = BTreeMap::from([("in".to_owned(), text.to_owned())]);
        assert_eq!(check_value(&schemas, "in", &json!({"repo": "x", "depth": 2})), Ok(vec![]));
        let faults = check_value(&schemas, "in", &json!({"depth": 0})).unwrap();
        let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(paths.contains(&"") && paths.contains(&"/depth"), "{faults:?}");
        assert_eq!(check_value(&schemas, "other", &json!(1)), Ok(vec![]));
        assert_eq!(check_value(&schemas, "builtin:any", &json!(1)), Ok(vec![]));
        assert_eq!(check_value(&schemas, "builtin:object", &json!(1)).unwrap().len(), 1);
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        let cases = [
            ("{", "no JSON"),
            (r#"{"type": 7}"#, "no usable schema"),
            (r#"{"$ref": "https://example.org/schema.json"}"#, "no usable schema"),
            (r#"{"$ref": "file:///etc/passwd"}"#, "no usable schema"),
            (r#"{"pattern": "("}"#, "no usable schema"),
        ];
        for (text, wanted) in cases {
            let reason = Schema::compile(text).unwrap_err();
            assert!(reason.contains(wanted), "{text}: {reason}");
        }
    }
}
