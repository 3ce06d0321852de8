//! Commands that outlived the worker that started them.
//!
//! After a SIGKILL of the worker its commands go on. Before such an attempt is done again, or called uncertain, what is
//! left of it is stopped; it is known by the attempt id in its environment, so that a reused process id cannot be hit.

use super::command::{ATTEMPT_VARIABLE, kill_group};

/// Kills the process groups that work on this attempt. Gives how many there were. Where there is no `/proc` it finds none.
pub fn stop(attempt_id: &str) -> usize {
    let mark = format!("{ATTEMPT_VARIABLE}={attempt_id}");
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let mut groups: Vec<i32> = pids.filter(|pid| is_marked(*pid, &mark)).filter_map(group_of).collect();
    groups.sort_unstable();
    groups.dedup();
    groups.iter().for_each(|group| kill_group(*group));
    groups.len()
}

fn is_marked(pid: i32, mark: &str) -> bool {
    // Processes of other users cannot be read, and are not ours.
    std::fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|bytes| bytes.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()))
}

fn group_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name: state, parent, group.
    stat.get(stat.rfind(')')? + 1..)?.split_whitespace().nth(2)?.parse().ok()
}
