//! The folder of a local cluster: certificates, and for each silo its configuration, data and log.
//!
//! ```text
//! DIR/certs/{ca.pem, ca.key, secret, node-1.pem, node-1.key, …}
//! DIR/node-1/{node.yaml, data/, log.txt}
//! ```
//!
//! What is there is used again: the same folder is the same cluster. More silos than before join it.

use super::super::Failure;
use granary::certs;
use granary::config::{self, Config, Source};
use jiff::civil::Date;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

const NODES_DEFAULT: u32 = 3;
pub const NODES_MAX: u32 = 16;
/// Between the ports of two silos, with `--port`: 7420, 7421, 7422; 7430, 7431, 7432; …
const PORT_STEP: u16 = 10;
/// Below the ports that the kernel gives to outgoing connections, so that none of them takes the port of a silo that is down.
const PORTS: std::ops::Range<u16> = 15_000..32_000;
const PORT_TRIES: usize = 200;
const CONFIG_MODE: u32 = 0o644;

pub struct Wanted {
    pub dir: PathBuf,
    /// `None` = all that the folder has, else three.
    pub nodes: Option<u32>,
    pub shards: Option<u32>,
    /// First port; `None` = any that is free.
    pub port: Option<u16>,
}

/// One silo of the folder.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub name: String,
    pub url: String,
    pub config: PathBuf,
    pub log: PathBuf,
}

#[derive(Clone, Copy)]
struct Ports {
    client: u16,
    peer: u16,
    mesh: u16,
}

/// Gives the silos to start, and makes what is missing of them.
pub fn prepare(wanted: &Wanted, today: Date) -> Result<Vec<Plan>, Failure> {
    std::fs::create_dir_all(&wanted.dir).map_err(|error| file(&wanted.dir, &error))?;
    // Absolute, so that a silo finds its files from wherever it is started.
    let dir = wanted.dir.canonicalize().map_err(|error| file(&wanted.dir, &error))?;
    let there = existing(&dir)?;
    let found = u32::try_from(there.len()).unwrap_or(u32::MAX);
    let number = wanted.nodes.unwrap_or(if found == 0 { NODES_DEFAULT } else { found });
    if !(1..=NODES_MAX).contains(&number) {
        return Err(Failure::usage(format!("Expected 1 to {NODES_MAX} silos, but found {number}.")));
    }
    if number < found {
        return Err(Failure::usage(format!(
            "Expected at least the {found} silos of {}, but found --nodes {number}. Take one out with: granary cluster remove NODE",
            dir.display()
        )));
    }
    if let (Some(shards), Some(first)) = (wanted.shards, there.first())
        && first.shards != shards
    {
        return Err(Failure::usage(format!(
            "Expected --shards {}, since the number is fixed for {}, but found {shards}.",
            first.shards,
            dir.display()
        )));
    }
    make(&dir, wanted, &there, number, today)?;
    existing(&dir).map(|nodes| nodes.iter().enumerate().map(|(n, config)| plan(&dir, n, config)).collect())
}

fn plan(dir: &Path, n: usize, config: &Config) -> Plan {
    let folder = folder(dir, n);
    Plan {
        name: config.name.clone(),
        url: format!("http://{}", config.listen),
        config: folder.join("node.yaml"),
        log: folder.join("log.txt"),
    }
}

fn folder(dir: &Path, n: usize) -> PathBuf {
    dir.join(name(n))
}

fn name(n: usize) -> String {
    format!("node-{}", n + 1)
}

fn existing(dir: &Path) -> Result<Vec<Config>, Failure> {
    let mut found = Vec::new();
    loop {
        let path = folder(dir, found.len()).join("node.yaml");
        if !path.exists() {
            return Ok(found);
        }
        // The environment is none of its business: it would be the same for all of them.
        let source = Source { file: Some(path), environment: Vec::new(), base: Config::default() };
        found.push(config::load(&source).map_err(|error| Failure::usage(error.to_string()))?);
    }
}

fn make(dir: &Path, wanted: &Wanted, there: &[Config], number: u32, today: Date) -> Result<(), Failure> {
    let all: Vec<usize> = (0..number as usize).collect();
    let new = &all[there.len().min(all.len())..];
    if new.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = new.iter().map(|n| name(*n)).collect();
    let certificates = dir.join("certs");
    certs::make(&certificates, &names, &[], today).map_err(|error| Failure::usage(format!("{error}.")))?;
    let mut taken: BTreeSet<u16> =
        there.iter().flat_map(|c| [c.listen, c.cluster.peer_listen, c.cluster.mesh_listen]).map(|a| a.port()).collect();
    let ports = new
        .iter()
        .map(|n| match wanted.port {
            Some(base) => from_base(base, *n),
            None => free(&mut taken),
        })
        .collect::<Result<Vec<_>, _>>()?;
    // Those that found the cluster stay the same for ever; who comes later joins.
    let founders = match there.first() {
        Some(first) => first.cluster.founders.clone(),
        None => names.clone(),
    };
    let peers = there.iter().map(|c| c.cluster.peer_listen.port()).chain(ports.iter().map(|p| p.peer));
    let seeds: Vec<String> = peers.map(|port| format!("{}:{port}", Ipv4Addr::LOCALHOST)).collect();
    let shards = there.first().map(|c| c.shards).or(wanted.shards).unwrap_or(Config::default().shards);
    // The first one last: a folder without it is one that was not finished.
    for (n, ports) in new.iter().zip(&ports).rev() {
        let folder = folder(dir, *n);
        std::fs::create_dir_all(&folder).map_err(|error| file(&folder, &error))?;
        let text = text(dir, *n, *ports, shards, &founders, &seeds);
        certs::write_new(&folder.join("node.yaml"), &text, CONFIG_MODE)
            .map_err(|error| Failure::usage(format!("{error}.")))?;
    }
    Ok(())
}

