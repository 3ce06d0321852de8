//! The DSL page is true: its example publishes, and it names every code there is.

use grains::definition::{Environment, Mode, load};
use std::collections::BTreeSet;
use std::path::Path;

const PAGE: &str = include_str!("../../docs/dsl.md");

/// [D1]
#[test]
fn example_of_the_page_publishes() {
    let example =
        PAGE.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the page has an example");
    let loaded = load(example, Mode::Publish, &Environment::default());
    assert_eq!(loaded.findings, []);
    assert!(loaded.plan.is_some());
}

/// [D3] Codes are a promise: each is on the page, and the page names no other.
#[test]
fn page_names_every_code() {
    let mut sources = String::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/definition"), &mut sources);
    let codes: BTreeSet<&str> = PAGE
        .split("## Findings")
        .nth(1)
        .expect("the page lists the findings")
        .lines()
        .filter_map(|line| line.strip_prefix("| `").and_then(|rest| rest.split(" | ").next()))
        .flat_map(|cell| cell.split('`'))
        .filter(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
        .collect();
    for code in &codes {
        assert!(sources.contains(&format!("\"{code}\"")), "the page names {code}, but no rule gives it");
    }
    // The other way round: whatever stands as a code in a call.
    for call in ["error(", "warning(", "fault(", "undeclared(findings, ", "Some((", "warn("] {
        for rest in sources.split(call).skip(1) {
            let Some(code) = rest.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next()) else {
                continue;
            };
            let is_code = code.len() > 2 && code.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            assert!(!is_code || codes.contains(code), "`{code}` is given, but not on the page");
        }
    }
}

fn read(folder: &Path, into: &mut String) {
    for entry in std::fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("the sources are readable").path();
        if path.is_dir() {
            read(&path, into);
        } else if path.file_name().is_some_and(|name| name != "tests.rs") {
            into.push_str(&std::fs::read_to_string(&path).expect("sources are text"));
        }
    }
}
