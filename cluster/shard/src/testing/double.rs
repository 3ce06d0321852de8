//! A disk in memory that knows what is durable, can lose power, run full and fail.
//!
//! It keeps each file twice: as the process sees it and as it was at the last sync, with the 4 KiB pages written since.
//! Names are the same: a list of changes since the names were last synced. A power cut keeps the synced images, a random
//! third of the other pages and a random part of the name changes.

use crate::log::disk::{Disk, DiskFile};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

const PAGE: usize = 4096;

#[derive(Clone, Default)]
pub struct Double {
    world: Arc<World>,
}

#[derive(Default)]
struct World {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    name_changes: Vec<Change>,
    operations: u64,
    cut_at: Option<u64>,
    cut: Option<Image>,
    faults: Faults,
    /// Syncs wait while this is set.
    held: bool,
    waiting: u32,
    witness: Option<Box<dyn Fn() + Send>>,
}

#[derive(Default)]
struct Faults {
    syncs_fail: bool,
    /// The next write puts half of its bytes down and fails.
    next_write_tears: bool,
    /// Files do not grow any more.
    full: bool,
}

#[derive(Clone, Default)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
}

#[derive(Clone)]
enum Change {
    Set(String, usize),
    Rename(String, String),
    Remove(String),
}

/// Everything at the moment of a cut.
struct Image {
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    changes: Vec<Change>,
}

impl Double {
    /// Takes the image of a power cut just before that operation; `witness` is called at that moment.
    pub fn cut_at(&self, operation: u64, witness: impl Fn() + Send + 'static) {
        let mut state = self.world.state.lock();
        state.cut_at = Some(operation);
        state.witness = Some(Box::new(witness));
    }

    /// The disk after the power cut, or after one now if there was none yet.
    ///
    /// `below` gives a random number below the one it is handed.
    pub fn after_cut(&self, below: &mut dyn FnMut(u64) -> u64) -> Double {
        let mut state = self.world.state.lock();
        state.take_image();
        let image = state.cut.take().expect("it was just taken");
        let mut names = image.names;
        let kept = below(image.changes.len() as u64 + 1) as usize;
        for change in image.changes.iter().take(kept) {
            change.apply(&mut names);
        }
        let files = image.files.into_iter().map(|content| content.after_cut(below)).collect();
        let state = State { files, durable_names: names.clone(), names, ..State::default() };
        Double { world: Arc::new(World { state: Mutex::new(state), ..World::default() }) }
    }

    /// The disk as a killed process leaves it: nothing is lost.
    pub fn copy(&self) -> Double {
        let state = self.world.state.lock();
        let mut files = vec![Content::default(); state.files.len()];
        // What was removed stays behind.
        for id in state.names.values() {
            let now = state.files[*id].now.clone();
            files[*id] = Content { durable: now.clone(), now, dirty: BTreeSet::new() };
        }
        let state = State { files, durable_names: state.names.clone(), names: state.names.clone(), ..State::default() };
        Double { world: Arc::new(World { state: Mutex::new(state), ..World::default() }) }
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let state = self.world.state.lock();
        state.files[state.names[name]].now.clone()
    }

    pub fn replace(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.world.state.lock();
        let content = Content { now: bytes.clone(), durable: bytes, dirty: BTreeSet::new() };
        let id = state.files.len();
        state.files.push(content);
        state.names.insert(name.to_owned(), id);
    }

    pub fn names(&self) -> Vec<String> {
        self.world.state.lock().names.keys().cloned().collect()
    }

    pub fn operations(&self) -> u64 {
        self.world.state.lock().operations
    }

    pub fn fail_syncs(&self, fail: bool) {
        self.world.state.lock().faults.syncs_fail = fail;
    }

    pub fn tear_next_write(&self) {
        self.world.state.lock().faults.next_write_tears = true;
    }

    pub fn fill(&self, full: bool) {
        self.world.state.lock().faults.full = full;
    }

    /// Lets syncs wait from now on.
    pub fn hold_syncs(&self) {
        self.world.state.lock().held = true;
    }

    /// Waits until somebody waits in a sync.
    pub fn await_held_sync(&self) {
        let mut state = self.world.state.lock();
        while state.waiting == 0 {
            let in_time = !self.world.changed.wait_for(&mut state, std::time::Duration::from_secs(30)).timed_out();
            assert!(in_time, "nobody syncs");
        }
    }

