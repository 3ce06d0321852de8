//! The figures, for people and for programs.

use crate::proof::Mismatch;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Run ids that are printed of each kind of fault.
const SHOWN_MAX: usize = 20;

#[derive(Serialize, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// "open 50/s for 60 s" or "closed 256".
    pub load: String,
    pub steps_per_run: u32,
    pub payload_bytes: usize,
    pub runs: u64,
    pub completed: u64,
    pub seconds: f64,
    pub runs_per_second: f64,
    pub steps_per_second: f64,
    pub latency_ms: Latency,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds_per_1000_steps: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<Memory>,
    pub submission_retries: u64,
    /// The same by what they failed with. Each was made again and succeeded, or is among the refused of the proof.
    pub failed_tries: BTreeMap<String, u64>,
    /// Silos of the cluster that was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// Longest time in which no run ended at all.
    pub longest_gap_ms: f64,
    pub stall_ms: Stall,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultReport>,
    /// Of several faults: their longest times without an end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault_gap_ms: Option<FaultGaps>,
    /// Open loop: runs that were due while too many were unanswered.
    pub left_out: u64,
    pub redelivered_events: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    pub proof: ProofReport,
}

/// How long single runs stood still: of each run the longest time between two entries of its journal.
#[derive(Serialize, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Stall {
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
    /// Runs that stood still for longer than half a second.
    pub above_half_a_second: u64,
}

#[derive(Serialize, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct FaultReport {
    pub what: String,
    pub node: String,
    /// Shards that it led.
    pub leads: u32,
    pub after_runs: u64,
    pub at_seconds: f64,
    /// Longest time in which no run ended, from the fault to the next one or the end.
    pub longest_gap_ms: f64,
}

#[derive(Serialize, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FaultGaps {
    pub p50: f64,
    pub max: f64,
}

#[derive(Serialize, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct Latency {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
    pub mean: f64,
}

#[derive(Serialize, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct Cpu {
    pub server: f64,
    pub worker: f64,
    pub client: f64,
    pub server_and_worker: f64,
}

#[derive(Serialize, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    pub server_peak: f64,
    pub server_at_end: f64,
    pub worker_peak: f64,
    pub client_peak: f64,
}

#[derive(Serialize, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct Recovery {
    pub killed_after_runs: u64,
    pub in_flight: usize,
    /// From the start of the new process to its first answer.
    pub first_answer_ms: f64,
    /// From the start of the new process until all runs that had been in flight were complete.
    pub all_complete_ms: f64,
}

#[derive(Serialize, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct ProofReport {
    pub runs: u64,
    pub journal_entries: u64,
    pub seconds: f64,
    pub mismatches: Vec<Mismatch>,
    pub lost: Vec<String>,
    pub not_completed: Vec<String>,
    pub ended_twice: Vec<String>,
    pub refused: Vec<Mismatch>,
}

impl Stall {
    pub fn of(stalls: &[u64]) -> Self {
        let mut sorted = stalls.to_vec();
        sorted.sort_unstable();
        let at = |share: f64| {
            let last = sorted.len().saturating_sub(1);
            sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(0)
        };
        let above = sorted.len() - sorted.partition_point(|ms| *ms <= 500);
        Self { p50: at(0.5), p99: at(0.99), max: at(1.0), above_half_a_second: above as u64 }
    }
}

impl FaultGaps {
    /// `None` for one fault, which says it all itself.
    pub fn of(faults: &[FaultReport]) -> Option<Self> {
        let mut gaps: Vec<f64> = faults.iter().map(|fault| fault.longest_gap_ms).collect();
        gaps.sort_by(f64::total_cmp);
        let max = *gaps.last().filter(|_| gaps.len() > 1)?;
        Some(Self { p50: gaps[(gaps.len() - 1) / 2], max })
    }
}

impl Latency {
    /// From microseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1_000.0;
        Self {
            p50: at(0.50),
            p95: at(0.95),
            p99: at(0.99),
            max: histogram.max() as f64 / 1_000.0,
            mean: histogram.mean() / 1_000.0,
        }
    }
}

impl Report {
    pub fn is_good(&self) -> bool {
        let proof = &self.proof;
        self.left_out == 0
            && self.runs > 0
            && proof.mismatches.is_empty()
            && proof.lost.is_empty()
            && proof.not_completed.is_empty()
            && proof.ended_twice.is_empty()
            && proof.refused.is_empty()
    }

