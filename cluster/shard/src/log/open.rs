//! From the files of a folder to a log that may be written.

use super::WalOptions;
use super::alive::Alive;
use super::bounds::{SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, SEGMENTS_AT_OPEN};
use super::committer::Committer;
use super::disk::Disk;
use super::rebuild::{Rebuilt, rebuild};
use super::scan::{Scan, What};
use super::segment::{self, Segment};
use super::shared::Shared;
use super::supply::Supply;
use crate::Error;
use crate::testing::Stage;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

pub struct Opened {
    pub shared: Arc<Shared>,
    pub supply: Arc<Supply>,
    pub committer: Committer,
    pub unclean: bool,
}

pub fn open(disk: Arc<dyn Disk>, mut options: WalOptions, stage: Stage) -> Result<Opened, Error> {
    options.segment_bytes = options.segment_bytes.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
    let storage = |error: io::Error| Error::Storage(format!("{}: {error}", disk.label("")));

    let (mut used, empty) = read_all(&*disk, options.groups)?;
    let next_number = empty.last().or(used.last()).map_or(1, |scan| scan.number + 1);
    check_begun(&*disk, options.begun, &used, &empty)?;
    check_newest(&used, &empty)?;
    let unwanted = drop_dead(&mut used)?;
    let Rebuilt { groups, written, entries } = rebuild(&used, options.groups)?;
    let unclean =
        used.last().is_some_and(|newest| !matches!(newest.records.last().map(|found| &found.what), Some(What::Closed)));

    // The last batch may be in the system's memory only: its writer was killed before the sync, or the sync failed and
    // the pages count as clean. Nothing may be built on it before it is surely on disk, so it is written once more.
    if let Some(newest) = used.last()
        && let Some((offset, bytes)) = &newest.last_frame
    {
        newest.file.write_at(bytes, *offset).and_then(|()| newest.file.sync()).map_err(storage)?;
    }
    disk.sync_names().map_err(storage)?;

    let alive = Alive::default();
    let mut active = None;
    for scan in &used {
        let segment = Arc::new(scan.segment());
        alive.add(segment.clone(), scan.end, entries.get(&scan.number).copied().unwrap_or(0));
        active = Some((segment, scan.end));
    }
    let ready = empty.iter().map(Scan::segment).collect();
    let supply =
        Arc::new(Supply::new(disk.clone(), options.segment_bytes, ready, next_number, stage.scene().is_some()));
    supply.fill_up_to(SEGMENTS_AT_OPEN - usize::from(active.is_some())).map_err(storage)?;
    supply.bury(unwanted);
    if let Some((segment, end)) = &active {
        supply.bury(alive.settle(segment.number, *end, &vec![], &vec![]));
    }

    let shared = Arc::new(Shared {
        options,
        groups: groups.into_iter().map(Mutex::new).collect(),
        queue: Default::default(),
        alive,
        stats: Default::default(),
        stopped: Default::default(),
        stage,
    });
    for (id, group) in (0..).zip(&shared.groups) {
        if group.lock().committed_waits {
            shared.queue.lazy(id);
        }
    }
    let committer = Committer { shared: shared.clone(), supply: supply.clone(), active, written, buffer: Vec::new() };
    Ok(Opened { shared, supply, committer, unclean })
}

impl Scan {
    fn segment(&self) -> Segment {
        Segment { number: self.number, file: self.file.clone(), capacity: self.capacity }
    }
}

/// All segments, those with a batch and those behind them without, each in the order of their numbers.
fn read_all(disk: &dyn Disk, groups: u32) -> Result<(Vec<Scan>, Vec<Scan>), Error> {
    let storage = |error: io::Error| Error::Storage(format!("{}: {error}", disk.label("")));
    let mut numbers = Vec::new();
    for name in disk.list().map_err(storage)? {
        if Supply::is_leftover(&name) {
            disk.remove(&name).map_err(storage)?;
        }
        numbers.extend(segment::number(&name));
    }
    numbers.sort_unstable();
    let mut used = Vec::new();
    for number in numbers {
        used.push(Scan::read(disk, number, groups)?);
    }
    let behind_newest = used.iter().rposition(|scan| !scan.is_empty()).map_or(0, |newest| newest + 1);
    let empty = used.split_off(behind_newest);
    Ok((used, empty))
}

/// An open that succeeded has written something, and the segment that is written never dies: only a loss leaves nothing.
fn check_begun(disk: &dyn Disk, begun: bool, used: &[Scan], empty: &[Scan]) -> Result<(), Error> {
    if !begun || !used.is_empty() {
        return Ok(());
    }
    let what = format!(
        "Expected the log that was written here, but found {} segments with something in them and {} without: the log is \
         missing",
        used.len(),
        empty.len()
    );
    Err(Error::Damaged { file: disk.label(""), offset: 0, what })
}

/// Segments are begun in the order of their numbers, so an empty one stands next to the newest or further ones.
fn check_newest(used: &[Scan], empty: &[Scan]) -> Result<(), Error> {
    let (Some(newest), Some(first_empty)) = (used.last(), empty.first()) else { return Ok(()) };
    if first_empty.number > newest.number + 1 {
        let what = format!(
            "Expected segment {} before it, but found {}: a segment is missing",
            first_empty.number - 1,
            newest.number
        );
        return Err(first_empty.damaged(0, what));
    }
    Ok(())
}

/// Takes out the segments that the newest one does not list: they were dead already. The others must end where it says.
fn drop_dead(used: &mut Vec<Scan>) -> Result<Vec<Arc<Segment>>, Error> {
    let Some(newest) = used.last() else { return Ok(Vec::new()) };
    let (newest_number, listed) = (newest.number, newest.older()?.to_vec());
    let mut dead = Vec::new();
    for scan in used.iter().filter(|scan| scan.number != newest_number) {
        match listed.iter().find(|(number, _)| *number == scan.number) {
            None => dead.push(Arc::new(scan.segment())),
            Some((_, end)) if *end == scan.end => {}
            Some((_, end)) => {
                return Err(scan.damaged(
                    scan.end.min(*end),
                    format!("Expected whole batches up to byte {end}, but found {}", scan.end),
                ));
            }
        }
    }
    used.retain(|scan| scan.number == newest_number || listed.iter().any(|(number, _)| *number == scan.number));
    Ok(dead)
}
