//! The document as a graph: names resolved, cycles found, and, where there are none, scopes and loops.
//!
//! Two views of the same edges: *forward* (loop-backs left out), which must be acyclic and in which order, dominators and
//! fanouts are judged; and *whole*, which says what can have run before what.

use super::document::{Document, Kind};
use petgraph::algo::dominators::{Dominators, simple_fast};
use petgraph::algo::{kosaraju_scc, toposort};
use petgraph::graph::{DiGraph, EdgeReference, NodeIndex};
use petgraph::visit::{EdgeFiltered, Reversed};
use std::collections::{HashMap, HashSet, VecDeque};

/// Weight of an edge that only ties a step to the one entry or exit that dominators need.
const TIE: usize = usize::MAX;

/// Loop-backs in one document. Each is looked at with its body.
pub(super) const LOOPS_MAX: usize = 200;

/// Fanouts inside one another.
pub(super) const FANOUTS_NESTED_MAX: usize = 8;

/// Cycles told of one document.
const CYCLES_MAX: usize = 50;

/// An edge whose ends are steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// Index in the document.
    pub edge: usize,
    pub from: usize,
    pub to: usize,
    pub loop_back: bool,
}

#[derive(Debug)]
pub(super) struct Graph {
    pub links: Vec<Link>,
    /// Indices into `links`.
    pub incoming: Vec<Vec<usize>>,
    pub outgoing: Vec<Vec<usize>>,
    pub by_id: HashMap<String, usize>,
    /// Steps that take part: all but Compensation steps.
    pub forward: Vec<bool>,
}

