//! The events of a run came whole: from its start to its one end, numbered without a gap (order and gaps are held while they come,
//! see `consumer`).

use crate::cluster::consumer::{Heard, is_end};
use granary_proto::v1;

pub fn faults(heard: &Heard, journal: &[v1::JournalEntry]) -> Vec<String> {
    let mut faults = Vec::new();
    let last_part = |kind: &str| kind.rsplit('.').next().unwrap_or_default().to_owned();
    let first = heard.events.first().map_or("nothing".to_owned(), |(_, kind)| last_part(kind));
    if first != "workflow-run-started" {
        faults.push(format!("its events begin with {first}"));
    }
    let ends = heard.events.iter().filter(|(_, kind)| is_end(kind)).count();
    if ends != 1 || heard.events.last().is_none_or(|(_, kind)| !is_end(kind)) {
        faults.push(format!("its {} events hold {ends} ends", heard.events.len()));
    }
    // One order a step that a worker does: Run Control and the outside are told of the same attempts.
    let ordered = heard.events.iter().filter(|(_, kind)| last_part(kind) == "step-ready").count();
    let created = journal.iter().filter(|entry| entry.r#type == "AttemptCreated").count();
    if ordered != created {
        faults.push(format!("{ordered} step-ready events for {created} attempts"));
    }
    faults
}
