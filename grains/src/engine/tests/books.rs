//! What must hold after every turn, whatever the test is about: events without a gap, states in order, one end, nothing ordered
//! twice, and rows that give the same projection again.

use super::*;

impl Run {
    pub(super) fn take(&mut self, effects: Vec<Effect>) -> Vec<String> {
        let mut lines = Vec::new();
        let count = effects.len();
        for (at, effect) in effects.into_iter().enumerate() {
            assert!(self.ended.is_none() || matches!(effect, Effect::WakeAt(None)), "behind the end: {effect:?}");
            match effect {
                Effect::Publish(event) => {
                    self.events += 1;
                    assert_eq!(event.sequence, self.events, "events are numbered without a gap");
                    assert_eq!(event.at_ms, self.now);
                    if let Some(line) = self.event(event.payload.expect("a payload")) {
                        lines.push(line);
                    }
                }
                Effect::StepReady(order) => {
                    let name = self.name(order.step_run_id);
                    self.ordered.insert((order.step_run_id, order.attempt));
                    let input = String::from_utf8(order.input).expect("JSON is text");
                    lines.push(match order.ask.as_str() {
                        "" => format!("do {name}/{} {} {input}", order.attempt, order.queue),
                        ask => format!("ask {name}/{} {ask} {input}", order.attempt),
                    });
                    self.open.insert(name, (order.step_run_id, order.attempt));
                }
                Effect::CloseStep { step_run_id, closing } => {
                    let name = self.name(step_run_id);
                    self.open.remove(&name);
                    lines.push(match closing {
                        Closing::TimedOut => format!("time out {name}"),
                        Closing::Cancelled => format!("close {name}"),
                    });
                }
                Effect::StartChild(child) => {
                    let name = self.name(child.step_run_id);
                    let run = self.p.run(self.p.by_id[&child.step_run_id]);
                    self.open.insert(name.clone(), (child.step_run_id, run.attempt));
                    lines.push(format!("child {name} {} depth {}", child.definition_id, child.depth));
                }
                Effect::CancelChild { child_run_id, .. } => {
                    let mut runs = self.p.runs.iter();
                    let of_run = runs.find(|run| crate::engine::ids::child_run_id(run.id, run.attempt) == child_run_id);
                    let name = self.name(of_run.expect("a child of a step run").id);
                    self.open.remove(&name);
                    lines.push(format!("cancel child {name}"));
                }
                Effect::RunEnded(end) => {
                    lines.push(match &end {
                        RunEnd::Completed { output } => format!("end Completed {}", String::from_utf8_lossy(output)),
                        RunEnd::Failed { failed_step_id, failure, compensated, .. } => {
                            let undone = if *compensated { " compensated" } else { "" };
                            format!("end Failed {failed_step_id} {}{undone}", failure.class)
                        }
                        RunEnd::Cancelled { open_step_runs } => format!("end Cancelled {open_step_runs}"),
                    });
                    self.ended = Some(end);
                    self.open.clear();
                }
                Effect::WakeAt(due) => {
                    assert_eq!(at + 1, count, "the wake-up goes last");
                    assert_eq!(due, self.p.next_due());
                }
            }
        }
        lines
    }

