//! Certificates of the nodes: who may speak at all, and under which names.
//!
//! A node is known by its name, not by the host it was reached at: addresses change, and a seed is dialled before anybody
//! knows who answers there. So the dialler checks the chain and leaves the name to the first message, where the claimed name
//! must be one of the certificate's ([`super::judge`]). Both sides always show a certificate.

use super::Error;
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use x509_parser::extensions::GeneralName;

/// A PEM text, given or in a file. A file is read again from time to time, so that a new certificate is used from the next
/// dial on.
#[derive(Clone, Debug)]
pub enum Pem {
    File(PathBuf),
    Text(Vec<u8>),
}

/// Authority, certificate chain and key of a node. The names of a certificate are its DNS names; its common name if it has
/// none. It must be good for both ends of a connection.
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
    ///
    /// # Errors
    /// [`Error::Tls`] if the file cannot be read or holds no certificate.
    pub fn names(&self) -> Result<Vec<String>, Error> {
        let chain = self.chain()?;
        chain.first().map(names).ok_or_else(|| bad("the certificate file", "it holds no certificate"))?
    }

    /// Whether authority, certificate and key can be used, and belong together.
    ///
    /// # Errors
    /// [`Error::Tls`] with what cannot.
    pub fn check(&self) -> Result<(), Error> {
        self.configs().map(drop)
    }

    fn chain(&self) -> Result<Vec<CertificateDer<'static>>, Error> {
        let text = self.cert.read("the certificate file")?;
        certificates(&text, "the certificate file")
    }

    fn configs(&self) -> Result<Configs, Error> {
        let authority = certificates(&self.ca.read("the authority file")?, "the authority file")?;
        let mut roots = RootCertStore::empty();
        for certificate in authority {
            roots.add(certificate).map_err(|error| bad("the authority file", error))?;
        }
        let roots = Arc::new(roots);
        let chain = self.chain()?;
        let key = self.key.read("the key file")?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| bad("the key file", error))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|error| bad("the authority file", error))?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| bad("TLS 1.3", error))?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|error| bad("certificate and key", error))?;
        // Every connection shows its certificates anew.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| bad("TLS 1.3", error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ChainOnly { roots, provider }))
            .with_client_auth_cert(chain, key)
            .map_err(|error| bad("certificate and key", error))?;
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        Ok(Configs { server, client })
    }
}

impl Pem {
    fn read(&self, what: &str) -> Result<Vec<u8>, Error> {
        match self {
            Self::File(path) => std::fs::read(path).map_err(|error| bad(&format!("{what} {}", path.display()), error)),
            Self::Text(text) => Ok(text.clone()),
        }
    }
}

fn certificates(text: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>().map_err(|error| bad(what, error))
}

fn bad(what: &str, why: impl std::fmt::Display) -> Error {
    Error::Tls(format!("Expected to use {what}, but {why}"))
}

/// The DNS names of a certificate; its common name if there are none.
pub(super) fn names(certificate: &CertificateDer<'_>) -> Result<Vec<String>, Error> {
    let (_, parsed) =
        x509_parser::parse_x509_certificate(certificate).map_err(|error| bad("the certificate", error))?;
    let alternative = parsed.subject_alternative_name().map_err(|error| bad("the certificate", error))?;
    let dns: Vec<_> = alternative
        .iter()
        .flat_map(|extension| &extension.value.general_names)
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        })
        .collect();
    if !dns.is_empty() {
        return Ok(dns);
    }
    Ok(parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok()).map(str::to_owned).collect())
}

struct Configs {
    server: ServerConfig,
    client: ClientConfig,
}

/// What a connection is for; the two ports do not understand each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Peer,
    Gate,
}

impl Purpose {
    fn alpn(self) -> Vec<u8> {
        match self {
            Self::Peer => b"h2".to_vec(),
            Self::Gate => b"granary-gate".to_vec(),
        }
    }
}

#[derive(Clone)]
struct Ready {
    read: Instant,
    servers: [Arc<ServerConfig>; 2],
    clients: [Arc<ClientConfig>; 2],
}

impl Ready {
    fn new(tls: &Tls) -> Result<Self, Error> {
        let Configs { server, client } = tls.configs()?;
        let of = |purpose: Purpose| {
            let (mut server, mut client) = (server.clone(), client.clone());
            server.alpn_protocols = vec![purpose.alpn()];
            client.alpn_protocols = vec![purpose.alpn()];
            (Arc::new(server), Arc::new(client))
        };
        let ((peer_server, peer_client), (gate_server, gate_client)) = (of(Purpose::Peer), of(Purpose::Gate));
        Ok(Self { read: Instant::now(), servers: [peer_server, gate_server], clients: [peer_client, gate_client] })
    }
}

