//! Where the others were met last, kept in the data folder: for the day when every seed has another address.
//!
//! A help for finding somebody, and nothing else: who is met there is judged like anybody. So a file that cannot be read is
//! told and forgotten, and one that cannot be written is told.

use super::shared::Shared;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Nodes that are kept.
const NODES_MAX: usize = 64;
/// A file that is longer is not ours.
const BYTES_MAX: usize = 64 << 10;
/// Many changes at once are written together.
const WRITE_PAUSE: Duration = Duration::from_millis(200);
const HEAD: &str = "granary peers 1";

/// By name.
type Addresses = BTreeMap<String, String>;

pub(super) struct Known {
    path: Option<PathBuf>,
    addresses: Mutex<Addresses>,
}

impl Known {
    pub(super) fn read(path: Option<PathBuf>) -> Arc<Self> {
        let addresses = path.as_deref().map(load).unwrap_or_default();
        Arc::new(Self { path, addresses: Mutex::new(addresses) })
    }

    pub(super) fn addresses(&self) -> Vec<String> {
        self.addresses.lock().values().cloned().collect()
    }

    /// Writes down whom this node meets, until the mesh stops.
    pub(super) fn keep(self: &Arc<Self>, shared: &Arc<Shared>) {
        let Some(path) = self.path.clone() else { return };
        let (known, shared) = (self.clone(), shared.clone());
        let (stop, tasks) = (shared.stop.clone(), shared.tasks.clone());
        tasks.spawn(async move { stop.run_until_cancelled(known.run(shared, path)).await });
    }

    async fn run(&self, shared: Arc<Shared>, path: PathBuf) {
        let mut attached = shared.roster.attached();
        loop {
            let me = shared.me.identity().name;
            let met = shared.roster.met().into_iter().filter(|(name, _)| *name != me);
            let now = merged(&self.addresses.lock(), met);
            if let Some(now) = now {
                let (text, to) = (print(&now), path.clone());
                *self.addresses.lock() = now;
                let written = tokio::task::spawn_blocking(move || store(&to, &text)).await;
                if let Ok(Err(error)) = written {
                    shared.warn(&format!("the addresses of the other nodes could not be kept: {error}"));
                }
            }
            if attached.changed().await.is_err() {
                return;
            }
            tokio::time::sleep(WRITE_PAUSE).await;
        }
    }
}

/// What is to be kept now, if it is something else than before. Who is not met now stays as it was.
fn merged(before: &Addresses, met: impl Iterator<Item = (String, String)>) -> Option<Addresses> {
    let met: Addresses = met.filter(|(name, address)| is_plain(name) && is_plain(address)).collect();
    let mut now = met.clone();
    for (name, address) in before.iter().filter(|(name, _)| !met.contains_key(*name)) {
        if now.len() < NODES_MAX {
            now.insert(name.clone(), address.clone());
        }
    }
    let now: Addresses = now.into_iter().take(NODES_MAX).collect();
    (now != *before).then_some(now)
}

/// Fits on its line.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(|c| c.is_control() || c.is_whitespace())
}

fn print(addresses: &Addresses) -> String {
    let lines = addresses.iter().map(|(name, address)| format!("{name} {address}\n"));
    format!("{HEAD}\n{}end {}\n", lines.collect::<String>(), addresses.len())
}

fn parse(text: &str) -> Result<Addresses, String> {
    let mut lines = text.lines();
    match lines.next() {
        Some(HEAD) => {}
        other => return Err(format!("Expected {HEAD:?}, but found {:?}", other.unwrap_or_default())),
    }
    let mut found = Addresses::new();
    for line in lines {
        let (name, rest) = line.split_once(' ').ok_or_else(|| format!("Expected two words, but found {line:?}"))?;
        if name == "end" && rest.parse() == Ok(found.len()) {
            return Ok(found);
        }
        found.insert(name.to_owned(), rest.to_owned());
        if found.len() > NODES_MAX {
            return Err(format!("Expected at most {NODES_MAX} nodes, but found more"));
        }
    }
    Err("Expected the end of the list, but it breaks off".to_owned())
}

fn load(path: &Path) -> Addresses {
    let read = match std::fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Addresses::new(),
        Err(error) => Err(error.to_string()),
        Ok(bytes) if bytes.len() > BYTES_MAX => Err(format!("Expected at most {BYTES_MAX} bytes, but it has more")),
        Ok(bytes) => String::from_utf8(bytes).map_err(|error| error.to_string()).and_then(|text| parse(&text)),
    };
    read.unwrap_or_else(|why| {
        tracing::warn!(file = %path.display(), why, "the addresses of the other nodes are not known from the last time");
        Addresses::new()
    })
}

/// Under a name of its own first, so that a crash leaves the old one or the new one.
fn store(path: &Path, text: &str) -> std::io::Result<()> {
    let unfinished = path.with_extension("tmp");
    let mut file = File::create(&unfinished)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: &[(&str, &str)]) -> Addresses {
        all.iter().map(|(name, address)| ((*name).to_owned(), (*address).to_owned())).collect()
    }

    #[test]
    fn the_last_address_of_everybody_is_kept_whoever_is_away() {
        let before = of(&[("a", "h:1"), ("b", "h:2")]);
        let met = |all: &[(&str, &str)]| merged(&before, of(all).into_iter());
        assert_eq!(met(&[]), None);
        assert_eq!(met(&[("a", "h:1")]), None);
        assert_eq!(met(&[("a", "h:9")]), Some(of(&[("a", "h:9"), ("b", "h:2")])));
        assert_eq!(met(&[("c", "h:3")]), Some(of(&[("a", "h:1"), ("b", "h:2"), ("c", "h:3")])));
        assert_eq!(met(&[("c", "h:3\nend 0"), ("", "h:4")]), None, "what fits on no line");
        let many = (0..2 * NODES_MAX).map(|n| (format!("n{n}"), "h:1".to_owned()));
        let all = merged(&before, many).unwrap();
        assert_eq!(all.len(), NODES_MAX);
    }

    #[test]
    fn a_list_reads_back_and_anything_else_is_none() {
        let list = of(&[("a", "h:1"), ("end", "h:2"), ("c", "[::1]:3")]);
        let text = print(&list);
        assert_eq!(parse(&text), Ok(list));
        assert_eq!(parse(&print(&Addresses::new())), Ok(Addresses::new()));
        for cut in 0..text.len() - 1 {
            assert!(parse(&text[..cut]).is_err(), "cut at {cut}");
        }
        assert!(parse(&text.replace("peers 1", "peers 2")).is_err());
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_one_that_is_none_does_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("peers");
        assert_eq!(load(&path), Addresses::new());
        let list = of(&[("a", "h:1")]);
        store(&path, &print(&list)).unwrap();
        store(&path, &print(&list)).unwrap();
        assert_eq!(load(&path), list);
        std::fs::write(&path, [0xff; 100]).unwrap();
        assert_eq!(load(&path), Addresses::new());
        std::fs::write(&path, vec![b'a'; BYTES_MAX + 1]).unwrap();
        assert_eq!(load(&path), Addresses::new());
    }
}
