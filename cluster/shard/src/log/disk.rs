//! What the log asks of a disk, so that tests can put a failing or a forgetting one in its place.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// One folder.
pub trait Disk: Send + Sync {
    /// Names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Makes an empty file, or empties the one that is there.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes names durable.
    fn sync_names(&self) -> io::Result<()>;
    /// How messages call a file.
    fn label(&self, name: &str) -> String;
}

/// One file. Positioned calls only, so that reads and the one writer never meet.
pub trait DiskFile: Send + Sync {
    fn size(&self) -> io::Result<u64>;
    /// Fills the buffer or fails.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all or fails; after a failure any part may be on disk.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Content and size are durable on return.
    fn sync(&self) -> io::Result<()>;
}

/// A folder of the operating system.
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    pub fn new(path: PathBuf) -> io::Result<Self> {
        std::fs::create_dir_all(&path)?;
        Ok(Self { path })
    }
}

impl Disk for Folder {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for item in std::fs::read_dir(&self.path)? {
            // A name that is not UTF-8 is not ours.
            names.extend(item?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(self.path.join(name))?;
        Ok(Arc::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(OpenOptions::new().read(true).write(true).open(self.path.join(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn label(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }
}

impl DiskFile for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
