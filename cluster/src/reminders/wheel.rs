//! The reminders of one shard that are due soon, in memory. Pure: time and rows are handed in.
//!
//! Rows are the truth; the wheel is a window on them. It holds what is due up to `scanned_until`; what is due later stays on
//! disk until the window moves there, so a million future reminders cost nothing here, and the number of scans follows time,
//! not the number of settings. A setting inside the window comes in with its commit; one outside is left to a later scan.
//! What is being fired is kept apart from what is armed: a setting that comes while the old one fires is armed beside it, and
//! one that was cleared meanwhile is not armed again when the firing fails.

use grain_contract::{GrainId, Timestamp};
use shard::ReminderRecord;
use std::collections::{BTreeMap, HashMap};

/// Which reminder.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Key {
    pub grain: GrainId,
    pub name: String,
}

/// What a committed turn did to a reminder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Set(Key, Timestamp),
    Cleared(Key),
    /// It stood in the rows when its grain was read. That heals what a commit did whose outcome was not known: it set a
    /// reminder that nobody told the wheel of, behind where scans have been.
    Stands(Key, Timestamp),
}

/// One reminder on its way to its grain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Firing {
    pub key: Key,
    pub due: Timestamp,
    pub tries: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Armed {
    fire_at: Timestamp,
    due: Timestamp,
    tries: u32,
}

pub(crate) struct Wheel {
    /// In order of firing; the number keeps equal moments apart and in order of arming.
    order: BTreeMap<(Timestamp, u64), Key>,
    armed: HashMap<Key, (Armed, u64)>,
    firing: HashMap<Key, Timestamp>,
    counter: u64,
    scanned_until: Timestamp,
    /// Where a scan that was cut off at its limit goes on.
    resume: Option<ReminderRecord>,
}

impl Default for Wheel {
    fn default() -> Self {
        Self {
            order: BTreeMap::new(),
            armed: HashMap::new(),
            firing: HashMap::new(),
            counter: 0,
            scanned_until: Timestamp(i64::MIN),
            resume: None,
        }
    }
}

impl Wheel {
    pub(crate) fn apply(&mut self, change: Change) {
        match change {
            Change::Set(key, due) if due <= self.scanned_until => self.arm(key, due, due, 0),
            Change::Set(key, _) => {
                self.disarm(&key);
                self.firing.remove(&key);
            }
            Change::Cleared(key) => {
                self.disarm(&key);
                self.firing.remove(&key);
            }
            Change::Stands(key, due) if due <= self.scanned_until => self.arm_if_new(key, due),
            Change::Stands(..) => {}
        }
    }

    /// What is armed or firing already keeps its place and its pause.
    fn arm_if_new(&mut self, key: Key, due: Timestamp) {
        let known =
            self.firing.get(&key) == Some(&due) || self.armed.get(&key).is_some_and(|(armed, _)| armed.due == due);
        if !known {
            self.arm(key, due, due, 0);
        }
    }

    /// Whether rows should be read: the window ends before `until`, or the last scan was cut off and there is room again.
    pub(crate) fn wants_scan(&self, until: Timestamp, armed_max: usize) -> bool {
        self.armed.len() < armed_max && (self.resume.is_some() || self.scanned_until < until)
    }

    /// Behind which record the next scan starts.
    pub(crate) fn scan_after(&self) -> Option<ReminderRecord> {
        // Rows at exactly the end of the window are read twice; arming twice is arming once.
        self.resume.clone().or_else(|| {
            (self.scanned_until > Timestamp(i64::MIN)).then(|| ReminderRecord {
                due: self.scanned_until,
                grain: GrainId::new(&"".into(), &"".into(), ""),
                name: String::new(),
            })
        })
    }

    /// Takes the rows of a scan up to `until` that stopped at `limit`.
    pub(crate) fn scanned(&mut self, records: Vec<ReminderRecord>, until: Timestamp, limit: usize) {
        if records.len() >= limit {
            self.resume = records.last().cloned();
            self.scanned_until = records.last().map_or(until, |last| last.due);
        } else {
            self.resume = None;
            self.scanned_until = until;
        }
        for record in records {
            self.arm_if_new(Key { grain: record.grain, name: record.name }, record.due);
        }
    }

