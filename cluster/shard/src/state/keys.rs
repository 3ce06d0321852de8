//! The layout of keys, in this one place.
//!
//! A key starts with the byte of its table and the shard's number (big-endian), so that a shard's rows of one table lie
//! together. Numbers are big-endian and names end with a zero byte, so that the order of the bytes is the order meant.
//!
//! | byte | rest of the key | value |
//! | --- | --- | --- |
//! | `h` | grain | `GrainHead` |
//! | `r` | grain, table, row key | the grain's row |
//! | `m` | due, grain, name | nothing |
//! | `i` | index, tenant, sort, grain key, grain kind | the index entry's value |
//! | `o` | sequence | `OutboxRow`, an event |
//! | `c` | sequence | `OutboxRow`, a call not answered yet |
//! | `p` | grain, command id | the stored reply |
//! | `n` | cursor name | sequence |
//! | `a` | nothing | `StoreStamp` |
//!
//! `grain` is [`GrainId::storage_bytes`], which is prefix-free. [`HIDDEN`] keys belong to a backend.

use grain_contract::{GrainId, GrainKind, IndexEntry, Table, TenantId, Timestamp};
use std::sync::Arc;

pub type Key = Vec<u8>;

const HEADS: u8 = b'h';
const ROWS: u8 = b'r';
const REMINDERS: u8 = b'm';
const INDEX: u8 = b'i';
const EVENTS: u8 = b'o';
const CALLS: u8 = b'c';
const REPLIES: u8 = b'p';
const CURSORS: u8 = b'n';
const STAMP: u8 = b'a';
const TABLES: [u8; 9] = [HEADS, ROWS, REMINDERS, INDEX, EVENTS, CALLS, REPLIES, CURSORS, STAMP];

/// First byte of keys that a backend keeps for itself.
pub const HIDDEN: u8 = b'~';

fn key(table: u8, shard: u32, parts: &[&[u8]]) -> Key {
    let mut key = Vec::with_capacity(5 + parts.iter().map(|part| part.len()).sum::<usize>());
    key.push(table);
    key.extend_from_slice(&shard.to_be_bytes());
    for part in parts {
        key.extend_from_slice(part);
    }
    key
}

/// The first key behind all keys that start with `prefix`. Ours never consist of 0xFF alone.
pub fn end_of(prefix: &[u8]) -> Key {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end
}

/// The first key behind `key`.
pub fn behind(key: &[u8]) -> Key {
    let mut next = key.to_vec();
    next.push(0);
    next
}

/// All rows of a shard but its stamp's order does not matter: the ranges to wipe or to copy.
pub fn shard_ranges(shard: u32) -> impl Iterator<Item = (Key, Key)> {
    TABLES.into_iter().map(move |table| {
        let from = key(table, shard, &[]);
        let end = end_of(&from);
        (from, end)
    })
}

/// Whether a key of [`shard_ranges`] belongs to `shard` and to a table that this build knows.
pub fn is_of_shard(key: &[u8], shard: u32) -> bool {
    key.first().is_some_and(|table| TABLES.contains(table)) && key.get(1..5) == Some(&shard.to_be_bytes()[..])
}

pub fn is_head(key: &[u8]) -> bool {
    key.first() == Some(&HEADS)
}

pub fn is_stamp(key: &[u8]) -> bool {
    key.first() == Some(&STAMP)
}

pub fn head(shard: u32, grain: &[u8]) -> Key {
    key(HEADS, shard, &[grain])
}

pub fn stamp(shard: u32) -> Key {
    key(STAMP, shard, &[])
}

pub fn row(shard: u32, grain: &[u8], table: u8, row: &[u8]) -> Key {
    key(ROWS, shard, &[grain, &[table], row])
}

/// Reads [`row`] back, given the length of the grain's bytes.
pub fn read_row(key: &[u8], grain_bytes: usize) -> Option<(Table, Vec<u8>)> {
    let (table, row) = key.get(5 + grain_bytes..)?.split_first()?;
    Some((Table(*table), row.to_vec()))
}

/// Time before 1970 sorts before time after it.
fn ordered(at: Timestamp) -> [u8; 8] {
    ((at.0 as u64) ^ (1 << 63)).to_be_bytes()
}

pub fn reminder(shard: u32, due: Timestamp, grain: &[u8], name: &str) -> Key {
    key(REMINDERS, shard, &[&ordered(due), grain, name.as_bytes()])
}

/// All reminders of a shard up to and with those due at `until`.
pub fn reminders_until(shard: u32, until: Timestamp) -> (Key, Key) {
    let end = match until.0.checked_add(1) {
        Some(next) => key(REMINDERS, shard, &[&ordered(Timestamp(next))]),
        None => end_of(&key(REMINDERS, shard, &[])),
    };
    (key(REMINDERS, shard, &[]), end)
}

pub fn read_reminder(key: &[u8]) -> Option<(Timestamp, GrainId, String)> {
    let (due, rest) = key.get(5..)?.split_first_chunk::<8>()?;
    let due = Timestamp((u64::from_be_bytes(*due) ^ (1 << 63)) as i64);
    let (grain, used) = GrainId::from_storage_bytes(rest)?;
    Some((due, grain, String::from_utf8(rest[used..].to_vec()).ok()?))
}

