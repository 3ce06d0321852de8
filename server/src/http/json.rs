//! Reading JSON bodies. A refusal says line, column, and the path of the field it stands at.

use super::Problem;
use crate::api::check;
use grain_contract::limits::JSON_DEPTH_MAX;
use serde::de::DeserializeOwned;
use serde_json::json;

pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let depth = check::depth(bytes);
    if depth > JSON_DEPTH_MAX {
        return Err(Problem::invalid(format!("Expected JSON of at most {JSON_DEPTH_MAX} levels, but found {depth}.")));
    }
    object(bytes)?;
    serde_json::from_slice(bytes).map_err(|e| {
        let path = path_at(bytes, offset(bytes, e.line(), e.column()));
        Problem::invalid(format!("Expected a JSON body of this operation, but: {e}."))
            .at(&path)
            .with("line", json!(e.line()))
            .with("column", json!(e.column()))
    })
}

/// Bodies are objects. The reader would take a list as well, and its values by the order of the fields.
fn object(bytes: &[u8]) -> Result<(), Problem> {
    let found = match bytes.iter().find(|b| !b.is_ascii_whitespace()) {
        Some(b'[') => "a list",
        Some(b'"') => "text",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        Some(b'-' | b'0'..=b'9') => "a number",
        // An object, or no JSON at all: the reader says what is wrong with it.
        _ => return Ok(()),
    };
    Err(Problem::invalid(format!("Expected a JSON object, but found {found}.")))
}

/// Byte at which serde_json stopped. It counts columns in bytes, from 1; 0 = the end of the line before.
fn offset(bytes: &[u8], line: usize, column: usize) -> usize {
    let begin = match line.checked_sub(2) {
        None => 0,
        Some(newlines) => {
            bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').nth(newlines).map_or(bytes.len(), |(at, _)| at + 1)
        }
    };
    begin.saturating_add(column).min(bytes.len())
}

enum Part {
    Key(String),
    Index(usize),
}

/// Where in the document the byte at `end` stands, e.g. `variables.list[3]`. Tolerates anything, since it reads documents
/// that are broken.
fn path_at(bytes: &[u8], end: usize) -> String {
    let mut path: Vec<Part> = Vec::new();
    let (mut at, mut last_string) = (0, String::new());
    while at < end {
        match bytes[at] {
            b'"' => {
                let close = string_end(bytes, at);
                last_string = String::from_utf8_lossy(&bytes[at + 1..close.min(bytes.len())]).into_owned();
                // A key that the reader stopped in, or just behind, is the place.
                if close + 1 >= end
                    && let Some(Part::Key(key)) = path.last_mut()
                    && key.is_empty()
                {
                    key.clone_from(&last_string);
                }
                at = close;
            }
            b'{' => path.push(Part::Key(String::new())),
            b'[' => path.push(Part::Index(0)),
            // The closing bracket that the reader stopped at belongs to what it closes.
            b'}' | b']' if at + 1 < end => {
                path.pop();
            }
            b':' => {
                if let Some(Part::Key(key)) = path.last_mut() {
                    key.clone_from(&last_string);
                }
            }
            b',' => match path.last_mut() {
                Some(Part::Index(n)) => *n += 1,
                Some(Part::Key(key)) => key.clear(),
                None => {}
            },
            _ => {}
        }
        at += 1;
    }
    write(&path)
}

/// The closing quote of the string that opens at `open`, or the end of the text.
fn string_end(bytes: &[u8], open: usize) -> usize {
    let mut at = open + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at
}

fn write(path: &[Part]) -> String {
    let mut text = String::new();
    for part in path {
        match part {
            Part::Key(key) if key.is_empty() => {}
            Part::Key(key) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.extend(key.chars().take(64));
            }
            Part::Index(n) => text.push_str(&format!("[{n}]")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize, Debug)]
    #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
    #[derive(Default)]
    #[allow(dead_code)]
    struct Outer {
        name: String,
        inner: Inner,
        list: Vec<u32>,
    }

    #[derive(Deserialize, Debug, Default)]
    #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
    #[allow(dead_code)]
    struct Inner {
        count: u32,
    }

    #[test]
    fn a_refusal_names_the_field_by_its_path() {
        let cases = [
            (r#"{"name": 1}"#, "name"),
            (r#"{"inner": {"count": "x"}}"#, "inner.count"),
            (r#"{"inner": {"cuont": 1}}"#, "inner.cuont"),
            (r#"{"list": [1, 2, "three"]}"#, "list[2]"),
            ("{\n  \"name\": \"a\",\n  \"list\": [1,\n 2, {}]\n}", "list[2]"),
            (r#"{"nam": 1}"#, "nam"),
            (r#"{"name": "a:{,[", "lst": 1}"#, "lst"),
        ];
        for (text, wanted) in cases {
            let problem = format!("{:?}", parse::<Outer>(text.as_bytes()).expect_err(text));
            assert!(problem.contains(&format!("String(\"{wanted}\")")), "{text}: {problem}");
        }
    }

    #[test]
    fn a_body_that_is_no_object_is_refused_by_its_kind() {
        for (text, found) in [
            (r#" ["a"]"#, "found a list."),
            ("[]", "found a list."),
            ("\"a\"", "found text."),
            ("-1", "found a number."),
            ("true", "found a boolean."),
            ("null", "found null."),
        ] {
            let problem = format!("{:?}", parse::<Outer>(text.as_bytes()).expect_err(text));
            assert!(problem.contains(found), "{text}: {problem}");
        }
        assert!(parse::<Outer>(b"\n {}").is_ok());
    }

    #[test]
    fn broken_text_never_panics() {
        let text = r#"{"a\"b": [1, {"c": "\u00e9"}, []], "d": {"e": null}}"#;
        for end in 0..=text.len() {
            let cut = &text.as_bytes()[..end];
            for at in 0..=end {
                let _ = path_at(cut, at);
            }
            let _ = parse::<Outer>(cut);
        }
        assert!(parse::<Outer>("[".repeat(10_000).as_bytes()).is_err());
        assert!(parse::<Outer>(b"").is_err());
    }
}