    pub fn as_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("the report holds only numbers, strings and lists")
    }

    pub fn as_text(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_figures(&mut out);
        let _ = self.write_proof(&mut out);
        out
    }

    fn write_figures(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "load        {}, {} steps a run, {} bytes a step",
            self.load, self.steps_per_run, self.payload_bytes
        )?;
        writeln!(out, "runs        {} of {} completed in {:.1} s", self.completed, self.runs, self.seconds)?;
        writeln!(out, "throughput  {:.1} runs/s, {:.0} steps/s", self.runs_per_second, self.steps_per_second)?;
        let l = &self.latency_ms;
        writeln!(
            out,
            "latency     p50 {:.1} ms   p95 {:.1} ms   p99 {:.1} ms   max {:.1} ms   (from the intended start)",
            l.p50, l.p95, l.p99, l.max
        )?;
        if let Some(c) = &self.cpu_seconds_per_1000_steps {
            writeln!(
                out,
                "cpu         server {:.3}   worker {:.3}   client {:.3}   server + worker {:.3}   (s per 1,000 steps)",
                c.server, c.worker, c.client, c.server_and_worker
            )?;
        }
        if let Some(m) = &self.memory_mb {
            writeln!(
                out,
                "memory      server peak {:.0} MB, now {:.0} MB   worker {:.0} MB   client {:.0} MB",
                m.server_peak, m.server_at_end, m.worker_peak, m.client_peak
            )?;
        }
        if let Some(r) = &self.recovery {
            writeln!(
                out,
                "recovery    killed after {} runs with {} in flight: first answer {:.0} ms, all complete {:.0} ms after the restart",
                r.killed_after_runs, r.in_flight, r.first_answer_ms, r.all_complete_ms
            )?;
        }
        for f in &self.faults {
            writeln!(
                out,
                "fault       {} of {} (leading {}) after {} runs, {:.1} s: longest time without an end {:.0} ms",
                f.what, f.node, f.leads, f.after_runs, f.at_seconds, f.longest_gap_ms
            )?;
        }
        if let Some(gaps) = &self.fault_gap_ms {
            let count = self.faults.len();
            writeln!(
                out,
                "faults      {count}: longest time without an end p50 {:.0} ms, max {:.0} ms",
                gaps.p50, gaps.max
            )?;
        }
        let s = &self.stall_ms;
        writeln!(
            out,
            "stood still at most {:.0} ms with no run ending; one run: p50 {} ms   p99 {} ms   max {} ms   ({} above 500 ms)",
            self.longest_gap_ms, s.p50, s.p99, s.max, s.above_half_a_second
        )?;
        let failed: Vec<String> = self.failed_tries.iter().map(|(code, n)| format!("{code} {n}")).collect();
        if !failed.is_empty() {
            writeln!(out, "tries       failed and made again: {}", failed.join(", "))?;
        }
        writeln!(
            out,
            "besides     {} submissions tried again, {} events redelivered, {} starts left out",
            self.submission_retries, self.redelivered_events, self.left_out
        )
    }

    fn write_proof(&self, out: &mut String) -> std::fmt::Result {
        let p = &self.proof;
        writeln!(out, "proof       {} journals, {} entries read in {:.1} s", p.runs, p.journal_entries, p.seconds)?;
        let ids = |list: &[String]| list.iter().take(SHOWN_MAX).cloned().collect::<Vec<_>>().join(" ");
        for (what, list) in
            [("never ended", &p.lost), ("not completed", &p.not_completed), ("ended twice", &p.ended_twice)]
        {
            if !list.is_empty() {
                writeln!(out, "  {what}: {} ({})", list.len(), ids(list))?;
            }
        }
        for (what, list) in [("refused", &p.refused), ("wrong", &p.mismatches)] {
            for entry in list.iter().take(SHOWN_MAX) {
                writeln!(out, "  {what}: {} {}", entry.run_id, entry.what)?;
            }
            if list.len() > SHOWN_MAX {
                writeln!(out, "  {what}: and {} more", list.len() - SHOWN_MAX)?;
            }
        }
        let verdict =
            if self.is_good() { "every run ended exactly once, every step was done exactly once" } else { "NOT GOOD" };
        writeln!(out, "verdict     {verdict}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_run_is_not_good() {
        let mut report = Report { runs: 1, completed: 1, ..Default::default() };
        assert!(report.is_good());
        report.proof.lost.push("r".to_owned());
        assert!(!report.is_good() && report.as_text().contains("never ended: 1 (r)"));
    }

    #[test]
    fn stalls_are_summed_up() {
        let stalls: Vec<u64> = (1..=100).map(|n| n * 10).collect();
        assert_eq!(Stall::of(&stalls), Stall { p50: 510, p99: 990, max: 1_000, above_half_a_second: 50 });
        assert_eq!(Stall::of(&[]), Stall::default());
    }

    #[test]
    fn several_faults_are_summed_up() {
        let fault = |longest_gap_ms| FaultReport { longest_gap_ms, ..FaultReport::default() };
        assert_eq!(FaultGaps::of(&[fault(5.0)]), None);
        let several = [fault(900.0), fault(1_200.0), fault(700.0), fault(1_000.0)];
        assert_eq!(FaultGaps::of(&several), Some(FaultGaps { p50: 900.0, max: 1_200.0 }));
    }

    #[test]
    fn the_json_is_one_object() {
        let value: serde_json::Value = serde_json::from_str(&Report::default().as_json()).expect("json");
        assert!(value["latencyMs"]["p99"].is_number() && value["proof"]["lost"].is_array());
    }
}
