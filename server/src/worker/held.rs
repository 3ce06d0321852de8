//! The attempts this worker holds: being done, or done and not yet taken by the silo.

use granary_proto::v1;
use std::collections::HashMap;
use tokio_util::sync::CancellationToken;

#[derive(Default)]
pub struct HeldAttempts {
    by_id: HashMap<String, Held>,
}

pub struct Held {
    pub run_id: String,
    pub lease_token: Vec<u8>,
    pub interrupt: CancellationToken,
    pub stage: Stage,
}

pub enum Stage {
    /// Begun in an earlier life of this worker; goes on when the silo has confirmed the lease.
    Resumable(Box<v1::Assignment>),
    Running,
    /// The report waits for the silo's word.
    Done(Box<v1::Report>),
    /// Taken away: whatever comes of it is thrown away.
    Lost,
}

impl HeldAttempts {
    /// False if it is held already: the silo repeats an assignment when it is not sure that it arrived.
    pub fn take(&mut self, assignment: &v1::Assignment, interrupt: CancellationToken) -> bool {
        if let Some(held) = self.by_id.get_mut(&assignment.attempt_id)
            && !matches!(held.stage, Stage::Lost)
        {
            // The newest token is the one in force.
            held.lease_token.clone_from(&assignment.lease_token);
            if let Stage::Done(report) = &mut held.stage {
                report.lease_token.clone_from(&assignment.lease_token);
            }
            return false;
        }
        self.put(assignment, interrupt, Stage::Running);
        true
    }

    pub fn put(&mut self, assignment: &v1::Assignment, interrupt: CancellationToken, stage: Stage) {
        let held =
            Held { run_id: assignment.run_id.clone(), lease_token: assignment.lease_token.clone(), interrupt, stage };
        self.by_id.insert(assignment.attempt_id.clone(), held);
    }

    /// The handler is through. Gives the report to send, or nothing if the attempt is no longer ours.
    pub fn finish(&mut self, mut report: v1::Report) -> Option<v1::Report> {
        let held = self.by_id.get_mut(&report.attempt_id)?;
        if matches!(held.stage, Stage::Lost) {
            self.by_id.remove(&report.attempt_id);
            return None;
        }
        report.lease_token.clone_from(&held.lease_token);
        held.stage = Stage::Done(Box::new(report.clone()));
        Some(report)
    }

    /// The silo says that it is not ours. Gives true if nothing more will come of it here.
    pub fn lose(&mut self, attempt: &str) -> bool {
        let Some(held) = self.by_id.get_mut(attempt) else { return false };
        held.interrupt.cancel();
        let was_running = matches!(held.stage, Stage::Running);
        held.stage = Stage::Lost;
        if !was_running {
            self.by_id.remove(attempt);
        }
        !was_running
    }

    pub fn interrupt(&self, attempt: &str) {
        if let Some(held) = self.by_id.get(attempt) {
            held.interrupt.cancel();
        }
    }

    pub fn forget(&mut self, attempt: &str) {
        self.by_id.remove(attempt);
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub fn hello(&self) -> Vec<v1::Held> {
        self.ours()
            .map(|(id, held)| v1::Held {
                attempt_id: id.clone(),
                run_id: held.run_id.clone(),
                lease_token: held.lease_token.clone(),
            })
            .collect()
    }

    pub fn ids(&self) -> Vec<String> {
        self.ours().map(|(id, _)| id.clone()).collect()
    }

    pub fn reports(&self) -> Vec<v1::Report> {
        self.by_id
            .values()
            .filter_map(|held| if let Stage::Done(r) = &held.stage { Some((**r).clone()) } else { None })
            .collect()
    }

    pub fn report_of(&self, attempt: &str) -> Option<v1::Report> {
        match &self.by_id.get(attempt)?.stage {
            Stage::Done(report) => Some((**report).clone()),
            _ => None,
        }
    }

    /// Those that may go on now; they count as running from here.
    pub fn resume(&mut self) -> Vec<(v1::Assignment, CancellationToken)> {
        let resumable = self.by_id.values_mut().filter(|held| matches!(held.stage, Stage::Resumable(_)));
        resumable
            .filter_map(|held| match std::mem::replace(&mut held.stage, Stage::Running) {
                Stage::Resumable(assignment) => Some((*assignment, held.interrupt.clone())),
                _ => None,
            })
            .collect()
    }

    fn ours(&self) -> impl Iterator<Item = (&String, &Held)> {
        self.by_id.iter().filter(|(_, held)| !matches!(held.stage, Stage::Lost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assignment(token: &[u8]) -> v1::Assignment {
        v1::Assignment { attempt_id: "a".to_owned(), lease_token: token.to_vec(), ..Default::default() }
    }

    fn report() -> v1::Report {
        v1::Report { attempt_id: "a".to_owned(), ..Default::default() }
    }

    #[test]
    fn a_repeated_assignment_is_not_done_twice_but_brings_the_new_token() {
        let mut held = HeldAttempts::default();
        assert!(held.take(&assignment(b"1"), CancellationToken::new()));
        assert!(!held.take(&assignment(b"2"), CancellationToken::new()));
        assert_eq!(held.finish(report()).map(|r| r.lease_token), Some(b"2".to_vec()));
        assert!(!held.take(&assignment(b"3"), CancellationToken::new()));
        assert_eq!(held.report_of("a").map(|r| r.lease_token), Some(b"3".to_vec()));
    }

    #[test]
    fn what_comes_of_a_lost_attempt_is_thrown_away() {
        let mut held = HeldAttempts::default();
        let interrupt = CancellationToken::new();
        held.take(&assignment(b"1"), interrupt.clone());
        assert!(!held.lose("a"), "it is still running");
        assert!(interrupt.is_cancelled() && held.ids().is_empty() && !held.is_empty());
        assert_eq!(held.finish(report()), None);
        assert!(held.is_empty());
    }

    #[test]
    fn a_lost_report_is_forgotten_at_once() {
        let mut held = HeldAttempts::default();
        held.take(&assignment(b"1"), CancellationToken::new());
        held.finish(report());
        assert!(held.lose("a") && held.is_empty());
    }

    #[test]
    fn what_waits_for_the_silos_word_resumes_once() {
        let mut held = HeldAttempts::default();
        held.put(&assignment(b"1"), CancellationToken::new(), Stage::Resumable(Box::new(assignment(b"1"))));
        assert_eq!(held.resume().len(), 1);
        assert_eq!(held.resume().len(), 0);
        assert_eq!(held.ids(), ["a"]);
    }
}
