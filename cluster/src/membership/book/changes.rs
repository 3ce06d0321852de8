//! What each change of the book means.

use super::{Book, GONE_KEPT_MAX, MEMBERS_MAX, Next, named, view};
use crate::directory::{Member, MemberState};
use grain_contract::{Code, Rejection, Timestamp, limits};
use granary_proto::peers::{BookMember, ChangeBook, FoundBook, JoinBook, PlaceBook, SeenBook, change_book};
use shard::NodeId;

/// The first page. Fine to repeat for the same cluster; the book that is there is not changed by it.
pub(super) fn found(book: Option<&Book>, call: &FoundBook) -> Next {
    let first = call.view.as_ref().and_then(view::book_of);
    let first = first.ok_or_else(|| Rejection::new(Code::Invalid, "Expected a first book, but it cannot be read."))?;
    match book {
        None => Ok(Some(Book { version: 1, ..first })),
        Some(book) if book.cluster == first.cluster => Ok(None),
        Some(book) => Err(Rejection::new(
            Code::WrongState,
            format!("Expected to found cluster {}, but this is cluster {}.", first.cluster, book.cluster),
        )),
    }
}

/// A node comes in: a new one, or one in the place of another that had its name and has lost its data.
pub(super) fn join(book: &Book, call: &JoinBook, now: Timestamp) -> Next {
    let me = named(call.me.as_ref())?;
    check_lengths(me)?;
    if call.shards as usize != book.places.len() {
        let (wanted, found) = (book.places.len(), call.shards);
        return Err(Rejection::new(
            Code::Invalid,
            format!("Expected a node with {wanted} shards, but its folder was made for {found}."),
        ));
    }
    if book.members.contains_key(&me.node_id) {
        return seen(book, &SeenBook { me: Some(me.clone()) }, now);
    }
    let holder = book.named(&me.name);
    if let Some(holder) = holder.filter(|_| call.old_is_alive) {
        return Err(Rejection::new(
            Code::Conflict,
            format!("Expected the name {} to be free, but node {:016x} has it and lives.", me.name, holder.node),
        )
        .at("name"));
    }
    let live = book.members.values().filter(|member| member.state != MemberState::Gone).count();
    if holder.is_none() && live >= MEMBERS_MAX {
        return Err(Rejection::new(
            Code::TooLarge,
            format!("Expected at most {MEMBERS_MAX} members, but there are as many already."),
        ));
    }
    let mut next = book.next();
    // The generation counts on under the name, so that people see one node that came back, and not two.
    let generation = holder.map_or(0, |holder| holder.generation) + 1;
    if let Some(holder) = holder {
        next.set_state(holder.node, MemberState::Gone, now);
    }
    let state = match holder.map(|holder| holder.state) {
        Some(state @ (MemberState::Draining | MemberState::Removing)) => state,
        _ => MemberState::Up,
    };
    next.members.insert(me.node_id, Member { generation, state, since: now, ..view::member_of(me) });
    next.forget_old_ones();
    Ok(Some(next))
}

/// A member after a start, maybe at a new address.
pub(super) fn seen(book: &Book, call: &SeenBook, now: Timestamp) -> Next {
    let me = named(call.me.as_ref())?;
    check_lengths(me)?;
    let known = book.members.get(&me.node_id).filter(|member| member.state != MemberState::Gone);
    let Some(known) = known else {
        let why = format!("Expected a member, but node {:016x} is none (any more).", me.node_id);
        return Err(Rejection::new(Code::NotFound, why));
    };
    if known.name != me.name {
        let why = format!("Expected node {:016x} under its name {}, but found {}.", me.node_id, known.name, me.name);
        return Err(Rejection::new(Code::Conflict, why).at("name"));
    }
    let generation = known.generation + u64::from(known.boot != me.boot);
    let present = Member { generation, state: known.state, since: known.since, ..view::member_of(me) };
    if present == *known {
        return Ok(None);
    }
    let since = if present.boot == known.boot { known.since } else { now };
    let mut next = book.next();
    next.members.insert(me.node_id, Member { since, ..present });
    Ok(Some(next))
}

