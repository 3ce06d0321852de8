//! Whether another node is welcome, by what it says of itself and what its certificate says.
//!
//! Pure: both sides of a connection judge each other by the same rules.

use crate::peers::PeerInfo;
use grain_contract::limits::NAME_BYTES_MAX;
use granary_proto::peers::hello_refusal::Kind;
use granary_proto::peers::{HelloRefusal, NodeIdentity};
use std::net::IpAddr;
use uuid::Uuid;

/// An address or a build's name in an identity. Bytes.
const TEXT_BYTES_MAX: usize = 256;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// This node, met through an address of its own.
    Myself,
    Peer,
}

pub(super) fn judge(me: &NodeIdentity, peer: &NodeIdentity, names: &[String]) -> Result<Judged, HelloRefusal> {
    readable(peer)?;
    if !names.contains(&peer.name) {
        let names = names.join(", ");
        return refuse(
            Kind::Name,
            format!("Expected one of the certificate's names ({names}), but it says {}", peer.name),
        );
    }
    if peer.node_id == me.node_id && peer.boot == me.boot {
        return Ok(Judged::Myself);
    }
    if common_protocol(me, peer) < me.protocol_min.max(peer.protocol_min) {
        let (min, max) = (me.protocol_min, me.protocol_max);
        let message = format!(
            "Expected protocol {min} to {max}, but node {} speaks {} to {}",
            peer.name, peer.protocol_min, peer.protocol_max
        );
        return refuse(Kind::Protocol, message);
    }
    if !me.cluster_id.is_empty() && !peer.cluster_id.is_empty() && me.cluster_id != peer.cluster_id {
        let message = format!(
            "Expected a node of cluster {}, but the data of {} is of cluster {}",
            me.cluster_id, peer.name, peer.cluster_id
        );
        return refuse(Kind::Cluster, message);
    }
    // After the cluster: a namesake in another cluster is in nobody's way.
    if peer.node_id == me.node_id || peer.name == me.name {
        let (name, node) = (&me.name, me.node_id);
        let message = format!("Expected one process as node {name}, but {name} (id {node:x}) lives elsewhere already");
        return refuse(Kind::Taken, message);
    }
    Ok(Judged::Peer)
}

/// The highest version that both speak.
pub(super) fn common_protocol(me: &NodeIdentity, peer: &NodeIdentity) -> u32 {
    me.protocol_max.min(peer.protocol_max)
}

/// Bounds, before anything is kept or repeated to others.
pub(super) fn readable(peer: &NodeIdentity) -> Result<(), HelloRefusal> {
    let texts = [&peer.build, &peer.peer_address, &peer.mesh_address, &peer.client_address, &peer.zone];
    let is_long = texts.iter().any(|text| text.len() > TEXT_BYTES_MAX);
    if peer.name.is_empty() || peer.name.len() > NAME_BYTES_MAX || is_long || peer.node_id == 0 {
        return Err(HelloRefusal {
            kind: Kind::BadRequest.into(),
            message: "Expected an identity, but it is no such".into(),
        });
    }
    if !peer.cluster_id.is_empty() && Uuid::parse_str(&peer.cluster_id).is_err() {
        return Err(HelloRefusal {
            kind: Kind::BadRequest.into(),
            message: "Expected a cluster id, but it is none".into(),
        });
    }
    Ok(())
}

fn refuse(kind: Kind, message: String) -> Result<Judged, HelloRefusal> {
    Err(HelloRefusal { kind: kind.into(), message })
}

/// An address without a host means: where I was met.
pub(super) fn complete(mut identity: NodeIdentity, met_at: IpAddr) -> NodeIdentity {
    for address in [&mut identity.peer_address, &mut identity.mesh_address] {
        if let Some(port) = address.strip_prefix(':').and_then(|port| port.parse::<u16>().ok()) {
            *address = std::net::SocketAddr::new(met_at.to_canonical(), port).to_string();
        }
    }
    identity
}

pub(super) fn info(identity: &NodeIdentity) -> PeerInfo {
    PeerInfo {
        name: identity.name.clone(),
        boot: identity.boot,
        cluster: Uuid::parse_str(&identity.cluster_id).ok(),
        client_address: identity.client_address.clone(),
        zone: identity.zone.clone(),
        build: identity.build.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff";
    const OTHER: &str = "00000000-8b86-4d01-b42d-00cf4fc964ff";

    fn node(name: &str, node_id: u64, boot: u64) -> NodeIdentity {
        NodeIdentity {
            name: name.into(),
            node_id,
            boot,
            cluster_id: OURS.into(),
            protocol_min: 2,
            protocol_max: 4,
            ..NodeIdentity::default()
        }
    }

    /// [P3]
    #[test]
    fn each_refusal_has_its_reason() {
        let me = node("a", 1, 10);
        let cases: [(&str, NodeIdentity, Result<Judged, Kind>); 15] = [
            ("fine", node("b", 2, 20), Ok(Judged::Peer)),
            ("no cluster yet", NodeIdentity { cluster_id: "".into(), ..node("b", 2, 20) }, Ok(Judged::Peer)),
            ("older", NodeIdentity { protocol_min: 1, protocol_max: 2, ..node("b", 2, 20) }, Ok(Judged::Peer)),
            ("newer", NodeIdentity { protocol_min: 4, protocol_max: 9, ..node("b", 2, 20) }, Ok(Judged::Peer)),
            ("too old", NodeIdentity { protocol_min: 1, protocol_max: 1, ..node("b", 2, 20) }, Err(Kind::Protocol)),
            ("too new", NodeIdentity { protocol_min: 5, protocol_max: 6, ..node("b", 2, 20) }, Err(Kind::Protocol)),
            ("other cluster", NodeIdentity { cluster_id: OTHER.into(), ..node("b", 2, 20) }, Err(Kind::Cluster)),
            ("myself", node("a", 1, 10), Ok(Judged::Myself)),
            ("my copy", node("a", 1, 11), Err(Kind::Taken)),
            ("my name", node("a", 3, 30), Err(Kind::Taken)),
            ("my name elsewhere", NodeIdentity { cluster_id: OTHER.into(), ..node("a", 3, 30) }, Err(Kind::Cluster)),
            ("not in the certificate", node("c", 2, 20), Err(Kind::Name)),
            ("no id", node("b", 0, 20), Err(Kind::BadRequest)),
            ("no cluster id", NodeIdentity { cluster_id: "x".into(), ..node("b", 2, 20) }, Err(Kind::BadRequest)),
            ("long", NodeIdentity { zone: "z".repeat(300), ..node("b", 2, 20) }, Err(Kind::BadRequest)),
        ];
        let names = ["a".to_owned(), "b".to_owned()];
        for (case, peer, expected) in cases {
            assert_eq!(judge(&me, &peer, &names).map_err(|refusal| refusal.kind()), expected, "{case}");
        }
    }

    /// [P8]
    #[test]
    fn two_builds_speak_the_highest_version_that_both_know() {
        let with = |protocol_max| NodeIdentity { protocol_max, ..node("b", 2, 20) };
        assert_eq!([2, 4, 9].map(|max| common_protocol(&node("a", 1, 10), &with(max))), [2, 4, 4]);
    }

    #[test]
    fn an_address_without_host_is_where_the_node_was_met() {
        let peer = NodeIdentity { peer_address: ":7421".into(), mesh_address: "host:7422".into(), ..node("b", 2, 20) };
        let completed = complete(peer, "10.0.0.9".parse().unwrap());
        assert_eq!((&*completed.peer_address, &*completed.mesh_address), ("10.0.0.9:7421", "host:7422"));
    }
}
