//! The section `cluster`: this silo among others.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of the cluster's secret at least; fewer can be guessed.
pub const SECRET_BYTES_MIN: usize = 32;
const SECRET_BYTES_MAX: usize = 4_096;
const NAME_BYTES_MAX: usize = 63;
const ADDRESS_BYTES_MAX: usize = 256;
const LIST_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// False: this silo is alone, and nothing below counts.
    pub enabled: bool,
    /// Names of the silos that found the cluster together, once. Only the first one draws up the book.
    pub founders: Vec<String>,
    /// Where others are looked for: `host:port` of their peer listener, or `dns:name:port` = all addresses of that name.
    pub seeds: Vec<String>,
    /// Raft, hello and snapshots between silos.
    pub peer_listen: SocketAddr,
    /// Calls between silos.
    pub mesh_listen: SocketAddr,
    /// What others dial to reach the two listeners; empty = the listener's own address.
    pub advertise_host: String,
    /// Where clients reach this silo, e.g. `http://10.0.0.1:7420`; empty = made from `advertiseHost` and `listen`.
    pub client_address: String,
    /// Replicas of a shard are put into different zones where there are enough; empty = not told.
    pub zone: String,
    /// Replicas of a shard.
    pub replicas: u32,
    pub tls: TlsConfig,
    /// File with the secret that all silos of the cluster share.
    pub secret_file: PathBuf,
    pub carrier: CarrierKind,
    pub heartbeat_millis: u64,
    /// A replica that hears nothing from its leader for a time between these two asks for an election.
    pub election_millis_min: u64,
    pub election_millis_max: u64,
    /// The replicas of a silo that nobody has heard of for so long are made again elsewhere.
    pub dead_node_grace_seconds: u64,
    /// Shards that change their place at the same time, at most.
    pub moves_at_once: u32,
    /// A silo whose clock differs by more than this from the middle of all silos' clocks is not ready; 0 = however much.
    pub clock_skew_max_ms: u64,
}

/// Files in PEM form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct TlsConfig {
    /// The authority that all silos' certificates come from.
    pub ca: PathBuf,
    /// This silo's certificate, which bears its name; intermediate ones behind it.
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// What carries calls between silos.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CarrierKind {
    /// ractor_cluster on sockets of our own.
    Mesh,
    /// gRPC on the peer listener.
    Tonic,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            founders: Vec::new(),
            seeds: Vec::new(),
            peer_listen: SocketAddr::from(([127, 0, 0, 1], 7421)),
            mesh_listen: SocketAddr::from(([127, 0, 0, 1], 7422)),
            advertise_host: String::new(),
            client_address: String::new(),
            zone: String::new(),
            replicas: 3,
            tls: TlsConfig::default(),
            secret_file: PathBuf::new(),
            carrier: CarrierKind::Mesh,
            heartbeat_millis: 150,
            election_millis_min: 400,
            election_millis_max: 800,
            dead_node_grace_seconds: 300,
            moves_at_once: 4,
            clock_skew_max_ms: 10_000,
        }
    }
}

impl ClusterConfig {
    /// What can be judged without looking at a file. The text names the key.
    ///
    /// # Errors
    /// Which key must be what.
    pub fn check(&self, name: &str) -> Result<(), String> {
        let bounds: [(&str, u64, u64, u64); 7] = [
            ("cluster.replicas", u64::from(self.replicas), 1, 7),
            ("cluster.heartbeatMillis", self.heartbeat_millis, 20, 10_000),
            ("cluster.electionMillisMin", self.election_millis_min, 50, 60_000),
            ("cluster.electionMillisMax", self.election_millis_max, 50, 120_000),
            ("cluster.deadNodeGraceSeconds", self.dead_node_grace_seconds, 1, 30 * 86_400),
            ("cluster.movesAtOnce", u64::from(self.moves_at_once), 1, 64),
            ("cluster.clockSkewMaxMs", self.clock_skew_max_ms, 0, 86_400_000),
        ];
        for (key, found, least, most) in bounds {
            if found < least || found > most {
                return Err(format!("Expected {key} between {least} and {most}, but found {found}"));
            }
        }
        if !self.enabled {
            return Ok(());
        }
        self.check_timing()?;
        check_name("name", name)?;
        if self.founders.is_empty() {
            return Err("Expected cluster.founders to name the silos that found the cluster, but found none".to_owned());
        }
        for (key, list) in [("cluster.founders", &self.founders), ("cluster.seeds", &self.seeds)] {
            if list.len() > LIST_MAX {
                return Err(format!("Expected at most {LIST_MAX} entries in {key}, but found {}", list.len()));
            }
            if let Some(doubled) = list.iter().enumerate().find(|(n, it)| list[..*n].contains(it)) {
                return Err(format!("Expected {key} to name each silo once, but found {:?} twice", doubled.1));
            }
        }
        for founder in &self.founders {
            check_name("cluster.founders", founder)?;
        }
        for seed in &self.seeds {
            check_seed(seed)?;
        }
        if self.seeds.is_empty() && self.founders.len() > 1 {
            return Err("Expected cluster.seeds to say where the other silos are, but found none".to_owned());
        }
        check_host(&self.advertise_host)?;
        check_client_address(&self.client_address)?;
        if self.advertise_host.is_empty() && self.peer_listen.ip().is_unspecified() {
            return Err(format!(
                "Expected cluster.advertiseHost beside cluster.peerListen {}, since nobody can dial that, but found none",
                self.peer_listen
            ));
        }
        if self.peer_listen == self.mesh_listen && self.peer_listen.port() != 0 {
            return Err(format!(
                "Expected cluster.peerListen and cluster.meshListen to differ, but found {} twice",
                self.peer_listen
            ));
        }
        for (key, path) in self.files() {
            if path.as_os_str().is_empty() {
                return Err(format!(
                    "Expected {key} to name a file, but found none (granary cluster certs makes them)"
                ));
            }
        }
        Ok(())
    }

