//! Reads one segment from end to end and checks every byte that counts.

use super::disk::{Disk, DiskFile};
use super::record::{self, Kind, Record};
use super::segment::{self, DATA_AT};
use super::{Checkpoint, LogId, Vote, frame};
use crate::Error;
use std::sync::Arc;

/// One segment as found.
pub struct Scan {
    pub number: u64,
    pub label: String,
    pub file: Arc<dyn DiskFile>,
    pub capacity: u64,
    pub records: Vec<Found>,
    /// Behind the last whole frame.
    pub end: u64,
    pub last_frame: Option<(u64, Vec<u8>)>,
}

/// One record as found, without the payload of entries.
pub struct Found {
    pub group: u32,
    pub offset: u64,
    pub what: What,
}

pub enum What {
    Entry(LogId, u32),
    Vote(Vote),
    Truncate(Option<LogId>),
    Purge(Option<LogId>),
    Committed(Option<LogId>),
    Checkpoint(Box<Checkpoint>),
    Last(Option<u64>, Option<LogId>),
    Segments(Vec<(u64, u64)>),
    Opened,
    Closed,
}

impl Scan {
    pub fn read(disk: &dyn Disk, number: u64, groups: u32) -> Result<Self, Error> {
        let name = segment::name(number);
        let label = disk.label(&name);
        let storage = |error: std::io::Error| Error::Storage(format!("{label}: {error}"));
        let file = disk.open(&name).map_err(storage)?;
        let mut bytes = vec![0; file.size().map_err(storage)? as usize];
        file.read_at(&mut bytes, 0).map_err(storage)?;
        let capacity = segment::read_header(&bytes, &label)?;
        let damaged = |offset: usize, what: String| Error::Damaged { file: label.clone(), offset: offset as u64, what };

        let mut records = Vec::new();
        let mut last_frame = None;
        let mut at = DATA_AT as usize;
        loop {
            match frame::read(&bytes, number, at) {
                Ok((body, next)) => {
                    read_records(body, at + frame::HEAD_BYTES, groups, &mut records, &damaged)?;
                    last_frame = Some(at..next.min(bytes.len()));
                    at = next;
                }
                // The end of the log, or the batch that a crash left half written. Only the last batch may be half
                // written, so a whole one behind it means that this one was acknowledged.
                Err(why) => match frame::first_behind(&bytes, number, at) {
                    Some(behind) => {
                        return Err(damaged(at, format!("{why}, although a whole batch follows at byte {behind}")));
                    }
                    None => break,
                },
            }
        }
        let last_frame = last_frame.map(|range| (range.start as u64, bytes[range].to_vec()));
        Ok(Self { number, label, file, capacity, records, end: at as u64, last_frame })
    }

    pub fn is_empty(&self) -> bool {
        self.last_frame.is_none()
    }

    /// The older segments that were alive when this one was begun, with their ends.
    pub fn older(&self) -> Result<&[(u64, u64)], Error> {
        match self.records.first().map(|found| &found.what) {
            Some(What::Segments(older)) => Ok(older),
            _ => Err(self.damaged(DATA_AT, "the first batch does not begin with the list of segments".to_owned())),
        }
    }

    pub fn damaged(&self, offset: u64, what: String) -> Error {
        Error::Damaged { file: self.label.clone(), offset, what }
    }
}

fn read_records(
    body: &[u8],
    body_at: usize,
    groups: u32,
    records: &mut Vec<Found>,
    damaged: &impl Fn(usize, String) -> Error,
) -> Result<(), Error> {
    let mut at = 0;
    while at < body.len() {
        let place = body_at + at;
        let (record, size) = record::read(&body[at..]).map_err(|what| damaged(place, what.to_owned()))?;
        if record.group >= groups {
            return Err(Error::WrongFolder {
                expected: format!("a log of {groups} groups"),
                found: format!("a record of group {}", record.group),
            });
        }
        let what =
            what(&record, size).ok_or_else(|| damaged(place, format!("a {:?} record does not parse", record.kind)))?;
        records.push(Found { group: record.group, offset: place as u64, what });
        at += size;
    }
    Ok(())
}

fn what(record: &Record<'_>, size: usize) -> Option<What> {
    Some(match record.kind {
        Kind::Blank | Kind::Normal | Kind::Membership => What::Entry(record.log_id, size as u32),
        Kind::Vote => What::Vote(record::vote(record)?),
        Kind::Truncate => What::Truncate(record::pointer(record)),
        Kind::Purge => What::Purge(record::pointer(record)),
        Kind::Committed => What::Committed(record::pointer(record)),
        Kind::Checkpoint => What::Checkpoint(Box::new(record::checkpoint(record)?)),
        Kind::Last => What::Last(record::first(record), record::pointer(record)),
        Kind::Segments => What::Segments(record::segments(record)),
        Kind::Opened => What::Opened,
        Kind::Closed => What::Closed,
    })
}
