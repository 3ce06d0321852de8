//! The snapshot file of a shard: with the log behind it, the truth about the shard's state.
//!
//! `shard-<n>.snap` = magic, then frames: kind (1 byte), length (u32), CRC32C of kind and content (u32), content. One head
//! frame (`SnapshotHead`), blocks of sorted rows (key length, value length, key, value), one trailer with the number of
//! rows. It is written under a temporary name, synced, renamed, the folder synced, and read back as a whole before
//! anything of the log may go.

use super::types::{Snapshot, SnapshotMeta, is_sound};
use crate::Error;
use crate::state::keys;
use crate::state::overlay::{Hold, Mark, Overlay};
use crate::state::store::{Change, wipe_shard};
use crate::state::writer::{Checkpoints, write_stamp};
use granary_proto::storage::{ShardMarks, SnapshotHead};
use prost::Message;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"GRANSNP1";
const FORMAT: u32 = 1;
const HEAD: u8 = 1;
const BLOCK: u8 = 2;
const END: u8 = 3;
/// Rows are gathered into blocks of about this size; one large row makes one large block.
const BLOCK_BYTES: usize = 256 * 1024;
/// No frame can be longer: one row is at most one entry, and a head holds a membership.
const FRAME_BYTES_MAX: u32 = 64 << 20;

/// A finished snapshot file.
#[derive(Clone, Debug)]
pub struct SnapshotFile {
    pub path: PathBuf,
    /// Of a file that came in: removes it when nobody wants it any more and it was not put in its place.
    pub _incoming: Option<Arc<Unwanted>>,
}

/// Removes a file when it is dropped, if it is still there.
#[derive(Debug)]
pub struct Unwanted(pub PathBuf);

impl Drop for Unwanted {
    fn drop(&mut self) {
        // Not there: it was given its proper name. Else the next start removes it.
        std::fs::remove_file(&self.0).ok();
    }
}

/// Where a shard's snapshot lies.
#[derive(Clone, Debug)]
pub struct SnapshotFolder {
    dir: PathBuf,
    shard: u32,
}

impl SnapshotFolder {
    pub fn new(dir: &Path, shard: u32) -> Self {
        Self { dir: dir.to_path_buf(), shard }
    }

    /// Makes the folder and removes what a crash left unfinished.
    pub fn prepare(dir: &Path) -> Result<(), Error> {
        std::fs::create_dir_all(dir).map_err(|error| io(dir, error))?;
        for entry in std::fs::read_dir(dir).map_err(|error| io(dir, error))? {
            let path = entry.map_err(|error| io(dir, error))?.path();
            if path.extension().is_some_and(|extension| extension == "tmp") {
                std::fs::remove_file(&path).map_err(|error| io(&path, error))?;
            }
        }
        Ok(())
    }

    pub fn path(&self) -> PathBuf {
        self.dir.join(format!("shard-{}.snap", self.shard))
    }

    /// Removes the present file, if there is one.
    pub fn remove(&self) -> Result<(), Error> {
        match std::fs::remove_file(self.path()) {
            Ok(()) => sync_dir(&self.dir),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(io(&self.path(), error)),
        }
    }

    /// Where a snapshot that comes in is gathered: a name of its own, since an older one may still be read.
    pub fn incoming(&self, number: u64) -> PathBuf {
        self.dir.join(format!("shard-{}.in-{number}.tmp", self.shard))
    }

    /// Bytes of the present file; 0 if there is none.
    pub fn bytes(&self) -> u64 {
        std::fs::metadata(self.path()).map_or(0, |meta| meta.len())
    }

    /// The present snapshot, if there is a readable one. A file whose head cannot be read is no snapshot: if the store is
    /// whole a new one is made from it, and if not, the missing log entries are noticed and named.
    pub fn current(&self) -> Result<Option<Snapshot<SnapshotFile>>, Error> {
        let path = self.path();
        if !path.exists() {
            return Ok(None);
        }
        match Reader::open(&path, self.shard) {
            Ok(reader) => Ok(Some(Snapshot { meta: reader.meta, snapshot: SnapshotFile { path, _incoming: None } })),
            Err(error @ (Error::NewerFormat { .. } | Error::Storage(_))) => Err(error),
            Err(error) => {
                tracing::error!(%error, "a snapshot file cannot be read");
                Ok(None)
            }
        }
    }
}

