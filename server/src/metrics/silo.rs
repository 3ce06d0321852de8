//! The silo's own counters in Prometheus' text form.

use cluster::MetricsSnapshot;
use cluster::metrics::COMMIT_MICROS;
use std::fmt::Write as _;

/// Name, kind, help, value.
type Row = (&'static str, &'static str, &'static str, fn(&MetricsSnapshot) -> u64);

const ROWS: [Row; 30] = [
    ("granary_activations", "gauge", "Grains in memory.", |m| m.activations),
    ("granary_activations_created_total", "counter", "Grains loaded.", |m| m.activations_created),
    ("granary_activations_dropped_total", "counter", "Grains that left memory.", |m| m.activations_dropped),
    ("granary_activation_bytes", "gauge", "Memory held by grains, roughly.", |m| m.activation_bytes),
    ("granary_calls_in_progress", "gauge", "Calls that are not answered yet.", |m| m.calls_in_progress),
    ("granary_hops_total", "counter", "Calls put to an owner on another silo.", |m| m.hops),
    ("granary_hops_failed_total", "counter", "Those without an owner there or without an answer.", |m| m.hops_failed),
    ("granary_hops_served_total", "counter", "Calls of other silos taken here.", |m| m.hops_served),
    ("granary_turns_total", "counter", "Turns of grains.", |m| m.turns),
    ("granary_turns_reloaded_total", "counter", "Turns decided again after a reload.", |m| m.turns_reloaded),
    ("granary_reminders_armed", "gauge", "Reminders in the wheel.", |m| m.reminders_armed),
    ("granary_reminders_fired_total", "counter", "Reminders fired.", |m| m.reminders_fired),
    ("granary_reminders_overdue", "gauge", "Reminders due and not fired yet.", |m| m.reminders_overdue),
    ("granary_reminder_oldest_overdue_ms", "gauge", "Age of the oldest of them.", |m| m.reminder_oldest_overdue_ms),
    ("granary_reminder_scans_total", "counter", "Scans of the reminder table.", |m| m.reminder_scans),
    ("granary_outbox_calls_open", "gauge", "Calls between grains not answered yet.", |m| m.outbox_calls_open),
    ("granary_outbox_calls_delivered_total", "counter", "Calls between grains answered.", |m| m.outbox_calls_delivered),
    ("granary_outbox_retries_total", "counter", "Calls between grains tried again.", |m| m.outbox_retries),
    ("granary_event_reader_lag", "gauge", "Events before the slowest connected reader.", |m| m.event_reader_lag),
    ("granary_work_queued", "gauge", "Attempts that wait for a worker.", |m| m.work_queued),
    ("granary_relay_assigned_total", "counter", "Attempts taken by workers of other silos.", |m| m.relay_assigned),
    ("granary_relay_refused_total", "counter", "Attempts that found no place there.", |m| m.relay_refused),
    ("granary_relay_unanswered_total", "counter", "Requests to take attempts without an answer.", |m| {
        m.relay_unanswered
    }),
    ("granary_relay_tellings_total", "counter", "Messages about the workers here.", |m| m.relay_tellings),
    ("granary_relay_far_places", "gauge", "Free places of workers at other silos.", |m| m.relay_far_places),
    ("granary_leases", "gauge", "Attempts held by workers.", |m| m.leases),
    ("granary_leases_expired_total", "counter", "Leases that ran out.", |m| m.leases_expired),
    ("granary_workers", "gauge", "Connected workers.", |m| m.workers),
    ("granary_service_restarts_total", "counter", "Services of shards started again after a fault.", |m| {
        m.service_restarts
    }),
    ("granary_commits_total", "counter", "Turns committed.", |m| m.commits),
];

pub fn write(m: &MetricsSnapshot, text: &mut String) {
    for (name, kind, help, value) in ROWS {
        head(text, name, kind, help);
        let _ = writeln!(text, "{name} {}", value(m));
    }
    head(text, "granary_rejections_total", "counter", "Refused calls, by code.");
    for (code, count) in &m.rejections {
        let _ = writeln!(text, "granary_rejections_total{{code=\"{code}\"}} {count}");
    }
    commit_latency(m, text);
}

fn commit_latency(m: &MetricsSnapshot, text: &mut String) {
    const NAME: &str = "granary_commit_seconds";
    head(text, NAME, "histogram", "Time from a decided turn to its commit.");
    let mut below = 0;
    for (count, micros) in m.commit_latency.iter().zip(COMMIT_MICROS) {
        below += count;
        let seconds = micros as f64 / 1e6;
        let _ = writeln!(text, "{NAME}_bucket{{le=\"{seconds}\"}} {below}");
    }
    let all: u64 = m.commit_latency.iter().sum();
    let _ = writeln!(text, "{NAME}_bucket{{le=\"+Inf\"}} {all}");
    let _ = writeln!(text, "{NAME}_sum {}", m.commit_micros_sum as f64 / 1e6);
    let _ = writeln!(text, "{NAME}_count {all}");
}

pub(super) fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [P4]
    #[test]
    fn the_commit_histogram_is_cumulated() {
        let mut m = MetricsSnapshot { commit_micros_sum: 1_500_000, ..MetricsSnapshot::default() };
        m.commit_latency[0] = 2;
        m.commit_latency[1] = 3;
        m.commit_latency[COMMIT_MICROS.len()] = 1;
        m.rejections = vec![("overloaded", 4)];
        let mut text = String::new();
        write(&m, &mut text);
        for line in [
            "granary_commit_seconds_bucket{le=\"0.00025\"} 2",
            "granary_commit_seconds_bucket{le=\"0.0005\"} 5",
            "granary_commit_seconds_bucket{le=\"+Inf\"} 6",
            "granary_commit_seconds_sum 1.5",
            "granary_commit_seconds_count 6",
            "granary_rejections_total{code=\"overloaded\"} 4",
            "# TYPE granary_turns_total counter",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
    }
}
