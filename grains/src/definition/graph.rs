//! The document as a graph: names resolved, cycles found.
//!
//! Two views of the same edges: *forward* (loop-backs left out), which must be acyclic and in which order, dominators and
//! fanouts are judged (`analysis`); and *whole*, which says what can have run before what.

use super::document::{Document, Kind};
use petgraph::algo::{kosaraju_scc, toposort};
use petgraph::graph::{DiGraph, EdgeReference, NodeIndex};
use petgraph::visit::EdgeFiltered;
use std::collections::{HashMap, HashSet, VecDeque};

/// Weight of an edge that only ties a step to the one entry or exit that dominators need.
const TIE: usize = usize::MAX;

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
    pub(super) fn petgraph(&self) -> (DiGraph<(), usize>, NodeIndex, NodeIndex) {
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

    pub(super) fn is_forward(&self, edge: EdgeReference<'_, usize>) -> bool {
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

    pub(super) fn walk(
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
}