/// Writes the state that the store holds, which must be that of `mark`.
pub fn build(overlay: &Overlay, mark: &Mark, folder: &SnapshotFolder) -> Result<Snapshot<SnapshotFile>, Error> {
    let meta = SnapshotMeta { last_log_id: mark.applied, last_membership: mark.membership.clone() };
    let path = folder.path();
    let unfinished = path.with_extension("tmp");
    if let Err(error) = write(overlay, mark, &meta, &unfinished) {
        // On a full disk its space is needed; a next start would remove it anyway.
        std::fs::remove_file(&unfinished).ok();
        return Err(error);
    }
    std::fs::rename(&unfinished, &path).map_err(|error| io(&path, error))?;
    sync_dir(&folder.dir)?;
    verify(&path, overlay.shard)?;
    Ok(Snapshot { meta, snapshot: SnapshotFile { path, _incoming: None } })
}

fn write(overlay: &Overlay, mark: &Mark, meta: &SnapshotMeta, path: &Path) -> Result<(), Error> {
    let file = File::create(path).map_err(|error| io(path, error))?;
    let mut out = BufWriter::with_capacity(BLOCK_BYTES, file);
    let head = SnapshotHead {
        format: FORMAT,
        shard: overlay.shard,
        meta: serde_json::to_vec(meta).map_err(|error| Error::Storage(error.to_string()))?,
        marks: Some(ShardMarks { outbox_next: mark.outbox_next, events_low: mark.events_low }),
    };
    out.write_all(MAGIC)
        .and_then(|()| frame(&mut out, HEAD, &head.encode_to_vec()))
        .map_err(|error| io(path, error))?;
    let (mut block, mut count) = (Vec::with_capacity(BLOCK_BYTES), 0u64);
    for (from, end) in keys::shard_ranges(overlay.shard) {
        let mut failed = None;
        overlay.store.scan(&from, &end, &mut |key, value| {
            if keys::is_stamp(key) {
                return true;
            }
            // A snapshot stands for one moment: a head's base is of no use in it.
            let value = if keys::is_head(key) {
                match crate::state::head::read(key, value) {
                    Ok(head) => granary_proto::storage::GrainHead { base: None, ..head }.encode_to_vec(),
                    Err(error) => {
                        failed = Some(error);
                        return false;
                    }
                }
            } else {
                value.to_vec()
            };
            block.extend_from_slice(&(key.len() as u32).to_be_bytes());
            block.extend_from_slice(&(value.len() as u32).to_be_bytes());
            block.extend_from_slice(key);
            block.extend_from_slice(&value);
            count += 1;
            if block.len() >= BLOCK_BYTES {
                if let Err(error) = frame(&mut out, BLOCK, &block) {
                    failed = Some(io(path, error));
                    return false;
                }
                block.clear();
            }
            true
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
    }
    let written = if block.is_empty() { Ok(()) } else { frame(&mut out, BLOCK, &block) };
    written
        .and_then(|()| frame(&mut out, END, &count.to_be_bytes()))
        .and_then(|()| out.into_inner().map_err(|error| error.into_error()))
        .and_then(|file| file.sync_all())
        .map_err(|error| io(path, error))
}

/// What a snapshot file from elsewhere says it is.
pub fn meta(path: &Path, shard: u32) -> Result<SnapshotMeta, Error> {
    let reader = Reader::open(path, shard)?;
    if is_sound(reader.meta.last_membership.membership()) {
        return Ok(reader.meta);
    }
    Err(reader.damaged("a membership without voters, or with one who is no member"))
}

/// Reads a whole snapshot file and checks it.
pub fn verify(path: &Path, shard: u32) -> Result<(), Error> {
    Reader::open(path, shard)?.rows(|_, _| Ok(()))
}

/// Replaces the shard's state by the file's. The file is read as a whole before anything is touched.
pub fn install(
    hold: &Hold,
    checkpoints: &dyn Checkpoints,
    folder: &SnapshotFolder,
    meta: &SnapshotMeta,
    file: SnapshotFile,
) -> Result<(), Error> {
    let overlay = hold.overlay();
    let shard = overlay.shard;
    verify(&file.path, shard)?;
    let reader = Reader::open(&file.path, shard)?;
    if reader.meta != *meta {
        return Err(Error::Storage(format!("a snapshot of {:?} was announced as {:?}", reader.meta, meta)));
    }
    let marks = reader.marks;
    // From here until the new checkpoint the rows are of no moment at all; a crash in between must know.
    checkpoints.keep(vec![(shard, None)])?;
    wipe_shard(&*overlay.store, shard)?;
    reader.rows(|key, value| overlay.store.write(&[Change::Put(key, value)]))?;
    let mark = Mark {
        applied: meta.last_log_id,
        membership: meta.last_membership.clone(),
        outbox_next: marks.outbox_next,
        events_low: marks.events_low,
    };
    write_stamp(&*overlay.store, shard, &mark)?;
    overlay.store.sync()?;
    if file.path != folder.path() {
        std::fs::rename(&file.path, folder.path()).map_err(|error| io(&file.path, error))?;
        sync_dir(&folder.dir)?;
    }
    checkpoints.keep(vec![(shard, Some(mark.clone()))])?;
    hold.replaced(mark);
    Ok(())
}

fn frame(out: &mut impl Write, kind: u8, content: &[u8]) -> std::io::Result<()> {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&[kind]), content);
    out.write_all(&[kind])?;
    out.write_all(&(content.len() as u32).to_be_bytes())?;
    out.write_all(&crc.to_be_bytes())?;
    out.write_all(content)
}

