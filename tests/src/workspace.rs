//! The workspace as `cargo metadata` tells it.

use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Deserialize)]
pub struct Metadata {
    pub packages: Vec<Package>,
}

#[derive(Deserialize)]
pub struct Package {
    pub name: String,
    pub license: Option<String>,
    pub publish: Option<Vec<String>>,
    pub rust_version: Option<String>,
    pub dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
pub struct Dependency {
    pub name: String,
    /// `None`: a normal dependency; else `dev` or `build`.
    pub kind: Option<String>,
    pub features: Vec<String>,
}

/// The root of the checkout that this test was built from.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").to_path_buf()
}

/// Asks cargo, offline: the answer needs no registry.
pub fn metadata() -> anyhow::Result<Metadata> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()?;
    anyhow::ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Every `.rs` file that git tracks or would track, with its text.
pub fn rust_sources() -> anyhow::Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') && name != "data" {
                    folders.push(path);
                }
            } else if name.ends_with(".rs") {
                found.push((path.strip_prefix(root())?.to_path_buf(), std::fs::read_to_string(&path)?));
            }
        }
    }
    found.sort();
    Ok(found)
}
