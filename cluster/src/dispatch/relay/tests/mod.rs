//! The relay between pools, with nothing real around it: a bag of messages that come late, twice, in any order or never, nodes
//! that die, owners that change, workers that wander; all from a seed.

mod bag;
mod grains;
mod late;
mod turns;
mod workers;

use bag::World;

/// Whatever the network, the nodes and the workers do: what is said to have never started was never started, no worker has
/// more than it has places, and when it is quiet everything gets done, without one lease running out.
fn wanders_through(seed: u64, steps: usize) {
    let mut world = World::new(seed);
    for _ in 0..steps {
        world.step();
    }
    world.calm_down();
    world.check_all_done();
}

/// [C3] [K7] Messages that are lost, late, doubled or out of order, dying nodes, changing owners and wandering workers.
#[test]
fn every_attempt_is_done_and_none_is_called_unstarted_that_was_started() {
    for seed in 0..150 {
        wanders_through(seed, 1_500);
    }
}

/// The same, long.
#[test]
#[ignore = "takes minutes; for a longer look"]
fn every_attempt_is_done_over_many_seeds() {
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(5_000);
    for seed in 0..seeds {
        wanders_through(seed, 3_000);
    }
}