impl Graph {
    pub(super) fn of(document: &Document) -> Self {
        let count = document.steps.len();
        let mut by_id = HashMap::with_capacity(count);
        for (ix, step) in document.steps.iter().enumerate() {
            by_id.entry(step.id.value.clone()).or_insert(ix);
        }
        let forward: Vec<bool> = document.steps.iter().map(|step| !step.is(Kind::Compensation)).collect();
        let mut graph = Self {
            links: Vec::new(),
            incoming: vec![Vec::new(); count],
            outgoing: vec![Vec::new(); count],
            by_id,
            forward,
        };
        for (ix, edge) in document.edges.iter().enumerate() {
            let ends = (graph.by_id.get(&edge.from.value).copied(), graph.by_id.get(&edge.to.value).copied());
            let (Some(from), Some(to)) = ends else { continue };
            if !graph.forward[from] || !graph.forward[to] {
                continue;
            }
            graph.outgoing[from].push(graph.links.len());
            graph.incoming[to].push(graph.links.len());
            graph.links.push(Link { edge: ix, from, to, loop_back: edge.is_loop_back });
        }
        graph
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.forward.len()).filter(|step| self.forward[*step])
    }

    pub(super) fn next(&self, step: usize) -> impl Iterator<Item = usize> + '_ {
        self.outgoing[step].iter().map(|link| &self.links[*link]).filter(|link| !link.loop_back).map(|link| link.to)
    }

    pub(super) fn previous(&self, step: usize) -> impl Iterator<Item = usize> + '_ {
        self.incoming[step].iter().map(|link| &self.links[*link]).filter(|link| !link.loop_back).map(|link| link.from)
    }

    /// Steps without an incoming forward edge.
    pub(super) fn entries(&self) -> Vec<usize> {
        self.steps().filter(|step| self.previous(*step).next().is_none()).collect()
    }

    /// Steps without an outgoing forward edge.
    pub(super) fn terminals(&self) -> Vec<usize> {
        self.steps().filter(|step| self.next(*step).next().is_none()).collect()
    }

    /// Node n is step n; then the entry of all entries, and the exit of all terminals.
    fn petgraph(&self) -> (DiGraph<(), usize>, NodeIndex, NodeIndex) {
        let mut graph = DiGraph::with_capacity(self.forward.len() + 2, self.links.len());
        for _ in 0..self.forward.len() + 2 {
            graph.add_node(());
        }
        for (ix, link) in self.links.iter().enumerate() {
            graph.add_edge(NodeIndex::new(link.from), NodeIndex::new(link.to), ix);
        }
        let (entry, exit) = (NodeIndex::new(self.forward.len()), NodeIndex::new(self.forward.len() + 1));
        for step in self.entries() {
            graph.add_edge(entry, NodeIndex::new(step), TIE);
        }
        for step in self.terminals() {
            graph.add_edge(NodeIndex::new(step), exit, TIE);
        }
        (graph, entry, exit)
    }

    fn is_forward(&self, edge: EdgeReference<'_, usize>) -> bool {
        self.links.get(*edge.weight()).is_none_or(|link| !link.loop_back)
    }

    /// Forward cycles, each as its steps in order. Every step that is on a cycle is on one of those given.
    pub(super) fn cycles(&self) -> Vec<Vec<usize>> {
        let (graph, ..) = self.petgraph();
        let forward = EdgeFiltered::from_fn(&graph, |edge| self.is_forward(edge));
        if toposort(&forward, None).is_ok() {
            return Vec::new();
        }
        let mut cycles = Vec::new();
        for component in kosaraju_scc(&forward) {
            let members: HashSet<usize> =
                component.iter().map(|node| node.index()).filter(|step| *step < self.forward.len()).collect();
            let mut open: Vec<usize> = members.iter().copied().collect();
            open.sort_unstable();
            let mut told = HashSet::new();
            for first in open {
                if told.contains(&first) {
                    continue;
                }
                if cycles.len() < CYCLES_MAX
                    && let Some(cycle) = self.shortest_cycle(first, &members)
                {
                    told.extend(cycle.iter().copied());
                    cycles.push(cycle);
                }
            }
        }
        cycles.sort();
        cycles
    }

    fn shortest_cycle(&self, first: usize, members: &HashSet<usize>) -> Option<Vec<usize>> {
        let mut came_from: HashMap<usize, usize> = HashMap::new();
        let mut queue = VecDeque::from([first]);
        while let Some(step) = queue.pop_front() {
            for next in self.next(step).filter(|next| members.contains(next)) {
                if next == first {
                    let mut cycle = vec![step];
                    let mut here = step;
                    while here != first {
                        here = came_from[&here];
                        cycle.push(here);
                    }
                    cycle.reverse();
                    return Some(cycle);
                }
                if next != first && !came_from.contains_key(&next) {
                    came_from.insert(next, step);
                    queue.push_back(next);
                }
            }
        }
        None
    }

    /// All steps that `from` leads to by forward edges, without going through `until`. Neither is among them.
    pub(super) fn reach(&self, from: impl IntoIterator<Item = usize>, until: Option<usize>) -> Vec<usize> {
        self.walk(from, until, |step, open| open.extend(self.next(step)))
    }

    fn walk(
        &self,
        from: impl IntoIterator<Item = usize>,
        until: Option<usize>,
        open_next: impl Fn(usize, &mut Vec<usize>),
    ) -> Vec<usize> {
        let mut seen = vec![false; self.forward.len()];
        let mut found = Vec::new();
        let mut open: Vec<usize> = from.into_iter().collect();
        while let Some(step) = open.pop() {
            if Some(step) == until || std::mem::replace(&mut seen[step], true) {
                continue;
            }
            found.push(step);
            open_next(step, &mut open);
        }
        found.sort_unstable();
        found
    }

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

    fn meets(&self, other: &Bits) -> bool {
        self.0.iter().zip(&other.0).any(|(mine, theirs)| mine & theirs != 0)
    }

    fn holds(&self, other: &Bits) -> bool {
        self.0.iter().zip(&other.0).all(|(mine, theirs)| mine & theirs == *theirs)
    }

    fn add(&mut self, other: &Bits) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine |= theirs);
    }
}
