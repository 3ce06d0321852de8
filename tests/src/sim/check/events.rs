//! Every consumer is told every event of its tenant, in order a grain, without a gap, the same on every delivery.

use super::{Check, FirstSeen};
use crate::sim::court::{End, Sight};
use crate::sim::tally;
use grain_contract::{GrainId, TenantId};
use granary_proto::v1;
use prost::Message as _;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};

#[derive(Default)]
pub struct Events {
    first: FirstSeen,
    /// How many events were committed.
    committed: HashMap<GrainId, u64>,
    /// What each event says.
    content: HashMap<(GrainId, u64), u64>,
    /// The last number in order that a consumer was told.
    told: HashMap<(String, GrainId), u64>,
    consumers: BTreeMap<String, TenantId>,
}

/// The numbered events of one outbox row.
fn events(grain: &GrainId, body: &[u8]) -> Vec<(u64, u64)> {
    let hash = |what: &[u8]| {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        hasher.finish()
    };
    if grain.kind.as_str() == tally::KIND {
        return tally::event(body).map(|(number, what)| (number, hash(what.as_bytes()))).into_iter().collect();
    }
    let batch = v1::EventBatch::decode(body).unwrap_or_default();
    batch.events.iter().map(|event| (event.sequence, hash(&event.encode_to_vec()))).collect()
}

impl Check for Events {
    fn name(&self) -> &'static str {
        "events in order"
    }

    fn see(&mut self, sight: &Sight) -> Vec<String> {
        let mut faults = Vec::new();
        if let Sight::Consumer { name, tenant } = sight {
            self.consumers.insert(name.clone(), tenant.clone());
        }
        if let Some(turn) = self.first.accepted(sight) {
            for message in turn.entry.outbox.iter().filter(|message| !message.event.is_empty()) {
                for (number, content) in events(&turn.grain, &message.event) {
                    let last = self.committed.entry(turn.grain.clone()).or_default();
                    if number != *last + 1 {
                        faults.push(format!("{} committed event {number} after {last}", turn.grain));
                    }
                    *last = number;
                    self.content.insert((turn.grain.clone(), number), content);
                }
            }
        }
        if let Sight::Delivered { consumer, grain, body, .. } = sight {
            for (number, content) in events(grain, body) {
                match self.content.get(&(grain.clone(), number)) {
                    Some(committed) if *committed == content => {}
                    Some(_) => faults.push(format!("{consumer} was told event {number} of {grain} with other content")),
                    None => faults.push(format!("{consumer} was told event {number} of {grain} before any commit")),
                }
                let last = self.told.entry((consumer.clone(), grain.clone())).or_default();
                if number > *last + 1 {
                    faults.push(format!("{consumer} was told event {number} of {grain} after {last}"));
                }
                *last = (*last).max(number);
            }
        }
        faults
    }

    fn is_settled(&self) -> bool {
        self.outstanding().is_empty()
    }

    fn end(&mut self, _: &End) -> Vec<String> {
        self.outstanding()
    }
}

impl Events {
    fn outstanding(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for (consumer, tenant) in &self.consumers {
            let mut grains: Vec<_> = self.committed.iter().filter(|(grain, _)| grain.tenant == *tenant).collect();
            grains.sort();
            for (grain, all) in grains {
                let told = self.told.get(&(consumer.clone(), grain.clone())).copied().unwrap_or_default();
                if told != *all {
                    missing.push(format!("{consumer} was told {told} events of {grain}, but there are {all}"));
                }
            }
        }
        missing
    }
}
