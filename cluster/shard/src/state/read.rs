//! What an owner may ask of a shard's applied state.

use super::keys;
use super::overlay::{Overlay, Range};
use super::{head, value};
use crate::Error;
use crate::api::{Cursor, GrainRows, OutboxItem, OutboxRecord, ReminderRecord};
use grain_contract::{CommandId, GrainId, IndexEntry, Method, Revision, Row, RowKey, Table, TenantId, Timestamp};
use granary_proto::storage::{GrainHead, OutboxRow};
use prost::Message;

fn unreadable(key: &[u8], what: &str) -> Error {
    value::damaged("state store", key, what)
}

fn head_of(key: &[u8], row: &[u8], applied: Option<u64>) -> Result<GrainHead, Error> {
    let row = head::read(key, row)?;
    Ok(applied.and_then(|index| head::at(row, index)).unwrap_or_default())
}

pub fn grain(overlay: &Overlay, id: &GrainId) -> Result<GrainRows, Error> {
    let shard = overlay.shard;
    let bytes = id.storage_bytes();
    let ranges = [
        Range::one(keys::head(shard, &bytes)),
        Range {
            from: keys::row(shard, &bytes, 0, &[]),
            end: keys::row(shard, &bytes, Table::LOADED_BELOW, &[]),
            limit: usize::MAX,
        },
    ];
    let (applied, mut read) = overlay.read(&ranges)?;
    let (rows, heads) = (read.pop().unwrap_or_default(), read.pop().unwrap_or_default());
    let head = match heads.first() {
        Some((key, row)) => head_of(key, row, applied)?,
        None => GrainHead::default(),
    };
    if !head.quarantined.is_empty() {
        return Err(Error::Quarantined { grain: id.to_string(), why: head.quarantined });
    }
    let rows = rows
        .into_iter()
        .map(|(key, value)| {
            let (table, row) = keys::read_row(&key, bytes.len()).ok_or_else(|| unreadable(&key, "a row's key"))?;
            Ok(Row { key: RowKey { table, key: row }, value: value.to_vec() })
        })
        .collect::<Result<_, Error>>()?;
    let reminders = head.reminders.into_iter().map(|set| (set.name, Timestamp(set.due_ms))).collect();
    Ok(GrainRows { revision: Revision(head.revision), rows, reminders })
}

pub fn rows(
    overlay: &Overlay,
    id: &GrainId,
    table: Table,
    after: Option<&[u8]>,
    limit: usize,
) -> Result<Vec<Row>, Error> {
    let bytes = id.storage_bytes();
    let all = keys::row(overlay.shard, &bytes, table.0, &[]);
    let from =
        after.map_or_else(|| all.clone(), |after| keys::behind(&keys::row(overlay.shard, &bytes, table.0, after)));
    overlay
        .scan(from, keys::end_of(&all), limit)?
        .into_iter()
        .map(|(key, value)| {
            let (table, row) = keys::read_row(&key, bytes.len()).ok_or_else(|| unreadable(&key, "a row's key"))?;
            Ok(Row { key: RowKey { table, key: row }, value: value.to_vec() })
        })
        .collect()
}

pub fn stored_reply(overlay: &Overlay, id: &GrainId, command: &CommandId) -> Result<Option<Vec<u8>>, Error> {
    let key = keys::reply(overlay.shard, &id.storage_bytes(), command.as_str().as_bytes());
    Ok(overlay.get(&key)?.map(|reply| reply.to_vec()))
}

/// `tenant`: of one tenant only.
pub fn index(
    overlay: &Overlay,
    index: &str,
    tenant: Option<&TenantId>,
    after: Option<&IndexEntry>,
    limit: usize,
) -> Result<Vec<IndexEntry>, Error> {
    let all = keys::index_prefix(overlay.shard, index, tenant);
    let from = match after {
        Some(after) => keys::behind(&keys::index(overlay.shard, index, &after.grain, &after.sort)),
        None => all.clone(),
    };
    // An `after` of another tenant must not widen the answer.
    overlay
        .scan(from.max(all.clone()), keys::end_of(&all), limit)?
        .into_iter()
        .map(|(key, value)| keys::read_index(&key, value.to_vec()).ok_or_else(|| unreadable(&key, "an index key")))
        .collect()
}

