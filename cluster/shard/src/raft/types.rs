//! openraft's type configuration, in one place.

use std::fmt;

openraft::declare_raft_types!(
    /// One group a shard; node ids are numbers, addresses travel in `BasicNode`.
    pub TypeConfig:
        D = Proposal,
        R = Applied,
        NodeId = u64,
        Node = openraft::impls::BasicNode,
        // At most one leader a term, so that the term alone names a leadership (our epoch). openraft's default lets a
        // second node win the same term, and then two owners would share an epoch.
        LeaderId = openraft::impls::leader_id_std::LeaderId<Self::Term, Self::NodeId>,
        AsyncRuntime = super::ticks::Runtime,
);

type LeaderId = openraft::impls::leader_id_std::LeaderId<u64, u64>;
pub type LeaderTerm = <LeaderId as openraft::vote::RaftLeaderId>::Committed;
pub type LogId = openraft::LogId<LeaderTerm>;
pub type StoredMembership = openraft::StoredMembership<LeaderTerm, u64, openraft::impls::BasicNode>;
pub type Membership = openraft::Membership<u64, openraft::impls::BasicNode>;
pub type SnapshotMeta = openraft::SnapshotMeta<LeaderTerm, u64, openraft::impls::BasicNode>;
pub type Snapshot<D> = openraft::Snapshot<LeaderTerm, u64, openraft::impls::BasicNode, D>;
pub type Entry = <TypeConfig as openraft::RaftTypeConfig>::Entry;
pub type Vote = <TypeConfig as openraft::RaftTypeConfig>::Vote;

/// Whether a membership that came from elsewhere holds together: every voter is a member, and somebody votes. Raft takes
/// both for granted.
pub fn is_sound(membership: &Membership) -> bool {
    let configs = membership.get_joint_config();
    let members = |voters: &std::collections::BTreeSet<u64>| {
        !voters.is_empty() && voters.iter().all(|voter| membership.get_node(voter).is_some())
    };
    !configs.is_empty() && configs.iter().all(members)
}

/// What is proposed: an encoded `granary.storage.v1.Entry`, shared between log, apply and network without copying.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Proposal(pub bytes::Bytes);

impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proposal({} bytes)", self.0.len())
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

// openraft asks for serde on these with its `serde` feature; our own frames do not use it.
impl serde::Serialize for Proposal {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for Proposal {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Vec::<u8>::deserialize(d).map(|v| Self(v.into()))
    }
}

/// What apply answers.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Applied {
    /// Nothing to say (membership, blank, housekeeping).
    Nothing,
    Committed {
        revision: u64,
        outbox: Vec<u64>,
    },
    Fenced {
        expected: String,
        found: String,
    },
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
