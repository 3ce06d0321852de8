//! A member that is back after a stop or a crash.

use crate::membership::Error;
use crate::membership::ask::is_passing;
use crate::membership::book::{self, to_view};
use crate::membership::ground::Inner;
use grain_contract::Code;
use granary_proto::peers::SeenBook;

/// `None` once the book knows that this node is back; otherwise what is missing. After a power loss of the whole cluster that takes
/// a majority of shard 0's replicas, at whatever addresses they are now.
pub(in crate::membership) async fn take_up(inner: &Inner) -> Result<Option<String>, Error> {
    match inner.ask(book::SEEN, &SeenBook { me: Some(inner.member()) }).await {
        Ok(view) => {
            let Some(view) = to_view(&view) else {
                return Ok(Some("The book cannot be read by this build.".to_owned()));
            };
            if view.cluster != inner.cluster() {
                return Ok(Some("The book that was found is another cluster's.".to_owned()));
            }
            inner.ground.directory.learn(view);
            Ok(None)
        }
        Err(rejection) if is_passing(&rejection) => {
            Ok(Some(format!("The book is not there yet: {}", rejection.message)))
        }
        Err(rejection) if rejection.code == Code::NotFound => Err(Error::Removed { node: inner.me() }),
        Err(rejection) => Err(Error::Options(rejection.message)),
    }
}