fn text(dir: &Path, n: usize, ports: Ports, shards: u32, founders: &[String], seeds: &[String]) -> String {
    let (name, host) = (name(n), Ipv4Addr::LOCALHOST);
    let certificates = dir.join("certs");
    // JSON is YAML, and knows how to quote.
    let path = |path: PathBuf| serde_json::Value::from(path.display().to_string());
    let list = |list: &[String]| serde_json::Value::from(list.to_vec());
    let mut text = String::from("# Made by `granary cluster up`, for trying out.\n");
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "name: {name}\nlisten: {host}:{}\nshards: {shards}\ndevelopment: true\nstore:\n  dataDir: {}\ncluster:\n  enabled: true\n  \
         founders: {}\n  seeds: {}\n  peerListen: {host}:{}\n  meshListen: {host}:{}\n  tls:\n    ca: {}\n    cert: {}\n    key: {}\n  \
         secretFile: {}\n",
        ports.client,
        path(folder(dir, n).join("data")),
        list(founders),
        list(seeds),
        ports.peer,
        ports.mesh,
        path(certificates.join(certs::CA_CERT)),
        path(certs::cert_of(&certificates, &name)),
        path(certs::key_of(&certificates, &name)),
        path(certificates.join(certs::SECRET)),
    );
    text
}

fn from_base(base: u16, n: usize) -> Result<Ports, Failure> {
    let step = u16::try_from(n).ok().and_then(|n| n.checked_mul(PORT_STEP));
    let client = step.and_then(|step| base.checked_add(step)).filter(|port| *port > 0 && *port < u16::MAX - 2);
    let client = client.ok_or_else(|| {
        Failure::usage(format!("Expected a --port with room for {PORT_STEP} ports a silo, but found {base}."))
    })?;
    Ok(Ports { client, peer: client + 1, mesh: client + 2 })
}

fn free(taken: &mut BTreeSet<u16>) -> Result<Ports, Failure> {
    let mut one = || {
        for _ in 0..PORT_TRIES {
            let port = rand::random_range(PORTS);
            if !taken.contains(&port) && TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_ok() {
                taken.insert(port);
                return Ok(port);
            }
        }
        Err(Failure::no("ports", format!("Expected a free port from {} on, but found none.", PORTS.start)))
    };
    Ok(Ports { client: one()?, peer: one()?, mesh: one()? })
}

fn file(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("{}: {error}.", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TODAY: Date = jiff::civil::date(2026, 11, 30);

    fn prepared(dir: &Path, nodes: Option<u32>, shards: Option<u32>, port: Option<u16>) -> Result<Vec<Plan>, String> {
        prepare(&Wanted { dir: dir.to_owned(), nodes, shards, port }, TODAY).map_err(|failure| failure.message)
    }

    /// [K1] [K8] The same folder is the same cluster, and what comes later joins those who founded it.
    #[test]
    fn a_folder_is_made_once_and_grows() {
        let dir = tempfile::tempdir().expect("dir");
        let first = prepared(dir.path(), None, Some(4), None).expect("made");
        assert_eq!(first.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["node-1", "node-2", "node-3"]);
        assert_eq!(prepared(dir.path(), None, None, None).expect("found"), first);
        let grown = prepared(dir.path(), Some(4), None, None).expect("grown");
        assert_eq!((&grown[..3], grown[3].name.as_str()), (&first[..], "node-4"));
        let configs = existing(&dir.path().canonicalize().expect("dir")).expect("reads");
        for config in &configs {
            assert_eq!(config.check(), Ok(()), "{}", config.name);
            assert_eq!((config.shards, config.cluster.founders.len()), (4, 3), "{}", config.name);
            assert!(config.cluster.warnings(&config.name).is_empty());
            assert!(config.cluster.secret().is_ok() && config.cluster.tls.cert.exists());
        }
        assert_eq!(configs[3].cluster.seeds.len(), 4);
        let ports: BTreeSet<u16> = configs
            .iter()
            .flat_map(|c| [c.listen, c.cluster.peer_listen, c.cluster.mesh_listen])
            .map(|address| address.port())
            .collect();
        assert_eq!(ports.len(), 12);
    }

    #[test]
    fn ports_may_be_given_and_wrong_wishes_are_refused() {
        let dir = tempfile::tempdir().expect("dir");
        let plans = prepared(dir.path(), Some(2), None, Some(21_000)).expect("made");
        assert_eq!(
            plans.iter().map(|p| p.url.as_str()).collect::<Vec<_>>(),
            ["http://127.0.0.1:21000", "http://127.0.0.1:21010"]
        );
        for (nodes, shards, wanted) in
            [(Some(1), None, "at least the 2 silos"), (Some(0), None, "1 to 16"), (None, Some(5), "--shards 16")]
        {
            let found = prepared(dir.path(), nodes, shards, None).expect_err(wanted);
            assert!(found.contains(wanted), "{found}");
        }
        let other = tempfile::tempdir().expect("dir");
        let found = prepared(other.path(), Some(3), None, Some(65_530)).expect_err("no room");
        assert!(found.contains("--port"), "{found}");
    }
}
