//! CPU time and memory of a process, from `/proc`.

use std::time::Duration;

/// Clock ticks a second in `/proc/PID/stat`. The kernel gives user space this unit on every architecture we run on.
const TICKS_PER_SECOND: u64 = 100;

#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct Usage {
    pub cpu: Duration,
    /// Most resident memory so far.
    pub peak_rss_bytes: u64,
    /// Resident memory now.
    pub rss_bytes: u64,
}

/// `None` if the process is gone.
pub fn of(pid: u32) -> Option<Usage> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    Some(Usage {
        cpu: cpu_of(&stat)?,
        peak_rss_bytes: kilobytes(&status, "VmHWM:").unwrap_or(0) * 1024,
        rss_bytes: kilobytes(&status, "VmRSS:").unwrap_or(0) * 1024,
    })
}

/// User and system time. The name in brackets may hold blanks and brackets itself, so fields count from the last bracket.
fn cpu_of(stat: &str) -> Option<Duration> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis((user + system) * 1_000 / TICKS_PER_SECOND))
}

fn kilobytes(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_read_behind_a_difficult_name() {
        let stat = "42 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0";
        assert_eq!(cpu_of(stat), Some(Duration::from_secs(2)));
        assert_eq!(cpu_of("nonsense"), None);
    }

    #[test]
    fn this_process_has_memory() {
        let usage = of(std::process::id()).expect("this process lives");
        assert!(usage.peak_rss_bytes >= usage.rss_bytes && usage.rss_bytes > 0);
        assert_eq!(of(u32::MAX), None);
    }
}
