//! Finds the first of the others: dials the seeds, and where others were met last, until each is attached, and now and then
//! again.

use super::Error;
use super::hello::{Failed, Met, say};
use super::known::Known;
use super::link::reach;
use super::shared::Shared;
use granary_proto::peers::hello_refusal::Kind;
use shard::NodeId;
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Addresses of one round.
const ADDRESSES_MAX: usize = 64;
/// With somebody attached the rest is found by hearsay; then the seeds matter less.
const ATTACHED_FACTOR: u32 = 5;
const LOOK_UP_WITHIN: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    Myself,
    Peer(NodeId),
    Nobody,
    OtherCluster,
}

pub(super) fn keep(shared: &Arc<Shared>, seeds: Vec<String>, known: Arc<Known>) {
    if seeds.is_empty() && known.addresses().is_empty() {
        return;
    }
    let (shared, stop, tasks) = (shared.clone(), shared.stop.clone(), shared.tasks.clone());
    tasks.spawn(async move { stop.run_until_cancelled(run(shared, seeds, known)).await });
}

async fn run(shared: Arc<Shared>, seeds: Vec<String>, known: Arc<Known>) {
    // Who answered at an address last.
    let mut answered: HashMap<String, Found> = HashMap::new();
    loop {
        let seeded = look_up(&seeds).await;
        let mut addresses: BTreeSet<String> = seeded.iter().cloned().collect();
        addresses.extend(known.addresses());
        answered.retain(|address, _| addresses.contains(address));
        let open: Vec<_> = addresses
            .iter()
            .filter(|address| match answered.get(*address) {
                Some(Found::Myself) => false,
                Some(Found::Peer(node)) => !shared.roster.is_attached(*node),
                Some(Found::Nobody | Found::OtherCluster) | None => true,
            })
            .cloned()
            .collect();
        let asked = open.into_iter().map(|address| {
            let shared = shared.clone();
            async move {
                let found = ask(&shared, &address).await;
                (address, found)
            }
        });
        answered.extend(futures::future::join_all(asked).await);
        let is_alone = shared.roster.attached().borrow().is_empty();
        // Where somebody was once, anybody may be by now: only a seed's word is one.
        let told = answered.iter().filter(|(address, _)| seeded.contains(address)).map(|(_, found)| found);
        if is_alone && is_foreign(told) {
            let why = "Expected data of the seeds' cluster, but this folder's data is of another cluster";
            shared.bar(Error::OtherCluster(why.into()));
        }
        let pause = if is_alone { shared.timing.seeds } else { shared.timing.seeds * ATTACHED_FACTOR };
        tokio::time::sleep(pause).await;
    }
}

/// Every seed that is not this node itself has answered, and each that it is of another cluster. A single wrong seed among
/// right ones is no reason to end.
fn is_foreign<'a>(found: impl Iterator<Item = &'a Found>) -> bool {
    let mut others = found.filter(|found| **found != Found::Myself).peekable();
    others.peek().is_some() && others.all(|found| *found == Found::OtherCluster)
}

async fn ask(shared: &Arc<Shared>, address: &str) -> Found {
    let met = async {
        let (channel, remote) = reach(shared, address).await?;
        say(shared, channel, &remote).await
    };
    match met.await {
        Ok(Met::Myself) => Found::Myself,
        Ok(Met::Peer { node, .. }) => Found::Peer(node),
        Err(Failed::Refused(refused)) if refused.kind() == Kind::Cluster => Found::OtherCluster,
        Err(Failed::Connection(why)) => {
            tracing::debug!(address, why, "a seed was not reached");
            Found::Nobody
        }
        Err(Failed::Refused(_) | Failed::Unwelcome(_)) => Found::Nobody,
    }
}

/// `host:port` as it is (connecting tries all its addresses); `dns:name:port` becomes one for each address of the name.
async fn look_up(seeds: &[String]) -> Vec<String> {
    let mut addresses = BTreeSet::new();
    for seed in seeds {
        let Some(name) = seed.strip_prefix("dns:") else {
            addresses.insert(seed.clone());
            continue;
        };
        match tokio::time::timeout(LOOK_UP_WITHIN, tokio::net::lookup_host(name)).await {
            Ok(Ok(found)) => addresses.extend(found.map(|address: SocketAddr| address.to_string())),
            Ok(Err(error)) => tracing::debug!(seed, %error, "a seed's name was not found"),
            Err(_) => tracing::debug!(seed, "the look-up of a seed's name took too long"),
        }
    }
    addresses.into_iter().take(ADDRESSES_MAX).collect()
}

/// # Errors
/// [`Error::Settings`] for the first seed that is neither `host:port` nor `dns:name:port`.
pub(super) fn check(seeds: &[String]) -> Result<(), Error> {
    for seed in seeds {
        let rest = seed.strip_prefix("dns:").unwrap_or(seed);
        let good = rest.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        if !good {
            return Err(Error::Settings(format!("Expected a seed as host:port or dns:name:port, but it is {seed:?}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [K1]
    #[test]
    fn seeds_are_hosts_or_names_to_look_up() {
        for good in ["a:1", "10.0.0.1:7421", "[::1]:7421", "dns:granary-peers.ns.svc:7421"] {
            assert_eq!(check(&[good.into()]), Ok(()), "{good}");
        }
        for bad in ["a", "a:", ":1", "a:99999", "dns:a", "http://a:1/"] {
            assert!(check(&[bad.into()]).is_err(), "{bad}");
        }
    }

    /// [K1]
    #[tokio::test]
    async fn a_name_gives_all_its_addresses() {
        let found = look_up(&["dns:localhost:7421".into(), "node-2:7421".into()]).await;
        assert!(found.contains(&"node-2:7421".to_owned()));
        assert!(found.iter().any(|address| address == "127.0.0.1:7421" || address == "[::1]:7421"), "{found:?}");
    }

    #[test]
    fn one_wrong_seed_among_right_ones_is_no_reason_to_end() {
        use Found::*;
        assert!(is_foreign([Myself, OtherCluster, OtherCluster].iter()));
        assert!(!is_foreign([Myself, OtherCluster, Nobody].iter()));
        assert!(!is_foreign([OtherCluster, Peer(1)].iter()));
        assert!(!is_foreign([Myself].iter()));
        assert!(!is_foreign([].iter()));
    }
}
