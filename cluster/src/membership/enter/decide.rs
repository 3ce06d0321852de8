//! What a node that is not yet in its cluster should do, from what it has and what others say.

use super::notes::Notes;
use granary_proto::peers::Greeting;
use shard::NodeId;
use std::collections::BTreeSet;

/// What this node has.
pub(super) struct Having<'a> {
    pub(super) me: Greeting,
    /// Of a founding that it began.
    pub(super) notes: Option<&'a Notes>,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Act<'a> {
    /// Begin a cluster: everybody is there.
    Found,
    /// With the founding that is noted.
    GoOn(&'a Notes),
    /// The notes: nobody was ever told of them.
    Forget,
    /// Through one of these.
    Join(Vec<NodeId>),
    /// It is a member; tell the book that it is back.
    TakeUp,
    Wait(String),
}

pub(super) fn decide<'a>(having: &Having<'a>, others: &[Greeting]) -> Act<'a> {
    let me = &having.me;
    match having.notes {
        // Noting comes before taking the id, and that before telling anybody: without the id, nobody was told.
        Some(notes) if notes.cluster() != me.cluster_id => return Act::Forget,
        Some(notes) => return Act::GoOn(notes),
        None if !me.cluster_id.is_empty() => return Act::TakeUp,
        None => {}
    }
    let clusters: BTreeSet<&str> = others.iter().map(|it| it.cluster_id.as_str()).filter(|id| !id.is_empty()).collect();
    if clusters.len() > 1 {
        let clusters: Vec<_> = clusters.into_iter().collect();
        return Act::Wait(format!("Expected nodes of one cluster, but met nodes of {}.", clusters.join(" and ")));
    }
    if !clusters.is_empty() {
        let members = others.iter().filter(|it| !it.cluster_id.is_empty());
        return Act::Join(members.map(|it| it.node_id).collect());
    }
    match me.founders.first() {
        None => Act::Wait("No founders are named, so this node can only join a cluster, and has met none.".to_owned()),
        Some(first) if *first != me.name => {
            Act::Wait(format!("{first} founds the cluster, once it has reached all founders."))
        }
        Some(_) => found(me, others),
    }
}

/// This node is the first founder and everybody it meets is empty.
fn found<'a>(me: &Greeting, others: &[Greeting]) -> Act<'a> {
    let missing: Vec<&str> =
        me.founders[1..].iter().filter(|name| !others.iter().any(|it| it.name == **name)).map(String::as_str).collect();
    if !missing.is_empty() {
        return Act::Wait(format!("Not all founders were reached; missing: {}.", missing.join(", ")));
    }
    let facts =
        |it: &Greeting| format!("{} shards, {} replicas, founders {}", it.shards, it.replicas, it.founders.join(", "));
    // Also who is no founder: a node that was told another list might be the first of it.
    if let Some(other) = others.iter().find(|it| facts(it) != facts(me)) {
        let (wanted, found) = (facts(me), facts(other));
        return Act::Wait(format!("Expected all nodes to be told {wanted}, but {} was told {found}.", other.name));
    }
    if let Some(other) = others.iter().find(|it| !it.empty && me.founders.contains(&it.name)) {
        return Act::Wait(format!("Expected empty folders, but that of {} holds replicas.", other.name));
    }
    if !me.empty {
        return Act::Wait("Expected an empty folder, but this one holds replicas.".to_owned());
    }
    let distinct: BTreeSet<&str> = me.founders.iter().map(String::as_str).collect();
    let of_a_name = |name: &str| others.iter().filter(|it| it.name == name).count();
    if distinct.len() != me.founders.len() || distinct.iter().any(|name| of_a_name(name) > 1) {
        return Act::Wait("Expected each founder once, but a name is there twice.".to_owned());
    }
    Act::Found
}

#[cfg(test)]
mod tests {
    use super::*;
    use granary_proto::peers::BookView;

    fn greeting(name: &str, cluster: &str) -> Greeting {
        Greeting {
            name: name.to_owned(),
            node_id: u64::from(name.as_bytes()[0]),
            cluster_id: cluster.to_owned(),
            shards: 16,
            replicas: 3,
            founders: ["a", "b", "c"].map(str::to_owned).to_vec(),
            empty: cluster.is_empty(),
            ..Greeting::default()
        }
    }

    fn notes(cluster: &str) -> Notes {
        Notes(BookView { cluster_id: cluster.to_owned(), ..BookView::default() })
    }

