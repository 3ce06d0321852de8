//! What is run: a number of Tool steps in a row, each of which takes the run's input and gives it back.

use granary_proto::v1;
use granary_proto::wire::Json;
use std::collections::HashMap;

pub const TOOL: &str = "loadtest-echo";
pub const QUEUE: &str = "tool:loadtest-echo";

#[derive(Clone, Debug)]
pub struct Workload {
    pub definition_id: String,
    pub steps: Vec<String>,
    pub input: Json,
}

impl Workload {
    pub fn new(steps: u32, payload: usize) -> Self {
        Self {
            definition_id: format!("loadtest-{steps}-steps"),
            steps: (1..=steps).map(|n| format!("s{n}")).collect(),
            input: Json::new(payload_of(payload)),
        }
    }

    /// The definition, in the form that publishes.
    pub fn load_request(&self) -> v1::LoadWorkflowDefinitionRequest {
        let mut document = format!(
            "workflow: {}\nversion: 1.0.0\ninput: anything.json\noutput: anything.json\nsteps:\n",
            self.definition_id
        );
        for step in &self.steps {
            document.push_str(&format!(
                "  - {{ id: {step}, kind: Tool, tool: {TOOL}, actionClass: read, failurePolicy: Fail }}\n"
            ));
        }
        if self.steps.len() > 1 {
            document.push_str("edges:\n");
            for pair in self.steps.windows(2) {
                document.push_str(&format!("  - {{ from: {}, to: {} }}\n", pair[0], pair[1]));
            }
        } else {
            document.push_str("edges: []\n");
        }
        v1::LoadWorkflowDefinitionRequest {
            document,
            schemas: HashMap::from([("anything.json".to_owned(), "{}".to_owned())]),
            draft: false,
            release_id: String::new(),
        }
    }
}

/// A JSON object of exactly so many bytes (the smallest is 12).
fn payload_of(bytes: usize) -> Vec<u8> {
    const FRAME: usize = r#"{"data":""}"#.len();
    let filler: String = ('a'..='z').cycle().take(bytes.saturating_sub(FRAME).max(1)).collect();
    format!(r#"{{"data":"{filler}"}}"#).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_has_the_size_asked_for() {
        assert_eq!(payload_of(300).len(), 300);
        assert_eq!(payload_of(0).len(), 12);
    }

    #[test]
    fn the_steps_stand_in_a_row() {
        let document = Workload::new(3, 10).load_request().document;
        assert!(document.contains("{ from: s1, to: s2 }") && document.contains("{ from: s2, to: s3 }"), "{document}");
        assert!(!document.contains("s4"));
    }
}