pub fn reminders(
    overlay: &Overlay,
    until: Timestamp,
    after: Option<&ReminderRecord>,
    limit: usize,
) -> Result<Vec<ReminderRecord>, Error> {
    let (all, end) = keys::reminders_until(overlay.shard, until);
    let from = match after {
        Some(after) => {
            keys::behind(&keys::reminder(overlay.shard, after.due, &after.grain.storage_bytes(), &after.name))
        }
        None => all,
    };
    overlay
        .scan(from, end, limit)?
        .into_iter()
        .map(|(key, _)| {
            let (due, grain, name) = keys::read_reminder(&key).ok_or_else(|| unreadable(&key, "a reminder's key"))?;
            Ok(ReminderRecord { due, grain, name })
        })
        .collect()
}

/// Events and open calls, in the order of their numbers.
pub fn outbox(overlay: &Overlay, from: u64, limit: usize) -> Result<Vec<OutboxRecord>, Error> {
    let ranges = [keys::events_from(overlay.shard, from), keys::calls_from(overlay.shard, from)]
        .map(|(from, end)| Range { from, end, limit });
    let (_, read) = overlay.read(&ranges)?;
    let mut records =
        read.into_iter().flatten().map(|(key, row)| outbox_record(&key, &row)).collect::<Result<Vec<_>, Error>>()?;
    records.sort_by_key(|record| record.sequence);
    records.truncate(limit);
    Ok(records)
}

pub fn open_calls(overlay: &Overlay, from: u64, limit: usize) -> Result<Vec<OutboxRecord>, Error> {
    let (from, end) = keys::calls_from(overlay.shard, from);
    overlay.scan(from, end, limit)?.into_iter().map(|(key, row)| outbox_record(&key, &row)).collect()
}

fn outbox_record(key: &[u8], row: &[u8]) -> Result<OutboxRecord, Error> {
    let sequence = keys::read_sequence(key).ok_or_else(|| unreadable(key, "an outbox key"))?;
    let row = OutboxRow::decode(row).map_err(|error| unreadable(key, &format!("an outbox row: {error}")))?;
    let name = |bytes: &[u8]| {
        GrainId::from_storage_bytes(bytes)
            .map(|(id, _)| id)
            .ok_or_else(|| unreadable(key, "a grain's name in the outbox"))
    };
    let grain = name(&row.grain)?;
    let item = if row.call_target.is_empty() {
        OutboxItem::Event(row.event)
    } else {
        let method = |number: u32| {
            u16::try_from(number).map(Method).map_err(|_| unreadable(key, "a method's number in the outbox"))
        };
        OutboxItem::Call {
            target: name(&row.call_target)?,
            method: method(row.call_method)?,
            body: row.call_body,
            on_rejected: row.on_rejected.checked_sub(1).map(method).transpose()?,
        }
    };
    Ok(OutboxRecord { sequence, grain, at: Timestamp(row.at_ms), item })
}

pub fn cursors(overlay: &Overlay) -> Result<Vec<Cursor>, Error> {
    let (from, end) = keys::cursors(overlay.shard);
    overlay
        .scan(from, end, usize::MAX)?
        .into_iter()
        .map(|(key, value)| {
            let name = keys::read_cursor(&key).ok_or_else(|| unreadable(&key, "a cursor's name"))?;
            let sequence = value[..].try_into().map(u64::from_be_bytes);
            Ok(Cursor { name, sequence: sequence.map_err(|_| unreadable(&key, "a cursor's number"))? })
        })
        .collect()
}
