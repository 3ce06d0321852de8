//! The projection built again from the journal.

use crate::every_kind::{answers, started};
use crate::world::World;
use grain_contract::{Code, GrainId};
use grains::kinds::methods::run;
use granary_proto::v1;

fn reproject(
    world: &mut World,
    run: &GrainId,
    entries: Vec<v1::JournalEntry>,
) -> Result<v1::RunGraph, grain_contract::Rejection> {
    world.call(run, run::REPROJECT, &v1::ReadJournalResponse { entries, next_after: 0 })
}

/// [R14] At every moment of a run: the same rows, no event, no work, no call a second time.
#[test]
fn a_projection_built_again_is_the_same() {
    for ships in [true, false] {
        let (mut world, run) = started(true);
        for _ in 0..100 {
            let ids: Vec<GrainId> = world.stored.keys().cloned().collect();
            for id in ids {
                let (stored, events, calls) = (world.stored.clone(), world.events.len(), world.calls.len());
                let work: Vec<_> = world.work.keys().copied().collect();
                let graph = world.graph(&id);
                let entries = world.journal(&id);
                assert_eq!(reproject(&mut world, &id, entries).expect("projected again"), graph);
                assert_eq!(world.stored, stored);
                assert_eq!((world.events.len(), world.calls.len()), (events, calls));
                assert_eq!(world.work.keys().copied().collect::<Vec<_>>(), work);
            }
            if !world.step(&run, answers(9, ships)) {
                break;
            }
        }
        assert!(world.get(&run).expect("the run").ended_at.is_some());
    }
}

/// Rows of a projection that went astray are gone afterwards.
#[test]
fn a_damaged_projection_is_replaced() {
    let (mut world, run) = started(true);
    while !world.open_steps().iter().any(|s| s == "ship") {
        assert!(world.step(&run, answers(1, true)));
    }
    let good = world.stored[&run].clone();
    let entries = world.journal(&run);
    let stored = world.stored.get_mut(&run).expect("the run");
    // A step run that says it is still at work, although its outcome was recorded.
    let (key, mut row) = stored
        .rows
        .iter()
        .filter(|(key, _)| key.table == run::table::STEP_RUNS)
        .map(|(key, value)| {
            (
                key.clone(),
                <granary_proto::storage::StepRunRow as prost::Message>::decode(value.as_slice()).expect("a row"),
            )
        })
        .next()
        .expect("a step run");
    row.output = b"{\"risk\":77}".to_vec();
    stored.rows.insert(key, prost::Message::encode_to_vec(&row));
    reproject(&mut world, &run, entries).expect("projected again");
    assert_eq!(world.stored[&run], good);
}

/// Rows that cannot be read at all: the run is set aside, not lost, and comes back from its journal.
#[test]
fn an_unreadable_projection_is_replaced() {
    for table in [run::table::HEADER, run::table::STEP_RUNS] {
        let (mut world, run) = started(true);
        for _ in 0..2 {
            assert!(world.step(&run, answers(1, true)));
        }
        let good = world.stored[&run].clone();
        let entries = world.journal(&run);
        let damage = |world: &mut World| {
            let rows = &mut world.stored.get_mut(&run).expect("the run").rows;
            for (_, value) in rows.iter_mut().filter(|(key, _)| key.table == table) {
                *value = vec![0xff; 7];
            }
        };
        damage(&mut world);
        assert_eq!(world.get(&run).expect_err("set aside").code, Code::Quarantined);
        let attempts: Vec<_> = world.work.keys().copied().collect();
        for attempt in attempts {
            assert_eq!(world.report(attempt, "Succeeded", "1").expect_err("set aside").code, Code::Quarantined);
        }
        reproject(&mut world, &run, entries).expect("projected again");
        assert_eq!(world.stored[&run], good);
        while world.step(&run, answers(1, true)) {}
        assert_eq!(world.get(&run).expect("the run").state, "Completed");
    }
}

/// A journal with a hole, or without its end, would project the run into its past.
#[test]
fn a_journal_that_is_not_whole_is_refused() {
    let (mut world, run) = started(true);
    for _ in 0..4 {
        world.step(&run, answers(1, true));
    }
    let whole = world.journal(&run);
    let stored = world.stored.clone();
    let mut hole = whole.clone();
    hole.remove(2);
    let cut = whole[..whole.len() - 1].to_vec();
    for entries in [hole, cut, Vec::new()] {
        assert_eq!(reproject(&mut world, &run, entries).expect_err("refused").code, Code::WrongState);
        assert_eq!(world.stored, stored);
    }
    let mut garbled = whole;
    garbled[0].data = None;
    assert_eq!(reproject(&mut world, &run, garbled).expect_err("refused").code, Code::Internal);
    assert_eq!(world.stored, stored);
}
