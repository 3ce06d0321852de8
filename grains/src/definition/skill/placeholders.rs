//! Placeholders in a call's arguments: `{{app}}`.
//!
//! A text that is nothing but a placeholder becomes the argument itself, with its type. Inside a longer text the argument is
//! inserted as text. Nothing that was inserted is looked at again, so data stays data.

use super::parameters::Parameters;
use crate::condition::Expression;
use crate::definition::finding::Spot;
use crate::definition::tree::{Data, Entry, Node};
use serde_json::{Value, json};

/// What is wrong with a placeholder, and where.
pub(super) struct Fault {
    pub spot: Spot,
    pub path: String,
    /// "Expected …, but …"
    pub message: String,
}

/// One piece of a text.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Name(&'a str),
}

/// The expression that gives the value with its placeholders filled in, and every fault; one with a fault is null here.
pub(super) fn expression(node: &Node, parameters: &Parameters, path: &str, faults: &mut Vec<Fault>) -> Expression {
    match &node.data {
        Data::Text(text) => of_text(text, parameters).unwrap_or_else(|message| {
            faults.push(Fault { spot: node.spot, path: path.to_owned(), message });
            Expression::constant(Value::Null)
        }),
        Data::List(nodes) => {
            let each = nodes.iter().enumerate();
            let each = each.map(|(ix, node)| expression(node, parameters, &format!("{path}[{ix}]"), faults));
            Expression::list(each.collect())
        }
        Data::Map(entries) => {
            let mut field = |entry: &Entry| {
                let path = format!("{path}.{}", entry.key);
                (entry.key.clone(), expression(&entry.value, parameters, &path, faults))
            };
            Expression::fields(entries.iter().map(&mut field).collect())
        }
        Data::Null | Data::Bool(_) | Data::Number { .. } => Expression::constant(node.to_json()),
    }
}

fn of_text(text: &str, parameters: &Parameters) -> Result<Expression, String> {
    let pieces = pieces(text)?;
    for piece in &pieces {
        let Piece::Name(name) = piece else { continue };
        match parameters.get(name) {
            None => {
                return Err(format!("Expected the name of a parameter in `{{{{{name}}}}}`, but no parameter has it"));
            }
            Some(parameter) if pieces.len() > 1 && !parameter.kind.is_plain() => {
                let kind = parameter.kind.as_str();
                return Err(format!(
                    "Expected a plain value inside a text, but the parameter `{name}` is of type {kind}"
                ));
            }
            Some(_) => {}
        }
    }
    match pieces.as_slice() {
        [] => Ok(Expression::constant(Value::String(String::new()))),
        [Piece::Text(text)] => Ok(Expression::constant(Value::String((*text).to_owned()))),
        [Piece::Name(name)] => Ok(Expression::of_path(&["input", name])),
        _ => {
            let part = |piece: &Piece<'_>| match piece {
                Piece::Text(text) => json!(text),
                Piece::Name(name) => json!({ "var": format!("input.{name}") }),
            };
            let rule = json!({ "cat": pieces.iter().map(part).collect::<Vec<_>>() });
            Expression::compile(&rule).map_err(|error| error.to_string())
        }
    }
}

fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some(begin) = rest.find("{{") {
        if begin > 0 {
            pieces.push(Piece::Text(&rest[..begin]));
        }
        let inside = &rest[begin + 2..];
        let Some(end) = inside.find("}}") else {
            return Err("Expected `}}` behind `{{`, but the text ends before".to_owned());
        };
        pieces.push(Piece::Name(inside[..end].trim()));
        rest = &inside[end + 2..];
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_falls_into_pieces() {
        use Piece::{Name, Text};
        let table: [(&str, Vec<Piece<'_>>); 6] = [
            ("", vec![]),
            ("plain", vec![Text("plain")]),
            ("{{app}}", vec![Name("app")]),
            ("open {{ app }}!", vec![Text("open "), Name("app"), Text("!")]),
            ("{{a}}{{b}}", vec![Name("a"), Name("b")]),
            ("} {", vec![Text("} {")]),
        ];
        for (text, wanted) in table {
            assert_eq!(pieces(text), Ok(wanted), "{text}");
        }
        assert!(pieces("open {{app").is_err());
    }
}
