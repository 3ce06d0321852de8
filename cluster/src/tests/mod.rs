//! A silo over shards in memory, from outside.

mod activation;
mod drain;
mod events;
mod lists;
mod memory;
mod outbox;
mod pressure;
mod reminders;
mod wake;
mod workers;
