//! Certificates and the secret of a cluster: one authority, a certificate a silo that bears the silo's name.
//!
//! Silos prove to each other who they are; the name in the certificate is the silo's identity. So each silo has a key of its own
//! and nobody but the authority's keeper can add one. Nothing that is there is ever written over: an authority in the folder is
//! used again, which is how a silo is added later.

use jiff::ToSpan as _;
use jiff::civil::Date;
use rand::RngExt as _;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// File names in a folder of certificates.
pub const CA_CERT: &str = "ca.pem";
pub const CA_KEY: &str = "ca.key";
pub const SECRET: &str = "secret";

const CA_DAYS: i64 = 3_650;
/// Readers of certificates complain about longer ones.
const NODE_DAYS: i64 = 825;
/// Clocks of other machines may be behind.
const EARLIER_DAYS: i64 = 1;
const SECRET_BYTES: usize = 32;
const SECRET_MODE: u32 = 0o600;
const PUBLIC_MODE: u32 = 0o644;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("Expected no {} yet, but it is there; certificates are not written over", .0.display())]
    Exists(PathBuf),
    #[error("Expected both {CA_CERT} and {CA_KEY} in {}, or neither, but found one of them", .0.display())]
    HalfAnAuthority(PathBuf),
    /// Whoever has the certificate could pass for that silo.
    #[error("Expected hosts that are no silo's name, but found {0}")]
    HostIsName(String),
    #[error("{what}: {source}")]
    Certificate { what: String, source: rcgen::Error },
    #[error("Expected the date {0} to be one that a certificate can bear")]
    Date(Date),
}

/// What was made or found in the folder.
#[derive(Debug)]
pub struct Made {
    /// True if the authority was there before.
    pub authority_found: bool,
    pub secret_found: bool,
    pub files: Vec<PathBuf>,
}

pub fn cert_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.pem"))
}

pub fn key_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.key"))
}

