//! Joining a cluster that is there.

use super::found::take_id;
use crate::membership::Error;
use crate::membership::ask::is_passing;
use crate::membership::book::{self, to_view};
use crate::membership::ground::Inner;
use grain_contract::Code;
use granary_proto::peers::JoinBook;
use shard::NodeId;
use std::time::Duration;
use tokio::time::Instant;

/// The connection of a process that has just died may still seem alive to others; a name that stays taken for longer is taken.
const TAKEN_FOR: Duration = Duration::from_secs(15);

/// Since when the name is said to be taken.
#[derive(Default)]
pub(super) struct Patience(Option<Instant>);

/// `None` once this node is a member; otherwise what is missing. It may die between being written into the book and taking the
/// id: then it asks again under the same id, and the book says the same.
pub(super) async fn join(inner: &Inner, through: &[NodeId], patience: &mut Patience) -> Result<Option<String>, Error> {
    let shards = inner.ground.host.shards();
    let question = JoinBook { me: Some(inner.member()), old_is_alive: false, shards };
    let mut why = String::new();
    for node in through {
        let answer = inner.ask_through(*node, book::JOIN, &question, inner.options.call_within * 2).await;
        let rejection = match answer {
            Ok(view) => {
                let Some(view) = to_view(&view) else { continue };
                let Some(cluster) = view.cluster else { continue };
                take_id(inner, cluster).await?;
                inner.ground.directory.learn(view);
                tracing::info!(%cluster, "this node has joined the cluster");
                return Ok(None);
            }
            Err(rejection) => rejection,
        };
        match rejection.code {
            _ if is_passing(&rejection) => why = rejection.message,
            Code::NotFound => return Err(Error::Removed { node: inner.me() }),
            Code::Conflict if rejection.field == "name" => {
                let since = *patience.0.get_or_insert_with(Instant::now);
                if since.elapsed() > TAKEN_FOR {
                    return Err(Error::NameTaken { name: inner.options.name.clone(), why: rejection.message });
                }
                why = rejection.message;
            }
            _ => return Err(Error::Options(rejection.message)),
        }
    }
    Ok(Some(format!("This node cannot join yet: {why}")))
}
