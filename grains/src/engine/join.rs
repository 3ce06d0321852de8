//! Join: passes at most once an iteration, as soon as its quorum has arrived; fails as soon as it cannot arrive any more.

use super::edges::EdgeState;
use super::state::{Branch, FrameIx, RunIx, StepState};
use super::turn::Turn;
use crate::definition::{Join, Losers, Quorum, StepIx, StepKind};
use granary_proto::v1::Failure;

/// Who may come to a Join, and who has.
#[derive(Clone, Copy, Debug, Default)]
struct Roll {
    arrived: u32,
    /// Failed for good: they count against the quorum.
    failed: u32,
    open: u32,
    /// Conditions led elsewhere: they are not expected.
    dry: u32,
}

enum Verdict {
    Wait,
    Pass,
    Skip,
    Fail { possible: u32, needed: u32 },
}

impl Roll {
    pub(super) fn needed(self, quorum: Quorum) -> u32 {
        match quorum {
            Quorum::All => self.arrived + self.failed + self.open,
            Quorum::Any => 1,
            Quorum::Count(count) => count.max(1),
        }
    }

    fn judge(self, quorum: Quorum) -> Verdict {
        let needed = self.needed(quorum);
        let possible = self.arrived + self.open;
        if self.arrived > 0 && self.arrived >= needed {
            return Verdict::Pass;
        }
        if possible == 0 && self.failed == 0 {
            return Verdict::Skip;
        }
        // While nobody has arrived or failed all may still turn out dry, and then it is skipped.
        if possible < needed && self.arrived + self.failed > 0 {
            return Verdict::Fail { possible, needed };
        }
        Verdict::Wait
    }
}

