//! Keeps the gRPC connection to one node: dials its addresses, says hello, opens Raft's stream, and begins again when it ends.

use super::hello::{Failed, Met, Remote, say};
use super::lane::Leaving;
use super::shared::Shared;
use super::socket::dial;
use super::tls::Purpose;
use super::wire::{Wire, channel};
use granary_proto::peers::RaftAnswers;
use rand::RngExt;
use shard::NodeId;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::Streaming;
use tonic::transport::Channel;

/// How long a node that does not want us, or that we do not want, is left alone.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);
/// Identities are exchanged again after this long, and at once when something changed.
const HELLO_EVERY: Duration = Duration::from_secs(5);
/// But not more often than this, so that many changes at once are told together.
const HELLO_PAUSE: Duration = Duration::from_millis(50);

/// Until the node is superseded or out of reach for too long.
pub(super) fn keep(shared: &Arc<Shared>, node: NodeId) {
    let shared = shared.clone();
    let stop = shared.stop.clone();
    let tasks = shared.tasks.clone();
    tasks.spawn(async move { stop.run_until_cancelled(run(shared, node)).await });
}

async fn run(shared: Arc<Shared>, node: NodeId) {
    let mut backoff = Backoff::new(&shared.timing);
    while let Some((addresses, wake)) = shared.roster.to_dial(node, Instant::now()) {
        let mut pause = None;
        for address in addresses {
            match connect(&shared, node, &address).await {
                Ok(connected) => {
                    backoff.reset();
                    serve(&shared, node, connected).await;
                    break;
                }
                Err(Failed::Connection(why)) => tracing::debug!(address, why, "a node was not reached"),
                Err(Failed::Refused(_) | Failed::Unwelcome(_)) => pause = Some(REFUSED_PAUSE),
            }
        }
        let pause = pause.unwrap_or_else(|| backoff.next());
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = wake.notified() => {}
        }
    }
}

struct Connected {
    wire: Arc<Wire>,
    answers: Streaming<RaftAnswers>,
    channel: Channel,
    remote: Remote,
    /// Dropped with the rest: the wire ends whatever happens to the task that serves it.
    _end: tokio_util::sync::DropGuard,
}

async fn connect(shared: &Arc<Shared>, node: NodeId, address: &str) -> Result<Connected, Failed> {
    let (channel, remote) = reach(shared, address).await?;
    let (boot, life) = match say(shared, channel.clone(), &remote).await? {
        Met::Peer { node: met, boot, life } if met == node => (boot, life),
        Met::Peer { .. } | Met::Myself => {
            shared.roster.address_is_wrong(node, address);
            return Err(Failed::Connection("another node is there".into()));
        }
    };
    let end = life.child_token();
    let guard = end.clone().drop_guard();
    let wire = Wire::new(channel.clone(), boot, end);
    let opened = tokio::time::timeout(shared.timing.handshake, wire.raft().exchange(Leaving(wire.lane.clone()))).await;
    let answers = match opened {
        Ok(Ok(answers)) => answers.into_inner(),
        Ok(Err(status)) => return Err(Failed::Connection(status.message().to_owned())),
        Err(_) => return Err(Failed::Connection("Raft's stream was not opened in time".into())),
    };
    if !shared.roster.attach_wire(node, boot, &wire) {
        return Err(Failed::Connection("a newer process was met meanwhile".into()));
    }
    Ok(Connected { wire, answers, channel, remote, _end: guard })
}

/// Connects without knowing who is there.
pub(super) async fn reach(shared: &Shared, address: &str) -> Result<(Channel, Remote), Failed> {
    let failed = |error: String| Failed::Connection(error);
    let secured = dial(address, &shared.credentials, Purpose::Peer, shared.timing.handshake).await;
    let secured = secured.map_err(|error| failed(error.to_string()))?;
    let remote = Remote { names: secured.names, binding: secured.binding, ip: secured.remote.ip() };
    let opened = tokio::time::timeout(shared.timing.handshake, channel(secured.stream, &shared.timing)).await;
    match opened {
        Ok(Ok(channel)) => Ok((channel, remote)),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed("no HTTP/2 in time".into())),
    }
}

async fn serve(shared: &Arc<Shared>, node: NodeId, connected: Connected) {
    let Connected { wire, mut answers, channel, remote, _end } = connected;
    tracing::debug!(node = format!("{node:x}"), "attached over gRPC");
    let reading = async {
        while let Ok(Some(batch)) = answers.message().await {
            batch.answers.into_iter().for_each(|answer| wire.lane.answered(answer));
        }
    };
    tokio::select! {
        () = reading => {}
        () = wire.ended() => {}
        () = stay_acquainted(shared, channel, &remote) => {}
    }
    shared.roster.detach_wire(node, &wire, Instant::now());
    tracing::debug!(node = format!("{node:x}"), "detached from gRPC");
}

/// Says hello again from time to time; ends when that is refused.
async fn stay_acquainted(shared: &Arc<Shared>, channel: Channel, remote: &Remote) {
    let (mut me, mut news) = (shared.me.changes(), shared.roster.news());
    loop {
        let changed = tokio::select! {
            () = tokio::time::sleep(HELLO_EVERY) => Ok(()),
            changed = me.changed() => changed,
            changed = news.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
        tokio::time::sleep(HELLO_PAUSE).await;
        me.mark_unchanged();
        news.mark_unchanged();
        match say(shared, channel.clone(), remote).await {
            // No answer is no reason: the pings decide whether the connection is good.
            Ok(_) | Err(Failed::Connection(_)) => {}
            Err(Failed::Refused(_) | Failed::Unwelcome(_)) => return,
        }
    }
}

/// Pauses that double, each somewhere between its half and its whole, so that many do not dial in step.
pub(super) struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(timing: &super::options::MeshTiming) -> Self {
        Self { min: timing.redial_min, max: timing.redial_max, next: timing.redial_min }
    }

    pub(super) fn reset(&mut self) {
        self.next = self.min;
    }

    pub(super) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (self.next * 2).min(self.max);
        pause.mul_f64(rand::rng().random_range(0.5..=1.0))
    }
}
