//! Which nodes a shard belongs to: a consistent-hash ring over the names of the nodes.
//!
//! Each node has many points on the ring; a shard's replicas are the first nodes met on a walk from the shard's own point.
//! A node that comes takes over about its share and a node that goes leaves its share, and nothing moves between the others.
//! Same nodes, same answer, in whatever order they came and in every build: the hash is xxh3-64 over explicit bytes, and the
//! golden file holds it.

use hashring::HashRing;
use shard::ShardId;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3Default;

/// Name of the function below; a change of the function is a new name, and moves replicas in every cluster.
pub const RING: &str = "xxh3-64-ring-256-1";

/// Points of a node. With 256 the shares are within 5 to 10 % of each other.
const POINTS: u16 = 256;

/// A node that may hold replicas.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Site {
    /// Unique among those of a ring.
    pub name: Arc<str>,
    /// Replicas of a shard go to distinct zones as long as there are any; empty = a zone of its own.
    pub zone: Arc<str>,
}

impl Site {
    pub fn new(name: &str, zone: &str) -> Self {
        Self { name: Arc::from(name), zone: Arc::from(zone) }
    }
}

/// The ring over some nodes. Making one is cheap, but not for every call.
pub struct Ring {
    /// In the order of the ring: place, and which of `sites`.
    points: Vec<(u64, usize)>,
    sites: Vec<Site>,
}

impl Ring {
    pub fn new(sites: impl IntoIterator<Item = Site>) -> Self {
        // In the order of the names: should two points ever fall on one place, the same one comes first everywhere.
        let sites: Vec<Site> = sites.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        let point = |(site, of): (usize, &Site), number| Point { site, name: of.name.clone(), number };
        let all =
            sites.iter().enumerate().flat_map(|site| (0..POINTS).map(move |number| point(site, number))).collect();
        let mut ring = HashRing::with_hasher(Bytes);
        ring.batch_add(all);
        // Taken out once: each walk by the ring's own means would copy all of it.
        let all = ring.get_with_replicas(&Start(ShardId(0)), ring.len()).unwrap_or_default();
        let mut points: Vec<_> = all.iter().map(|point| (Bytes.hash_one(point), point.site)).collect();
        points.sort_unstable();
        points.dedup();
        Self { points, sites }
    }

    /// The nodes that should hold the shard, at most `count`, the first met first. Fewer if there are fewer nodes.
    pub fn replicas(&self, shard: ShardId, count: usize) -> Vec<Arc<str>> {
        let walk = self.walk(shard);
        let mut chosen: Vec<usize> = Vec::with_capacity(count);
        let mut zones = BTreeSet::new();
        for site in &walk {
            let zone = &self.sites[*site].zone;
            if chosen.len() < count && (zone.is_empty() || zones.insert(zone)) {
                chosen.push(*site);
            }
        }
        // Fewer zones than replicas: the rest as the walk has them.
        for site in walk {
            if chosen.len() < count && !chosen.contains(&site) {
                chosen.push(site);
            }
        }
        chosen.into_iter().map(|site| self.sites[site].name.clone()).collect()
    }

    /// All nodes, each once, in the order in which they are met.
    fn walk(&self, shard: ShardId) -> Vec<usize> {
        let start = Bytes.hash_one(Start(shard));
        let first = self.points.partition_point(|(place, _)| *place < start);
        let (before, after) = self.points.split_at(first);
        let mut met = Vec::with_capacity(self.sites.len());
        for (_, site) in after.iter().chain(before) {
            if !met.contains(site) {
                met.push(*site);
            }
            if met.len() == self.sites.len() {
                break;
            }
        }
        met
    }
}

#[derive(Clone, Debug)]
struct Point {
    /// Not hashed.
    site: usize,
    name: Arc<str>,
    number: u16,
}

impl Hash for Point {
    /// `node`, zero, name, zero, number (big-endian).
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(b"node\0");
        state.write(self.name.as_bytes());
        state.write(b"\0");
        state.write(&self.number.to_be_bytes());
    }
}

struct Start(ShardId);

impl Hash for Start {
    /// `shard`, zero, number (big-endian).
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(b"shard\0");
        state.write(&self.0.0.to_be_bytes());
    }
}

/// xxh3-64 of the bytes written, in their order.
#[derive(Clone, Debug)]
struct Bytes;

impl BuildHasher for Bytes {
    type Hasher = BytesHasher;

    fn build_hasher(&self) -> BytesHasher {
        BytesHasher(Xxh3Default::new())
    }
}

struct BytesHasher(Xxh3Default);

