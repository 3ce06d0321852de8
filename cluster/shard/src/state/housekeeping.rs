//! Upkeep of a shard's outbox: answered calls go, cursors move, old events are trimmed.

use super::keys::{self, Key};
use super::overlay::Slot;
use bytes::Bytes;
use granary_proto::storage::HousekeepingEntry;

/// Events that one entry trims at most; what is left waits for the next call. [`crate::Shard::outbox_bounds`] tells.
pub const TRIM_MAX: u64 = 10_000;

/// The rows that change, and the lowest event kept afterwards.
pub fn changes(shard: u32, entry: HousekeepingEntry, events_low: u64, outbox_next: u64) -> (Vec<(Key, Slot)>, u64) {
    let mut rows = Vec::new();
    for sequence in entry.calls_done {
        rows.push((keys::call(shard, sequence), Slot::Gone));
    }
    for cursor in entry.cursors {
        let slot =
            if cursor.delete { Slot::Gone } else { Slot::Put(Bytes::copy_from_slice(&cursor.sequence.to_be_bytes())) };
        rows.push((keys::cursor(shard, &cursor.name), slot));
    }
    // Calls share the numbers and stay until they are answered: only event rows go. A number that was a call's has none.
    let upto = entry.trim_events_below.min(outbox_next).min(events_low + TRIM_MAX).max(events_low);
    for sequence in events_low..upto {
        rows.push((keys::event(shard, sequence), Slot::Gone));
    }
    (rows, upto)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trimming_goes_forward_only_and_in_bounds() {
        // trim below, low, next → new low
        let cases = [(0, 1, 10, 1), (5, 1, 10, 5), (3, 5, 10, 5), (99, 5, 10, 10), (50_000, 1, 90_000, 1 + TRIM_MAX)];
        for (trim_events_below, low, next, expected) in cases {
            let entry = HousekeepingEntry { trim_events_below, ..HousekeepingEntry::default() };
            let (rows, upto) = changes(0, entry, low, next);
            assert_eq!((upto, rows.len() as u64), (expected, expected - low));
        }
    }
}
