//! What silos say to each other, as messages and back. Whoever sends them is authenticated; what they send is checked all the
//! same, since it may be of another build.

use crate::peers::Refused;
use grain_contract::{Code, GrainId, Rejection};
use granary_proto::peers::{Moved, PeerRejection};
use prost::Message;
use shard::NodeId;

/// What the owner of a shard, or who was taken for it, says to one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer<T> {
    Got(T),
    Refused(Rejection),
    /// Not the owner; nothing was done. Maybe it knows who is.
    Moved(Option<NodeId>),
}

pub(crate) fn rejection(rejection: &Rejection) -> PeerRejection {
    PeerRejection {
        code: rejection.code.as_str().to_owned(),
        message: rejection.message.clone(),
        path: rejection.field.clone(),
        ..PeerRejection::default()
    }
}

/// A code of a newer build is an answer that this one does not understand; its words are kept.
pub(crate) fn read_rejection(told: PeerRejection) -> Rejection {
    let code = Code::parse(&told.code).unwrap_or(Code::Internal);
    Rejection { code, message: told.message, field: told.path }
}

pub(crate) fn moved(leader: Option<NodeId>) -> Moved {
    Moved { leader: leader.unwrap_or_default() }
}

pub(crate) fn read_moved(told: Moved) -> Option<NodeId> {
    Some(told.leader).filter(|leader| *leader != 0)
}

pub(crate) fn grain(bytes: &[u8]) -> Option<GrainId> {
    GrainId::from_storage_bytes(bytes).filter(|(_, read)| *read == bytes.len()).map(|(grain, _)| grain)
}

pub(crate) fn read<M: Message + Default>(body: &[u8]) -> Result<M, Refused> {
    M::decode(body).map_err(|error| Refused::BadRequest(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_all_its_fields_over_the_hop() {
        for code in Code::ALL {
            let told = Rejection::new(code, "Expected this, but found that.").at("a.b");
            assert_eq!(read_rejection(rejection(&told)), told);
        }
        let newer = PeerRejection { code: "of-tomorrow".into(), message: "m".into(), ..PeerRejection::default() };
        assert_eq!(read_rejection(newer).code, Code::Internal);
    }

    #[test]
    fn only_whole_names_of_grains_are_read() {
        let id = GrainId::new(&"acme".into(), &"run".into(), "1");
        let mut bytes = id.storage_bytes();
        assert_eq!(grain(&bytes), Some(id));
        bytes.push(1);
        assert_eq!(grain(&bytes), None);
        assert_eq!(grain(b""), None);
    }
}
