//! Where the randomness of a simulated process comes from.
//!
//! Hash maps, tokio's `select!`, `rand` and `uuid` all ask the system, by `getrandom`. The test binary puts its own function of
//! that name in the system's place, which asks here: a thread that has a seed gets a stream that follows from it, every other
//! thread gets what the system says.

use super::chance::Chance;
use std::cell::RefCell;

thread_local! {
    static STREAM: RefCell<Option<Chance>> = const { RefCell::new(None) };
}

/// From now on this thread's randomness follows from the seed. To be called before anything else on a new thread.
pub fn seed_this_thread(seed: u64) {
    STREAM.with_borrow_mut(|stream| *stream = Some(Chance::of(seed, "entropy")));
}

/// Fills the buffer if this thread has a seed; says whether it did.
pub fn fill(buffer: &mut [u8]) -> bool {
    let filled = STREAM.try_with(|stream| {
        let Ok(mut stream) = stream.try_borrow_mut() else { return false };
        let Some(chance) = stream.as_mut() else { return false };
        for chunk in buffer.chunks_mut(8) {
            chunk.copy_from_slice(&chance.draw().to_le_bytes()[..chunk.len()]);
        }
        true
    });
    // A thread at its end has no stream any more.
    filled.unwrap_or(false)
}
