//! Reads all events of a tenant behind a named cursor, acknowledges some of them, and goes on at another node.

use super::{Yard, pause};
use crate::sim::chance::Chance;
use crate::sim::court::Sight;
use crate::sim::doors::Door;
use cluster::events::Scope;
use cluster::{DeliveredEvent, ReadEvents, ReadFrom};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// A consumer that was told nothing for this long looks elsewhere: its node may be dead to the world.
const PATIENCE: Duration = Duration::from_secs(4);

pub struct Consumer {
    pub yard: Yard,
    pub chance: Chance,
    pub tenant: &'static str,
    pub name: String,
}

impl Consumer {
    pub async fn run(mut self) {
        self.yard.court.see(Sight::Consumer { name: self.name.clone(), tenant: self.tenant.into() });
        loop {
            if let Some(door) = self.yard.doors.any(&mut self.chance) {
                self.read_at(door).await;
            }
            pause(&mut self.chance, 10..300).await;
        }
    }

    /// Until the node has no more to say, or this consumer wants to move.
    async fn read_at(&mut self, door: Door) {
        let read = ReadEvents {
            tenant: Some(self.tenant.into()),
            cursor_name: Some(self.name.clone()),
            from: ReadFrom::Earliest,
            scope: Scope::Cluster,
        };
        let (tell, mut told) = mpsc::channel::<(Vec<DeliveredEvent>, mpsc::Sender<String>)>(1);
        door.spawn(|inside| async move {
            let Ok(mut reader) = inside.silo.events(read).await else { return };
            while let Ok(events) = reader.next_batch().await {
                let (acknowledge, mut acknowledged) = mpsc::channel(1);
                if tell.send((events, acknowledge)).await.is_err() {
                    return;
                }
                if let Some(cursor) = acknowledged.recv().await
                    && reader.acknowledge(&cursor).is_err()
                {
                    return;
                }
            }
        });
        while let Ok(Some((events, acknowledge))) = tokio::time::timeout(PATIENCE, told.recv()).await {
            // It may be gone in the middle of what it was told: the rest comes again.
            let stays = !self.yard.is_working() || self.chance.permille(900);
            let taken = if stays { events.len() } else { self.chance.below(events.len() as u64 + 1) as usize };
            for event in events.iter().take(taken) {
                self.yard.court.see(Sight::Delivered {
                    consumer: self.name.clone(),
                    tenant: self.tenant.into(),
                    grain: event.grain.clone(),
                    body: Arc::new(event.body.clone()),
                });
            }
            if let Some(last) = events[..taken].last()
                && self.chance.permille(800)
            {
                drop(acknowledge.send(last.cursor.clone()).await);
            }
            if !stays {
                return;
            }
        }
    }
}
