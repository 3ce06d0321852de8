//! Findings drawn into the text they speak of.

use super::style::Style;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use granary_proto::v1;

/// The findings as people read them, and a last line with their numbers.
pub fn findings(path: &str, text: &str, findings: &[v1::Finding], style: Style) -> String {
    let renderer = if style.colours() { Renderer::styled() } else { Renderer::plain() };
    let mut out = String::new();
    for finding in findings {
        out.push_str(&renderer.render(&[group(path, text, finding)]));
        out.push_str("\n\n");
    }
    out.push_str(&counts(findings));
    out.push('\n');
    out
}

pub fn counts(findings: &[v1::Finding]) -> String {
    let errors = findings.iter().filter(|f| f.severity == "error").count();
    let warnings = findings.len() - errors;
    let noun = |n: usize, word: &str| if n == 1 { format!("{n} {word}") } else { format!("{n} {word}s") };
    format!("{}, {}", noun(errors, "error"), noun(warnings, "warning"))
}

fn group<'a>(path: &'a str, text: &'a str, finding: &'a v1::Finding) -> Group<'a> {
    let level = if finding.severity == "error" { Level::ERROR } else { Level::WARNING };
    let title = level.primary_title(finding.message.as_str()).id(finding.code.as_str());
    match span_of(text, finding.line, finding.column) {
        Some(span) => title.element(
            Snippet::source(text)
                .path(path)
                .annotation(AnnotationKind::Primary.span(span).label(finding.path.as_str())),
        ),
        None => Group::with_title(title).element(Level::NOTE.message(format!("in {path} at {}", place(finding)))),
    }
}

fn place(finding: &v1::Finding) -> String {
    if finding.path.is_empty() { "the document".to_owned() } else { finding.path.clone() }
}

/// The bytes from that place to the end of the word or, if there is none, of one character.
fn span_of(text: &str, line: u32, column: u32) -> Option<std::ops::Range<usize>> {
    let line_start = match line {
        0 => return None,
        1 => 0,
        n => text.match_indices('\n').nth(n as usize - 2)?.0 + 1,
    };
    let rest = &text[line_start..];
    let line_text = rest.split('\n').next().unwrap_or(rest);
    let column = column.max(1) as usize;
    let start = line_text.char_indices().nth(column - 1).map_or(line_text.trim_end().len(), |(at, _)| at);
    let word = line_text[start..].split(|c: char| c.is_whitespace() || ",:]}".contains(c)).next().unwrap_or_default();
    let length = if word.is_empty() { line_text[start..].chars().next().map_or(0, char::len_utf8) } else { word.len() };
    Some(line_start + start..line_start + start + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_word_that_stands_there() {
        let text = "steps:\n  - { id: ärger, kind: Tool }\n";
        assert_eq!(span_of(text, 2, 11).map(|s| &text[s]), Some("ärger"));
        assert_eq!(span_of(text, 1, 1).map(|s| &text[s]), Some("steps"));
        assert_eq!(span_of(text, 1, 99), Some(6..6), "behind the end of its line");
        assert_eq!(span_of(text, 0, 0), None);
        assert_eq!(span_of(text, 40, 1), None, "no such line");
    }

    #[test]
    fn a_finding_is_drawn_into_its_line() {
        let finding = v1::Finding {
            code: "unknown-step".to_owned(),
            severity: "error".to_owned(),
            message: "Expected a step, but found \"x\".".to_owned(),
            path: "edges[0].to".to_owned(),
            line: 2,
            column: 6,
        };
        let drawn = findings("a.yaml", "edges:\n  to: x\n", &[finding], Style::plain());
        assert!(drawn.contains("error[unknown-step]: Expected a step") && drawn.contains("a.yaml:2:6"), "{drawn}");
        assert!(drawn.contains("2 |   to: x") && drawn.ends_with("1 error, 0 warnings\n"), "{drawn}");
    }
}
