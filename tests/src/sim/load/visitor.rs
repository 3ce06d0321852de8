//! Looks at runs that were acknowledged, ended ones too, by way of any node: also of one that is frozen, for so long that the
//! look is the first thing that the node does when it wakes, with all that it remembers out of date.

use super::{Yard, pause};
use crate::sim::chance::Chance;
use crate::sim::collect::entries;
use crate::sim::court::{Looks, Sight};
use crate::sim::doors::{Door, Trouble};
use grain_contract::{Code, GrainId};
use grains::kinds::methods::run;
use granary_proto::v1;
use prost::Message as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

const LOOKS_AT_ONCE_MAX: usize = 100;
/// By way of each node, when one has woken.
const LOOKS_ON_WAKING: usize = 4;
/// As a client's call; from when the node begins with it.
const WITHIN: Duration = Duration::from_secs(2);
/// Longer than any node is frozen.
const PATIENCE: Duration = Duration::from_secs(70);
const JOURNAL_ROWS_MAX: usize = 10_000;

pub struct Visitor {
    pub yard: Yard,
    pub chance: Chance,
}

impl Visitor {
    pub async fn run(mut self) {
        let places = Arc::new(Semaphore::new(LOOKS_AT_ONCE_MAX));
        let mut woken = self.yard.woken.clone();
        while self.yard.is_working() {
            let doors = tokio::select! {
                Ok(()) = woken.changed() => {
                    let all = self.yard.doors.all();
                    (0..LOOKS_ON_WAKING).flat_map(|_| all.clone()).collect()
                }
                () = pause(&mut self.chance, 50..300) => Vec::from_iter(self.yard.doors.any(&mut self.chance)),
            };
            let runs = self.yard.runs.all();
            for door in doors.into_iter().filter(|_| !runs.is_empty()) {
                let Ok(place) = places.clone().try_acquire_owned() else { break };
                let look = Look {
                    yard: self.yard.clone(),
                    run: self.chance.pick(&runs).clone(),
                    of_journal: self.chance.permille(300),
                    door,
                };
                tokio::spawn(async move {
                    look.take().await;
                    drop(place);
                });
            }
        }
    }
}

struct Look {
    yard: Yard,
    run: GrainId,
    of_journal: bool,
    door: Door,
}

impl Look {
    async fn take(self) {
        let began_us = self.yard.now_us();
        let looks = if self.of_journal { self.journal().await } else { self.state().await };
        if let Some(looks) = looks {
            let (run, slot, ended_us) = (self.run, self.door.slot, self.yard.now_us());
            self.yard.court.see(Sight::Looked { run, slot, began_us, ended_us, looks });
        }
    }

    async fn state(&self) -> Option<Looks> {
        let (target, get) = (self.run.clone(), v1::GetRunRequest { run_id: self.run.key.to_string() }.encode_to_vec());
        match self.door.call_in_time(target, run::GET, get, None, WITHIN, PATIENCE).await {
            Ok(reply) => Some(Looks::State(v1::Run::decode(&*reply).ok()?.state)),
            Err(Trouble::Refused(rejection)) if rejection.code == Code::NotFound => Some(Looks::Missing),
            Err(_) => None,
        }
    }

    async fn journal(&self) -> Option<Looks> {
        let run = self.run.clone();
        let rows = self.door.at(PATIENCE, move |inside| async move {
            inside.silo.rows(&run, run::table::JOURNAL, None, JOURNAL_ROWS_MAX, Instant::now() + WITHIN).await
        });
        Some(Looks::Journal(rows.await?.ok()?.iter().flat_map(entries).count()))
    }
}
