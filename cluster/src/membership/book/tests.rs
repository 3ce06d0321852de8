use super::*;
use crate::directory::MemberState;
use grain_contract::{NoOffers, RowKey, Table};
use granary_proto::peers::{BookPlace, change_book::Change};
use std::collections::BTreeMap;

/// The grain, and the rows that a store would have: each commit is checked against a grain that is loaded anew.
struct Desk {
    grain: Box<dyn Grain>,
    rows: BTreeMap<(u8, Vec<u8>), Row>,
    now: i64,
}

impl Desk {
    fn empty() -> Self {
        let grain = BookType.load(&id(), Vec::new()).expect("an empty book");
        Self { grain, rows: BTreeMap::new(), now: 1_000 }
    }

    fn founded(names: &[&str]) -> Self {
        let mut desk = Self::empty();
        desk.call(FOUND, &FoundBook { view: Some(first(names)) }).expect("founded");
        desk
    }

    fn call(&mut self, method: Method, call: &impl prost::Message) -> Result<BookView, Rejection> {
        self.now += 1;
        let mut offers = NoOffers;
        let mut cx = Context { now: Timestamp(self.now), entropy: [0; 16], offers: &mut offers };
        let body = call.encode_to_vec();
        let reply = match self.grain.handle(&mut cx, &Message::Call { method, body: &body }) {
            Decision::Commit(turn) => {
                for row in turn.puts {
                    self.rows.insert((row.key.table.0, row.key.key.clone()), row);
                }
                for key in turn.deletes {
                    self.rows.remove(&(key.table.0, key.key)).expect("deletes what is there");
                }
                turn.reply
            }
            Decision::Read(reply) => reply,
            Decision::Reject(rejection) => return Err(rejection),
            Decision::Need(need) => panic!("it needs nothing, but asked for {need:?}"),
        };
        let view = BookView::decode(reply.as_slice()).expect("a view");
        if view.version > 0 {
            assert_eq!(self.reloaded(), view, "rows and memory say the same");
        }
        Ok(view)
    }

    fn reloaded(&self) -> BookView {
        let rows: Vec<Row> = self.rows.values().cloned().collect();
        rows::read(&rows).expect("readable").as_ref().map(view_of).unwrap_or_default()
    }

    fn join(&mut self, me: BookMember, old_is_alive: bool) -> Result<BookView, Rejection> {
        self.call(JOIN, &JoinBook { me: Some(me), old_is_alive, shards: 2 })
    }

    fn change(&mut self, name: &str, change: Change) -> Result<BookView, Rejection> {
        self.call(CHANGE, &ChangeBook { name: name.to_owned(), change: change.into() })
    }
}

fn member(node: NodeId, name: &str) -> BookMember {
    BookMember { node_id: node, name: name.to_owned(), boot: node * 10, ..BookMember::default() }
}

fn first(names: &[&str]) -> BookView {
    let members: Vec<_> = names.iter().zip(1..).map(|(name, node)| member(node, name)).collect();
    let replicas: Vec<NodeId> = members.iter().map(|member| member.node_id).collect();
    BookView {
        cluster_id: Uuid::from_u128(7).to_string(),
        version: 0,
        replicas: 3,
        members,
        places: (0..2).map(|shard| BookPlace { shard, replicas: replicas.clone() }).collect(),
    }
}

fn state(view: &BookView, node: NodeId) -> MemberState {
    let member = view.members.iter().find(|member| member.node_id == node).expect("known");
    MemberState::from_name(&member.state).expect("a state")
}

#[test]
fn before_it_is_founded_everybody_is_asked_to_wait() {
    let mut desk = Desk::empty();
    for answer in
        [desk.join(member(1, "a"), false), desk.call(READ, &ReadBook::default()), desk.change("a", Change::Drain)]
    {
        assert_eq!(answer.expect_err("no book").code, Code::Unavailable);
    }
}

/// [K1] The first founder may die after it and repeat it.
#[test]
fn founding_is_repeatable_and_never_another_clusters() {
    let mut desk = Desk::founded(&["a", "b", "c"]);
    desk.join(member(4, "d"), false).expect("joined");
    let again = desk.call(FOUND, &FoundBook { view: Some(first(&["a", "b", "c"])) }).expect("the same");
    assert_eq!((again.members.len(), again.version), (4, 2), "what came after it stays");
    let other = BookView { cluster_id: Uuid::from_u128(8).to_string(), ..first(&["a"]) };
    let refused = desk.call(FOUND, &FoundBook { view: Some(other) }).expect_err("another cluster");
    assert_eq!(refused.code, Code::WrongState);
    assert_eq!(desk.call(FOUND, &FoundBook { view: None }).expect_err("nothing").code, Code::Invalid);
}

