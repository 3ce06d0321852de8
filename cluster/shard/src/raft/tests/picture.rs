//! Work for a shard, and everything of it as its owner sees it.

use super::*;
use crate::{Cursor, Housekeeping};
use std::fmt::Write;

pub const GRAINS: usize = 40;

pub fn picture(shard: &Shard) -> Result<String, Error> {
    let mut grains = String::new();
    for n in 0..GRAINS {
        let found = shard.grain(&grain(&format!("g{n}")))?;
        writeln!(grains, "g{n} {:?} {:?}", found.revision, found.reminders).unwrap();
        for row in found.rows {
            writeln!(grains, "  {:?} {} {:x}", row.key, row.value.len(), crc32c::crc32c(&row.value)).unwrap();
        }
    }
    Ok(format!(
        "{grains}{:?}{:?}{:?}{:?}{:?}",
        shard.outbox(0, 10_000)?,
        shard.reminders(Timestamp(i64::MAX), None, 10_000)?,
        shard.index_all("runs", None, 10_000)?,
        shard.cursors()?,
        shard.outbox_bounds(),
    ))
}

/// Turns of forty grains with fenced ones among them, moved reminders, large rows, trimmed events.
pub async fn work(owner: &Owner, seed: u64, turns: u64) {
    let mut random = seed;
    for _ in 0..turns {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pick = (random >> 33) as usize;
        let key = format!("g{}", pick % GRAINS);
        let revision = owner.shard.grain(&grain(&key)).unwrap().revision.0;
        let turn = Turn {
            puts: vec![
                row(1, "a", pick.to_be_bytes()),
                row(2, &format!("{}", pick % 3), vec![1; pick % 20_000 * (pick % 4)]),
            ],
            deletes: vec![RowKey { table: Table(2), key: format!("{}", (pick + 1) % 3).into() }],
            reminders: match pick % 4 {
                0 => vec![ReminderChange::Clear { name: "wake".into() }],
                1 => vec![set("wake", (pick % 90) as i64), set("stuck", 5)],
                _ => vec![set("wake", (pick % 90) as i64)],
            },
            index: vec![IndexChange::Put { index: "runs", sort: vec![(pick % 7) as u8], value: vec![1] }],
            outbox: vec![event("e"), call("t")],
            ..Turn::default()
        };
        // The second is decided on a revision that is gone: it must be fenced now and at each replay.
        let (first, second) = tokio::join!(
            owner.commit(&key, revision, turn.clone()),
            owner.commit(&key, revision, Turn { outbox: vec![event("twice")], ..turn })
        );
        assert!(first.is_ok() && matches!(second, Err(Error::Fenced { .. })), "{first:?} {second:?}");
        if pick.is_multiple_of(10) {
            upkeep(owner).await;
        }
    }
}

async fn upkeep(owner: &Owner) {
    let (next, low) = owner.shard.outbox_bounds();
    let housekeeping = Housekeeping {
        epoch: owner.epoch,
        calls_done: (low..next.saturating_sub(4)).collect(),
        cursors: vec![Cursor { name: "c".into(), sequence: next }],
        cursors_dropped: vec![],
        trim_events_below: Some(next.saturating_sub(6)),
    };
    owner.shard.housekeeping(housekeeping).await.unwrap();
}