struct Reader {
    path: PathBuf,
    file: BufReader<File>,
    offset: u64,
    shard: u32,
    meta: SnapshotMeta,
    marks: ShardMarks,
}

impl Reader {
    fn open(path: &Path, shard: u32) -> Result<Self, Error> {
        let file = File::open(path).map_err(|error| io(path, error))?;
        let mut reader = Self {
            path: path.to_path_buf(),
            file: BufReader::with_capacity(BLOCK_BYTES, file),
            offset: 0,
            shard,
            meta: SnapshotMeta::default(),
            marks: ShardMarks::default(),
        };
        let mut magic = [0; 8];
        reader.fill(&mut magic)?;
        if &magic != MAGIC {
            return Err(reader.damaged("not a snapshot file"));
        }
        let (kind, content) = reader.frame()?;
        let head = SnapshotHead::decode(&*content).map_err(|error| reader.damaged(&error.to_string()))?;
        if head.format > FORMAT {
            return Err(Error::NewerFormat { known: FORMAT, found: head.format });
        }
        if kind != HEAD || head.shard != shard {
            return Err(reader.damaged("not the head of this shard's snapshot"));
        }
        reader.meta = serde_json::from_slice(&head.meta).map_err(|error| reader.damaged(&error.to_string()))?;
        reader.marks = head.marks.unwrap_or_default();
        Ok(reader)
    }

    /// Hands over every row, and checks everything on the way.
    fn rows(mut self, mut each: impl FnMut(&[u8], &[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let mut count = 0u64;
        loop {
            let (kind, content) = self.frame()?;
            match kind {
                BLOCK => {
                    let mut rest = &content[..];
                    while !rest.is_empty() {
                        let (key, value, next) = row(rest).ok_or_else(|| self.damaged("a row cannot be read"))?;
                        if !keys::is_of_shard(key, self.shard) {
                            return Err(self.damaged("a row of another shard, or of an unknown table"));
                        }
                        each(key, value)?;
                        count += 1;
                        rest = next;
                    }
                }
                END if content == count.to_be_bytes() => break,
                _ => return Err(self.damaged("a frame of an unknown kind, or a wrong count of rows")),
            }
        }
        match self.file.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.damaged("bytes behind the end")),
            Err(error) => Err(io(&self.path, error)),
        }
    }

    fn frame(&mut self) -> Result<(u8, Vec<u8>), Error> {
        let mut head = [0; 9];
        self.fill(&mut head)?;
        let number = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (kind, bytes, crc) = (head[0], number(1), number(5));
        if bytes > FRAME_BYTES_MAX {
            return Err(self.damaged("a frame is longer than any can be"));
        }
        let mut content = vec![0; bytes as usize];
        self.fill(&mut content)?;
        if crc32c::crc32c_append(crc32c::crc32c(&[kind]), &content) != crc {
            return Err(self.damaged("checksum does not match"));
        }
        Ok((kind, content))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        match self.file.read_exact(bytes) {
            Ok(()) => {
                self.offset += bytes.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(self.damaged("the file ends early")),
            Err(error) => Err(io(&self.path, error)),
        }
    }

    fn damaged(&self, what: &str) -> Error {
        let file = format!("snapshot file {}", self.path.display());
        Error::Damaged { file, offset: self.offset, what: what.to_string() }
    }
}

fn row(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (key_bytes, rest) = bytes.split_first_chunk::<4>()?;
    let (value_bytes, rest) = rest.split_first_chunk::<4>()?;
    let (key, rest) = rest.split_at_checked(u32::from_be_bytes(*key_bytes) as usize)?;
    let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*value_bytes) as usize)?;
    Some((key, value, rest))
}

fn io(path: &Path, error: std::io::Error) -> Error {
    Error::Storage(format!("{}: {error}", path.display()))
}

/// Makes names in a folder durable.
pub fn sync_dir(dir: &Path) -> Result<(), Error> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| io(dir, error))
}
