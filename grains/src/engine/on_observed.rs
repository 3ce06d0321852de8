//! A worker saw something in the world of the run: the newest scene, or variables of the world.

use super::input::{Observation, Seen};
use super::turn::Turn;
use grain_contract::limits::PAYLOAD_BYTES_MAX;
use serde_json::{Map, Value};

impl Turn<'_> {
    pub(super) fn on_observed(&mut self, observation: Observation) {
        self.spend(2 * observation.value.len()); // Here and in the journal.
        let Observation { seen, value, step_run_id, attempt_id, by } = observation;
        let source = super::state::Source { at_ms: self.now.0, step_run_id, attempt_id, by };
        match seen {
            Seen::Scene => {
                self.p.weigh_observed(|observed| {
                    observed.scene = value;
                    observed.scene_from = source;
                });
            }
            Seen::World => match self.merged(&value) {
                Ok(world) => self.p.weigh_observed(|observed| {
                    observed.world = world;
                    observed.world_from = source;
                }),
                Err(why) => return self.supersede(why),
            },
        }
        self.stirred = true;
    }

    /// The variables laid over those that are known; null takes one away.
    fn merged(&self, value: &[u8]) -> Result<Vec<u8>, String> {
        let read = |text: &[u8]| serde_json::from_slice::<Map<String, Value>>(text).ok();
        let mut world = read(&self.p.observed.world).unwrap_or_default();
        for (name, value) in read(value).ok_or("the observed world is no object")? {
            if value.is_null() {
                world.remove(&name);
            } else {
                world.insert(name, value);
            }
        }
        let text = Value::Object(world).to_string().into_bytes();
        if text.len() > PAYLOAD_BYTES_MAX {
            return Err(format!("the variables of the world would have more than {PAYLOAD_BYTES_MAX} bytes"));
        }
        Ok(text)
    }
}
