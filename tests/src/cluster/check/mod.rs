//! What must be true afterwards, whatever was done. One promise a file, each a pure function over what was read.

pub mod agree;
pub mod events;
pub mod graph;
pub mod journal;
pub mod nodes;
pub mod workers;

/// Everything known about one run, read from nodes after the faults.
pub struct Read {
    pub started: super::load::Started,
    pub journal: Vec<granary_proto::v1::JournalEntry>,
    pub graph: granary_proto::v1::RunGraph,
    /// One for each consumer.
    pub heard: Vec<super::consumer::Heard>,
}

/// All faults of one run, as sentences. `clocks_are_wrong`: times that two nodes wrote are not held against each other.
pub fn faults(read: &Read, clocks_are_wrong: bool) -> Vec<String> {
    let mut faults = journal::faults(&read.journal, read.started.kind);
    if !clocks_are_wrong {
        faults.extend(journal::early_timers(&read.journal, read.started.kind));
    }
    faults.extend(graph::faults(&read.graph, &read.journal, read.started.kind));
    faults.extend(read.heard.iter().flat_map(|heard| events::faults(heard, &read.journal)));
    faults.into_iter().map(|fault| format!("run {}: {fault}", read.started.run_id)).collect()
}