#[test]
fn who_knows_the_book_is_told_nothing() {
    let mut desk = Desk::founded(&["a"]);
    let version = |desk: &mut Desk, since| desk.call(READ, &ReadBook { since }).expect("read").version;
    assert_eq!((version(&mut desk, 0), version(&mut desk, 1), version(&mut desk, 9)), (1, 0, 0));
}

#[test]
fn a_node_joins_once_however_often_it_asks() {
    let mut desk = Desk::founded(&["a"]);
    let view = desk.join(member(4, "d"), false).expect("joined");
    assert_eq!((view.version, state(&view, 4)), (2, MemberState::Up));
    assert_eq!(desk.join(member(4, "d"), false).expect("again").version, 2);
    let moved = BookMember { boot: 41, client_address: "http://new:1".into(), ..member(4, "d") };
    let view = desk.join(moved, false).expect("again, started anew");
    let known = view.members.iter().find(|member| member.node_id == 4).expect("known");
    assert_eq!((view.version, known.generation, known.client_address.as_str()), (3, 2, "http://new:1"));
}

/// [FR-122] One of three lost its disk: it comes back under its name with a new id, and the old id is out at once.
#[test]
fn a_lost_volume_takes_the_place_of_its_old_self() {
    let mut desk = Desk::founded(&["a", "b", "c"]);
    let view = desk.join(member(22, "b"), false).expect("joined");
    assert_eq!((state(&view, 2), state(&view, 22)), (MemberState::Gone, MemberState::Up));
    assert_eq!(desk.call(SEEN, &SeenBook { me: Some(member(2, "b")) }).expect_err("out").code, Code::NotFound);
    assert_eq!(desk.join(member(2, "b"), false).expect_err("never again").code, Code::NotFound);
}

#[test]
fn the_name_of_a_living_node_is_taken() {
    let mut desk = Desk::founded(&["a", "b", "c"]);
    let refused = desk.join(member(22, "b"), true).expect_err("taken");
    assert_eq!((refused.code, refused.field.as_str()), (Code::Conflict, "name"));
}

#[test]
fn an_id_under_another_name_is_refused() {
    let mut desk = Desk::founded(&["a", "b", "c"]);
    assert_eq!(desk.join(member(2, "x"), false).expect_err("b's id").code, Code::Conflict);
    assert_eq!(desk.call(SEEN, &SeenBook { me: Some(member(2, "x")) }).expect_err("b's id").code, Code::Conflict);
}

#[test]
fn a_folder_of_another_shape_is_refused() {
    let mut desk = Desk::founded(&["a"]);
    let call = JoinBook { me: Some(member(4, "d")), old_is_alive: false, shards: 16 };
    assert_eq!(desk.call(JOIN, &call).expect_err("16 shards").code, Code::Invalid);
    let long = BookMember { zone: "z".repeat(1_000), ..member(4, "d") };
    assert_eq!(desk.join(long, false).expect_err("a long zone").code, Code::TooLarge);
}

/// [FR-122] A start is one generation; the same start told twice is one.
#[test]
fn each_start_is_one_generation() {
    let mut desk = Desk::founded(&["a"]);
    let seen = |boot: u64| SeenBook { me: Some(BookMember { boot, ..member(1, "a") }) };
    let first = desk.call(SEEN, &seen(11)).expect("seen");
    let again = desk.call(SEEN, &seen(11)).expect("seen");
    assert_eq!(first, again);
    let next = desk.call(SEEN, &seen(12)).expect("seen");
    assert_eq!(next.members[0].generation, first.members[0].generation + 1);
}

#[test]
fn drain_and_remove_are_repeatable_and_refuse_with_both_facts() {
    use Change::{Drain, Remove, Undrain};
    let mut desk = Desk::founded(&["a", "b", "c"]);
    for (change, wanted, version) in [
        (Drain, MemberState::Draining, 2),
        (Drain, MemberState::Draining, 2),
        (Undrain, MemberState::Up, 3),
        (Undrain, MemberState::Up, 3),
        (Drain, MemberState::Draining, 4),
        (Remove, MemberState::Removing, 5),
        (Remove, MemberState::Removing, 5),
    ] {
        let view = desk.change("b", change).expect("changed");
        assert_eq!((state(&view, 2), view.version), (wanted, version));
    }
    assert_eq!(desk.change("b", Undrain).expect_err("removing").code, Code::WrongState);
    let unknown = desk.change("x", Drain).expect_err("nobody");
    assert_eq!(unknown.message, "Expected the name of a member, but nobody is called \"x\".");
    desk.change("a", Drain).expect("c is up");
    for change in [Drain, Remove] {
        assert_eq!(desk.change("c", change).expect_err("the last one up").code, Code::WrongState);
    }
}

