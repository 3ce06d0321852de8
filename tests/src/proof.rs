//! The proof afterwards: reads the journal of a run and says what does not add up.

use anyhow::Result;
use granary_proto::v1::{self, run_control_client::RunControlClient};
use std::collections::HashMap;
use tonic::transport::Channel;

/// Everything wrong with one finished run's journal, as sentences; none if all is well.
///
/// [`order_faults`], and each of `steps` succeeded exactly once.
pub fn faults(journal: &[v1::JournalEntry], steps: &[&str]) -> Vec<String> {
    let mut faults = order_faults(journal);
    for step in steps {
        let good = |e: &&v1::JournalEntry| e.r#type == "AttemptOutcomeRecorded" && e.outcome == "Succeeded";
        let times = journal.iter().filter(good).filter(|e| e.step_id == *step).count();
        if times != 1 {
            faults.push(format!("step {step} succeeded {times} times"));
        }
    }
    faults
}

/// Numbers rise by one, the run ended exactly once and nothing came after it, and no attempt has two outcomes.
pub fn order_faults(journal: &[v1::JournalEntry]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut outcomes: HashMap<&str, u32> = HashMap::new();
    let mut ended = 0;
    for (at, entry) in journal.iter().enumerate() {
        if entry.number != at as u64 + 1 {
            faults.push(format!("entry {} stands at place {}", entry.number, at + 1));
        }
        if ended > 0 {
            faults.push(format!("{} after the end", entry.r#type));
        }
        match entry.r#type.as_str() {
            "RunCompleted" | "RunFailed" | "RunCancelled" => ended += 1,
            "AttemptOutcomeRecorded" => *outcomes.entry(&entry.attempt_id).or_default() += 1,
            _ => {}
        }
    }
    if ended != 1 {
        faults.push(format!("ended {ended} times"));
    }
    faults.extend(outcomes.iter().filter(|(_, n)| **n > 1).map(|(a, n)| format!("attempt {a} has {n} outcomes")));
    faults
}

/// The whole journal, page by page.
pub async fn journal(client: &mut RunControlClient<Channel>, run_id: &str) -> Result<Vec<v1::JournalEntry>> {
    let mut entries = Vec::new();
    let mut after = 0;
    loop {
        let request = v1::ReadJournalRequest { run_id: run_id.into(), after, page_size: 0 };
        let page = client.read_journal(request).await?.into_inner();
        entries.extend(page.entries);
        if page.next_after == 0 {
            return Ok(entries);
        }
        after = page.next_after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64, kind: &str, step: &str, attempt: &str, outcome: &str) -> v1::JournalEntry {
        v1::JournalEntry {
            number,
            r#type: kind.into(),
            step_id: step.into(),
            attempt_id: attempt.into(),
            outcome: outcome.into(),
            ..Default::default()
        }
    }

    #[test]
    fn a_good_journal_has_no_fault_and_each_bad_one_has_its_own() {
        let good = vec![
            entry(1, "RunAccepted", "", "", ""),
            entry(2, "AttemptOutcomeRecorded", "a", "x", "Succeeded"),
            entry(3, "RunCompleted", "", "", ""),
        ];
        assert_eq!(faults(&good, &["a"]), Vec::<String>::new());

        let mut gap = good.clone();
        gap[2].number = 4;
        assert_eq!(faults(&gap, &["a"]), ["entry 4 stands at place 3"]);

        let mut twice = good.clone();
        twice.push(entry(4, "RunFailed", "", "", ""));
        assert_eq!(faults(&twice, &["a"]), ["RunFailed after the end", "ended 2 times"]);

        let mut doubled = good.clone();
        doubled.insert(2, entry(3, "AttemptOutcomeRecorded", "a", "x", "Succeeded"));
        doubled[3].number = 4;
        assert_eq!(faults(&doubled, &["a"]), ["attempt x has 2 outcomes", "step a succeeded 2 times"]);

        assert_eq!(faults(&good[..2], &["a", "b"]), ["ended 0 times", "step b succeeded 0 times"]);
    }
}
