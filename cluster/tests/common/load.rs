//! What is asked of a cluster while something happens to it, and what must have come of it.

use super::{PATIENCE, START, TestCluster};
use crate::toy;
use cluster::{Request, Silo};
use futures::future::join_all;
use grain_contract::{CommandId, Timestamp};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

impl TestCluster {
    /// One reminder each of so many grains.
    pub async fn set_reminders(&self, count: usize, after: Duration) -> Timestamp {
        let due = Timestamp(START).plus_ms(u64::try_from(after.as_millis()).expect("short"));
        for n in 0..count {
            let body = format!("nap:{}", due.0).into_bytes();
            let target = toy::id("acme", &format!("sleeper-{n}"));
            self.until("the reminder is set", || async {
                let (target, body) = (target.clone(), body.clone());
                let deadline = Instant::now() + Duration::from_secs(2);
                let command = Some(CommandId::new("nap"));
                let request = Request { target, method: toy::REMIND, body, command, deadline };
                self.any().silo.call(request).await.is_ok()
            })
            .await;
        }
        due
    }

    /// Waits until each was told of its reminder, and checks that it was told once.
    pub async fn reminders_told_once(&self, count: usize, due: Timestamp) {
        for n in 0..count {
            let target = toy::id("acme", &format!("sleeper-{n}"));
            let told = || async {
                let deadline = Instant::now() + Duration::from_secs(2);
                let target = target.clone();
                let request = Request { target, method: toy::TOLD, body: Vec::new(), command: None, deadline };
                self.any().silo.call(request).await.map(|told| String::from_utf8(told).expect("text"))
            };
            // One that could not be taken at its first try is tried again after a while, and time goes by only if told.
            let fired = || async {
                self.advance(Duration::from_millis(100));
                told().await.is_ok_and(|told| !told.is_empty())
            };
            self.until("the reminder fired", fired).await;
            let told = told().await.expect("told");
            assert!(told.starts_with(&format!("reminder nap due {} ", due.0)), "{told}");
            assert_eq!(told.lines().count(), 1, "{told}");
        }
    }
}

/// Adds to some keys through all nodes, one after the other, until it is told to stop; says how many were acknowledged by key.
pub struct Load {
    stop: tokio::sync::watch::Sender<bool>,
    tasks: Vec<JoinHandle<u64>>,
}

const KEYS: usize = 8;

impl Load {
    /// `silos` may be of nodes that come and go: whoever refuses is passed over, and the same command is sent elsewhere.
    pub fn start(cluster: &TestCluster) -> Self {
        let (stop, told) = tokio::sync::watch::channel(false);
        let silos: Vec<Silo> = cluster.nodes.values().map(|node| node.silo.clone()).collect();
        let tasks = (0..KEYS).map(|key| {
            let (silos, mut told) = (silos.clone(), told.clone());
            tokio::spawn(async move {
                let mut acknowledged = 0;
                while !*told.borrow() {
                    let command = format!("{key}-{acknowledged}");
                    for silo in silos.iter().cycle().skip(acknowledged as usize % silos.len()) {
                        let request = Request {
                            target: toy::id("acme", &format!("load-{key}")),
                            method: toy::ADD,
                            body: 1u64.to_le_bytes().to_vec(),
                            command: Some(CommandId::new(&command)),
                            deadline: Instant::now() + Duration::from_secs(3),
                        };
                        if silo.call(request).await.is_ok() {
                            break;
                        }
                    }
                    acknowledged += 1;
                    let _ = tokio::time::timeout(Duration::from_millis(5), told.changed()).await;
                }
                acknowledged
            })
        });
        let tasks = tasks.collect();
        Self { stop, tasks }
    }

    /// Ends it, and checks that each acknowledged addition is there once.
    pub async fn end(self, cluster: &TestCluster) -> u64 {
        let names: Vec<&str> = cluster.nodes.keys().map(String::as_str).collect();
        self.end_at(cluster, &names).await
    }

    /// The same, seen from these nodes.
    pub async fn end_at(self, cluster: &TestCluster, names: &[&str]) -> u64 {
        let _ = self.stop.send(true);
        let acknowledged = tokio::time::timeout(PATIENCE, join_all(self.tasks)).await.expect("ends");
        let mut all = 0;
        for (key, acknowledged) in acknowledged.into_iter().enumerate() {
            let acknowledged = acknowledged.expect("does not panic");
            all += acknowledged;
            for node in names.iter().map(|name| cluster.node(name)) {
                cluster
                    .until(&format!("key {key} at {}", node.name), || async {
                        node.sum(&format!("load-{key}")).await.is_ok()
                    })
                    .await;
                let sum = node.sum(&format!("load-{key}")).await;
                assert_eq!(sum, Ok(acknowledged), "key {key} at {}: nothing lost, nothing twice", node.name);
            }
        }
        assert!(all > 0, "there was a load");
        all
    }
}