    pub fn release_syncs(&self) {
        self.world.state.lock().held = false;
        self.world.changed.notify_all();
    }
}

impl State {
    fn operation(&mut self) {
        if self.cut_at == Some(self.operations) {
            self.take_image();
        }
        self.operations += 1;
    }

    fn take_image(&mut self) {
        if self.cut.is_none() {
            let changes = self.name_changes.clone();
            self.cut = Some(Image { files: self.files.clone(), names: self.durable_names.clone(), changes });
            if let Some(witness) = &self.witness {
                witness();
            }
        }
    }

    fn change_name(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.name_changes.push(change);
    }
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Set(name, id) => drop(names.insert(name.clone(), *id)),
            Self::Remove(name) => drop(names.remove(name)),
            Self::Rename(from, to) => {
                let id = names.remove(from).expect("renamed when it was there");
                names.insert(to.clone(), id);
            }
        }
    }
}

impl Content {
    fn after_cut(self, below: &mut dyn FnMut(u64) -> u64) -> Self {
        let mut durable = self.durable;
        for page in self.dirty {
            let range = page * PAGE..((page + 1) * PAGE).min(self.now.len());
            if below(10) < 3 && !range.is_empty() {
                durable.resize(durable.len().max(range.end), 0);
                durable[range.clone()].copy_from_slice(&self.now[range]);
            }
        }
        Self { now: durable.clone(), durable, dirty: BTreeSet::new() }
    }
}

impl Content {
    /// Copies what was written since the last sync.
    fn sync(&mut self) {
        let Self { now, durable, dirty } = self;
        durable.resize(now.len(), 0);
        for page in std::mem::take(dirty) {
            let range = (page * PAGE).min(now.len())..((page + 1) * PAGE).min(now.len());
            durable[range.clone()].copy_from_slice(&now[range]);
        }
    }
}

struct DoubleFile {
    world: Arc<World>,
    id: usize,
}

fn missing(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, name.to_owned())
}

impl Disk for Double {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.world.state.lock();
        state.operation();
        let id = state.files.len();
        state.files.push(Content::default());
        state.change_name(Change::Set(name.to_owned(), id));
        Ok(Arc::new(DoubleFile { world: self.world.clone(), id }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let id = *self.world.state.lock().names.get(name).ok_or_else(|| missing(name))?;
        Ok(Arc::new(DoubleFile { world: self.world.clone(), id }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.world.state.lock();
        state.operation();
        if !state.names.contains_key(from) {
            return Err(missing(from));
        }
        state.change_name(Change::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.world.state.lock();
        state.operation();
        if !state.names.contains_key(name) {
            return Err(missing(name));
        }
        state.change_name(Change::Remove(name.to_owned()));
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.world.state.lock();
        state.operation();
        state.durable_names = state.names.clone();
        state.name_changes.clear();
        Ok(())
    }

    fn label(&self, name: &str) -> String {
        name.to_owned()
    }
}

impl DiskFile for DoubleFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.world.state.lock().files[self.id].now.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let state = self.world.state.lock();
        let range = offset as usize..offset as usize + buffer.len();
        let found = state.files[self.id].now.get(range).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(found);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.world.state.lock();
        state.operation();
        let tears = std::mem::take(&mut state.faults.next_write_tears);
        let full = state.faults.full;
        let bytes = if tears { &bytes[..bytes.len() / 2] } else { bytes };
        let content = &mut state.files[self.id];
        let range = offset as usize..offset as usize + bytes.len();
        if range.end > content.now.len() {
            if full {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            content.now.resize(range.end, 0);
        }
        content.now[range.clone()].copy_from_slice(bytes);
        if !range.is_empty() {
            content.dirty.extend(range.start / PAGE..=(range.end - 1) / PAGE);
        }
        if tears { Err(io::Error::other("the write was torn")) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.world.state.lock();
        while state.held {
            state.waiting += 1;
            self.world.changed.notify_all();
            self.world.changed.wait(&mut state);
            state.waiting -= 1;
        }
        state.operation();
        let fails = state.faults.syncs_fail;
        let content = &mut state.files[self.id];
        if fails {
            // As Linux does: the pages count as clean from now on, but are not on disk.
            content.dirty.clear();
            return Err(io::Error::other("the sync failed"));
        }
        content.sync();
        Ok(())
    }
}
