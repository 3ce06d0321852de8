//! What a worker remembers over its own death: two small files an attempt in its state folder.
//!
//! `ID.begun` is on disk before the work begins, `ID.done` before the outcome is reported. So after a kill the worker knows
//! of every attempt whether it was never begun (no file: the silo offers it again), begun (it is done again if that is
//! harmless, else its outcome is `Uncertain`), or done (it is reported, not done again). Without a state folder all three look
//! the same to the silo, and it has to wait for the lease to run out.

use super::Error;
use granary_proto::v1;
use prost::Message;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use uuid::Uuid;

const BEGUN: &str = "begun";
const DONE: &str = "done";

/// The state folder of one worker; nobody else uses it meanwhile.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    worker_id: Uuid,
    /// Holds the lock.
    _lock: File,
}

/// An attempt of an earlier life.
#[derive(Debug)]
pub struct Remembered {
    pub assignment: v1::Assignment,
    pub report: Option<v1::Report>,
}

impl Journal {
    /// Opens the folder, or makes it.
    ///
    /// # Errors
    /// [`Error::StateInUse`] if another worker has it; [`Error::State`] if the disk says no.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let state = |source| Error::State { folder: folder.display().to_string(), source };
        fs::create_dir_all(folder).map_err(state)?;
        let lock = File::options().create(true).truncate(false).write(true).open(folder.join("lock")).map_err(state)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(Error::StateInUse(folder.display().to_string())),
            Err(fs::TryLockError::Error(source)) => return Err(state(source)),
        }
        let worker_id = worker_id(folder).map_err(state)?;
        Ok(Self { folder: folder.to_owned(), worker_id, _lock: lock })
    }

    /// The same over all lives of the folder, so that the silo knows who comes back.
    pub fn worker_id(&self) -> Uuid {
        self.worker_id
    }

    pub fn begin(&self, assignment: &v1::Assignment) -> io::Result<()> {
        write_durably(&self.folder, &self.name(&assignment.attempt_id, BEGUN)?, &assignment.encode_to_vec())
    }

    pub fn finish(&self, report: &v1::Report) -> io::Result<()> {
        write_durably(&self.folder, &self.name(&report.attempt_id, DONE)?, &report.encode_to_vec())
    }

    /// The silo has taken the outcome, or wants none.
    pub fn forget(&self, attempt: &str) -> io::Result<()> {
        // In this order: an outcome without its beginning would be of no use, a beginning without its outcome would be done again.
        for kind in [BEGUN, DONE] {
            match fs::remove_file(self.name(attempt, kind)?) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// All attempts that were begun and not forgotten.
    pub fn remembered(&self) -> io::Result<Vec<Remembered>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            match path.extension().and_then(|e| e.to_str()) {
                Some(BEGUN) => {
                    // A file that cannot be read was cut off before its work began; the silo offers that attempt again.
                    let Ok(assignment) = v1::Assignment::decode(fs::read(&path)?.as_slice()) else {
                        fs::remove_file(&path)?;
                        continue;
                    };
                    let report = match fs::read(path.with_extension(DONE)) {
                        Ok(bytes) => v1::Report::decode(bytes.as_slice()).ok(),
                        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                        Err(error) => return Err(error),
                    };
                    found.push(Remembered { assignment, report });
                }
                Some(DONE) if !path.with_extension(BEGUN).exists() => fs::remove_file(&path)?,
                _ => {}
            }
        }
        Ok(found)
    }

    /// Attempt ids come from outside and become file names, so they must be what they claim to be.
    fn name(&self, attempt: &str, kind: &str) -> io::Result<PathBuf> {
        let id = attempt.parse::<Uuid>().map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("Expected a UUID as attempt id, but found {attempt:?}"))
        })?;
        Ok(self.folder.join(format!("{}.{kind}", id.hyphenated())))
    }
}

fn worker_id(folder: &Path) -> io::Result<Uuid> {
    let path = folder.join("worker-id");
    if let Ok(text) = fs::read_to_string(&path)
        && let Ok(id) = text.trim().parse()
    {
        return Ok(id);
    }
    let id = Uuid::new_v4();
    write_durably(folder, &path, id.to_string().as_bytes())?;
    Ok(id)
}

/// The content is whole or absent, also after a power cut.
fn write_durably(folder: &Path, path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_data()?;
    fs::rename(&new, path)?;
    File::open(folder)?.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assignment() -> v1::Assignment {
        v1::Assignment { attempt_id: Uuid::from_u128(7).to_string(), name: "t".to_owned(), ..Default::default() }
    }

    #[test]
    fn the_next_life_knows_what_was_begun_and_what_was_done() {
        let dir = tempfile::tempdir().expect("dir");
        let journal = Journal::open(dir.path()).expect("opens");
        let id = journal.worker_id();
        journal.begin(&assignment()).expect("begins");
        drop(journal);
        let journal = Journal::open(dir.path()).expect("opens again");
        assert_eq!(journal.worker_id(), id);
        let remembered = journal.remembered().expect("reads");
        assert_eq!(remembered.len(), 1);
        assert_eq!((&remembered[0].assignment, &remembered[0].report), (&assignment(), &None));
        let report =
            v1::Report { attempt_id: assignment().attempt_id, outcome: "Succeeded".to_owned(), ..Default::default() };
        journal.finish(&report).expect("finishes");
        assert_eq!(journal.remembered().expect("reads")[0].report.as_ref(), Some(&report));
        journal.forget(&report.attempt_id).expect("forgets");
        assert!(journal.remembered().expect("reads").is_empty());
    }

    #[test]
    fn two_workers_do_not_share_a_folder() {
        let dir = tempfile::tempdir().expect("dir");
        let _first = Journal::open(dir.path()).expect("opens");
        assert!(matches!(Journal::open(dir.path()), Err(Error::StateInUse(_))));
    }

    #[test]
    fn an_attempt_id_is_no_path() {
        let dir = tempfile::tempdir().expect("dir");
        let journal = Journal::open(dir.path()).expect("opens");
        let evil = v1::Assignment { attempt_id: "../../evil".to_owned(), ..Default::default() };
        assert!(journal.begin(&evil).is_err());
    }
}