/// The files, read again when what was read is older than this.
const READ_AGAIN: Duration = Duration::from_secs(5);

/// The TLS settings of the moment.
pub(super) struct Credentials {
    tls: Tls,
    ready: Mutex<Ready>,
    read_again: Duration,
}

impl Credentials {
    pub(super) fn new(tls: Tls) -> Result<Self, Error> {
        Self::reading_again(tls, READ_AGAIN)
    }

    fn reading_again(tls: Tls, read_again: Duration) -> Result<Self, Error> {
        let ready = Mutex::new(Ready::new(&tls)?);
        Ok(Self { tls, ready, read_again })
    }

    pub(super) async fn server(&self, purpose: Purpose) -> Arc<ServerConfig> {
        self.ready().await.servers[purpose as usize].clone()
    }

    pub(super) async fn client(&self, purpose: Purpose) -> Arc<ClientConfig> {
        self.ready().await.clients[purpose as usize].clone()
    }

    async fn ready(&self) -> Ready {
        {
            let mut ready = self.ready.lock();
            if ready.read.elapsed() < self.read_again || self.is_fixed() {
                return ready.clone();
            }
            // Whoever comes meanwhile takes what there is.
            ready.read = Instant::now();
        }
        let tls = self.tls.clone();
        let read = tokio::task::spawn_blocking(move || Ready::new(&tls)).await;
        let mut ready = self.ready.lock();
        match read {
            Ok(Ok(read)) => *ready = read,
            Ok(Err(error)) => tracing::warn!(%error, "new certificates cannot be used; the old ones stay"),
            Err(error) => tracing::warn!(%error, "certificates were not read"),
        }
        ready.clone()
    }

    fn is_fixed(&self) -> bool {
        [&self.tls.ca, &self.tls.cert, &self.tls.key].iter().all(|pem| matches!(pem, Pem::Text(_)))
    }
}

/// Checks that the cluster's authority signed the certificate, and not where it was met.
#[derive(Debug)]
struct ChainOnly {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ChainOnly {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::tests::Authority;

    #[test]
    fn the_names_of_a_certificate_are_its_dns_names() {
        let tls = Authority::new().tls(&["node-1", "node-1.granary.svc"]);
        assert_eq!(tls.names().unwrap(), ["node-1", "node-1.granary.svc"]);
    }

    #[test]
    fn without_dns_names_it_is_the_common_name() {
        let tls = Authority::new().tls_by_common_name("node-7");
        assert_eq!(tls.names().unwrap(), ["node-7"]);
    }

    #[test]
    fn what_cannot_be_used_says_which_file() {
        let good = Authority::new().tls(&["node-1"]);
        let missing = Tls { key: Pem::File("/nowhere/key.pem".into()), ..good.clone() };
        let empty = Tls { cert: Pem::Text(Vec::new()), ..good.clone() };
        let foreign = Tls { key: Authority::new().tls(&["node-1"]).key, ..good };
        for (tls, part) in [(missing, "key.pem"), (empty, "certificate"), (foreign, "certificate and key")] {
            let error = Credentials::new(tls).err().expect("an error").to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    /// [P3]
    #[tokio::test]
    async fn a_new_certificate_in_the_files_is_used_for_the_next_connection() {
        let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
        let write = |tls: Tls| {
            for (name, pem) in [("ca", tls.ca), ("cert", tls.cert), ("key", tls.key)] {
                let Pem::Text(text) = pem else { panic!("a text") };
                std::fs::write(folder.path().join(name), text).unwrap();
            }
        };
        write(authority.tls(&["node-1"]));
        let path = |name| folder.path().join(name);
        let tls = Tls::files(path("ca"), path("cert"), path("key"));
        let credentials = Credentials::reading_again(tls.clone(), Duration::ZERO).unwrap();
        let before = credentials.server(Purpose::Peer).await;
        write(authority.tls(&["node-1", "node-1.new"]));
        assert_eq!(tls.names().unwrap(), ["node-1", "node-1.new"]);
        let after = credentials.server(Purpose::Peer).await;
        assert!(!Arc::ptr_eq(&before, &after));
        // Half of a new pair is no new pair: the old one stays.
        std::fs::write(path("key"), "no key").unwrap();
        let kept = credentials.server(Purpose::Peer).await;
        assert!(Arc::ptr_eq(&after, &kept));
    }
}
