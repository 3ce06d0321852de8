//! What a request must look like before it reaches a grain. Every refusal names the field.

use grain_contract::{Code, Rejection, limits};
use granary_proto::wire::Json;
use uuid::Uuid;

/// Free text: reasons, comments. Bytes.
pub const TEXT_BYTES_MAX: usize = 4_096;
const PAGE_DEFAULT: usize = 50;

pub fn invalid(field: &str, message: impl Into<String>) -> Rejection {
    Rejection::new(Code::Invalid, message).at(field)
}

/// Shortens what a caller sent, for a message about it.
pub fn shown(text: &str) -> String {
    let short: String = text.chars().take(64).collect();
    if short.len() < text.len() { format!("{short:?}…") } else { format!("{short:?}") }
}

/// A UUID in its hyphenated form.
pub fn id(text: &str, field: &str) -> Result<Uuid, Rejection> {
    let parsed = if text.len() == uuid::fmt::Hyphenated::LENGTH { Uuid::try_parse(text).ok() } else { None };
    match parsed {
        Some(id) if !id.is_nil() => Ok(id),
        _ => {
            let wanted = "a UUID like 0190a3c4-7d1e-7f3a-9c55-2f6b8e0d4a11";
            Err(invalid(field, format!("Expected {wanted}, but found {}.", shown(text))))
        }
    }
}

/// A name: 1 to 128 bytes of visible ASCII.
pub fn name(text: &str, field: &str) -> Result<(), Rejection> {
    if text.is_empty() {
        return Err(invalid(field, "Expected a name, but found nothing."));
    }
    optional_name(text, field)
}

pub fn optional_name(text: &str, field: &str) -> Result<(), Rejection> {
    let most = limits::NAME_BYTES_MAX;
    if text.len() > most || !text.bytes().all(|b| b.is_ascii_graphic()) {
        let found = if text.len() > most { format!("{} bytes", text.len()) } else { shown(text) };
        return Err(invalid(field, format!("Expected at most {most} visible ASCII characters, but found {found}.")));
    }
    Ok(())
}

/// A person's or program's name: short text of any script.
pub fn optional_text_name(name: &str, field: &str) -> Result<(), Rejection> {
    if name.len() > limits::NAME_BYTES_MAX || name.chars().any(char::is_control) {
        let most = limits::NAME_BYTES_MAX;
        return Err(invalid(
            field,
            format!("Expected at most {most} bytes without control characters, but found {}.", shown(name)),
        ));
    }
    Ok(())
}

/// Free text for people.
pub fn text(text: &str, field: &str) -> Result<(), Rejection> {
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("Expected at most {TEXT_BYTES_MAX} bytes of text, but found {}.", text.len());
        return Err(Rejection::new(Code::TooLarge, message).at(field));
    }
    if text.contains('\0') {
        return Err(invalid(field, "Expected text without zero characters, but found one."));
    }
    Ok(())
}

/// How many a page holds: 0 means the default.
pub fn page_size(wanted: u32) -> usize {
    match wanted as usize {
        0 => PAGE_DEFAULT,
        n => n.min(limits::PAGE_MAX),
    }
}

/// A JSON value that a caller hands in: its size, its depth, its grammar. Nothing (or an empty text) is nothing.
pub fn json(value: &mut Option<Json>, field: &str) -> Result<(), Rejection> {
    if value.as_ref().is_some_and(|v| v.text.is_empty()) {
        *value = None;
    }
    let Some(json) = value else { return Ok(()) };
    json_text(&json.text, field)
}

pub fn json_text(bytes: &[u8], field: &str) -> Result<(), Rejection> {
    if bytes.len() > limits::PAYLOAD_BYTES_MAX {
        let message =
            format!("Expected at most {} bytes of JSON, but found {}.", limits::PAYLOAD_BYTES_MAX, bytes.len());
        return Err(Rejection::new(Code::TooLarge, message).at(field));
    }
    let depth = depth(bytes);
    if depth > limits::JSON_DEPTH_MAX {
        let message = format!("Expected JSON of at most {} levels, but found {depth}.", limits::JSON_DEPTH_MAX);
        return Err(invalid(field, message));
    }
    match serde_json::from_slice::<serde::de::IgnoredAny>(bytes) {
        Ok(_) if std::str::from_utf8(bytes).is_ok() => Ok(()),
        Ok(_) => Err(invalid(field, "Expected UTF-8, but found other bytes.")),
        Err(e) => Err(invalid(field, format!("Expected one JSON value, but: {e}."))),
    }
}

/// As [`json`], and it must be an object if it is there.
pub fn json_object(value: &mut Option<Json>, field: &str) -> Result<(), Rejection> {
    json(value, field)?;
    let first = value.as_ref().and_then(|v| v.text.iter().find(|b| !b.is_ascii_whitespace()).copied());
    match first {
        None | Some(b'{') => Ok(()),
        Some(_) => Err(invalid(field, "Expected a JSON object, but found another value.")),
    }
}

/// The deepest nesting of brackets outside of strings: one pass, no recursion, so that no input can overflow the stack.
pub fn depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0usize, 0usize, false, false);
    for byte in bytes {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_hyphenated_uuids() {
        let good = "0190A3C4-7d1e-7f3a-9c55-2f6b8e0d4a11";
        assert_eq!(id(good, "runId").expect("good").to_string(), good.to_lowercase());
        let nil = "00000000-0000-0000-0000-000000000000";
        for bad in
            ["", "1", "0190a3c47d1e7f3a9c552f6b8e0d4a11", "{0190a3c4-7d1e-7f3a-9c55-2f6b8e0d4a11}", nil, "../../x"]
        {
            let refusal = id(bad, "runId").expect_err(bad);
            assert_eq!((refusal.code, refusal.field.as_str()), (Code::Invalid, "runId"), "{bad}");
        }
    }

    /// FR-125: the limit itself is fine, one byte more is not, and both numbers are said.
    #[test]
    fn json_up_to_the_limit_is_taken() {
        let exact = format!("\"{}\"", "x".repeat(limits::PAYLOAD_BYTES_MAX - 2));
        json_text(exact.as_bytes(), "input").expect("exactly the limit");
        let over = format!("{exact} ");
        let refusal = json_text(over.as_bytes(), "input").expect_err("over");
        assert_eq!(refusal.code, Code::TooLarge);
        assert!(refusal.message.contains("1048576") && refusal.message.contains("1048577"), "{}", refusal.message);
    }

    #[test]
    fn json_that_is_none_is_refused_with_its_field() {
        let deep = "[".repeat(10_000);
        for bad in ["{", "{} {}", "nul", "\"\u{1}\"", "[1,]", deep.as_str(), "\"\\ud800"] {
            let refusal = json_text(bad.as_bytes(), "input").expect_err("refused");
            assert_eq!((refusal.code, refusal.field.as_str()), (Code::Invalid, "input"));
        }
        json_text(br#"{"a":"[[[[{{{{\"[[[","b":[1]}"#, "input").expect("brackets in strings do not count");
        json_text(b"\"\xff\"", "input").expect_err("not UTF-8");
    }
}