    /// The next one due at `now`, which is then firing.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<Firing> {
        let entry = self.order.first_entry()?;
        if entry.key().0 > now {
            return None;
        }
        let key = entry.remove();
        let (armed, _) = self.armed.remove(&key)?;
        self.firing.insert(key.clone(), armed.due);
        Some(Firing { key, due: armed.due, tries: armed.tries })
    }

    /// The grain took it.
    pub(crate) fn fired(&mut self, firing: &Firing) {
        if self.firing.get(&firing.key) == Some(&firing.due) {
            self.firing.remove(&firing.key);
        }
    }

    /// The grain could not take it now: again at `at`, unless it was cleared or set anew meanwhile.
    pub(crate) fn failed(&mut self, firing: Firing, at: Timestamp) {
        if self.firing.get(&firing.key) != Some(&firing.due) {
            return;
        }
        self.firing.remove(&firing.key);
        if !self.armed.contains_key(&firing.key) {
            self.arm(firing.key, firing.due, at, firing.tries + 1);
        }
    }

    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.order.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn armed(&self) -> usize {
        self.armed.len()
    }

    /// How many of the armed are due, counted up to `limit`, and the earliest moment at which one should have fired.
    pub(crate) fn overdue(&self, now: Timestamp, limit: usize) -> (usize, Option<Timestamp>) {
        let due = self.order.range(..=(now, u64::MAX)).take(limit).count();
        (due, self.next_at().filter(|at| *at <= now))
    }

    fn arm(&mut self, key: Key, due: Timestamp, fire_at: Timestamp, tries: u32) {
        self.disarm(&key);
        self.counter += 1;
        self.order.insert((fire_at, self.counter), key.clone());
        self.armed.insert(key, (Armed { fire_at, due, tries }, self.counter));
    }

    fn disarm(&mut self, key: &Key) {
        if let Some((armed, number)) = self.armed.remove(key) {
            self.order.remove(&(armed.fire_at, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key { grain: GrainId::new(&"acme".into(), &"toy".into(), "k"), name: name.to_owned() }
    }

    fn record(name: &str, due: i64) -> ReminderRecord {
        ReminderRecord { due: Timestamp(due), grain: key(name).grain, name: name.to_owned() }
    }

    fn scanned_to(until: i64) -> Wheel {
        let mut wheel = Wheel::default();
        wheel.scanned(Vec::new(), Timestamp(until), 10);
        wheel
    }

    /// [FR-094] Memory holds one timer a name, however often it is set.
    #[test]
    fn two_hundred_thousand_settings_of_one_name_are_one_armed_timer() {
        let mut wheel = scanned_to(1_000_000);
        for n in 0..200_000 {
            wheel.apply(Change::Set(key("a"), Timestamp(n)));
        }
        assert_eq!((wheel.armed(), wheel.order.len()), (1, 1));
        assert_eq!(wheel.next_at(), Some(Timestamp(199_999)));
    }

    /// [R7] Never early.
    #[test]
    fn nothing_is_due_before_its_moment() {
        let mut wheel = scanned_to(100);
        wheel.apply(Change::Set(key("a"), Timestamp(50)));
        assert_eq!(wheel.pop_due(Timestamp(49)), None);
        assert_eq!(wheel.pop_due(Timestamp(50)).map(|f| f.due), Some(Timestamp(50)));
        assert_eq!(wheel.pop_due(Timestamp(50)), None);
    }

    /// [FR-200] What is due behind the window takes no memory and no scan of its own.
    #[test]
    fn a_setting_behind_the_window_is_left_to_a_later_scan() {
        let mut wheel = scanned_to(100);
        for n in 0..10_000 {
            wheel.apply(Change::Set(key(&n.to_string()), Timestamp(86_400_000)));
        }
        assert_eq!(wheel.armed(), 0);
        assert!(!wheel.wants_scan(Timestamp(100), 10));
        assert!(wheel.wants_scan(Timestamp(101), 10));
    }

    /// [FR-006] Due in the past when it is read: due at once.
    #[test]
    fn an_overdue_row_is_due_at_once() {
        let mut wheel = Wheel::default();
        wheel.scanned(vec![record("a", 5)], Timestamp(1_000), 10);
        assert_eq!(wheel.pop_due(Timestamp(900)).map(|f| f.due), Some(Timestamp(5)));
    }

    /// [FR-100] Cleared while it fires: a failed firing does not bring it back.
    #[test]
    fn what_was_cleared_while_firing_is_not_armed_again() {
        let mut wheel = scanned_to(100);
        wheel.apply(Change::Set(key("a"), Timestamp(5)));
        let firing = wheel.pop_due(Timestamp(5)).expect("due");
        wheel.apply(Change::Cleared(key("a")));
        wheel.failed(firing, Timestamp(50));
        assert_eq!(wheel.next_at(), None);
    }

    #[test]
    fn what_was_set_anew_while_firing_fires_at_its_new_moment_only() {
        let mut wheel = scanned_to(100);
        wheel.apply(Change::Set(key("a"), Timestamp(5)));
        let firing = wheel.pop_due(Timestamp(5)).expect("due");
        wheel.apply(Change::Set(key("a"), Timestamp(80)));
        wheel.failed(firing, Timestamp(50));
        assert_eq!(wheel.next_at(), Some(Timestamp(80)));
    }

    #[test]
    fn a_failed_firing_is_tried_again_later_with_its_own_due_time() {
        let mut wheel = scanned_to(100);
        wheel.apply(Change::Set(key("a"), Timestamp(5)));
        let firing = wheel.pop_due(Timestamp(5)).expect("due");
        wheel.failed(firing, Timestamp(50));
        assert_eq!(wheel.pop_due(Timestamp(49)), None);
        let again = wheel.pop_due(Timestamp(50)).expect("due again");
        assert_eq!((again.due, again.tries), (Timestamp(5), 1));
    }

    /// [FR-084] A flood is read in pages.
    #[test]
    fn a_scan_that_was_cut_off_goes_on_when_there_is_room() {
        let mut wheel = Wheel::default();
        wheel.scanned(vec![record("a", 5), record("b", 5)], Timestamp(1_000), 2);
        assert!(!wheel.wants_scan(Timestamp(1_000), 2), "full");
        wheel.pop_due(Timestamp(5)).expect("due");
        assert!(wheel.wants_scan(Timestamp(1_000), 2));
        assert_eq!(wheel.scan_after(), Some(record("b", 5)));
        wheel.scanned(vec![record("c", 5)], Timestamp(1_000), 2);
        assert_eq!(wheel.scan_after().map(|r| r.due), Some(Timestamp(1_000)));
    }

    /// What stands in the rows of a grain that is read: armed if the wheel should know it and does not.
    #[test]
    fn what_stands_is_armed_once_and_keeps_its_pause() {
        let mut wheel = scanned_to(100);
        wheel.apply(Change::Stands(key("later"), Timestamp(101)));
        assert_eq!(wheel.armed(), 0, "a scan will find it");
        wheel.apply(Change::Stands(key("a"), Timestamp(5)));
        wheel.apply(Change::Stands(key("a"), Timestamp(5)));
        assert_eq!((wheel.armed(), wheel.order.len()), (1, 1));
        let firing = wheel.pop_due(Timestamp(5)).expect("due");
        wheel.apply(Change::Stands(key("a"), Timestamp(5)));
        assert_eq!(wheel.armed(), 0, "it is on its way");
        wheel.failed(firing, Timestamp(50));
        wheel.apply(Change::Stands(key("a"), Timestamp(5)));
        assert_eq!(wheel.next_at(), Some(Timestamp(50)));
        wheel.apply(Change::Stands(key("a"), Timestamp(9)));
        assert_eq!(wheel.next_at(), Some(Timestamp(9)), "it was moved");
    }

    #[test]
    fn a_row_read_again_while_it_fires_is_not_armed_twice() {
        let mut wheel = Wheel::default();
        wheel.scanned(vec![record("a", 5)], Timestamp(5), 10);
        let firing = wheel.pop_due(Timestamp(5)).expect("due");
        wheel.scanned(vec![record("a", 5)], Timestamp(100), 10);
        assert_eq!(wheel.armed(), 0);
        wheel.fired(&firing);
        assert_eq!(wheel.firing.len(), 0);
    }
}