    /// Decides for the first of the nodes, who meets the others.
    fn act(nodes: &[(&str, &str)]) -> String {
        let all: Vec<_> = nodes.iter().map(|(name, cluster)| greeting(name, cluster)).collect();
        let having = Having { me: all[0].clone(), notes: None };
        words(decide(&having, &all[1..]))
    }

    fn words(act: Act<'_>) -> String {
        match act {
            Act::Wait(why) => why,
            Act::Join(through) => format!("join through {}", through.len()),
            Act::Found => "found".to_owned(),
            Act::GoOn(_) => "go on".to_owned(),
            Act::Forget => "forget".to_owned(),
            Act::TakeUp => "take up".to_owned(),
        }
    }

    /// [K1] Who is empty founds only as the first, with all others there and empty.
    #[test]
    fn who_founds_and_who_joins() {
        for (nodes, expected) in [
            (&[("a", "")][..], "Not all founders were reached; missing: b, c."),
            (&[("a", ""), ("b", "")], "Not all founders were reached; missing: c."),
            (&[("a", ""), ("b", ""), ("c", "")], "found"),
            (&[("a", ""), ("b", ""), ("c", ""), ("d", "")], "found"),
            (&[("b", ""), ("a", ""), ("c", "")], "a founds the cluster, once it has reached all founders."),
            (&[("d", ""), ("a", ""), ("b", "")], "a founds the cluster, once it has reached all founders."),
            // A first founder that lost its disk.
            (&[("a", ""), ("b", "X"), ("c", "X")], "join through 2"),
            (&[("a", ""), ("b", "X"), ("c", "")], "join through 1"),
            (&[("d", ""), ("a", ""), ("b", "X")], "join through 1"),
            (&[("d", ""), ("b", "X"), ("c", "Y")], "Expected nodes of one cluster, but met nodes of X and Y."),
            // Once it has a cluster it never looks at another.
            (&[("a", "X"), ("b", ""), ("c", "")], "take up"),
            (&[("a", "X"), ("b", "Y"), ("c", "Y")], "take up"),
        ] {
            assert_eq!(act(nodes), expected, "{nodes:?}");
        }
    }

    #[test]
    fn notes_that_nobody_was_told_of_are_forgotten() {
        for (noted, cluster, expected) in [("X", "X", "go on"), ("X", "", "forget"), ("X", "Y", "forget")] {
            let notes = notes(noted);
            let having = Having { me: greeting("a", cluster), notes: Some(&notes) };
            assert_eq!(words(decide(&having, &[])), expected, "{noted} {cluster}");
        }
    }

    /// Two nodes that both believe to be the first: neither founds.
    #[test]
    fn nodes_that_were_told_different_things_wait() {
        let me = greeting("a", "");
        let tell = |change: fn(&mut Greeting)| {
            let mut other = greeting("b", "");
            change(&mut other);
            let having = Having { me: me.clone(), notes: None };
            words(decide(&having, &[other, greeting("c", "")]))
        };
        assert_eq!(tell(|_| {}), "found");
        assert!(tell(|it| it.founders.swap(0, 1)).contains("but b was told"));
        assert!(tell(|it| it.shards = 8).contains("but b was told"));
        assert!(tell(|it| it.replicas = 5).contains("but b was told"));
        assert_eq!(tell(|it| it.empty = false), "Expected empty folders, but that of b holds replicas.");
        let stranger = Greeting { founders: vec!["d".to_owned()], ..greeting("d", "") };
        let having = Having { me, notes: None };
        let all = [greeting("b", ""), greeting("c", ""), stranger];
        assert!(words(decide(&having, &all)).contains("but d was told"));
    }

    #[test]
    fn a_name_that_is_there_twice_founds_nothing() {
        let twin = Greeting { node_id: 99, ..greeting("b", "") };
        let having = Having { me: greeting("a", ""), notes: None };
        let all = [greeting("b", ""), twin, greeting("c", "")];
        assert_eq!(words(decide(&having, &all)), "Expected each founder once, but a name is there twice.");
    }

    #[test]
    fn a_node_that_was_told_no_founders_can_only_join() {
        let me = Greeting { founders: Vec::new(), ..greeting("d", "") };
        let decided = |others: &[Greeting]| words(decide(&Having { me: me.clone(), notes: None }, others));
        assert!(decided(&[]).starts_with("No founders are named"));
        assert_eq!(decided(&[greeting("a", "X")]), "join through 1");
    }
}
