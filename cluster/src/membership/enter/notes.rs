//! The first founder's notes: the cluster it is about to found, written down before anybody is told of it.
//!
//! What is noted never changes: after a crash the same cluster is founded with the same voters, so that a group can never be
//! given two first memberships. The notes go when the book has been written.

use crate::membership::Error;
use granary_proto::peers::BookView;
use prost::Message as _;
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8] = b"granary founding 1\n";

/// The book's first page.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Notes(pub(super) BookView);

impl Notes {
    pub(super) fn cluster(&self) -> &str {
        &self.0.cluster_id
    }

    pub(super) fn read(dir: &Path) -> Result<Option<Self>, Error> {
        let path = path(dir);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&path, &error.to_string())),
        };
        let content = bytes.strip_prefix(MAGIC).and_then(|rest| rest.split_first_chunk::<8>());
        match content {
            Some((sum, page)) if xxh3_64(page).to_be_bytes() == *sum => {
                let view = BookView::decode(page).map_err(|error| failed(&path, &error.to_string()))?;
                Ok(Some(Self(view)))
            }
            _ => Err(failed(&path, "they do not match their checksum")),
        }
    }

    /// Durable on return.
    pub(super) fn write(&self, dir: &Path) -> Result<(), Error> {
        let (path, page) = (path(dir), self.0.encode_to_vec());
        let unfinished = path.with_extension("tmp");
        let written = File::create(&unfinished).and_then(|mut file| {
            file.write_all(MAGIC)?;
            file.write_all(&xxh3_64(&page).to_be_bytes())?;
            file.write_all(&page)?;
            file.sync_all()?;
            std::fs::rename(&unfinished, &path)?;
            File::open(dir)?.sync_all()
        });
        written.map_err(|error| failed(&path, &error.to_string()))
    }

    pub(super) fn remove(dir: &Path) -> Result<(), Error> {
        let path = path(dir);
        match std::fs::remove_file(&path).and_then(|()| File::open(dir)?.sync_all()) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(&path, &error.to_string())),
            _ => Ok(()),
        }
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join("founding")
}

fn failed(path: &Path, why: &str) -> Error {
    Error::Founding { file: path.display().to_string(), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_read_back_until_they_are_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(Notes::read(dir.path()).expect("none"), None);
        let notes = Notes(BookView { cluster_id: "x".into(), version: 3, ..BookView::default() });
        notes.write(dir.path()).expect("written");
        assert_eq!(Notes::read(dir.path()).expect("read"), Some(notes));
        Notes::remove(dir.path()).expect("removed");
        Notes::remove(dir.path()).expect("removed already");
        assert_eq!(Notes::read(dir.path()).expect("none"), None);
    }

    #[test]
    fn a_write_that_broke_off_leaves_no_notes_and_damage_is_told() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("founding.tmp"), b"half").expect("written");
        assert_eq!(Notes::read(dir.path()).expect("none"), None);
        std::fs::write(dir.path().join("founding"), b"granary founding 1\nxxxxxxxxyyy").expect("written");
        assert!(matches!(Notes::read(dir.path()), Err(Error::Founding { .. })));
    }
}
