//! Configuration files and certificates of a fleet.

use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const PEER_PORT: u16 = 7421;
pub const MESH_PORT: u16 = 7422;

/// What all nodes of a fleet have in common.
#[derive(Clone, Debug)]
pub struct Shape {
    pub shards: u32,
    /// Elections on a machine that also compiles and tests are given more time than in production.
    pub heartbeat_ms: u64,
    pub election_ms: (u64, u64),
    pub dead_node_grace_seconds: u64,
    pub drain_seconds: u64,
    /// Lines to put under the configuration as they are.
    pub more: String,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            shards: 8,
            heartbeat_ms: 200,
            election_ms: (1_000, 2_000),
            dead_node_grace_seconds: 300,
            drain_seconds: 20,
            more: String::new(),
        }
    }
}

pub struct Member<'a> {
    pub name: &'a str,
    pub ip: Ipv4Addr,
}

/// Certificates and the secret of all members, made by the product's own command.
///
/// # Errors
/// The command says no.
pub fn certificates(folder: &Path, names: &[String], ips: &[Ipv4Addr]) -> Result<PathBuf> {
    let out = folder.join("certs");
    let hosts: Vec<String> = ips.iter().map(ToString::to_string).collect();
    let made = Command::new(crate::process::binary()?)
        .args(["cluster", "certs", "--out"])
        .arg(&out)
        .args(["--names", &names.join(","), "--hosts", &hosts.join(",")])
        .output()
        .context("start granary cluster certs")?;
    anyhow::ensure!(made.status.success(), "granary cluster certs: {}", String::from_utf8_lossy(&made.stderr));
    Ok(out)
}

/// Writes the configuration of one member and gives its path. `founders` come first among the seeds.
///
/// # Errors
/// The file cannot be written.
pub fn write(
    folder: &Path,
    shape: &Shape,
    certs: &Path,
    me: &Member<'_>,
    data: &Path,
    founders: &[Member<'_>],
) -> Result<PathBuf> {
    let mut text = String::new();
    let names: Vec<&str> = founders.iter().map(|f| f.name).collect();
    let seeds: Vec<String> = founders.iter().map(|f| format!("{}:{PEER_PORT}", f.ip)).collect();
    writeln!(text, "name: {}", me.name)?;
    writeln!(text, "listen: {}:{}", me.ip, super::node::CLIENT_PORT)?;
    writeln!(text, "development: true")?;
    writeln!(text, "shards: {}", shape.shards)?;
    writeln!(text, "drainSeconds: {}", shape.drain_seconds)?;
    writeln!(text, "store:\n  dataDir: {}\n  segmentMebibytes: 4", data.display())?;
    writeln!(text, "cluster:\n  enabled: true")?;
    writeln!(text, "  founders: [{}]", names.join(", "))?;
    writeln!(text, "  seeds: [{}]", seeds.iter().map(|s| format!("{s:?}")).collect::<Vec<_>>().join(", "))?;
    writeln!(text, "  peerListen: \"{}:{PEER_PORT}\"", me.ip)?;
    writeln!(text, "  meshListen: \"{}:{MESH_PORT}\"", me.ip)?;
    writeln!(text, "  advertiseHost: \"{}\"", me.ip)?;
    writeln!(text, "  heartbeatMillis: {}", shape.heartbeat_ms)?;
    writeln!(text, "  electionMillisMin: {}\n  electionMillisMax: {}", shape.election_ms.0, shape.election_ms.1)?;
    writeln!(text, "  deadNodeGraceSeconds: {}", shape.dead_node_grace_seconds)?;
    let file = |name: String| certs.join(name).display().to_string();
    writeln!(text, "  tls:\n    ca: {}", file("ca.pem".to_owned()))?;
    writeln!(text, "    cert: {}", file(format!("{}.pem", me.name)))?;
    writeln!(text, "    key: {}", file(format!("{}.key", me.name)))?;
    writeln!(text, "  secretFile: {}", file("secret".to_owned()))?;
    text.push_str(&shape.more);
    let path = folder.join(format!("{}.yaml", me.name));
    std::fs::write(&path, text)?;
    Ok(path)
}
