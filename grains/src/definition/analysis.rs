//! What a graph without forward cycles tells: order, the Join of each Fanout, scopes, loops, and what can have run before
//! what.

use super::document::{Document, Kind};
use super::graph::Graph;
use petgraph::algo::dominators::{Dominators, simple_fast};
use petgraph::algo::toposort;
use petgraph::graph::NodeIndex;
use petgraph::visit::{EdgeFiltered, Reversed};
use std::collections::HashMap;

/// Loop-backs in one document. Each is looked at with its body.
pub(super) const LOOPS_MAX: usize = 200;

/// Fanouts inside one another.
pub(super) const FANOUTS_NESTED_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct LoopBack {
    /// Index in the document.
    pub edge: usize,
    pub head: usize,
    pub source: usize,
    /// Both ends and all between them; empty if the edge does not lead back.
    pub body: Vec<usize>,
    pub members: Bits,
}

#[derive(Debug)]
pub(super) struct Analysis {
    /// Every Fanout is a key.
    pub join_of: HashMap<usize, Option<usize>>,
    fanout_of: HashMap<usize, usize>,
    pub scopes: Vec<Vec<usize>>,
    pub loops: Vec<LoopBack>,
    ancestors: Vec<Bits>,
}

impl Analysis {
    pub(super) fn fanout_of(&self, join: usize) -> Option<usize> {
        self.fanout_of.get(&join).copied()
    }

    /// Steps that can have run before this one, earlier iterations counted.
    pub(super) fn before(&self, step: usize) -> Bits {
        let mut before = self.ancestors[step].clone();
        let mut around = before.clone();
        around.set(step);
        loop {
            let mut grew = false;
            for back in &self.loops {
                if back.members.meets(&around) && !before.holds(&back.members) {
                    before.add(&back.members);
                    around.add(&back.members);
                    grew = true;
                }
            }
            if !grew {
                return before;
            }
        }
    }
}

impl Graph {
    /// Order, scopes and loops. Only for a graph without forward cycles.
    pub(super) fn analyse(&self, document: &Document) -> Analysis {
        let (graph, entry, exit) = self.petgraph();
        let forward = EdgeFiltered::from_fn(&graph, |edge| self.is_forward(edge));
        let order: Vec<usize> = toposort(&forward, None)
            .expect("the caller found no cycle")
            .into_iter()
            .map(NodeIndex::index)
            .filter(|step| self.forward.get(*step).copied().unwrap_or(false))
            .collect();
        let dominators = simple_fast(&forward, entry);
        let after = simple_fast(Reversed(&forward), exit);
        let join_of = self.join_of(document, &order, &after);
        let scopes = self.scopes(&order, &join_of);
        let loops = self.loops(&dominators);
        let ancestors = self.ancestors(&order);
        let fanout_of = join_of.iter().filter_map(|(fanout, join)| Some(((*join)?, *fanout))).collect();
        Analysis { join_of, fanout_of, scopes, loops, ancestors }
    }

    /// The Join of each Fanout: the first one that every path from it passes, leaving out those of Fanouts in between.
    fn join_of(
        &self,
        document: &Document,
        order: &[usize],
        after: &Dominators<NodeIndex>,
    ) -> HashMap<usize, Option<usize>> {
        let mut join_of = HashMap::new();
        // The last Fanouts first, so that one in between is known already.
        for &fanout in order.iter().rev().filter(|step| document.steps[**step].is(Kind::Fanout)) {
            let mut here = fanout;
            let join = loop {
                let Some(next) = after.immediate_dominator(NodeIndex::new(here)).map(NodeIndex::index) else {
                    break None;
                };
                let Some(step) = document.steps.get(next) else { break None };
                here = match (step.is(Kind::Join), step.is(Kind::Fanout)) {
                    (true, _) => break Some(next),
                    (_, true) => match join_of.get(&next).copied().flatten() {
                        Some(join) => join,
                        None => break None,
                    },
                    _ => next,
                };
            };
            join_of.insert(fanout, join);
        }
        join_of
    }

    /// The Fanouts around each step, outermost first.
    fn scopes(&self, order: &[usize], join_of: &HashMap<usize, Option<usize>>) -> Vec<Vec<usize>> {
        let mut scopes = vec![Vec::new(); self.forward.len()];
        for fanout in order {
            let Some(join) = join_of.get(fanout) else { continue };
            for step in self.reach(self.next(*fanout), *join) {
                // Deeper is a finding anyway, and would cost much here.
                if scopes[step].len() <= FANOUTS_NESTED_MAX {
                    scopes[step].push(*fanout);
                }
            }
        }
        scopes
    }

    fn loops(&self, dominators: &Dominators<NodeIndex>) -> Vec<LoopBack> {
        let mut loops = Vec::new();
        for link in self.links.iter().filter(|link| link.loop_back).take(LOOPS_MAX) {
            let natural = dominators
                .dominators(NodeIndex::new(link.from))
                .is_some_and(|mut all| all.any(|node| node.index() == link.to));
            let mut body = Vec::new();
            if natural {
                body = self.walk([link.from], Some(link.to), |step, open| open.extend(self.previous(step)));
                body.push(link.to);
                body.sort_unstable();
                body.dedup();
            }
            let mut members = Bits::empty(self.forward.len());
            body.iter().for_each(|step| members.set(*step));
            loops.push(LoopBack { edge: link.edge, head: link.to, source: link.from, body, members });
        }
        loops
    }

    /// What can have run before each step by forward edges.
    fn ancestors(&self, order: &[usize]) -> Vec<Bits> {
        let mut ancestors = vec![Bits::empty(self.forward.len()); self.forward.len()];
        for &step in order {
            let mut before = Bits::empty(self.forward.len());
            for previous in self.previous(step) {
                before.add(&ancestors[previous]);
                before.set(previous);
            }
            ancestors[step] = before;
        }
        ancestors
    }
}

/// A set of steps.
#[derive(Clone, Debug)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    fn empty(steps: usize) -> Self {
        Self(vec![0; steps.div_ceil(64)])
    }

    fn set(&mut self, step: usize) {
        self.0[step / 64] |= 1 << (step % 64);
    }

    pub(super) fn has(&self, step: usize) -> bool {
        self.0[step / 64] & (1 << (step % 64)) != 0
    }

    pub(super) fn meets(&self, other: &Bits) -> bool {
        self.0.iter().zip(&other.0).any(|(mine, theirs)| mine & theirs != 0)
    }

    pub(super) fn holds(&self, other: &Bits) -> bool {
        self.0.iter().zip(&other.0).all(|(mine, theirs)| mine & theirs == *theirs)
    }

    fn add(&mut self, other: &Bits) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine |= theirs);
    }
}
