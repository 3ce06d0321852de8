//! One cluster at a time: three nodes and a load are all that two cores can take, and trials that share them measure each other.

use anyhow::{Context, Result};
use std::fs::File;

/// Held for as long as a trial runs; given back when dropped, also by the end of the process.
pub struct Turn {
    _file: File,
}

/// Waits until no other trial runs, in this process or another.
///
/// # Errors
/// The lock file cannot be made.
pub fn turn() -> Result<Turn> {
    let path = std::env::temp_dir().join("granary-chaos.lock");
    let file = File::options().create(true).append(true).open(&path);
    let file = file.with_context(|| format!("open {}", path.display()))?;
    file.lock()?;
    Ok(Turn { _file: file })
}