    /// A leader must be heard of several times before its silence counts.
    fn check_timing(&self) -> Result<(), String> {
        if self.election_millis_min < 2 * self.heartbeat_millis {
            return Err(format!(
                "Expected cluster.electionMillisMin to be at least twice cluster.heartbeatMillis ({}), but found {}",
                self.heartbeat_millis, self.election_millis_min
            ));
        }
        if self.election_millis_max <= self.election_millis_min {
            return Err(format!(
                "Expected cluster.electionMillisMax above cluster.electionMillisMin ({}), but found {}",
                self.election_millis_min, self.election_millis_max
            ));
        }
        Ok(())
    }

    fn files(&self) -> [(&'static str, &Path); 4] {
        [
            ("cluster.tls.ca", &self.tls.ca),
            ("cluster.tls.cert", &self.tls.cert),
            ("cluster.tls.key", &self.tls.key),
            ("cluster.secretFile", &self.secret_file),
        ]
    }

    /// What is lawful but hardly meant, one sentence each.
    pub fn warnings(&self, name: &str) -> Vec<String> {
        let mut found = Vec::new();
        if !self.enabled {
            return found;
        }
        let founders = self.founders.len();
        if founders < 3 {
            found.push(format!(
                "Expected at least 3 founders, so that any one may die, but found {founders}: the loss of one stops the cluster."
            ));
        } else if self.replicas.is_multiple_of(2) {
            found.push(format!(
                "Expected an odd number of replicas, but found {}: one replica fewer bears as many losses.",
                self.replicas
            ));
        }
        if founders > 2 && self.replicas < 3 {
            found.push(format!(
                "Expected at least 3 replicas, but found {}: the loss of one silo stops the shards that it holds.",
                self.replicas
            ));
        }
        if !self.founders.iter().any(|founder| founder == name) && self.seeds.is_empty() {
            found.push("Expected seeds, since this silo founds nothing, but found none: it can only wait.".to_owned());
        }
        found
    }

    pub fn dead_node_grace(&self) -> Duration {
        Duration::from_secs(self.dead_node_grace_seconds)
    }

    /// Reads the secret.
    ///
    /// # Errors
    /// It cannot be read, or is too short or too long; never says what is in it.
    pub fn secret(&self) -> Result<Vec<u8>, String> {
        let bytes = read("cluster.secretFile", &self.secret_file)?;
        // Whoever wrote it with an editor or `echo` has a line end behind it, and others may not.
        let secret = bytes.trim_ascii().to_vec();
        if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&secret.len()) {
            return Err(format!(
                "Expected {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes in cluster.secretFile {}, but found {}",
                self.secret_file.display(),
                secret.len()
            ));
        }
        Ok(secret)
    }
}

/// Reads a file that a key names.
///
/// # Errors
/// Names key and file.
fn read(key: &str, path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path)
        .map_err(|e| format!("Expected {key} to name a file that can be read, but {}: {e}", path.display()))
}

/// A name that a silo can have: a part of certificates and of DNS names.
///
/// # Errors
/// Names `key` and what was found.
pub fn check_name(key: &str, name: &str) -> Result<(), String> {
    let fine = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.'))
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric());
    if fine {
        return Ok(());
    }
    Err(format!(
        "Expected {key} of 1 to {NAME_BYTES_MAX} small letters, digits, '-' or '.', a letter or digit at both ends, but found {name:?}"
    ))
}

fn check_seed(seed: &str) -> Result<(), String> {
    let target = seed.strip_prefix("dns:").unwrap_or(seed);
    let fine = seed.len() <= ADDRESS_BYTES_MAX
        && target.rsplit_once(':').is_some_and(|(host, port)| {
            let is_name = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || matches!(c, '/' | '@'));
            is_name && port.parse::<u16>().is_ok_and(|port| port != 0)
        });
    if fine {
        return Ok(());
    }
    Err(format!("Expected cluster.seeds of the form host:port or dns:name:port, but found {seed:?}"))
}

