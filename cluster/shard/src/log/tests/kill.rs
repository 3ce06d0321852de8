//! A real process on a real disk, killed at random moments.

use super::driver::{self, GROUPS, acked, append, entries, entry, id, state};
use crate::log::{Wal, WalOptions};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

const FOLDER: &str = "GRANARY_LOG_KILL_FOLDER";
const ROUND: &str = "GRANARY_LOG_KILL_ROUND";
const ROUNDS: u64 = 10;

fn open(folder: &Path) -> Arc<Wal> {
    Wal::open(folder, WalOptions { segment_bytes: 64 << 10, cache_bytes: 16 << 10, groups: GROUPS, begun: false })
        .unwrap()
}

/// Not a test by itself: what the killed process does. Without the folder in its environment it does nothing.
#[test]
fn child_writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let round: u64 = std::env::var(ROUND).unwrap().parse().unwrap();
    let wal = open(Path::new(&folder));
    std::thread::scope(|scope| {
        for group in 0..GROUPS {
            let log = wal.group(group);
            scope.spawn(move || {
                let first = state(&log).1.map_or(0, |last| last.index + 1);
                for i in first.. {
                    if i % 50 == 49 {
                        say(&format!("purge {group} {}", i - 20));
                        driver::purge(&log, id(round, i - 20)).unwrap();
                    }
                    acked(append(&log, vec![entry(group, round, i, (i * 37 % 900) as usize)])).unwrap();
                    say(&format!("ack {group} {i} {round}"));
                }
            });
        }
    });
}

/// One write a line, so that a kill tears at most the last one.
fn say(line: &str) {
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// [K3] [K7] [FR-083]
#[test]
fn a_killed_process_leaves_everything_that_it_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut rng = SmallRng::seed_from_u64(7);
    let mut acknowledged: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    let mut purged = vec![0; GROUPS as usize];
    for round in 1..=ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "log::tests::kill::child_writes_until_it_is_killed", "--nocapture", "--test-threads=1"])
            .env(FOLDER, folder.path())
            .env(ROUND, round.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        // Round one dies during its first open, the others after some acknowledgements.
        let mut left: u32 = if round == 1 { 0 } else { rng.random_range(1..600) };
        let mut line = String::new();
        loop {
            if left == 0 {
                child.kill().unwrap();
            }
            line.clear();
            if lines.read_line(&mut line).unwrap() == 0 {
                break;
            }
            let Some(whole) = line.strip_suffix('\n') else { break };
            let words: Vec<_> = whole.split(' ').collect();
            let number = |i: usize| words[i].parse::<u64>().unwrap();
            match words[0] {
                "ack" => drop(acknowledged.insert((number(1) as u32, number(2)), number(3))),
                "purge" => purged[number(1) as usize] = number(2),
                // What the test harness prints.
                _ => continue,
            }
            left = left.saturating_sub(1);
        }
        child.kill().unwrap();
        child.wait().unwrap();

        let wal = open(folder.path());
        for group in 0..GROUPS {
            let log = wal.group(group);
            let found: BTreeMap<_, _> = entries(&log).into_iter().map(|entry| (entry.log_id.index, entry)).collect();
            let may_be_gone = state(&log).0.map_or(0, |id| id.index + 1);
            assert!(may_be_gone == 0 || may_be_gone - 1 <= purged[group as usize], "round {round}: purged unasked");
            for ((_, index), term) in acknowledged.range((group, may_be_gone)..(group + 1, 0)) {
                let wanted = entry(group, *term, *index, (index * 37 % 900) as usize);
                assert_eq!(found.get(index), Some(&wanted), "round {round}, group {group}, entry {index}");
            }
        }
    }
    assert!(acknowledged.len() > 100, "{}", acknowledged.len());
}