impl Hasher for BytesHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        self.0.digest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::shard_of;
    use grain_contract::GrainId;
    use std::collections::BTreeMap;
    use std::fmt::Write as _;

    const SHARDS: u32 = 64;

    fn sites(count: usize) -> Vec<Site> {
        (0..count).map(|n| Site::new(&format!("node-{n}"), "")).collect()
    }

    fn map(sites: Vec<Site>, count: usize) -> Vec<Vec<Arc<str>>> {
        let ring = Ring::new(sites);
        (0..SHARDS).map(|shard| ring.replicas(ShardId(shard), count)).collect()
    }

    /// One line a number of nodes: for each of 10,000 keys the last digit of the name of its shard's first node.
    fn owners() -> String {
        let mut text = format!("{RING}\n");
        for count in [3, 5, 7] {
            let map = map(sites(count), 3);
            for key in 0..10_000 {
                let grain = GrainId::new(&"acme".into(), &"run".into(), &format!("run-{key}"));
                let owner = &map[shard_of(&grain, SHARDS).0 as usize][0];
                text.push_str(&owner[owner.len() - 1..]);
            }
            let _ = writeln!(text);
        }
        text
    }

    /// [K2] [FR-016] [FR-026] The owners of 10,000 keys over 3, 5 and 7 nodes, in every build. To see what a change of the
    /// function would do, print `owners()`; to make it, give it a new name.
    #[test]
    fn ten_thousand_keys_have_the_owners_of_the_golden_file() {
        let golden = include_str!("ring.golden");
        assert!(golden == owners(), "the ring is not the one of the golden file");
    }

    /// [K2] [FR-026]
    #[test]
    fn the_order_in_which_nodes_came_does_not_matter() {
        let expected = map(sites(7), 3);
        let mut order = sites(7);
        for turn in 0..7 {
            order.rotate_left(turn);
            order.swap(1, 4);
            assert_eq!(map(order.clone(), 3), expected);
        }
    }

    /// [K8]
    #[test]
    fn a_fourth_node_takes_about_a_quarter_and_nothing_moves_between_the_old_ones() {
        let (before, after) = (map(sites(3), 3), map(sites(4), 3));
        let mut moved = 0;
        for (before, after) in before.iter().zip(&after) {
            for name in after.iter().filter(|name| !before.contains(name)) {
                assert_eq!(&**name, "node-3", "only the new node gets anything");
                moved += 1;
            }
        }
        let fair = SHARDS as usize * 3 / 4;
        assert!((fair * 7 / 10..=fair * 13 / 10).contains(&moved), "{moved} of {fair}");
    }

    #[test]
    fn a_node_that_goes_moves_only_what_was_its_own() {
        let before = map(sites(5), 3);
        let after = map(sites(5).into_iter().filter(|site| &*site.name != "node-2").collect(), 3);
        for (before, after) in before.iter().zip(&after) {
            let kept: Vec<_> = before.iter().filter(|name| &***name != "node-2").collect();
            assert!(kept.iter().all(|name| after.contains(name)), "{before:?} {after:?}");
        }
    }

    #[test]
    fn replicas_are_distinct_and_as_many_as_there_can_be() {
        for count in 1..6 {
            for replicas in map(sites(count), 3) {
                let distinct: BTreeSet<_> = replicas.iter().collect();
                assert_eq!((replicas.len(), distinct.len()), (count.min(3), count.min(3)));
            }
        }
        assert!(map(Vec::new(), 3).iter().all(Vec::is_empty));
    }

    #[test]
    fn zones_are_distinct_as_long_as_there_are_any() {
        let zoned = |zones: &[&str]| -> Vec<Site> {
            zones.iter().enumerate().map(|(n, zone)| Site::new(&format!("node-{n}"), zone)).collect()
        };
        let zones = ["a", "a", "b", "b", "c", "c"];
        for replicas in map(zoned(&zones), 3) {
            let met: BTreeSet<_> = replicas.iter().map(|name| zones[name[5..].parse::<usize>().unwrap()]).collect();
            assert_eq!(met.len(), 3, "{replicas:?}");
        }
        let zones = ["a", "a", "a", "b"];
        for replicas in map(zoned(&zones), 3) {
            assert_eq!(replicas.len(), 3);
            assert!(replicas.iter().any(|name| &**name == "node-3"), "both zones: {replicas:?}");
        }
    }

    #[test]
    fn shares_are_even() {
        let mut shares = BTreeMap::<Arc<str>, usize>::new();
        let ring = Ring::new(sites(5));
        for shard in 0..1_000 {
            for name in ring.replicas(ShardId(shard), 3) {
                *shares.entry(name).or_default() += 1;
            }
        }
        assert!(shares.values().all(|share| (480..=720).contains(share)), "{shares:?}");
    }

    #[test]
    #[ignore = "writes the golden file anew: only for a function with a new name"]
    fn write_the_golden_file() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/placement/ring.golden");
        std::fs::write(file, owners()).unwrap();
    }
}
