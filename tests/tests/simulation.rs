//! Seeds of the simulator (`cluster_tests::sim`): each in a process of its own, whose randomness is the seed's.
//!
//! `cargo xtask sim --seeds N [--from S] [--trace]` runs more of them.

use cluster_tests::sim::{Options, Report, entropy, runner};

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
