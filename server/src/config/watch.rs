//! Takes over the reloadable keys when the file changes.
//!
//! The directory is watched, not the file: editors and mounted ConfigMaps replace the file (or a link above it), and a
//! watch on the old one would then see nothing any more.

use super::{Config, Error, Source, load};
use arc_swap::ArcSwap;
use notify::Watcher as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Changes of the file within this time are one change.
const SETTLE: Duration = Duration::from_millis(100);

/// The configuration in force.
#[derive(Clone)]
pub struct Live(Arc<ArcSwap<Config>>);

impl Live {
    pub fn new(config: Config) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(config)))
    }

    pub fn get(&self) -> Arc<Config> {
        self.0.load_full()
    }

    /// Takes over the reloadable keys of `fresh`; gives the names of changed keys that wait for a restart.
    pub fn take_over(&self, fresh: &Config) -> Vec<String> {
        let old = self.get();
        let mut next = Config::clone(&old);
        next.workflows.engine = fresh.workflows.engine.clone();
        next.workflows.engine.condition_language = old.workflows.engine.condition_language.clone();
        next.workflows.engine.stuck_run_seconds = old.workflows.engine.stuck_run_seconds;
        next.policy = fresh.policy.clone();
        next.log = fresh.log.clone();
        let waiting = differences(&next, fresh);
        self.0.store(Arc::new(next));
        waiting
    }
}

/// Watches until dropped.
pub struct Watcher {
    task: JoinHandle<()>,
    // Dropping it ends the watch.
    _notify: notify::RecommendedWatcher,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watcher {
    /// `None` if the source names no file. `changed` is called after each reload that was taken over.
    ///
    /// # Errors
    /// The operating system cannot watch the directory.
    pub fn start(
        source: Source,
        live: Live,
        changed: impl Fn(&Config) + Send + 'static,
    ) -> Result<Option<Self>, notify::Error> {
        let Some(file) = source.file.clone() else { return Ok(None) };
        let folder = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        // One place is enough: a second change while the first waits is the same change.
        let (told, mut changes) = mpsc::channel::<()>(1);
        let mut notify = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|e| !e.kind.is_access()) {
                let _ = told.try_send(());
            }
        })?;
        notify.watch(&folder, notify::RecursiveMode::NonRecursive)?;
        let mut reader = Reader::new(source, &file);
        let task = tokio::spawn(async move {
            while changes.recv().await.is_some() {
                tokio::time::sleep(SETTLE).await;
                let _ = changes.try_recv();
                match reader.look() {
                    // Something else in the folder changed.
                    None => {}
                    Some(Ok((fresh, changed_keys))) => {
                        let before = live.get();
                        // A key that the command line laid over the file is always different, and no news.
                        for key in live.take_over(&fresh).into_iter().filter(|key| changed_keys.contains(key)) {
                            tracing::warn!(key, "changed in the file, but in force only after a restart");
                        }
                        if *before != *live.get() {
                            tracing::info!(file = %file.display(), "configuration taken over");
                            changed(&live.get());
                        }
                    }
                    // The old one stays in force.
                    Some(Err(error)) => tracing::error!(%error, "configuration not taken over"),
                }
            }
        });
        Ok(Some(Self { task, _notify: notify }))
    }
}

/// The file as it was when it was read last.
///
/// Which entry of the folder a change came by does not matter (a ConfigMap changes a link above the file, and a log may lie
/// beside it and change all the time): what counts is whether the file holds something else. Without that, a log in the folder
/// would make a line about each of its own lines.
struct Reader {
    source: Source,
    file: PathBuf,
    /// `None`: it could not be read.
    content: Option<Vec<u8>>,
    config: Option<Config>,
}

impl Reader {
    fn new(source: Source, file: &Path) -> Self {
        let config = load(&source).ok();
        Self { content: std::fs::read(file).ok(), file: file.to_owned(), source, config }
    }