fn check_host(host: &str) -> Result<(), String> {
    let is_ip = host.parse::<std::net::IpAddr>().is_ok();
    let is_name = host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
    if host.len() <= ADDRESS_BYTES_MAX && (is_ip || is_name) {
        return Ok(());
    }
    Err(format!("Expected cluster.advertiseHost to be a name or address without a port, but found {host:?}"))
}

fn check_client_address(address: &str) -> Result<(), String> {
    let fine = address.is_empty()
        || address.parse::<http::Uri>().is_ok_and(|uri| uri.authority().is_some() && uri.scheme().is_some());
    if fine && address.len() <= ADDRESS_BYTES_MAX {
        return Ok(());
    }
    Err(format!("Expected cluster.clientAddress to be empty or a URL like http://host:7420, but found {address:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> ClusterConfig {
        let names = ["a", "b", "c"].map(str::to_owned);
        ClusterConfig {
            enabled: true,
            founders: names.to_vec(),
            seeds: vec!["10.0.0.1:7421".to_owned(), "dns:granary-headless:7421".to_owned(), "[::1]:7421".to_owned()],
            tls: TlsConfig { ca: "ca.pem".into(), cert: "a.pem".into(), key: "a.key".into() },
            secret_file: "secret".into(),
            ..ClusterConfig::default()
        }
    }

    /// [P5] [K1]
    #[test]
    fn a_wrong_section_names_the_key_and_what_was_found() {
        type Change = fn(&mut ClusterConfig);
        let cases: [(Change, &str); 17] = [
            (|c| c.founders.clear(), "cluster.founders"),
            (|c| c.founders.push("a".into()), "\"a\" twice"),
            (|c| c.founders[1] = "B".into(), "\"B\""),
            (|c| c.founders[1] = "-b".into(), "\"-b\""),
            (|c| c.seeds.clear(), "cluster.seeds"),
            (|c| c.seeds[0] = "10.0.0.1".into(), "host:port or dns:name:port, but found \"10.0.0.1\""),
            (|c| c.seeds[0] = "dns:x:0".into(), "dns:x:0"),
            (|c| c.seeds[0] = "http://x:1".into(), "http://x:1"),
            (|c| c.seeds = (0..65).map(|n| format!("h:{}", n + 1)).collect(), "at most 64"),
            (|c| c.replicas = 0, "cluster.replicas between 1 and 7"),
            (|c| c.heartbeat_millis = 300, "twice cluster.heartbeatMillis (300), but found 400"),
            (|c| c.election_millis_max = 400, "above cluster.electionMillisMin"),
            (|c| c.peer_listen = "0.0.0.0:7421".parse().expect("address"), "cluster.advertiseHost"),
            (|c| c.mesh_listen = c.peer_listen, "to differ"),
            (|c| c.advertise_host = "host:1".into(), "\"host:1\""),
            (|c| c.client_address = "host".into(), "cluster.clientAddress"),
            (|c| c.tls.key = PathBuf::new(), "cluster.tls.key"),
        ];
        assert_eq!(good().check("a"), Ok(()));
        for (change, wanted) in cases {
            let mut config = good();
            change(&mut config);
            let found = config.check("a").expect_err(wanted);
            assert!(found.contains(wanted) && found.starts_with("Expected "), "{wanted}: {found}");
        }
        assert!(good().check("A b").expect_err("a bad name").contains("Expected name of 1 to 63"));
        let off = ClusterConfig { enabled: false, founders: Vec::new(), ..good() };
        assert_eq!(off.check("A b"), Ok(()), "nothing counts while it is off");
    }

    #[test]
    fn small_and_even_clusters_are_warned_of() {
        type Change = fn(&mut ClusterConfig);
        let cases: [(Change, &[&str]); 5] = [
            (|_| {}, &[]),
            (|c| c.enabled = false, &[]),
            (|c| c.founders.truncate(2), &["at least 3 founders"]),
            (|c| c.replicas = 4, &["an odd number"]),
            (|c| c.replicas = 2, &["an odd number", "at least 3 replicas"]),
        ];
        for (change, wanted) in cases {
            let mut config = good();
            change(&mut config);
            let found = config.warnings("a");
            assert_eq!(found.len(), wanted.len(), "{found:?}");
            assert!(wanted.iter().zip(&found).all(|(wanted, found)| found.contains(wanted)), "{found:?}");
        }
    }

    /// [P3] A secret that is too short is refused, and nothing of it is said.
    #[test]
    fn the_secret_is_long_enough_and_its_line_end_does_not_count() {
        let dir = tempfile::tempdir().expect("dir");
        let mut config = good();
        config.secret_file = dir.path().join("secret");
        assert!(config.secret().expect_err("no file").contains("cluster.secretFile"));
        std::fs::write(&config.secret_file, "short-and-secret\n").expect("write");
        let refusal = config.secret().expect_err("too short");
        assert!(refusal.contains("but found 16") && !refusal.contains("short-and"), "{refusal}");
        std::fs::write(&config.secret_file, format!("{}\n", "x".repeat(32))).expect("write");
        assert_eq!(config.secret().map(|s| s.len()), Ok(32));
    }
}
