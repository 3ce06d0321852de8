//! The proof: the journal of every run that was started says that it ended exactly once and that every step was done exactly
//! once. The latencies of a server that loses or doubles work are of no interest.

use crate::server_link::Link;
use futures::StreamExt;
use granary_proto::v1;
use serde::Serialize;
use std::collections::BTreeMap;
use uuid::Uuid;

/// Journals read at the same time.
const READERS: usize = 32;
const PAGE: u32 = 500;
/// Pages of one journal at most: a journal that never ends is a fault too.
const PAGES_MAX: usize = 1_000;

#[derive(Serialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Mismatch {
    pub run_id: String,
    pub what: String,
}

#[derive(Default)]
pub struct Proof {
    pub runs: u64,
    pub entries: u64,
    /// Of each run, the longest time between two entries of its journal: how long it stood still. Milliseconds.
    pub stalls_ms: Vec<u64>,
    pub mismatches: Vec<Mismatch>,
}

pub async fn read(link: &Link, runs: &[Uuid], steps: &[String]) -> Proof {
    let mut journals = futures::stream::iter(runs.iter().enumerate())
        .map(|(n, run)| async move { (*run, journal(link, n as u64, *run).await) })
        .buffer_unordered(READERS);
    let mut proof = Proof::default();
    while let Some((run, journal)) = journals.next().await {
        proof.runs += 1;
        let found = match journal {
            Ok(entries) => {
                proof.entries += entries.len() as u64;
                proof.stalls_ms.push(longest_stall_ms(&entries));
                check(&entries, steps)
            }
            Err(error) => vec![format!("the journal cannot be read: {error}")],
        };
        proof.mismatches.extend(found.into_iter().map(|what| Mismatch { run_id: run.to_string(), what }));
    }
    proof
}

async fn journal(link: &Link, n: u64, run: Uuid) -> Result<Vec<v1::JournalEntry>, String> {
    let mut entries = Vec::new();
    let mut after = 0;
    for _ in 0..PAGES_MAX {
        let request = v1::ReadJournalRequest { run_id: run.to_string(), after, page_size: PAGE };
        let (page, _) = link
            .until_answered(|attempt| {
                let (mut client, request) = (link.run_control(n + attempt), request.clone());
                async move { client.read_journal(request).await }
            })
            .await;
        let page = page.map_err(|status| format!("{:?}: {}", status.code(), status.message()))?;
        let read = page.entries.len();
        entries.extend(page.entries);
        if page.next_after == 0 || read == 0 {
            return Ok(entries);
        }
        after = page.next_after;
    }
    Err(format!("it has more than {PAGES_MAX} pages"))
}

fn longest_stall_ms(entries: &[v1::JournalEntry]) -> u64 {
    let times: Vec<i64> = entries.iter().filter_map(|entry| Some(entry.at.as_ref()?.millis())).collect();
    times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]).max(0).unsigned_abs()).max().unwrap_or(0)
}

/// Everything that is wrong with one journal.
fn check(entries: &[v1::JournalEntry], steps: &[String]) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some((at, entry)) = entries.iter().enumerate().find(|(at, entry)| entry.number != *at as u64 + 1) {
        wrong.push(format!("Expected entry {} next, but found {}.", at + 1, entry.number));
    }
    let terminal: Vec<&str> = entries.iter().map(|e| e.r#type.as_str()).filter(|t| is_terminal(t)).collect();
    if terminal != ["RunCompleted"] {
        wrong.push(format!("Expected the one end RunCompleted, but found {terminal:?}."));
    }
    if entries.iter().filter(|e| e.r#type == "RunAccepted").count() != 1 {
        wrong.push("Expected one RunAccepted, but found another number.".to_owned());
    }
    let count = |of: &dyn Fn(&v1::JournalEntry) -> bool| {
        let mut by_step: BTreeMap<&str, usize> = steps.iter().map(|step| (step.as_str(), 0)).collect();
        entries.iter().filter(|e| of(e)).for_each(|e| *by_step.entry(e.step_id.as_str()).or_default() += 1);
        by_step
    };
    let created = count(&|e| e.r#type == "AttemptCreated");
    let succeeded = count(&|e| e.r#type == "AttemptOutcomeRecorded" && e.outcome == "Succeeded");
    let outcomes = count(&|e| e.r#type == "AttemptOutcomeRecorded");
    for (what, counts) in [("attempt", created), ("success", succeeded), ("outcome", outcomes)] {
        for (step, number) in counts {
            let wanted = usize::from(steps.iter().any(|s| s == step));
            if number != wanted {
                wrong.push(format!("Expected {wanted} {what} of step {step:?}, but found {number}."));
            }
        }
    }
    wrong
}

fn is_terminal(entry_type: &str) -> bool {
    matches!(entry_type, "RunCompleted" | "RunFailed" | "RunCancelled")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal_of(types: &[(&str, &str, &str)]) -> Vec<v1::JournalEntry> {
        let entry = |(n, (kind, step, outcome)): (usize, &(&str, &str, &str))| v1::JournalEntry {
            number: n as u64 + 1,
            r#type: (*kind).to_owned(),
            step_id: (*step).to_owned(),
            outcome: (*outcome).to_owned(),
            ..Default::default()
        };
        types.iter().enumerate().map(entry).collect()
    }

    const GOOD: [(&str, &str, &str); 4] = [
        ("RunAccepted", "", ""),
        ("AttemptCreated", "s1", ""),
        ("AttemptOutcomeRecorded", "s1", "Succeeded"),
        ("RunCompleted", "", ""),
    ];

    #[test]
    fn a_good_journal_has_nothing_wrong() {
        assert_eq!(check(&journal_of(&GOOD), &["s1".to_owned()]), Vec::<String>::new());
    }

    #[test]
    fn the_longest_stall_is_between_two_entries() {
        let mut entries = journal_of(&GOOD);
        for (entry, ms) in entries.iter_mut().zip([1_000, 1_010, 3_010, 3_020]) {
            entry.at = Some(granary_proto::wire::Timestamp::from_millis(ms));
        }
        assert_eq!(longest_stall_ms(&entries), 2_000);
        assert_eq!(longest_stall_ms(&entries[..1]), 0);
    }

    /// [L3] The proof after the run finds each way a journal can be wrong.
    #[test]
    fn every_fault_is_found() {
        let steps = ["s1".to_owned()];
        let with = |entry: (&'static str, &'static str, &'static str)| {
            let mut entries = GOOD.to_vec();
            entries.insert(3, entry);
            check(&journal_of(&entries), &steps).join(" ")
        };
        assert!(with(("AttemptCreated", "s1", "")).contains("Expected 1 attempt of step \"s1\", but found 2."));
        assert!(with(("AttemptOutcomeRecorded", "s1", "Uncertain")).contains("Expected 1 outcome"));
        assert!(with(("RunCompleted", "", "")).contains("Expected the one end"));
        assert!(with(("AttemptCreated", "s9", "")).contains("Expected 0 attempt of step \"s9\""));
        assert!(check(&journal_of(&GOOD[..3]), &steps).join(" ").contains("Expected the one end RunCompleted"));
        let mut gap = journal_of(&GOOD);
        gap[3].number = 7;
        assert_eq!(check(&gap, &steps), ["Expected entry 4 next, but found 7."]);
    }
}
