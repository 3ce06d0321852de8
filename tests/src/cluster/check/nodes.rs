//! What the nodes themselves said: none panicked, no service had to be started again, nothing was refused as broken.

/// Lines of a node's log that no trial may bring about.
pub fn log_faults(name: &str, log: &str) -> Vec<String> {
    let bad = |line: &&str| {
        line.contains("panicked at") || line.contains("quarantine") || line.contains("has overflowed its stack")
    };
    log.lines().filter(bad).map(|line| format!("{name} said: {line}")).collect()
}

/// Counters that must stand at zero, in Prometheus' text form.
pub fn metrics_faults(name: &str, metrics: &str) -> Vec<String> {
    let zero = [
        "granary_service_restarts_total",
        "granary_rejections_total{code=\"internal\"}",
        "granary_rejections_total{code=\"quarantined\"}",
    ];
    let mut faults = Vec::new();
    for line in metrics.lines() {
        let Some((counter, value)) = line.rsplit_once(' ') else { continue };
        if zero.contains(&counter) && value.parse() != Ok(0.0) {
            faults.push(format!("{name} counts {counter} = {value}"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_and_a_started_again_service_are_found() {
        assert_eq!(log_faults("n", "INFO fine\nthread 'x' panicked at src/a.rs:1").len(), 1);
        assert_eq!(metrics_faults("n", "granary_service_restarts_total 1\ngranary_workers 3").len(), 1);
        assert!(metrics_faults("n", "granary_service_restarts_total 0\n# HELP x y").is_empty());
    }
}
