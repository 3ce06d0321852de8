//! How a node comes into its cluster: it founds it, joins it, or takes up again.
//!
//! Every round looks at what this node has (a cluster? notes of a founding?) and at what the nodes that can be called say of
//! themselves, and decides anew (`decide`, pure). Nothing is remembered between rounds but what is on disk, so a crash at any
//! point is just another first round.
//!
//! **That two halves can never form two clusters** rests on three things: only the founder that is named first ever founds; it
//! does so only once it has reached *all* founders and all are empty and of one opinion; and a node that is empty joins
//! rather than founds whenever it hears of a cluster. A first founder that has lost its disk is empty, but the others are not.

mod decide;
mod found;
mod join;
mod notes;
pub(super) mod take_up;

pub(super) use found::{adopt, begin};

use super::Error;
use super::ask::GREET;
use super::ground::Inner;
use decide::{Act, Having, decide};
use futures::future::join_all;
use granary_proto::peers::{GreetRequest, Greeting};
use notes::Notes;
use std::sync::Arc;
use std::time::Duration;

/// Between two rounds, unless somebody comes or goes.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// A reason to wait is logged when it changes, and again after so many rounds.
const SAY_AGAIN: u32 = 120;

pub(super) async fn enter(inner: &Arc<Inner>) -> Result<(), Error> {
    let mut waiting = Waiting::default();
    let mut taken = join::Patience::default();
    let mut attached = inner.ground.peers.attached();
    loop {
        attached.mark_unchanged();
        let greetings = greet_all(inner).await;
        let notes = Notes::read(&inner.options.data_dir)?;
        let having = Having { me: greeting(inner), notes: notes.as_ref() };
        let why = match decide(&having, &greetings) {
            Act::Found => found::first_step(inner, &greetings).await?,
            Act::GoOn(notes) => match found::go_on(inner, notes).await? {
                None => return Ok(()),
                Some(why) => why,
            },
            Act::Forget => {
                Notes::remove(&inner.options.data_dir)?;
                continue;
            }
            Act::Join(through) => match join::join(inner, &through, &mut taken).await? {
                None => return Ok(()),
                Some(why) => why,
            },
            Act::TakeUp => match take_up::take_up(inner).await? {
                None => return Ok(()),
                Some(why) => why,
            },
            Act::Wait(why) => why,
        };
        waiting.say(why);
        let _ = tokio::time::timeout(LOOK_AGAIN, attached.changed()).await;
    }
}

#[derive(Default)]
struct Waiting {
    why: String,
    rounds: u32,
}

impl Waiting {
    fn say(&mut self, why: String) {
        if self.why != why || self.rounds >= SAY_AGAIN {
            tracing::info!(why, "this node waits for its cluster");
            self.rounds = 0;
        }
        self.why = why;
        self.rounds += 1;
    }
}

/// What this node says of itself.
pub(super) fn greeting(inner: &Inner) -> Greeting {
    let (host, options) = (&inner.ground.host, &inner.options);
    Greeting {
        name: options.name.clone(),
        node_id: inner.me(),
        boot: inner.ground.boot,
        cluster_id: inner.cluster().map(|id| id.to_string()).unwrap_or_default(),
        shards: host.shards(),
        replicas: u32::try_from(options.replicas).unwrap_or(u32::MAX),
        founders: options.founders.clone(),
        zone: options.zone.clone(),
        client_address: options.client_address.clone(),
        build: options.build.clone(),
        empty: inner.cluster().is_none() && host.hosted().is_empty(),
    }
}

/// Of all who can be called and answer in time.
async fn greet_all(inner: &Inner) -> Vec<Greeting> {
    let attached = inner.attached();
    let calls = attached.iter().map(|(node, info)| async move {
        let answer: Greeting = inner.call(*node, GREET, &GreetRequest {}, inner.options.call_within).await.ok()?;
        // Who it is, the mesh knows better.
        Some(Greeting { node_id: *node, name: info.name.clone(), ..answer })
    });
    join_all(calls).await.into_iter().flatten().collect()
}
