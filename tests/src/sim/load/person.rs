//! Looks at open runs, decides what they ask for, cancels one now and then, and notes which have ended.

use super::{Yard, pause};
use crate::sim::chance::Chance;
use crate::sim::court::{Looks, Sight};
use crate::sim::doors::Trouble;
use crate::sim::net::Slot;
use grain_contract::{Code, GrainId};
use grains::kinds::methods::run;
use granary_proto::v1;
use prost::Message as _;
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(3);

pub struct Person {
    pub yard: Yard,
    pub chance: Chance,
}

impl Person {
    pub async fn run(mut self) {
        loop {
            for run in self.yard.runs.open() {
                self.look(&run).await;
            }
            pause(&mut self.chance, 100..400).await;
        }
    }

    async fn ask<A: prost::Message + Default>(
        &mut self,
        run: &GrainId,
        method: grain_contract::Method,
        body: Vec<u8>,
    ) -> Option<(Slot, A)> {
        let door = self.yard.doors.any(&mut self.chance)?;
        let reply = door.call(run.clone(), method, body, None, WITHIN).await;
        match reply {
            Ok(reply) => Some((door.slot, A::decode(&*reply).ok()?)),
            Err(Trouble::Refused(refused)) if refused.code == Code::NotFound => {
                self.yard.court.complain(format!("{run} was accepted, but {door} says: {refused}", door = door.slot));
                None
            }
            Err(_) => None,
        }
    }

    async fn look(&mut self, run: &GrainId) {
        let get = v1::GetRunRequest { run_id: run.key.to_string() };
        let began_us = self.yard.now_us();
        let Some((slot, found)) = self.ask::<v1::Run>(run, run::GET, get.encode_to_vec()).await else { return };
        let (run_id, ended_us, looks) = (run.clone(), self.yard.now_us(), Looks::State(found.state.clone()));
        self.yard.court.see(Sight::Looked { run: run_id, slot, began_us, ended_us, looks });
        if matches!(found.state.as_str(), "Completed" | "Failed" | "Cancelled") {
            self.yard.runs.ended(run);
            return;
        }
        if self.yard.is_working() && self.chance.permille(15) {
            let (run_id, by) = (run.key.to_string(), "a person".to_owned());
            let cancel = v1::CancelRunRequest { run_id, reason: "changed their mind".to_owned(), by };
            self.ask::<v1::Run>(run, run::CANCEL, cancel.encode_to_vec()).await;
        }
        let ask = v1::ListApprovalsRequest { run_id: run.key.to_string(), ..Default::default() };
        let found = self.ask::<v1::ListApprovalsResponse>(run, run::APPROVALS, ask.encode_to_vec()).await;
        for approval in
            found.map(|(_, found)| found).unwrap_or_default().approvals.into_iter().filter(|a| a.state == "pending")
        {
            let decision = match approval.kind.as_str() {
                "escalation" if approval.options.iter().any(|o| o == "retry") && self.chance.permille(700) => "retry",
                "escalation" => "fail",
                "input" => "answer",
                _ if self.chance.permille(100) => "reject",
                _ => "approve",
            };
            let decide = v1::DecideApprovalRequest {
                approval_id: approval.approval_id,
                decision: decision.to_owned(),
                proposal_version: approval.proposal_version,
                decided_by: "a person".to_owned(),
                run_id: run.key.to_string(),
                ..Default::default()
            };
            self.ask::<v1::Approval>(run, run::DECIDE, decide.encode_to_vec()).await;
        }
    }
}
