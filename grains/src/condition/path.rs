//! The path of a `var`: parts separated by dots, `\.` for a dot inside a part, `\\` for a backslash.

use serde_json::Value;

/// Beyond it an index into a list cannot be meant.
const INDEX_MAX: i64 = 1_000_000_000;

/// Splits a path.
///
/// # Errors
/// An empty part, a backslash at the end, or a number no list has.
pub(super) fn split(path: &str) -> Result<Vec<String>, String> {
    let mut parts = vec![String::new()];
    let mut characters = path.chars();
    while let Some(character) = characters.next() {
        let part = parts.last_mut().expect("it begins with one part and only grows");
        match character {
            '\\' => match characters.next() {
                Some(escaped) => part.push(escaped),
                None => {
                    return Err(format!(
                        "Expected a character after the last backslash of the path `{path}`, but it ends there"
                    ));
                }
            },
            '.' => parts.push(String::new()),
            _ => part.push(character),
        }
    }
    if parts.iter().any(String::is_empty) {
        return Err(format!(
            "Expected a path of parts separated by single dots, but found `{path}`; a dot inside a key is written `\\.`"
        ));
    }
    if let Some(part) = parts.iter().find(|part| part.parse::<i64>().is_ok_and(|n| n.unsigned_abs() > INDEX_MAX as u64))
    {
        return Err(format!("Expected an index within ±{INDEX_MAX}, but found {part} in the path `{path}`"));
    }
    Ok(parts)
}

/// What the path leads to. Lists and texts take an index, from the end if it is negative.
pub(super) fn resolve<'a>(root: &'a Value, parts: &[String]) -> Option<std::borrow::Cow<'a, Value>> {
    use std::borrow::Cow;
    let mut here = Cow::Borrowed(root);
    for part in parts {
        here = match here {
            Cow::Borrowed(value) => step(value, part)?,
            Cow::Owned(value) => Cow::Owned(step(&value, part)?.into_owned()),
        };
    }
    Some(here)
}

fn step<'a>(value: &'a Value, part: &str) -> Option<std::borrow::Cow<'a, Value>> {
    use std::borrow::Cow;
    match value {
        Value::Object(fields) => fields.get(part).map(Cow::Borrowed),
        Value::Array(elements) => elements.get(index(part, elements.len())?).map(Cow::Borrowed),
        Value::String(text) => {
            let at = index(part, text.chars().count())?;
            text.chars().nth(at).map(|character| Cow::Owned(Value::String(character.to_string())))
        }
        _ => None,
    }
}

fn index(part: &str, length: usize) -> Option<usize> {
    let wanted: i64 = part.parse().ok()?;
    let from_start = usize::try_from(wanted.unsigned_abs()).ok()?;
    if wanted < 0 { length.checked_sub(from_start) } else { Some(from_start) }
}
