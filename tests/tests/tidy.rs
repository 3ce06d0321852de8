//! What every file and manifest keeps to.

use cluster_tests::workspace::{metadata, root, rust_sources};

#[test]
fn every_manifest_says_licence_and_compiler_and_is_not_published() {
    for package in metadata().expect("cargo metadata").packages {
        assert_eq!(package.license.as_deref(), Some("Apache-2.0"), "{}", package.name);
        assert_eq!(package.publish.as_deref(), Some(&[][..]), "{}", package.name);
        assert_eq!(package.rust_version.as_deref(), Some("1.95"), "{}", package.name);
    }
    let licence = std::fs::read_to_string(root().join("LICENSE")).expect("LICENSE");
    assert!(licence.contains("Apache License") && licence.contains("Version 2.0"));
}

/// The words are put together here so that this file does not find itself.
#[test]
fn no_left_overs_in_the_sources() {
    let words = [
        "TO".to_owned() + "DO",
        "FIX".to_owned() + "ME",
        "todo".to_owned() + "!(",
        "unimplemented".to_owned() + "!(",
        "dbg".to_owned() + "!(",
    ];
    for (path, text) in rust_sources().expect("sources") {
        for word in &words {
            assert!(!text.contains(word.as_str()), "{} says {word}", path.display());
        }
    }
}

#[test]
fn no_file_holds_more_than_it_can_explain() {
    // 400 lines are the point to look for the second idea; this is the point where it was not looked for.
    const LINES_MAX: usize = 700;
    for (path, text) in rust_sources().expect("sources") {
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines", path.display());
    }
}
