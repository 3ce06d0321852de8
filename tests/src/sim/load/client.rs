//! A client: one thing after the other, each repeated at any node until it is answered for good.

use super::{Yard, pause};
use crate::sim::chance::Chance;
use crate::sim::check::GROWING;
use crate::sim::court::Sight;
use crate::sim::doors::Trouble;
use crate::sim::tally::{self, number};
use grain_contract::{CommandId, GrainId, Method, Timestamp};
use grains::kinds::methods::run;
use granary_proto::wire::Json;
use granary_proto::{calls, v1};
use prost::Message as _;
use std::time::Duration;

/// Tallies of a tenant, and those of them that only grow.
const TALLIES: u64 = 5;
const METERS: u64 = 2;

pub struct Client {
    pub yard: Yard,
    pub chance: Chance,
    pub tenant: &'static str,
    pub name: String,
}

impl Client {
    /// Until no more work is wanted, and what was begun is done.
    pub async fn run(mut self) {
        let mut number = 0;
        while self.yard.is_working() {
            number += 1;
            let name = format!("{}-{number}", self.name);
            match self.chance.below(100) {
                0..20 => self.add(&name, tally::ADD).await,
                20..28 => self.add(&name, tally::ADD_SLOWLY).await,
                28..40 => self.meter(&name).await,
                40..62 => self.read().await,
                62..68 => self.give(&name).await,
                68..80 => self.remind(&name).await,
                _ => self.submit().await,
            }
            pause(&mut self.chance, 5..250).await;
        }
    }

    fn tally(&mut self) -> GrainId {
        let key = format!("tally-{}", self.chance.below(TALLIES));
        tally::id(self.tenant, &key)
    }

    fn growing(&mut self) -> GrainId {
        let key = format!("{GROWING}-{}", self.chance.below(METERS));
        tally::id(self.tenant, &key)
    }

    /// Sends the same call until somebody answers it; `None` if it was refused for good.
    async fn insist(
        &mut self,
        target: &GrainId,
        method: Method,
        body: &[u8],
        command: Option<&str>,
    ) -> Option<Vec<u8>> {
        loop {
            let within = Duration::from_millis(self.chance.between(300..4_000));
            if let Some(door) = self.yard.doors.any(&mut self.chance) {
                let command = command.map(CommandId::new);
                match door.call(target.clone(), method, body.to_vec(), command, within).await {
                    Ok(reply) => return Some(reply),
                    Err(trouble) if trouble.is_final() => {
                        if let Trouble::Refused(rejection) = trouble {
                            self.yard.court.complain(format!("a call of {target} was refused: {rejection}"));
                        }
                        return None;
                    }
                    Err(_) => {}
                }
            }
            pause(&mut self.chance, 10..300).await;
        }
    }

    async fn add(&mut self, name: &str, method: Method) {
        let tally = self.tally();
        let amount = self.chance.below(9) + 1;
        let body = if method == tally::ADD { format!("{name},{amount}") } else { name.to_owned() };
        self.yard.court.see(Sight::Sent { tally: tally.clone(), what: name.to_owned() });
        if self.insist(&tally, method, body.as_bytes(), Some(name)).await.is_some() {
            self.yard.court.see(Sight::Done { tally: tally.clone(), what: name.to_owned() });
            if self.chance.permille(300) {
                // A client that does not know that it was heard.
                self.insist(&tally, method, body.as_bytes(), Some(name)).await;
            }
        }
    }

    async fn meter(&mut self, name: &str) {
        let tally = self.growing();
        self.yard.court.see(Sight::Sent { tally: tally.clone(), what: name.to_owned() });
        let body = format!("{name},1");
        if let Some(reply) = self.insist(&tally, tally::ADD, body.as_bytes(), Some(name)).await {
            self.yard.court.see(Sight::Done { tally: tally.clone(), what: name.to_owned() });
            let (ended_us, sum) = (self.yard.now_us(), number(&reply));
            self.yard.court.see(Sight::Added { tally, ended_us, sum });
        }
    }

    async fn read(&mut self) {
        let tally = self.growing();
        let Some(door) = self.yard.doors.any(&mut self.chance) else { return };
        let began_us = self.yard.now_us();
        let answer = door.call(tally.clone(), tally::GET, Vec::new(), None, Duration::from_secs(2)).await;
        if let Ok(reply) = answer {
            let (ended_us, sum) = (self.yard.now_us(), number(&reply));
            self.yard.court.see(Sight::Read { tally, began_us, ended_us, sum });
        }
    }

    async fn give(&mut self, name: &str) {
        let (tally, to) = (self.tally(), self.tally());
        let body = format!("{name},{},{}", self.chance.below(50) + 1, to.key);
        self.yard.court.see(Sight::Sent { tally: tally.clone(), what: name.to_owned() });
        if self.insist(&tally, tally::GIVE, body.as_bytes(), Some(name)).await.is_some() {
            self.yard.court.see(Sight::Done { tally, what: name.to_owned() });
        }
    }

    async fn remind(&mut self, name: &str) {
        let tally = self.tally();
        let body = format!("{name},{}", self.chance.below(4_000));
        if let Some(reply) = self.insist(&tally, tally::REMIND, body.as_bytes(), Some(name)).await {
            let due = Timestamp(number(&reply));
            self.yard.court.see(Sight::ReminderSet { tally, name: name.to_owned(), due });
        }
    }

    async fn submit(&mut self) {
        let run_id = self.chance.uuid().to_string();
        let release_id = self.chance.pick(&self.yard.plans.releases()).clone();
        let items: Vec<u64> = (0..=self.chance.below(4)).collect();
        let request = v1::SubmitRunRequest {
            definition_release_id: release_id.clone(),
            run_id: run_id.clone(),
            input: Some(Json::of(&serde_json::json!({ "items": items }))),
            ..v1::SubmitRunRequest::default()
        };
        let submit =
            calls::Submit { request: Some(request), release_id, by: self.name.clone(), ..calls::Submit::default() };
        let run = GrainId::new(&self.tenant.into(), &run::KIND.into(), &run_id);
        self.yard.court.see(Sight::Submitted { run: run.clone() });
        if self.insist(&run, run::SUBMIT, &submit.encode_to_vec(), None).await.is_some() {
            self.yard.court.see(Sight::Accepted { run: run.clone(), at_us: self.yard.now_us() });
            self.yard.runs.accepted(run);
        }
    }
}