    /// `None` if the file holds what it held, else what it says now and the keys for which that is something new.
    fn look(&mut self) -> Option<Result<(Config, Vec<String>), Error>> {
        let content = std::fs::read(&self.file).ok();
        if content == self.content {
            return None;
        }
        self.content = content;
        Some(load(&self.source).map(|fresh| {
            let before = self.config.replace(fresh.clone());
            let changed = before.map(|before| differences(&before, &fresh)).unwrap_or_default();
            (fresh, changed)
        }))
    }
}

fn differences(a: &Config, b: &Config) -> Vec<String> {
    let (Ok(a), Ok(b)) = (serde_json::to_value(a), serde_json::to_value(b)) else { return Vec::new() };
    let mut found = Vec::new();
    walk(&a, &b, "", &mut found);
    found
}

fn walk(a: &serde_json::Value, b: &serde_json::Value, path: &str, found: &mut Vec<String>) {
    match (a.as_object(), b.as_object()) {
        (Some(a), Some(b)) => {
            for (key, value) in a {
                let full = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                walk(value, b.get(key).unwrap_or(&serde_json::Value::Null), &full, found);
            }
        }
        _ if a != b => found.push(path.to_owned()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [P5]
    #[test]
    fn only_the_reloadable_keys_are_taken_over() {
        let live = Live::new(Config::default());
        let mut fresh = Config::default();
        fresh.workflows.engine.max_fanout = 3;
        fresh.policy.action_classes = vec!["read".to_owned()];
        fresh.shards = 4;
        fresh.store.cache_mebibytes = 1;
        assert_eq!(live.take_over(&fresh), ["shards", "store.cacheMebibytes"]);
        let now = live.get();
        assert_eq!((now.workflows.engine.max_fanout, now.shards), (3, 16));
        assert_eq!(now.policy.action_classes, ["read"]);
    }

    /// [P5] What else changes in the folder is no reason to read the file again; what is wrong is said once.
    #[test]
    fn only_new_content_is_news() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("granary.yaml");
        let write = |text: &str| std::fs::write(&path, text).expect("write");
        write("shards: 3");
        let source = Source { file: Some(path.clone()), environment: Vec::new(), base: Config::default() };
        let mut reader = Reader::new(source, &path);
        std::fs::write(dir.path().join("granary.log"), "a line").expect("write");
        assert!(reader.look().is_none());
        write("shards: 3");
        assert!(reader.look().is_none(), "written again, but the same");
        write("shards: none");
        assert!(reader.look().is_some_and(|found| found.is_err()));
        assert!(reader.look().is_none(), "said once");
        write("shards: 3\nname: b");
        let (fresh, changed) = reader.look().expect("new").expect("right");
        assert_eq!((fresh.shards, changed), (3, vec!["name".to_owned()]));
        std::fs::remove_file(&path).expect("remove");
        assert!(reader.look().is_some_and(|found| found.is_err()));
        assert!(reader.look().is_none(), "said once");
    }

    /// [P5] A replaced file is seen, a bad one changes nothing, and the next good one is taken.
    #[tokio::test]
    async fn a_replaced_file_is_taken_over_while_running() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("granary.yaml");
        let replace = |text: &str| {
            let next = dir.path().join("next");
            std::fs::write(&next, text).expect("write");
            std::fs::rename(&next, &path).expect("rename");
        };
        replace("workflows: { engine: { maxFanout: 5 } }");
        let source = Source { file: Some(path.clone()), environment: Vec::new(), base: Config::default() };
        let live = Live::new(load(&source).expect("loads"));
        let (tell, mut told) = mpsc::unbounded_channel();
        let _watcher = Watcher::start(source, live.clone(), move |c| {
            let _ = tell.send(c.workflows.engine.max_fanout);
        })
        .expect("watches");
        let wait = Duration::from_secs(20);
        replace("workflows: { engine: { maxFanout: 6 } }");
        assert_eq!(tokio::time::timeout(wait, told.recv()).await.expect("in time"), Some(6));
        replace("workflows: { engine: { maxFanout: none } }");
        replace("workflows: { engine: { maxFanout: 8 } }");
        assert_eq!(tokio::time::timeout(wait, told.recv()).await.expect("in time"), Some(8));
        assert_eq!(live.get().workflows.engine.max_fanout, 8);
    }
}
