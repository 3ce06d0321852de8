//! What expressions see, and what a step gets as its input.

use super::fanout::kind_of;
use super::state::{FrameIx, Projection, RunIx};
use super::turn::Turn;
use crate::condition::Expression;
use crate::condition::View;
use crate::definition::{Plan, StepIx, StepKind};
use grain_contract::limits::PAYLOAD_BYTES_MAX;
use granary_proto::v1::Failure;
use serde_json::Value;
use std::cell::RefCell;

/// Where an expression stands: it sees its own frame, then the ones around it.
pub(super) struct Standpoint<'a> {
    pub p: &'a Projection,
    pub plan: &'a Plan,
    pub frame: FrameIx,
    /// Of a compensation: the step run it undoes, which its step id means.
    pub undoes: Option<RunIx>,
    /// Why a root could not be built; the evaluator only knows absent ones.
    pub broken: RefCell<Option<String>>,
}

impl View for Standpoint<'_> {
    fn root(&self, name: &str) -> Option<Value> {
        match name {
            "input" => self.parse(&self.p.header.input),
            "vars" => self.parse(&self.p.header.variables),
            "item" => self.parse(self.p.item(self.plan, self.frame)?.1),
            "index" => Some(Value::from(self.p.item(self.plan, self.frame)?.0)),
            step => self.output(*self.plan.by_id.get(step)?),
        }
    }
}

impl Standpoint<'_> {
    /// The newest step run that can be seen from here. In a loop that is the one of this iteration, if it has come so far,
    /// else of the one before.
    fn output(&self, step: StepIx) -> Option<Value> {
        if let Some(forward) = self.undoes.filter(|forward| self.p.run(*forward).step == step) {
            return self.value_of(forward);
        }
        let mut frame = self.frame;
        loop {
            if let Some(slot) = self.p.slots.get(&(frame, step)) {
                // One that has nothing yet, as when a step reads its own last round, leads to the iteration before.
                let has_nothing = |ix: &RunIx| {
                    let run = self.p.run(*ix);
                    !run.state.is_terminal() && run.output.is_empty() && run.completed_as == 0
                };
                let mut newest = Some(slot.run);
                while let Some(ix) = newest.filter(has_nothing) {
                    newest = self.p.run(ix).previous;
                }
                return self.value_of(newest?);
            }
            self.p.frame(frame).owner?;
            frame = self.p.frame(frame).parent;
        }
    }

    fn value_of(&self, ix: RunIx) -> Option<Value> {
        match self.p.output_text(self.plan, ix, super::outputs::READ_BYTES_MAX) {
            Ok(text) => self.parse(&text),
            Err(too_large) => self.fail(too_large.to_string()),
        }
    }

    pub(super) fn parse(&self, text: &[u8]) -> Option<Value> {
        if text.is_empty() {
            return None;
        }
        match serde_json::from_slice(text) {
            Ok(value) => Some(value),
            Err(e) => self.fail(format!("Expected JSON, but found something else: {e}.")),
        }
    }

    fn fail(&self, why: String) -> Option<Value> {
        self.broken.borrow_mut().get_or_insert(why);
        None
    }
}

impl Projection {
    pub(super) fn evaluate_in(
        &self,
        plan: &Plan,
        frame: FrameIx,
        undoes: Option<RunIx>,
        rule: &Expression,
        class: &str,
    ) -> Result<Value, Failure> {
        let view = Standpoint { p: self, plan, frame, undoes, broken: RefCell::new(None) };
        let result = rule.evaluate(&view);
        let failed = |message: String| Failure { class: class.to_owned(), message };
        if let Some(why) = view.broken.take() {
            return Err(failed(why));
        }
        result.map_err(|e| failed(e.message))
    }

    /// Index and text of the element of the nearest dynamic Fanout.
    pub(super) fn item(&self, plan: &Plan, mut frame: FrameIx) -> Option<(u32, &[u8])> {
        loop {
            let (owner, branch) = self.frame(frame).owner?;
            let owner = self.run(owner);
            if plan.is_dynamic_fanout(owner.step) {
                return Some((branch, owner.fan.as_ref()?.items.get(branch as usize)?));
            }
            frame = self.frame(frame).parent;
        }
    }

    /// The input of an active step run, JSON text.
    pub(super) fn input_of(&self, plan: &Plan, ix: RunIx) -> &[u8] {
        let run = self.run(ix);
        if let Some(input) = &run.input {
            return input;
        }
        if let Some(forward) = run.undoes {
            return &self.run(forward).output;
        }
        match self.item(plan, run.frame) {
            Some((_, item)) => item,
            None => &self.header.input,
        }
    }
}

impl Turn<'_> {
    pub(super) fn evaluate(&self, ix: RunIx, rule: &Expression, class: &str) -> Result<Value, Failure> {
        let run = self.p.run(ix);
        let frame = run.undoes.map_or(run.frame, |forward| self.p.run(forward).frame);
        self.p.evaluate_in(self.plan, frame, run.undoes, rule, class)
    }

    /// Evaluates the input mapping, once a step run: later attempts get the same, whatever a loop did meanwhile.
    pub(super) fn prepare_input(&mut self, ix: RunIx) -> Result<(), Failure> {
        let plan = self.plan;
        let step = plan.step(self.p.run(ix).step);
        let text = match (&step.input, self.p.run(ix).undoes) {
            _ if self.p.run(ix).input.is_some() => return Ok(()),
            (Some(mapping), _) => self.evaluate(ix, mapping, "mapping")?.to_string().into_bytes(),
            (None, Some(forward)) if matches!(plan.step(self.p.run(forward).step).kind, StepKind::Join(_)) => {
                let text = self.p.output_text(plan, forward, PAYLOAD_BYTES_MAX);
                text.map_err(|e| Failure { class: "mapping".into(), message: e.to_string() })?.into_owned()
            }
            (None, _) => return Ok(()),
        };
        if text.len() > PAYLOAD_BYTES_MAX {
            return Err(Failure {
                class: "mapping".into(),
                message: format!(
                    "Expected an input of at most {PAYLOAD_BYTES_MAX} bytes, but the mapping gave {}.",
                    text.len()
                ),
            });
        }
        if self.p.run(ix).undoes.is_some() {
            self.spend(text.len());
        } else {
            self.afford(ix, text.len())?;
        }
        self.p.payload_bytes += text.len();
        self.p.run_mut(ix).input = Some(text);
        Ok(())
    }
}

/// The definition's variables with the caller's laid over them.
pub(super) fn variables(plan: &Plan, given: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut variables = plan.variables.clone();
    if !given.is_empty() {
        let failed = |message: String| Failure { class: "mapping".into(), message };
        match serde_json::from_slice(given) {
            Ok(Value::Object(given)) => variables.extend(given),
            Ok(other) => {
                return Err(failed(format!("Expected variables to be an object, but found {}.", kind_of(&other))));
            }
            Err(e) => return Err(failed(format!("Expected variables to be JSON, but found something else: {e}."))),
        }
    }
    Ok(Value::Object(variables).to_string().into_bytes())
}