    /// Events that say the same as the effect behind them give no line.
    fn event(&mut self, payload: Payload) -> Option<String> {
        match payload {
            Payload::RunStarted(_) => Some("started".into()),
            Payload::StepRunStateChanged(moved) => {
                let before = self.states.insert(moved.step_run_id.clone(), moved.to_state.clone());
                assert_eq!(before.as_deref().unwrap_or("Pending"), moved.from_state, "{moved:?}");
                let name = self.name(moved.step_run_id.parse().expect("an id"));
                if matches!(moved.to_state.as_str(), "Succeeded" | "Failed" | "Skipped" | "Cancelled") {
                    self.open.remove(&name);
                }
                Some(format!("{name} {}", moved.to_state))
            }
            Payload::StepReady(ready) => {
                let pair = (ready.step_run_id.parse().expect("an id"), ready.attempt);
                assert!(!self.ordered.contains(&pair) || self.is_sweep(), "ordered twice: {ready:?}");
                None
            }
            Payload::TimerFired(fired) => {
                let id: Uuid = fired.step_run_id.parse().expect("an id");
                let name = if id.is_nil() { "run".into() } else { self.name(id) };
                Some(format!("timer {name} late {}", fired.late_ms))
            }
            Payload::CompensationStarted(started) => Some(format!("compensate {}", started.entries)),
            Payload::RunCompleted(_) | Payload::RunFailed(_) | Payload::RunCancelled(_) => {
                assert!(self.p.is_terminal());
                None
            }
            Payload::DefinitionLoaded(_) => panic!("not an event of a run"),
        }
    }

    fn is_sweep(&self) -> bool {
        matches!(self.history.last(), Some((_, Input::CheckStuck { .. })))
    }

    pub(super) fn store(&mut self) {
        let changes = self.p.take_changes();
        self.written = changes.puts.iter().map(|row| row.key.key.len() + row.value.len()).sum();
        for row in changes.puts {
            self.rows.insert(row.key.clone(), row);
        }
        for key in changes.deletes {
            self.rows.remove(&key);
        }
        if self.reload {
            let rows: Vec<Row> = self.rows.values().cloned().collect();
            let loaded = Projection::load("acme", RUN, rows, Some(&self.plan)).expect("its own rows");
            self.same(&loaded);
            let note = self.p.note().clone();
            self.p = loaded;
            self.p.note = note;
        }
    }

    /// The loaded projection is the one that was stored, in what is seen and in what it remembers.
    fn same(&self, loaded: &Projection) {
        if !self.p.is_terminal() {
            assert_eq!(loaded.half_ready, self.p.half_ready);
            assert_eq!(loaded.active, self.p.active);
        }
        assert_eq!(loaded.graph(Some(&self.plan), "", 0), self.graph());
        assert_eq!(loaded.waiting(&self.plan), self.p.waiting(&self.plan));
        assert_eq!(loaded.plan_next(&self.plan), self.p.plan_next(&self.plan));
        assert_eq!(loaded.next_due(), self.p.next_due());
        assert_eq!(loaded.state(), self.state());
        assert_eq!(loaded.due, self.p.due);
        // Nobody asks how a branch ended once the run is over or compensates.
        if !self.p.is_terminal() && self.state() != RunState::Compensating {
            let busy = self.p.busy_frames();
            let branches = |p: &Projection| {
                let frames = p.frames.iter().zip((0..).map(FrameIx));
                let known = frames.filter(|(frame, ix)| busy.contains(ix) || frame.branch == Branch::Arrived);
                known.map(|(frame, ix)| (ix, frame.branch)).collect::<Vec<_>>()
            };
            assert_eq!(branches(loaded), branches(&self.p));
        }
    }

    pub(super) fn hold_run_state(&mut self) {
        use RunState::{
            Cancelled, Compensating, Completed, Failed, Pending, Running, WaitingForHuman, WaitingForTimer,
        };
        let direct = |from: RunState, to: RunState| {
            from == to
                || matches!(
                    (from, to),
                    (Pending, Running)
                        | (Running, WaitingForTimer | WaitingForHuman | Compensating | Completed | Failed | Cancelled)
                        | (WaitingForTimer | WaitingForHuman, Running | Cancelled)
                        | (Compensating, Failed)
                )
        };
        let (from, to) = (self.run_state, self.state());
        // Within one turn a run may pass through Running, and through Compensating when there is nothing to undo.
        let over = |middle| direct(from, middle) && direct(middle, to);
        assert!(direct(from, to) || over(Running) || over(Compensating) || direct(Running, to), "{from:?} to {to:?}");
        assert!(!from.is_terminal() || from == to);
        self.run_state = to;
    }
}
