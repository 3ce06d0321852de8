//! What a turn's entry does to a shard, as a function of the entry, the grain's head and the next outbox number: nothing
//! else is looked at, so every replica and every replay comes to the same rows.

use super::keys::{self, Key};
use super::overlay::Slot;
use bytes::Bytes;
use grain_contract::{GrainId, Timestamp};
use granary_proto::storage::{GrainHead, IndexPut, OutboxRow, ReminderPut, TurnEntry};
use prost::Message;

/// What an accepted turn changes.
#[derive(Debug)]
pub struct Changes {
    pub head: GrainHead,
    /// In order: a later slot of the same key counts.
    pub rows: Vec<(Key, Slot)>,
    pub outbox: Vec<u64>,
}

/// Why a turn was not accepted. It changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fenced {
    pub expected: String,
    pub found: String,
}

/// The place of an entry in the log.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub shard: u32,
    pub term: u64,
    pub index: u64,
}

/// Whether the entry may be applied over this head.
pub fn fence(place: Place, head: &GrainHead, entry: &TurnEntry) -> Result<(), Fenced> {
    if entry.epoch != place.term {
        // Decided under another leadership than the one that appended it.
        return Err(Fenced { expected: format!("epoch {}", entry.epoch), found: format!("epoch {}", place.term) });
    }
    if !head.quarantined.is_empty() {
        return Err(Fenced {
            expected: "a grain in order".into(),
            found: format!("a quarantined one: {}", head.quarantined),
        });
    }
    if head.revision != entry.expected_revision {
        return Err(Fenced {
            expected: format!("revision {}", entry.expected_revision),
            found: format!("revision {}", head.revision),
        });
    }
    Ok(())
}

/// Applies an entry that [`fence`] let through. `grain` is the entry's, read.
pub fn changes(place: Place, grain: &GrainId, mut head: GrainHead, entry: TurnEntry, outbox_next: u64) -> Changes {
    let shard = place.shard;
    let id = &entry.grain;
    let mut rows = Vec::with_capacity(
        entry.puts.len() + entry.deletes.len() + 2 * entry.reminders.len() + entry.index.len() + entry.outbox.len() + 2,
    );
    // A key that is deleted and put in one turn is put.
    for row in &entry.deletes {
        rows.push((keys::row(shard, id, row.table as u8, &row.key), Slot::Gone));
    }
    for row in entry.puts {
        rows.push((keys::row(shard, id, row.table as u8, &row.key), Slot::Put(Bytes::from(row.value))));
    }
    for change in entry.reminders {
        reminder(shard, id, &mut head, change, &mut rows);
    }
    for change in entry.index {
        let IndexPut { index, sort, value, delete } = change;
        let key = keys::index(shard, &index, grain, &sort);
        rows.push((key, if delete { Slot::Gone } else { Slot::Put(Bytes::from(value)) }));
    }
    let mut outbox = Vec::with_capacity(entry.outbox.len());
    for (sequence, message) in (outbox_next..).zip(entry.outbox) {
        let key =
            if message.call_target.is_empty() { keys::event(shard, sequence) } else { keys::call(shard, sequence) };
        let row = OutboxRow {
            grain: id.clone(),
            at_ms: entry.at_ms,
            event: message.event,
            call_target: message.call_target,
            call_method: message.call_method,
            call_body: message.call_body,
            on_rejected: message.on_rejected,
        };
        rows.push((key, Slot::Fresh(Bytes::from(row.encode_to_vec()))));
        outbox.push(sequence);
    }
    if !entry.command_id.is_empty() {
        rows.push((keys::reply(shard, id, &entry.command_id), Slot::Put(Bytes::from(entry.reply))));
    }
    head.revision += 1;
    head.applied_index = place.index;
    rows.push((keys::head(shard, id), Slot::Put(Bytes::from(head.encode_to_vec()))));
    Changes { head, rows, outbox }
}

