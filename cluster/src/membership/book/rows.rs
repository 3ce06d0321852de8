//! The book on disk: a header, a row a member, a row a shard. A change writes the rows that it changed.

use super::Book;
use crate::directory::{Member, MemberState};
use grain_contract::{Corrupt, Row, RowKey, Table, Timestamp};
use granary_proto::storage::{BookHeaderRow, MemberRow, ShardPlaceRow};
use prost::Message as _;
use shard::NodeId;
use std::collections::BTreeMap;
use uuid::Uuid;

/// Of every row here. A row of a later format is refused whole: half a book is worse than none.
pub(super) const FORMAT: u32 = 1;

const HEADER: Table = Table(1);
const MEMBERS: Table = Table(2);
const PLACES: Table = Table(3);

pub(super) fn read(rows: &[Row]) -> Result<Option<Book>, Corrupt> {
    let Some(header) = rows.iter().find(|row| row.key.table == HEADER) else {
        return if rows.is_empty() { Ok(None) } else { Err(corrupt("the book has rows and no header")) };
    };
    let header: BookHeaderRow = message(header)?;
    known(header.format)?;
    let cluster = Uuid::parse_str(&header.cluster_id).map_err(|_| corrupt("the book's cluster id is none"))?;
    let mut members = BTreeMap::new();
    let mut places = vec![Vec::new(); header.shards as usize];
    for row in rows {
        match row.key.table {
            MEMBERS => {
                let member = member(&message(row)?)?;
                members.insert(member.node, member);
            }
            PLACES => {
                let place: ShardPlaceRow = message(row)?;
                known(place.format)?;
                let slot = places.get_mut(place.shard as usize);
                *slot.ok_or_else(|| corrupt("the book places a shard that there is not"))? = place.replicas;
            }
            // A later build may keep more; what this one does not know it leaves alone.
            _ => {}
        }
    }
    Ok(Some(Book { cluster, version: header.version, replicas: header.replicas, members, places }))
}

/// Puts and deletes that make the rows of `before` those of `after`.
pub(super) fn difference(before: Option<&Book>, after: &Book) -> (Vec<Row>, Vec<RowKey>) {
    let mut puts = vec![header_row(after)];
    let known = |node: &NodeId| before.and_then(|book| book.members.get(node));
    let changed = after.members.iter().filter(|(node, member)| known(node) != Some(member));
    puts.extend(changed.map(|(_, member)| member_row(member)));
    let placed = |shard: usize| before.and_then(|book| book.places.get(shard));
    let changed = after.places.iter().enumerate().filter(|(shard, replicas)| placed(*shard) != Some(replicas));
    puts.extend(changed.map(|(shard, replicas)| place_row(shard, replicas, after.version)));
    let lost = before.into_iter().flat_map(|book| book.members.keys()).filter(|node| !after.members.contains_key(node));
    (puts, lost.map(|node| member_key(*node)).collect())
}

fn header_row(book: &Book) -> Row {
    let row = BookHeaderRow {
        format: FORMAT,
        cluster_id: book.cluster.to_string(),
        shards: number(book.places.len()),
        replicas: book.replicas,
        version: book.version,
    };
    Row { key: RowKey { table: HEADER, key: b"book".to_vec() }, value: row.encode_to_vec() }
}

fn member_row(member: &Member) -> Row {
    let row = MemberRow {
        format: FORMAT,
        node_id: member.node,
        name: member.name.clone(),
        boot: member.boot,
        client_address: member.client_address.clone(),
        zone: member.zone.clone(),
        build: member.build.clone(),
        state: member.state.as_str().to_owned(),
        since_ms: member.since.0,
        generation: member.generation,
        // The mesh finds addresses by itself: those in the book would be of the time before a restart.
        peer_address: String::new(),
        mesh_address: String::new(),
    };
    Row { key: member_key(member.node), value: row.encode_to_vec() }
}

fn member_key(node: NodeId) -> RowKey {
    RowKey { table: MEMBERS, key: node.to_be_bytes().to_vec() }
}

fn member(row: &MemberRow) -> Result<Member, Corrupt> {
    known(row.format)?;
    Ok(Member {
        node: row.node_id,
        name: row.name.clone(),
        boot: row.boot,
        generation: row.generation,
        state: MemberState::from_name(&row.state)
            .ok_or_else(|| corrupt("a member of the book is in a state that this build does not know"))?,
        zone: row.zone.clone(),
        client_address: row.client_address.clone(),
        build: row.build.clone(),
        since: Timestamp(row.since_ms),
    })
}

fn place_row(shard: usize, replicas: &[NodeId], version: u64) -> Row {
    let shard = number(shard);
    let row = ShardPlaceRow { format: FORMAT, shard, replicas: replicas.to_vec(), version };
    Row { key: RowKey { table: PLACES, key: shard.to_be_bytes().to_vec() }, value: row.encode_to_vec() }
}

fn message<M: prost::Message + Default>(row: &Row) -> Result<M, Corrupt> {
    M::decode(row.value.as_slice()).map_err(|error| corrupt(&format!("a row of the book cannot be read: {error}")))
}

fn known(format: u32) -> Result<(), Corrupt> {
    if format <= FORMAT {
        Ok(())
    } else {
        Err(corrupt(&format!("the book has format {format}, this build knows {FORMAT}")))
    }
}

fn corrupt(what: &str) -> Corrupt {
    Corrupt { what: what.to_owned() }
}

fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
