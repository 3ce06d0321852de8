//! The numbers of facts: each is applied once, in order, and never with other content.

use super::state::Projection;
use super::turn::{Fact, Numbered};
use super::{Accepted, Decided, EngineOptions, Input, Observation, Outcome, Refusal};

impl Projection {
    /// Where the input's number stands. Changes nothing.
    pub(super) fn number(&self, input: &Input) -> Result<Numbered, Refusal> {
        let Some((sequence, digest)) = sequence_and_digest(input) else {
            return Ok(Numbered::NotAFact);
        };
        let last = self.header.last_sequence;
        if sequence == 0 {
            return Err(Refusal::Gap { expected: last + 1, found: 0 });
        }
        if sequence <= last {
            let known = match self.facts.get(&sequence) {
                Some(known) => Some(known),
                None => (sequence == last).then_some(&self.header.last_digest),
            };
            return match known {
                Some(known) if known.as_slice() != digest => Err(Refusal::OtherContent { sequence }),
                _ => Ok(Numbered::Repeated),
            };
        }
        if sequence > last + 1 {
            return Err(Refusal::Gap { expected: last + 1, found: sequence });
        }
        if self.is_terminal() {
            return Err(Refusal::DoesNotFit {
                code: "already-terminal",
                message: format!("Expected a run that goes on, but it is already terminal: {}.", self.state.as_str()),
            });
        }
        match (last, matches!(input, Input::RunAccepted { .. })) {
            (0, false) => Err(Refusal::DoesNotFit {
                code: "not-accepted",
                message: "Expected the acceptance as the run's first fact, but found another.".into(),
            }),
            (1.., true) => Err(Refusal::DoesNotFit {
                code: "already-accepted",
                message: format!("Expected one acceptance, but found a second one as fact {sequence}."),
            }),
            _ => Ok(Numbered::Next(Fact { sequence, digest })),
        }
    }

    /// Uses the number up.
    pub(super) fn take_number(&mut self, fact: Option<Fact>, options: &EngineOptions) {
        let Some(fact) = fact else { return };
        self.header.last_sequence = fact.sequence;
        self.header.last_digest = fact.digest.to_vec();
        self.header_changed = true;
        if options.keep_fact_digests {
            self.facts.insert(fact.sequence, fact.digest.to_vec());
            self.changed_facts.push(fact.sequence);
        }
    }
}

fn sequence_and_digest(input: &Input) -> Option<(u64, [u8; 16])> {
    let mut digest = Digest(blake3::Hasher::new());
    let sequence = match input {
        Input::RunAccepted { sequence, accepted } => {
            digest.text("accepted").accepted(accepted);
            sequence
        }
        Input::AttemptOutcomeRecorded { sequence, outcome } => {
            digest.text("outcome").outcome(outcome);
            sequence
        }
        Input::ApprovalDecided { sequence, decided } => {
            digest.text("decided").decided(decided);
            sequence
        }
        Input::RunCancelled { sequence, reason } => {
            digest.text("cancelled").text(reason);
            sequence
        }
        Input::Observed { sequence, observation } => {
            digest.text("observed").observation(observation);
            sequence
        }
        Input::TimersDue
        | Input::CheckStuck { .. }
        | Input::StepTaken { .. }
        | Input::AttemptClaimed { .. }
        | Input::AttemptRequeued { .. } => return None,
    };
    let mut half = [0; 16];
    half.copy_from_slice(&digest.0.finalize().as_bytes()[..16]);
    Some((*sequence, half))
}

/// Each part goes in with its length before it, so that no two facts give the same bytes.
struct Digest(blake3::Hasher);

impl Digest {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }
    fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }
    fn id(&mut self, id: Option<uuid::Uuid>) -> &mut Self {
        match id {
            Some(id) => self.bytes(id.as_bytes()),
            None => self.bytes(b""),
        }
    }
    fn number(&mut self, number: u32) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }
    fn failure(&mut self, failure: Option<&granary_proto::v1::Failure>) -> &mut Self {
        match failure {
            Some(f) => self.text("failure").text(&f.class).text(&f.message),
            None => self.text("none"),
        }
    }
    fn accepted(&mut self, a: &Accepted) {
        self.text(&a.project_id).text(&a.definition_release_id).bytes(&a.input).bytes(&a.variables);
        // The refusal is not Run Control's word but what the release led to, and may read differently the next time.
        self.id(a.parent_run_id).id(a.parent_step_run_id).number(a.depth);
    }
    fn outcome(&mut self, o: &Outcome) {
        self.id(Some(o.step_run_id)).id(o.attempt_id).number(o.attempt).number(o.kind as u32);
        self.bytes(&o.output).text(&o.output_ref).failure(o.failure.as_ref());
    }
    fn observation(&mut self, o: &Observation) {
        self.number(o.seen as u32).bytes(&o.value).id(o.step_run_id).id(o.attempt_id).text(&o.by);
    }
    fn decided(&mut self, d: &Decided) {
        self.id(Some(d.step_run_id)).id(d.approval_id).text(&d.decision).number(d.proposal_version);
        self.bytes(&d.answer).text(&d.comment).text(&d.decided_by);
    }
}
