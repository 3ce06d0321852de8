//! The index of open runs says which of them a new owner must load.

use crate::every_kind::{answers, started};
use crate::world::World;
use grain_contract::{Effect, GrainId, Message, NOTHING_TO_TELL};
use grains::kinds::methods::index;

/// What the index says of the run; `None` once it has ended.
fn says_nothing(world: &World, run: &GrainId) -> Option<bool> {
    let entry = world.index.iter().find(|((name, _, grain), _)| *name == index::OPEN_RUNS && grain == run);
    entry.map(|(_, value)| value == NOTHING_TO_TELL)
}

/// What a takeover finds when it wakes the run.
fn has_nothing(world: &mut World, run: &GrainId) -> bool {
    let before = world.turns.len();
    world.send(run, &Message::Wake).expect("woken");
    let woken: Vec<_> = world.turns.drain(before..).flat_map(|turn| turn.effects).collect();
    woken.iter().all(|effect| matches!(effect, Effect::Deactivate))
}

/// [R15, K4] After every turn of a run with every kind of step, reloaded or not: the index says "nothing to tell" exactly if a
/// wake would tell nothing.
#[test]
fn the_index_knows_whether_a_wake_would_tell_anything() {
    for reload in [true, false] {
        let (mut world, run) = started(reload);
        let (mut quiet, mut busy) = (0, 0);
        for _ in 0..100 {
            if let Some(nothing) = says_nothing(&world, &run) {
                assert_eq!(nothing, has_nothing(&mut world, &run), "open are {:?}", world.open_steps());
                *(if nothing { &mut quiet } else { &mut busy }) += 1;
            }
            if !world.step(&run, answers(9, true)) {
                break;
            }
        }
        assert!(quiet > 1 && busy > 1, "it worked and it waited: {busy}, {quiet}");
        assert_eq!(says_nothing(&world, &run), None, "an ended run is in no index of open ones");
    }
}

/// [R15] A run of a build before this index value says "nobody knows" when it waits: it is woken, and from its next work on it
/// is as any other.
#[test]
fn a_run_of_before_is_woken_until_it_has_worked_again() {
    let (mut world, run) = started(true);
    while says_nothing(&world, &run) != Some(true) {
        assert!(world.step(&run, answers(9, true)), "it waits at some time");
    }
    for ((name, _, _), value) in &mut world.index {
        if *name == index::OPEN_RUNS {
            value.clear();
        }
    }
    let mut worked = false;
    loop {
        match says_nothing(&world, &run) {
            Some(false) if has_nothing(&mut world, &run) => assert!(!worked, "told by now"),
            Some(false) => worked = true,
            _ => {}
        }
        if !world.step(&run, answers(9, true)) {
            break;
        }
    }
    assert!(worked);
}
