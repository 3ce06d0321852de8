//! The dependency table of the architecture page, held.

use cluster_tests::workspace::{Package, metadata, rust_sources};
use std::collections::BTreeSet;

/// Package → which of our packages it may use in its normal dependencies.
const OURS: [(&str, &[&str]); 9] = [
    ("grain-contract", &[]),
    ("granary-proto", &[]),
    ("grains", &["grain-contract", "granary-proto"]),
    ("shard", &["grain-contract", "granary-proto"]),
    ("cluster", &["grain-contract", "granary-proto", "shard"]),
    ("granary", &["grain-contract", "granary-proto", "grains", "shard", "cluster"]),
    ("loadtest", &["grain-contract", "granary-proto"]),
    ("xtask", &[]),
    ("cluster-tests", &["grain-contract", "granary-proto", "grains", "shard", "cluster", "granary"]),
];

/// Crate from outside → the only packages of ours that may name it.
const OUTSIDE: [(&str, &[&str]); 10] = [
    ("sled", &["shard"]),
    ("fjall", &["shard"]),
    ("openraft", &["shard"]),
    ("ractor", &["cluster"]),
    ("ractor_cluster", &["cluster"]),
    ("hashring", &["cluster"]),
    ("petgraph", &["grains"]),
    ("jsonlogic-rs", &["grains"]),
    ("axum", &["granary"]),
    ("config", &["granary"]),
];

/// The pure packages must not be able to wait, to speak or to store.
const PURE: [&str; 2] = ["grain-contract", "grains"];
const IMPURE: [&str; 8] = ["tokio", "tonic", "reqwest", "hyper", "rand", "axum", "futures", "mio"];

fn normal(package: &Package) -> BTreeSet<&str> {
    package.dependencies.iter().filter(|d| d.kind.is_none()).map(|d| d.name.as_str()).collect()
}

#[test]
fn our_packages_use_each_other_as_the_table_says() {
    let metadata = metadata().expect("cargo metadata");
    let names: BTreeSet<_> = metadata.packages.iter().map(|p| p.name.as_str()).collect();
    let table: BTreeSet<_> = OURS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, table, "a package without a row, or a row without a package");
    for package in &metadata.packages {
        let (_, allowed) = OURS.iter().find(|(name, _)| *name == package.name).expect("has a row");
        let used: BTreeSet<_> = normal(package).intersection(&table).copied().collect();
        let allowed: BTreeSet<_> = allowed.iter().copied().collect();
        assert!(used.is_subset(&allowed), "{} uses {:?}", package.name, used.difference(&allowed));
    }
}

#[test]
fn engines_from_outside_stay_in_their_package() {
    let metadata = metadata().expect("cargo metadata");
    for package in &metadata.packages {
        for (name, homes) in OUTSIDE {
            let uses = package.dependencies.iter().any(|d| d.name == name);
            assert!(!uses || homes.contains(&package.name.as_str()), "{} uses {name}", package.name);
        }
    }
}

#[test]
fn the_pure_half_has_no_way_to_the_world() {
    let metadata = metadata().expect("cargo metadata");
    for package in metadata.packages.iter().filter(|p| PURE.contains(&p.name.as_str())) {
        for name in IMPURE {
            assert!(!normal(package).contains(name), "{} uses {name}", package.name);
        }
        let proto = package.dependencies.iter().find(|d| d.name == "granary-proto" && d.kind.is_none());
        assert!(
            proto.is_none_or(|d| !d.features.iter().any(|f| f == "rpc")),
            "{}: messages only, no services",
            package.name
        );
    }
    // Nor by the standard library.
    let forbidden =
        ["SystemTime", "Instant::now", "std::fs", "std::net", "std::thread", "std::env::var", "now_v7", "new_v4"];
    for (path, text) in rust_sources().expect("sources") {
        if !path.starts_with("grains")
            || path.components().any(|c| ["tests", "benches", "tests.rs"].iter().any(|name| c.as_os_str() == *name))
        {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for word in forbidden {
            assert!(!code.contains(word), "{} says {word}", path.display());
        }
    }
}