/// Drain, take a drain back, remove: each is fine to repeat.
pub(super) fn change(book: &Book, call: &ChangeBook, now: Timestamp) -> Next {
    use MemberState::{Draining, Gone, Removing, Up};
    use change_book::Change;
    let Some(member) = book.named(&call.name) else {
        let was_removed = book.members.values().any(|member| member.name == call.name);
        return match call.change() {
            Change::Remove if was_removed => Ok(None),
            _ => Err(Rejection::new(
                Code::NotFound,
                format!("Expected the name of a member, but nobody is called {:?}.", call.name),
            )
            .at("node")),
        };
    };
    let wanted = match (call.change(), member.state) {
        (Change::Unspecified, _) => {
            return Err(Rejection::new(Code::Invalid, "Expected a change of a member, but found none."));
        }
        (_, Gone) => return Ok(None),
        (Change::Drain, Up) => Draining,
        (Change::Undrain, Draining) => Up,
        (Change::Remove, Up | Draining) => Removing,
        (Change::Drain, Draining) | (Change::Undrain, Up) | (Change::Remove, Removing) => return Ok(None),
        (Change::Drain | Change::Undrain, Removing) => {
            let why = format!("Expected a member that stays, but {} is being removed.", call.name);
            return Err(Rejection::new(Code::WrongState, why).at("node"));
        }
    };
    let others_up = book.members.values().any(|other| other.state == Up && other.node != member.node);
    if wanted != Up && !others_up {
        let why = format!("Expected another node that is up to take over from {}, but there is none.", call.name);
        return Err(Rejection::new(Code::WrongState, why).at("node"));
    }
    let mut next = book.next();
    next.set_state(member.node, wanted, now);
    Ok(Some(next))
}

/// What the director found: where replicas are by now, and who holds nothing any more.
pub(super) fn place(book: &Book, call: &PlaceBook, now: Timestamp) -> Next {
    if call.expected_version != book.version {
        let (wanted, found) = (call.expected_version, book.version);
        return Err(Rejection::new(Code::Conflict, format!("Expected version {wanted}, but found {found}.")));
    }
    let mut next = book.next();
    for place in &call.places {
        let Some(known) = next.places.get_mut(place.shard as usize) else {
            let why = format!("Expected one of {} shards, but found {}.", book.places.len(), place.shard);
            return Err(Rejection::new(Code::Invalid, why).at("places"));
        };
        known.clone_from(&place.replicas);
    }
    for node in &call.gone {
        // Only who is on its way out: a member that stays is not lost by a mistake of the director's.
        if next.members.get(node).is_some_and(|member| member.state == MemberState::Removing) {
            next.set_state(*node, MemberState::Gone, now);
        }
    }
    next.forget_old_ones();
    let is_changed = next.places != book.places || next.members != book.members;
    Ok(is_changed.then_some(next))
}

impl Book {
    fn next(&self) -> Book {
        Book { version: self.version + 1, ..self.clone() }
    }

    /// The member that has the name now.
    pub(crate) fn named(&self, name: &str) -> Option<&Member> {
        self.members.values().find(|member| member.name == name && member.state != MemberState::Gone)
    }

    fn set_state(&mut self, node: NodeId, state: MemberState, now: Timestamp) {
        if let Some(member) = self.members.get_mut(&node) {
            member.state = state;
            member.since = now;
        }
    }

    fn forget_old_ones(&mut self) {
        let gone = self.members.values().filter(|member| member.state == MemberState::Gone);
        let mut gone: Vec<_> = gone.map(|member| (member.since, member.node)).collect();
        gone.sort_unstable();
        let too_many = gone.len().saturating_sub(GONE_KEPT_MAX);
        for (_, node) in gone.into_iter().take(too_many) {
            self.members.remove(&node);
        }
    }
}

fn check_lengths(me: &BookMember) -> Result<(), Rejection> {
    let limit = limits::NAME_BYTES_MAX;
    let texts = [("name", &me.name), ("zone", &me.zone), ("build", &me.build), ("client_address", &me.client_address)];
    match texts.into_iter().find(|(_, text)| text.len() > limit * 2) {
        None if me.name.len() <= limit => Ok(()),
        None => Err(Rejection::new(Code::TooLarge, format!("Expected a name of at most {limit} bytes.")).at("name")),
        Some((field, _)) => {
            Err(Rejection::new(Code::TooLarge, format!("Expected at most {} bytes.", limit * 2)).at(field))
        }
    }
}
