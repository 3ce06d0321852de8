//! The book as it travels, and as the directory keeps it.

use super::Book;
use crate::directory::{Member, MemberState, View};
use grain_contract::Timestamp;
use granary_proto::peers::{BookMember, BookPlace, BookView};
use uuid::Uuid;

pub(crate) fn view_of(book: &Book) -> BookView {
    let place = |(shard, replicas): (usize, &Vec<u64>)| BookPlace { shard: number(shard), replicas: replicas.clone() };
    BookView {
        cluster_id: book.cluster.to_string(),
        version: book.version,
        replicas: book.replicas,
        members: book.members.values().map(message_of).collect(),
        places: book.places.iter().enumerate().map(place).collect(),
    }
}

/// `None` for a view that is none: no cluster, places out of order, a state that this build does not know.
pub(crate) fn book_of(view: &BookView) -> Option<Book> {
    let in_order = view.places.iter().enumerate().all(|(n, place)| place.shard as usize == n);
    let is_known = |state: &str| state.is_empty() || MemberState::from_name(state).is_some();
    let known = view.members.iter().all(|member| is_known(&member.state));
    (in_order && known && !view.places.is_empty()).then_some(())?;
    Some(Book {
        cluster: Uuid::parse_str(&view.cluster_id).ok()?,
        version: view.version,
        replicas: view.replicas,
        members: view.members.iter().map(|member| (member.node_id, member_of(member))).collect(),
        places: view.places.iter().map(|place| place.replicas.clone()).collect(),
    })
}

/// For the directory.
pub(crate) fn to_view(view: &BookView) -> Option<View> {
    let Book { cluster, version, members, places, .. } = book_of(view)?;
    Some(View { cluster: Some(cluster), version, members, places })
}

pub(super) fn message_of(member: &Member) -> BookMember {
    BookMember {
        node_id: member.node,
        name: member.name.clone(),
        boot: member.boot,
        client_address: member.client_address.clone(),
        zone: member.zone.clone(),
        build: member.build.clone(),
        state: member.state.as_str().to_owned(),
        since_ms: member.since.0,
        generation: member.generation,
    }
}

/// A state that is not told counts as up.
pub(super) fn member_of(message: &BookMember) -> Member {
    Member {
        node: message.node_id,
        name: message.name.clone(),
        boot: message.boot,
        generation: message.generation,
        state: MemberState::from_name(&message.state).unwrap_or(MemberState::Up),
        zone: message.zone.clone(),
        client_address: message.client_address.clone(),
        build: message.build.clone(),
        since: Timestamp(message.since_ms),
    }
}

fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
