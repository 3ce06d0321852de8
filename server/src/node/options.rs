//! From the configuration to what each part of a node wants to know.

use crate::config::{CarrierKind, Config, Live, RunControlMode, StateKind};
use cluster::SiloOptions;
use cluster::membership::MembershipOptions;
use cluster::mesh::{Carrier, MeshOptions, MeshTiming, Tls};
use grains::kinds::{KindOptions, RunMode, methods};
use shard::{HostOptions, RaftLink, StateBackend, Timing};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// `link` = how other replicas are reached; `None` = there are no others.
pub fn host(config: &Config, link: Option<Arc<dyn RaftLink>>) -> HostOptions {
    let mut options = HostOptions::new(&config.store.data_dir, config.shards);
    options.state = match config.store.state {
        StateKind::Sled => StateBackend::Sled,
        StateKind::Fjall => StateBackend::Fjall,
        StateKind::Memory => StateBackend::Memory,
    };
    options.cache_bytes = config.store.cache_mebibytes << 20;
    options.segment_bytes = config.store.segment_mebibytes << 20;
    if let Some(link) = link {
        let millis = Duration::from_millis;
        options.alone = false;
        options.link = link;
        options.timing = Timing {
            heartbeat: millis(config.cluster.heartbeat_millis),
            election_min: millis(config.cluster.election_millis_min),
            election_max: millis(config.cluster.election_millis_max),
        };
    }
    options
}

pub fn silo(config: &Config) -> SiloOptions {
    use methods::run::{CLAIM, LEASE_EXPIRED, SWEEP};
    let mut options = SiloOptions::new(&config.name, CLAIM, LEASE_EXPIRED, SWEEP, methods::index::OPEN_RUNS);
    options.idle = Duration::from_secs(config.limits.idle_seconds);
    options.activation_memory = config.limits.activation_mebibytes << 20;
    options.sweep_every = Duration::from_secs(config.workflows.engine.stuck_run_seconds);
    options.event_retention = Duration::from_secs(config.retention.event_hours * 3_600);
    options.events_kept_max = config.retention.events_per_shard_max;
    options
}

pub fn kinds(live: &Live) -> KindOptions {
    let mode = match live.get().run_control {
        RunControlMode::Bundled => RunMode::Bundled,
        RunControlMode::External => RunMode::External,
    };
    let live = live.clone();
    KindOptions { mode, engine: Arc::new(move || live.get().workflows.engine.options()) }
}

/// # Errors
/// The secret cannot be read or is no good.
pub fn mesh(config: &Config, client: SocketAddr) -> Result<MeshOptions, String> {
    let cluster = &config.cluster;
    Ok(MeshOptions {
        name: config.name.clone(),
        zone: cluster.zone.clone(),
        build: env!("CARGO_PKG_VERSION").to_owned(),
        peer_listen: cluster.peer_listen,
        mesh_listen: cluster.mesh_listen,
        advertise_host: Some(cluster.advertise_host.clone()).filter(|host| !host.is_empty()),
        client_address: client_address(config, client),
        seeds: cluster.seeds.clone(),
        known: Some(config.store.data_dir.join("peers")),
        tls: Tls::files(&cluster.tls.ca, &cluster.tls.cert, &cluster.tls.key),
        secret: cluster.secret()?,
        carrier: match cluster.carrier {
            CarrierKind::Mesh => Carrier::Mesh,
            CarrierKind::Tonic => Carrier::Tonic,
        },
        timing: MeshTiming::default(),
    })
}

pub fn membership(config: &Config, client: SocketAddr) -> MembershipOptions {
    let cluster = &config.cluster;
    let mut options = MembershipOptions::new(&config.name, cluster.founders.clone(), &config.store.data_dir);
    options.zone = cluster.zone.clone();
    options.client_address = client_address(config, client);
    options.build = env!("CARGO_PKG_VERSION").to_owned();
    options.replicas = cluster.replicas as usize;
    options.dead_node_grace = cluster.dead_node_grace();
    options.moves_at_once = cluster.moves_at_once as usize;
    options
}

/// What clients are told; a guess where the configuration says nothing.
fn client_address(config: &Config, client: SocketAddr) -> String {
    let cluster = &config.cluster;
    if !cluster.client_address.is_empty() {
        return cluster.client_address.clone();
    }
    match cluster.advertise_host.as_str() {
        "" => url_of(client),
        host => match host.parse::<IpAddr>() {
            Ok(IpAddr::V6(ip)) => format!("http://[{ip}]:{}", client.port()),
            _ => format!("http://{host}:{}", client.port()),
        },
    }
}

/// For clients on this machine.
pub fn url_of(addr: SocketAddr) -> String {
    let host = match addr.ip() {
        ip if ip.is_unspecified() && ip.is_ipv4() => "127.0.0.1".to_owned(),
        ip if ip.is_unspecified() => "[::1]".to_owned(),
        IpAddr::V6(ip) => format!("[{ip}]"),
        ip => ip.to_string(),
    };
    format!("http://{host}:{}", addr.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_an_address_that_they_can_dial() {
        let cases = [
            ("", "", "0.0.0.0:7420", "http://127.0.0.1:7420"),
            ("", "", "[::]:7420", "http://[::1]:7420"),
            ("", "", "10.0.0.1:7420", "http://10.0.0.1:7420"),
            ("", "silo-0.silos", "0.0.0.0:7420", "http://silo-0.silos:7420"),
            ("", "fd00::1", "0.0.0.0:7420", "http://[fd00::1]:7420"),
            ("https://front:443", "silo-0", "0.0.0.0:7420", "https://front:443"),
        ];
        for (address, host, listen, wanted) in cases {
            let mut config = Config::default();
            config.cluster.client_address = address.to_owned();
            config.cluster.advertise_host = host.to_owned();
            assert_eq!(client_address(&config, listen.parse().expect("address")), wanted);
        }
    }
}
