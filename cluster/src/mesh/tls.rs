//! Certificates of the nodes.

use super::Error;
use std::path::PathBuf;

/// A PEM text, given or in a file. A file is read again for each connection, so that a new certificate is used from the next
/// dial on.
#[derive(Clone, Debug)]
pub enum Pem {
    File(PathBuf),
    Text(Vec<u8>),
}

/// Authority, certificate chain and key of a node. The names of a certificate are its DNS names; its common name if it has
/// none.
#[derive(Clone, Debug)]
pub struct Tls {
    pub ca: Pem,
    pub cert: Pem,
    pub key: Pem,
}

impl Tls {
    pub fn files(ca: impl Into<PathBuf>, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { ca: Pem::File(ca.into()), cert: Pem::File(cert.into()), key: Pem::File(key.into()) }
    }

    pub fn texts(ca: impl Into<Vec<u8>>, cert: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        Self { ca: Pem::Text(ca.into()), cert: Pem::Text(cert.into()), key: Pem::Text(key.into()) }
    }

    /// The names in the own certificate.
    pub fn names(&self) -> Result<Vec<String>, Error> {
        Err(Error::Tls("not read yet".into()))
    }
}
