//! A silo over shards in memory, from outside.

mod activation;
mod drain;
mod events;
mod events_afar;
mod handover;
mod hops;
mod late;
mod lists;
mod memory;
mod outbox;
mod pressure;
mod reads_afar;
mod relay_figures;
mod reminders;
mod takeover;
mod wake;
mod watch_afar;
mod workers;
mod workers_afar;