impl Turn<'_> {
    /// A Join of plain edges: each step before it counts once, however many edges it has.
    pub(super) fn check_plain_join(&mut self, frame: FrameIx, step: StepIx, join: &Join) {
        let mut roll = Roll::default();
        let (mut open, mut not_taken) = (Vec::new(), Vec::new());
        for (from, state) in self.predecessors(frame, step) {
            match state {
                EdgeState::Taken => roll.arrived += 1,
                EdgeState::Open => {
                    roll.open += 1;
                    open.push(from);
                }
                EdgeState::NotTaken => {
                    roll.dry += 1;
                    not_taken.push(from);
                }
            }
        }
        match roll.judge(join.quorum) {
            Verdict::Wait => self.wait(frame, step),
            Verdict::Skip => self.begin_skipped(frame, step, not_taken),
            Verdict::Pass => {
                let Some(ix) = self.create(frame, step) else { return };
                if join.losers == Losers::Cancel {
                    self.cancel_feeders(frame, step, &open);
                }
                self.pass(ix);
            }
            Verdict::Fail { possible, needed } => {
                let Some(ix) = self.create(frame, step) else { return };
                self.cancel_feeders(frame, step, &open);
                self.fail_step(ix, unreachable(possible, needed), false);
            }
        }
    }

    /// Each step with edges into `step`, once, in edge order: taken if one of its edges is, open if one of them is.
    pub(super) fn predecessors(&mut self, frame: FrameIx, step: StepIx) -> Vec<(StepIx, EdgeState)> {
        let mut found: Vec<(StepIx, EdgeState)> = Vec::new();
        for edge in self.plan.forward_incoming(step) {
            let (from, state) = (self.plan.edge(edge).from, self.edge_state(frame, edge));
            match found.iter_mut().find(|(known, _)| *known == from) {
                None => found.push((from, state)),
                Some((_, known)) if state == EdgeState::Taken || *known == EdgeState::NotTaken => *known = state,
                Some(_) => {}
            }
        }
        found
    }

    /// A Join of a Fanout's branches. Edges from elsewhere only have to be decided.
    pub(super) fn check_fanout_join(&mut self, frame: FrameIx, step: StepIx, join: &Join) {
        let Some(fanout) = join.fanout else { return };
        let plan = self.plan;
        let Some(owner) = self.p.present(frame, fanout) else { return };
        if !self.p.run(owner).state.is_terminal() {
            return;
        }
        let others = plan.forward_incoming(step).filter(|edge| !plan.comes_from_within(*edge, fanout));
        for edge in others.collect::<Vec<_>>() {
            if self.edge_state(frame, edge) == EdgeState::Open {
                return self.wait(frame, step);
            }
        }
        let Some(fan) = &self.p.run(owner).fan else {
            return self.begin_skipped(frame, step, vec![fanout]);
        };
        let open = fan.branches - fan.arrived - fan.failed - fan.dry;
        let roll = Roll { arrived: fan.arrived, failed: fan.failed, open, dry: fan.dry };
        let verdict = if fan.branches == 0 { Verdict::Pass } else { roll.judge(join.quorum) };
        match verdict {
            Verdict::Wait => self.wait(frame, step),
            Verdict::Skip => self.begin_skipped(frame, step, vec![fanout]),
            Verdict::Pass => {
                let Some(ix) = self.create(frame, step) else { return };
                if join.losers == Losers::Cancel {
                    self.close_open_branches(owner);
                }
                self.pass(ix);
            }
            Verdict::Fail { possible, needed } => {
                let Some(ix) = self.create(frame, step) else { return };
                self.close_open_branches(owner);
                self.fail_step(ix, unreachable(possible, needed), false);
            }
        }
    }

    fn pass(&mut self, ix: RunIx) {
        self.p.run_mut(ix).attempt = 1;
        self.succeed(ix, Vec::new());
    }

    fn close_open_branches(&mut self, owner: RunIx) {
        let Some((first, branches)) = self.p.run(owner).fan.as_ref().map(|fan| (fan.first_frame, fan.branches)) else {
            return;
        };
        let open = (first..first + branches).map(FrameIx).filter(|f| self.p.frame(*f).branch == Branch::Open);
        let open: Vec<FrameIx> = open.collect();
        self.close_frames(open);
    }

    /// Cancels what can lead nowhere but to this Join: it is not waited for any more.
    fn cancel_feeders(&mut self, frame: FrameIx, join: StepIx, open: &[StepIx]) {
        let plan = self.plan;
        let mut feeders: Vec<StepIx> = Vec::new();
        let mut candidates: Vec<StepIx> = open.to_vec();
        while let Some(step) = candidates.pop() {
            let leads_here = |to: StepIx| to == join || feeders.contains(&to);
            let present = self.p.present(frame, step).map(|ix| self.p.run(ix).state);
            let ended = present.is_some_and(StepState::is_terminal);
            if ended || feeders.contains(&step) || plan.step(step).scope.len() != plan.step(join).scope.len() {
                continue;
            }
            if plan.step(step).outgoing.iter().all(|edge| leads_here(plan.edge(*edge).to)) {
                feeders.push(step);
                candidates.extend(plan.forward_incoming(step).map(|edge| plan.edge(edge).from));
            }
        }
        feeders.sort_unstable();
        for step in feeders {
            match self.p.present(frame, step) {
                Some(ix) => {
                    self.close(ix, "the join passed without it");
                    self.follow(ix, None);
                }
                None => self.cancel_before_start(frame, step),
            }
        }
    }

    /// One edge into it may be taken already: without a step run of its own it would start when the others are decided.
    fn cancel_before_start(&mut self, frame: FrameIx, step: StepIx) {
        if let StepKind::Join(Join { fanout: Some(fanout), .. }) = &self.plan.step(step).kind
            && let Some(owner) = self.p.present(frame, *fanout)
        {
            self.close_open_branches(owner);
        }
        if let Some(ix) = self.create(frame, step) {
            self.enter(ix, StepState::Cancelled);
            self.follow(ix, None);
        }
    }

    /// Arrived and needed, for people who ask why it waits.
    pub(super) fn needed(arrived: u32, failed: u32, open: u32, quorum: Quorum) -> u32 {
        Roll { arrived, failed, open, dry: 0 }.needed(quorum)
    }
}

fn unreachable(possible: u32, needed: u32) -> Failure {
    Failure { class: "quorum".into(), message: format!("quorum unreachable {possible} of {needed}") }
}