/// The head remembers what is set, so that moving and clearing need no scan and leave no row behind.
fn reminder(shard: u32, grain: &[u8], head: &mut GrainHead, change: ReminderPut, rows: &mut Vec<(Key, Slot)>) {
    let found = head.reminders.binary_search_by(|set| set.name.cmp(&change.name));
    if let Ok(at) = found {
        let set = &head.reminders[at];
        if !change.clear && set.due_ms == change.due_ms {
            return;
        }
        rows.push((keys::reminder(shard, Timestamp(set.due_ms), grain, &set.name), Slot::Gone));
    }
    if !change.clear {
        rows.push((keys::reminder(shard, Timestamp(change.due_ms), grain, &change.name), Slot::Put(Bytes::new())));
    }
    match (found, change.clear) {
        (Ok(at), true) => {
            head.reminders.remove(at);
        }
        (Ok(at), false) => head.reminders[at] = change,
        (Err(at), false) => head.reminders.insert(at, change),
        (Err(_), true) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use granary_proto::storage::{OutboxPut, RowDelete, RowPut};
    use std::collections::BTreeMap;

    const PLACE: Place = Place { shard: 2, term: 7, index: 40 };

    fn grain() -> GrainId {
        GrainId::new(&"acme".into(), &"run".into(), "k")
    }

    fn entry() -> TurnEntry {
        TurnEntry { grain: grain().storage_bytes(), epoch: 7, expected_revision: 3, at_ms: 11, ..TurnEntry::default() }
    }

    fn head(reminders: &[(&str, i64)]) -> GrainHead {
        let reminders = reminders.iter().map(|(name, due)| set(name, *due)).collect();
        GrainHead { revision: 3, reminders, applied_index: 30, ..GrainHead::default() }
    }

    fn set(name: &str, due_ms: i64) -> ReminderPut {
        ReminderPut { name: name.into(), due_ms, clear: false }
    }

    fn clear(name: &str) -> ReminderPut {
        ReminderPut { name: name.into(), due_ms: 0, clear: true }
    }

    #[test]
    fn only_the_present_epoch_and_revision_pass() {
        let cases = [
            (7, 3, "", true),
            (6, 3, "", false),
            (8, 3, "", false),
            (7, 2, "", false),
            (7, 4, "", false),
            (7, 3, "why", false),
        ];
        for (epoch, expected_revision, quarantined, passes) in cases {
            let entry = TurnEntry { epoch, expected_revision, ..entry() };
            let head = GrainHead { quarantined: quarantined.into(), ..head(&[]) };
            assert_eq!(fence(PLACE, &head, &entry).is_ok(), passes, "{epoch} {expected_revision} {quarantined}");
        }
    }

    /// Reminders set before, changes, reminders set after. A name never has two rows, and a cleared one leaves none.
    #[test]
    fn reminders_move_and_clear_without_ghosts() {
        type Set<'a> = &'a [(&'a str, i64)];
        let cases: [(Set, Vec<ReminderPut>, Set); 8] = [
            (&[], vec![set("wake", 5)], &[("wake", 5)]),
            (&[("wake", 5)], vec![set("wake", 9)], &[("wake", 9)]),
            (&[("wake", 5)], vec![set("wake", 5)], &[("wake", 5)]),
            (&[("wake", 5)], vec![clear("wake")], &[]),
            (&[], vec![clear("wake")], &[]),
            (&[("stuck", 1), ("wake", 5)], vec![clear("stuck")], &[("wake", 5)]),
            (&[("wake", 5)], vec![set("wake", 9), set("wake", 5)], &[("wake", 5)]),
            (&[("b", 1)], vec![set("c", 2), set("a", 3), clear("b")], &[("a", 3), ("c", 2)]),
        ];
        for (before, reminders, after) in cases {
            let id = grain().storage_bytes();
            let row = |(name, due): &(&str, i64)| keys::reminder(2, Timestamp(*due), &id, name);
            let mut live: BTreeMap<Key, ()> = before.iter().map(|set| (row(set), ())).collect();
            let changes = changes(PLACE, &grain(), head(before), TurnEntry { reminders, ..entry() }, 1);
            let (from, end) =
                (keys::reminders_until(2, Timestamp(i64::MIN)).0, keys::reminders_until(2, Timestamp(i64::MAX)).1);
            for (key, slot) in changes.rows {
                if key >= from && key < end {
                    match slot {
                        Slot::Gone => live.remove(&key),
                        _ => live.insert(key, ()),
                    };
                }
            }
            assert_eq!(live.into_keys().collect::<Vec<_>>(), {
                let mut rows: Vec<_> = after.iter().map(row).collect();
                rows.sort();
                rows
            });
            assert_eq!(changes.head, GrainHead { revision: 4, applied_index: 40, ..head(after) });
        }
    }

    #[test]
    fn a_turn_becomes_rows_of_every_table() {
        let entry = TurnEntry {
            puts: vec![RowPut { table: 1, key: b"a".into(), value: b"1".into() }],
            deletes: vec![RowDelete { table: 2, key: b"b".into() }, RowDelete { table: 1, key: b"a".into() }],
            index: vec![
                IndexPut { index: "runs".into(), sort: b"s".into(), value: b"v".into(), delete: false },
                IndexPut { index: "runs".into(), sort: b"t".into(), value: vec![], delete: true },
            ],
            outbox: vec![
                OutboxPut { event: b"e".into(), ..OutboxPut::default() },
                OutboxPut { call_target: grain().storage_bytes(), call_method: 3, ..OutboxPut::default() },
            ],
            command_id: b"cmd".into(),
            reply: b"done".into(),
            ..entry()
        };
        let id = grain().storage_bytes();
        let changes = changes(PLACE, &grain(), head(&[]), entry, 20);
        assert_eq!(changes.outbox, [20, 21]);
        let rows: BTreeMap<_, _> = changes.rows.into_iter().collect();
        let value = |key: &Key| rows[key].value().map(|value| value.to_vec());
        assert_eq!(rows.len(), 8);
        assert_eq!(value(&keys::row(2, &id, 1, b"a")), Some(b"1".to_vec()));
        assert_eq!(value(&keys::row(2, &id, 2, b"b")), None);
        assert_eq!(value(&keys::index(2, "runs", &grain(), b"s")), Some(b"v".to_vec()));
        assert_eq!(value(&keys::index(2, "runs", &grain(), b"t")), None);
        assert_eq!(value(&keys::reply(2, &id, b"cmd")), Some(b"done".to_vec()));
        assert!(matches!(rows[&keys::event(2, 20)], Slot::Fresh(_)));
        assert!(matches!(rows[&keys::call(2, 21)], Slot::Fresh(_)));
    }
}