/// Makes what is missing: authority, secret, and a certificate for each of `names`, which also bears `hosts` (names or
/// addresses): silos do not ask for them, other programs may. Keys and the secret are readable by their owner only.
///
/// # Errors
/// A certificate of one of the names is there already; the folder cannot be written; a name that no certificate can bear.
pub fn make(folder: &Path, names: &[String], hosts: &[String], today: Date) -> Result<Made, Error> {
    std::fs::create_dir_all(folder).map_err(|source| Error::File { path: folder.to_owned(), source })?;
    let is_silo = |host: &&String| names.contains(host) || cert_of(folder, host).exists();
    if let Some(host) = hosts.iter().find(is_silo) {
        return Err(Error::HostIsName(host.clone()));
    }
    for name in names {
        // Before anything is written, so that a refusal leaves nothing half done.
        for path in [cert_of(folder, name), key_of(folder, name)] {
            if path.exists() {
                return Err(Error::Exists(path));
            }
        }
    }
    let mut files = Vec::new();
    let mut write = |path: PathBuf, text: &str, mode: u32| -> Result<(), Error> {
        write_new(&path, text, mode)?;
        files.push(path);
        Ok(())
    };
    let (ca_cert, ca_key) = (folder.join(CA_CERT), folder.join(CA_KEY));
    let authority_found = match (ca_cert.exists(), ca_key.exists()) {
        (true, true) => true,
        (false, false) => false,
        _ => return Err(Error::HalfAnAuthority(folder.to_owned())),
    };
    let authority = if authority_found {
        Authority::read(&ca_cert, &ca_key)?
    } else {
        let (authority, cert, key) = Authority::new(today)?;
        write(ca_key, &key, SECRET_MODE)?;
        write(ca_cert, &cert, PUBLIC_MODE)?;
        authority
    };
    for name in names {
        let (cert, key) = authority.node(name, hosts, today)?;
        write(key_of(folder, name), &key, SECRET_MODE)?;
        write(cert_of(folder, name), &cert, PUBLIC_MODE)?;
    }
    let secret = folder.join(SECRET);
    let secret_found = secret.exists();
    if !secret_found {
        write(secret, &draw_secret(), SECRET_MODE)?;
    }
    Ok(Made { authority_found, secret_found, files })
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(today: Date) -> Result<(Self, String, String), Error> {
        let wrong = |source| Error::Certificate { what: "the authority's certificate".to_owned(), source };
        let key = KeyPair::generate().map_err(wrong)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = named("Granary cluster authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        valid(&mut params, today, CA_DAYS)?;
        let (cert, key_pem) = (params.self_signed(&key).map_err(wrong)?.pem(), key.serialize_pem());
        Ok((Self { issuer: Issuer::new(params, key) }, cert, key_pem))
    }

    fn read(cert: &Path, key: &Path) -> Result<Self, Error> {
        let text =
            |path: &Path| std::fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source });
        let wrong = |path: &Path| {
            let what = path.display().to_string();
            move |source| Error::Certificate { what, source }
        };
        let key_pair = KeyPair::from_pem(&text(key)?).map_err(wrong(key))?;
        let issuer = Issuer::from_ca_cert_pem(&text(cert)?, key_pair).map_err(wrong(cert))?;
        Ok(Self { issuer })
    }

    /// Certificate and key of one silo, for both ends of a connection.
    fn node(&self, name: &str, hosts: &[String], today: Date) -> Result<(String, String), Error> {
        let wrong = |source| Error::Certificate { what: format!("the certificate of {name}"), source };
        let key = KeyPair::generate().map_err(wrong)?;
        // The silo's own name first: that is its identity, the rest is for whoever dials by another name.
        let names: Vec<String> = std::iter::once(name.to_owned()).chain(hosts.iter().cloned()).collect();
        let mut params = CertificateParams::new(names).map_err(wrong)?;
        params.distinguished_name = named(name);
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        valid(&mut params, today, NODE_DAYS)?;
        let cert = params.signed_by(&key, &self.issuer).map_err(wrong)?;
        Ok((cert.pem(), key.serialize_pem()))
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn valid(params: &mut CertificateParams, today: Date, days: i64) -> Result<(), Error> {
    let day = |offset: i64| {
        let date = today.checked_add(offset.days()).map_err(|_| Error::Date(today))?;
        // Both are in their bounds: the date is a real one.
        Ok(rcgen::date_time_ymd(i32::from(date.year()), date.month().unsigned_abs(), date.day().unsigned_abs()))
    };
    params.not_before = day(-EARLIER_DAYS)?;
    params.not_after = day(days)?;
    Ok(())
}

/// Text, so that it survives editors and environment variables.
fn draw_secret() -> String {
    let bytes: [u8; SECRET_BYTES] = rand::rng().random();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{hex}\n")
}

/// # Errors
/// It is there already, or cannot be written.
pub fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    let wrong = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::AlreadyExists => Error::Exists(path.to_owned()),
        _ => Error::File { path: path.to_owned(), source },
    };
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(wrong)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::RootCertStore;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::Arc;

    const TODAY: Date = jiff::civil::date(2026, 11, 30);

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Whether a client that trusts the authority in `folder` takes the certificate for `host` on `day`.
    fn is_taken(folder: &Path, cert: &Path, host: &str, day: Date) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(folder.join(CA_CERT)).expect("a certificate")).expect("an authority");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .expect("a verifier");
        let days = (day - jiff::civil::date(1970, 1, 1)).get_days().unsigned_abs();
        let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(u64::from(days) * 86_400));
        let cert = CertificateDer::from_pem_file(cert).expect("a certificate");
        let host = ServerName::try_from(host.to_owned()).expect("a name");
        use rustls::client::danger::ServerCertVerifier as _;
        verifier.verify_server_cert(&cert, &[], &host, &[], at).is_ok()
    }

    /// [P3]
    #[test]
    fn a_certificate_proves_its_name_and_its_hosts_and_no_other() {
        let dir = tempfile::tempdir().expect("dir");
        make(dir.path(), &names(&["a", "b"]), &names(&["10.0.0.1", "silo.example"]), TODAY).expect("made");
        let a = cert_of(dir.path(), "a");
        for (host, day, wanted) in [
            ("a", TODAY, true),
            ("10.0.0.1", TODAY, true),
            ("silo.example", TODAY, true),
            ("b", TODAY, false),
            ("a", TODAY - 2.days(), false),
            ("a", TODAY + (NODE_DAYS + 1).days(), false),
        ] {
            assert_eq!(is_taken(dir.path(), &a, host, day), wanted, "{host} {day}");
        }
        let other = tempfile::tempdir().expect("dir");
        make(other.path(), &names(&["a"]), &[], TODAY).expect("made");
        assert!(!is_taken(other.path(), &a, "a", TODAY), "of another authority");
    }

    /// [P3] Keys are their owner's; [K8] a silo added later has the same authority and secret.
    #[test]
    fn a_folder_is_added_to_and_nothing_in_it_is_written_over() {
        let dir = tempfile::tempdir().expect("dir");
        let made = make(dir.path(), &names(&["a"]), &[], TODAY).expect("made");
        assert_eq!((made.authority_found, made.secret_found, made.files.len()), (false, false, 5));
        for secret in [dir.path().join(CA_KEY), dir.path().join(SECRET), key_of(dir.path(), "a")] {
            let mode = std::fs::metadata(&secret).expect("is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", secret.display());
        }
        let refused = make(dir.path(), &names(&["b"]), &names(&["a"]), TODAY).expect_err("b could pass for a");
        assert!(matches!(refused, Error::HostIsName(_)), "{refused}");
        let before = std::fs::read(dir.path().join(SECRET)).expect("secret");
        let added = make(dir.path(), &names(&["b"]), &[], TODAY).expect("added");
        assert_eq!((added.authority_found, added.secret_found, added.files.len()), (true, true, 2));
        assert_eq!(std::fs::read(dir.path().join(SECRET)).expect("secret"), before);
        assert!(is_taken(dir.path(), &cert_of(dir.path(), "b"), "b", TODAY));
        let refused = make(dir.path(), &names(&["c", "b"]), &[], TODAY).expect_err("b is there");
        assert!(matches!(refused, Error::Exists(_)) && !cert_of(dir.path(), "c").exists(), "{refused}");
        std::fs::remove_file(dir.path().join(CA_KEY)).expect("remove");
        let refused = make(dir.path(), &names(&["d"]), &[], TODAY).expect_err("half");
        assert!(matches!(refused, Error::HalfAnAuthority(_)), "{refused}");
    }
}
