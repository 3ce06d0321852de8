//! Messages and refusals, as they travel.

use crate::peers::Refused;
use grain_contract::{Code, Rejection};
use granary_proto::peers::PeerRejection;

pub(super) fn read<M: prost::Message + Default>(body: &[u8]) -> Result<M, Refused> {
    M::decode(body).map_err(|error| Refused::BadRequest(error.to_string()))
}

pub(super) fn rejection(rejection: &Rejection) -> PeerRejection {
    PeerRejection {
        code: rejection.code.as_str().to_owned(),
        message: rejection.message.clone(),
        path: rejection.field.clone(),
        ..PeerRejection::default()
    }
}

/// What the book refuses with; a code of a newer build is a passing fault.
pub(super) fn read_rejection(told: PeerRejection) -> Rejection {
    use Code::{Conflict, Invalid, NotFound, Overloaded, Quarantined, TooLarge, Unavailable, WrongState};
    let known = [Conflict, Invalid, NotFound, Overloaded, Quarantined, TooLarge, Unavailable, WrongState];
    let code = known.into_iter().find(|code| code.as_str() == told.code).unwrap_or(Code::Internal);
    Rejection { code, message: told.message, field: told.path }
}
