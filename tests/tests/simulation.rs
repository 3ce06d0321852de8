//! Seeds of the simulator (`cluster_tests::sim`): each in a process of its own, whose randomness is the seed's.
//!
//! `cargo xtask sim --seeds N [--from S] [--trace]` runs more of them.

use cluster::sabotage::Sabotage as InSilo;
use cluster_tests::sim::bugs::Bug;
use cluster_tests::sim::sabotage::Sabotage;
use cluster_tests::sim::{Options, Profile, Report, entropy, runner};
use shard::testing::Sabotage as InStore;

/// Stands in the place of the system's function of this name: everything that asks for randomness, the standard library
/// included, asks it here. A thread that simulates gets what its seed says, everybody else what the system says.
///
/// # Safety
/// As of the system's: `buffer` points to `bytes` writable bytes.
#[allow(unsafe_code, reason = "the system's own function is replaced by its C name, in this test binary only")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut u8, bytes: usize, flags: u32) -> isize {
    if !buffer.is_null() && bytes > 0 {
        // SAFETY: the caller's promise.
        let buffer = unsafe { std::slice::from_raw_parts_mut(buffer, bytes) };
        if entropy::fill(buffer) {
            return bytes.cast_signed();
        }
    }
    // SAFETY: the call itself, with the caller's arguments.
    let filled = unsafe { libc::syscall(libc::SYS_getrandom, buffer, bytes, flags) };
    filled as isize
}

/// One seed, if the process was started for one by [`runner`]; nothing otherwise.
#[test]
fn child() {
    runner::child();
}

/// [L4] [K7] A cluster under faults of every kind keeps what it promises.
#[test]
fn seeds() {
    runner::run_as_asked();
}

fn twice(options: &Options) -> (Report, Report) {
    (runner::run(options), runner::run(options))
}

/// The simulator is worth something only if a seed means the same every time.
#[test]
fn a_seed_means_the_same_twice() {
    let (first, second) = twice(&Options::of(4));
    assert!(first.notes > 1_000, "{first:?}");
    assert_eq!(first, second);
}

/// [L4] Without the fence of the epoch.
#[test]
fn a_turn_of_an_old_leadership_that_is_applied_is_found() {
    let words = &["single owner:"];
    let (sabotage, profile) = (Sabotage::Store(InStore::EpochUnchecked), Profile::Restless);
    Bug { sabotage, profile, seeds: 1..=12, words }.is_found();
}

/// [L4] Without the fence of the revision.
#[test]
fn a_turn_that_was_decided_on_old_rows_and_is_applied_is_found() {
    let words = &["revision chain:"];
    let (sabotage, profile) = (Sabotage::Store(InStore::RevisionUnchecked), Profile::Everything);
    Bug { sabotage, profile, seeds: 1..=12, words }.is_found();
}

/// [L4] A named cursor that stands behind what was read, acknowledged or not.
#[test]
fn a_cursor_that_is_ahead_of_its_consumer_is_found() {
    let words = &["events in order:"];
    let (sabotage, profile) = (Sabotage::Silo(InSilo::CursorAhead), Profile::Everything);
    Bug { sabotage, profile, seeds: 1..=12, words }.is_found();
}

/// [L4] Its row goes, and then the process may die before its turn is made.
#[test]
fn a_reminder_that_is_cleared_before_its_turn_is_found() {
    let words = &["reminders once and never early:"];
    let (sabotage, profile) = (Sabotage::Silo(InSilo::ReminderClearedFirst), Profile::PowerCuts);
    Bug { sabotage, profile, seeds: 1..=12, words }.is_found();
}

/// [L4] Without a look for the reply that is stored.
#[test]
fn a_command_that_is_carried_out_again_is_found() {
    let words = &["commands once:", "was done 2 times"];
    let (sabotage, profile) = (Sabotage::Silo(InSilo::CommandRepeated), Profile::Everything);
    Bug { sabotage, profile, seeds: 1..=12, words }.is_found();
}

/// [L4] A power cut makes the node forget whom it has promised its vote.
#[test]
fn a_vote_that_is_given_before_it_is_on_disk_is_found() {
    let words = &["one vote a term:"];
    let (sabotage, profile) = (Sabotage::Store(InStore::VoteUnsynced), Profile::PowerCuts);
    Bug { sabotage, profile, seeds: 1..=12, words }.is_found();
}

/// [L4] One that was frozen or cut off answers from memory what is long past.
#[test]
fn a_stale_read_is_found() {
    let words = &["no stale reads:", "what is there stays there:"];
    let (sabotage, profile) = (Sabotage::Silo(InSilo::ReadUnconfirmed), Profile::Sleepers);
    Bug { sabotage, profile, seeds: 1..=12, words }.is_found();
}