#[test]
fn a_removed_node_is_gone_when_the_director_says_so() {
    let mut desk = Desk::founded(&["a", "b"]);
    let gone = |version, gone: &[NodeId]| PlaceBook { expected_version: version, places: vec![], gone: gone.to_vec() };
    let view = desk.call(PLACE, &gone(1, &[2])).expect("nothing changes");
    assert_eq!((state(&view, 2), view.version), (MemberState::Up, 1), "it was not being removed");
    desk.change("b", Change::Remove).expect("removing");
    let view = desk.call(PLACE, &gone(2, &[2])).expect("gone");
    assert_eq!((state(&view, 2), view.version), (MemberState::Gone, 3));
    assert_eq!(desk.change("b", Change::Remove).expect("it was removed").version, 3);
    assert_eq!(desk.call(SEEN, &SeenBook { me: Some(member(2, "b")) }).expect_err("out").code, Code::NotFound);
    let view = desk.join(member(5, "b"), true).expect("the name is free");
    assert_eq!(state(&view, 5), MemberState::Up);
}

/// Two directors, one of them late.
#[test]
fn places_are_taken_only_for_the_version_they_were_made_for() {
    let mut desk = Desk::founded(&["a", "b", "c"]);
    let place = |version, shard, replicas: &[NodeId]| PlaceBook {
        expected_version: version,
        places: vec![BookPlace { shard, replicas: replicas.to_vec() }],
        gone: Vec::new(),
    };
    let view = desk.call(PLACE, &place(1, 1, &[1, 2])).expect("placed");
    assert_eq!((view.version, &view.places[1].replicas[..]), (2, &[1, 2][..]));
    assert_eq!(desk.call(PLACE, &place(1, 1, &[3])).expect_err("late").code, Code::Conflict);
    assert_eq!(desk.call(PLACE, &place(2, 9, &[3])).expect_err("no such shard").code, Code::Invalid);
    assert_eq!(desk.call(PLACE, &place(2, 1, &[1, 2])).expect("no news").version, 2);
}

#[test]
fn only_the_latest_of_those_that_are_gone_are_remembered() {
    let mut desk = Desk::founded(&["a"]);
    for n in 0..GONE_KEPT_MAX as u64 + 5 {
        desk.join(member(100 + n, "b"), false).expect("joined");
    }
    let view = desk.call(READ, &ReadBook::default()).expect("read");
    assert_eq!(view.members.len(), 2 + GONE_KEPT_MAX);
    assert_eq!(desk.join(member(100, "x"), false).map(|_| ()).ok(), Some(()), "forgotten, so it is a new one");
}

/// [P8] Rows as the first build wrote them: every later one reads them. Never change them; add those of a new format.
#[test]
fn rows_of_the_first_format_are_read() {
    let row = |table, key: &[u8], value: &str| Row {
        key: RowKey { table: Table(table), key: key.to_vec() },
        value: (0..value.len()).step_by(2).map(|n| u8::from_str_radix(&value[n..n + 2], 16).expect("hex")).collect(),
    };
    let stored =
        [row(1, b"book", HEADER_ROW), row(2, &1u64.to_be_bytes(), MEMBER_ROW), row(3, &0u32.to_be_bytes(), PLACE_ROW)];
    let book = rows::read(&stored).expect("readable").expect("a book");
    let me =
        BookMember { client_address: "http://a:1".into(), zone: "z".into(), build: "0.1.0".into(), ..member(1, "a") };
    let first = BookView { members: vec![me], places: vec![BookPlace { shard: 0, replicas: vec![1] }], ..first(&[]) };
    let expected = Book { version: 1, ..view::book_of(&first).expect("a book") };
    assert_eq!(book, expected);
    let (written, _) = rows::difference(None, &book);
    assert_eq!(written, stored, "and this build writes them so");
}

const HEADER_ROW: &str = "0801122430303030303030302d303030302d303030302d303030302d303030303030303030303037180120032801";
const MEMBER_ROW: &str = "080110011a0161200a3a0a687474703a2f2f613a3142017a4a05302e312e3052027570";
const PLACE_ROW: &str = "08011a01012001";

/// [P8]
#[test]
fn rows_of_a_later_format_are_refused() {
    let desk = Desk::founded(&["a"]);
    for table in [1, 2, 3] {
        let mut rows: Vec<Row> = desk.rows.values().cloned().collect();
        let row = rows.iter_mut().find(|row| row.key.table.0 == table).expect("a row");
        // Field 1 of each row is its format.
        row.value = [vec![8, 9], row.value[2..].to_vec()].concat();
        assert!(BookType.load(&id(), rows).is_err());
    }
}

#[test]
fn bytes_that_are_no_call_are_refused() {
    let mut desk = Desk::founded(&["a"]);
    for method in [FOUND, JOIN, SEEN, READ, CHANGE, PLACE, Method(99)] {
        let mut offers = NoOffers;
        let mut cx = Context { now: Timestamp(0), entropy: [0; 16], offers: &mut offers };
        let decision = desk.grain.handle(&mut cx, &Message::Call { method, body: &[0xff; 9] });
        assert!(matches!(decision, Decision::Reject(Rejection { code: Code::Invalid, .. })), "{method:?}");
    }
}
