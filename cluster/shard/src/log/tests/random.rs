//! Any order of operations and reopenings leaves what the model has.

use super::driver::{self, GROUPS, acked, open};
use super::model::{Model, Op, found};
use crate::testing::Double;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

#[derive(Clone, Debug)]
enum Step {
    Run(Op),
    Reopen { clean: bool },
}

pub fn op() -> impl Strategy<Value = Op> {
    let group = || 0..GROUPS;
    prop_oneof![
        8 => (group(), 0..6u8, 0..1_500u16).prop_map(|(group, count, bytes)| Op::Append { group, count, bytes }),
        2 => (group(), 0..8u8).prop_map(|(group, back)| Op::Truncate { group, back }),
        3 => (group(), 0..6u8).prop_map(|(group, keep)| Op::Purge { group, keep }),
        1 => (group(), 0..3u8).prop_map(|(group, by)| Op::PurgeBeyond { group, by }),
        1 => (group(), 0..4u8, any::<bool>()).prop_map(|(group, node, committed)| Op::Vote { group, node, committed }),
        1 => (group(), 0..4u8).prop_map(|(group, back)| Op::Committed { group, back }),
        1 => (group(), any::<u8>()).prop_map(|(group, bytes)| Op::Checkpoint { group, bytes }),
        1 => group().prop_map(|group| Op::Forget { group }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![12 => op().prop_map(Step::Run), 1 => any::<bool>().prop_map(|clean| Step::Reopen { clean })]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, rng_seed: RngSeed::Fixed(11), ..ProptestConfig::default() })]

    /// [K3]
    #[test]
    fn the_log_is_what_the_model_says_after_any_operations_and_reopenings(steps in prop::collection::vec(step(), 1..120)) {
        let disk = Double::default();
        let (mut model, mut wal) = (Model::new(), open(&disk));
        let mut waiting = vec![];
        for step in &steps {
            match step {
                Step::Run(op) => waiting.extend(model.run(&wal, op)),
                Step::Reopen { clean } => {
                    if *clean {
                        wal.close().unwrap();
                    }
                    drop(wal);
                    prop_assert!(waiting.drain(..).map(acked).all(|result| result.is_ok()), "not all acknowledged");
                    wal = open(&disk);
                    prop_assert_eq!(wal.unclean(), !clean);
                    for (group, model) in (0..).zip(&mut model.groups) {
                        let log = wal.group(group);
                        let clamped = model.committed.filter(|id| model.last().is_some_and(|last| id.index <= last.index));
                        if *clean {
                            prop_assert_eq!(log.checkpoint(), model.checkpoint.clone());
                            prop_assert_eq!(log.committed(), clamped.or(model.committed.and(model.last())));
                        }
                        (model.checkpoint, model.committed) = (log.checkpoint(), log.committed());
                    }
                }
            }
            for (group, model) in (0..).zip(&model.groups) {
                prop_assert_eq!(&found(&wal, group), &model.hard(), "group {}", group);
                prop_assert_eq!(driver::state(&wal.group(group)), (model.purged, model.last()));
            }
        }
    }
}