pub fn index_prefix(shard: u32, index: &str, tenant: Option<&TenantId>) -> Key {
    let mut prefix = key(INDEX, shard, &[index.as_bytes(), &[0]]);
    if let Some(tenant) = tenant {
        prefix.extend_from_slice(tenant.as_str().as_bytes());
        prefix.push(0);
    }
    prefix
}

pub fn index(shard: u32, index: &str, grain: &GrainId, sort: &[u8]) -> Key {
    let mut key = index_prefix(shard, index, Some(&grain.tenant));
    // Sort keys are any bytes: a zero inside is written as 0,255 and the end as 0,0, which keeps the order and lets one
    // key be the start of another.
    for byte in sort {
        key.push(*byte);
        if *byte == 0 {
            key.push(u8::MAX);
        }
    }
    key.extend_from_slice(&[0, 0]);
    for part in [&*grain.key, grain.kind.as_str()] {
        key.extend_from_slice(part.as_bytes());
        key.push(0);
    }
    key
}

pub fn read_index(key: &[u8], value: Vec<u8>) -> Option<IndexEntry> {
    fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
        let end = rest.iter().position(|byte| *byte == 0)?;
        let text = std::str::from_utf8(&rest[..end]).ok()?;
        *rest = &rest[end + 1..];
        Some(text)
    }
    let mut rest = key.get(5..)?;
    text(&mut rest)?;
    let tenant = text(&mut rest)?;
    let mut sort = Vec::new();
    loop {
        let (byte, next) = rest.split_first()?;
        rest = next;
        if *byte == 0 {
            let (mark, next) = rest.split_first()?;
            rest = next;
            if *mark == 0 {
                break;
            }
        }
        sort.push(*byte);
    }
    let (grain_key, kind) = (text(&mut rest)?, text(&mut rest)?);
    let grain = GrainId { tenant: TenantId::new(tenant), kind: GrainKind::new(kind), key: Arc::from(grain_key) };
    Some(IndexEntry { grain, sort, value })
}

pub fn event(shard: u32, sequence: u64) -> Key {
    key(EVENTS, shard, &[&sequence.to_be_bytes()])
}

pub fn call(shard: u32, sequence: u64) -> Key {
    key(CALLS, shard, &[&sequence.to_be_bytes()])
}

pub fn events_from(shard: u32, from: u64) -> (Key, Key) {
    (event(shard, from), end_of(&key(EVENTS, shard, &[])))
}

pub fn calls_from(shard: u32, from: u64) -> (Key, Key) {
    (call(shard, from), end_of(&key(CALLS, shard, &[])))
}

/// Reads [`event`] or [`call`] back.
pub fn read_sequence(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(5..)?.try_into().ok()?))
}

pub fn reply(shard: u32, grain: &[u8], command: &[u8]) -> Key {
    key(REPLIES, shard, &[grain, command])
}

pub fn cursor(shard: u32, name: &str) -> Key {
    key(CURSORS, shard, &[name.as_bytes()])
}

pub fn cursors(shard: u32) -> (Key, Key) {
    let from = key(CURSORS, shard, &[]);
    let end = end_of(&from);
    (from, end)
}

pub fn read_cursor(key: &[u8]) -> Option<String> {
    String::from_utf8(key.get(5..)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grain(key: &str) -> GrainId {
        GrainId::new(&"acme".into(), &"run".into(), key)
    }

    #[test]
    fn reminders_sort_by_due_time_and_read_back() {
        let id = grain("a");
        let bytes = id.storage_bytes();
        let dues = [i64::MIN, -5, 0, 7, i64::MAX].map(Timestamp);
        let keys = dues.map(|due| reminder(3, due, &bytes, "wake"));
        assert!(keys.is_sorted());
        for (due, key) in dues.iter().zip(&keys) {
            assert_eq!(read_reminder(key), Some((*due, id.clone(), "wake".to_string())));
            let (from, end) = reminders_until(3, *due);
            assert!(from <= *key && *key < end);
        }
        assert!(keys[3] >= reminders_until(3, Timestamp(6)).1);
    }

    #[test]
    fn index_sorts_by_any_bytes_and_reads_back() {
        let sorts: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"\0\x01", b"a", b"a\xff"];
        let keys = sorts.map(|sort| index(1, "runs", &grain("k"), sort));
        assert!(keys.is_sorted());
        for (sort, key) in sorts.iter().zip(&keys) {
            let entry = IndexEntry { grain: grain("k"), sort: sort.to_vec(), value: b"v".to_vec() };
            assert_eq!(read_index(key, b"v".to_vec()), Some(entry));
        }
    }

    #[test]
    fn shards_and_tables_do_not_overlap() {
        let ranges: Vec<_> = shard_ranges(0).chain(shard_ranges(255)).chain(shard_ranges(256)).collect();
        for (i, (from, end)) in ranges.iter().enumerate() {
            assert!(from < end);
            for (other_from, other_end) in &ranges[i + 1..] {
                assert!(end <= other_from || other_end <= from);
            }
        }
    }
}
