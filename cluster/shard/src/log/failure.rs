//! An I/O error that can be told to many.

use std::io;

#[derive(Clone, Debug)]
pub struct Failure {
    kind: io::ErrorKind,
    pub why: String,
}

impl Failure {
    pub fn closed() -> Self {
        Self { kind: io::ErrorKind::BrokenPipe, why: "the log is closed".to_owned() }
    }

    pub fn to_io(&self) -> io::Error {
        io::Error::new(self.kind, self.why.clone())
    }
}

impl From<&io::Error> for Failure {
    fn from(error: &io::Error) -> Self {
        Self { kind: error.kind(), why: error.to_string() }
    }
}
