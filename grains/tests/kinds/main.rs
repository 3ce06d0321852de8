//! The grain kinds as black boxes: messages in, decisions out, rows between.

mod any_order;
mod bad_input;
mod cancel;
mod children;
mod every_kind;
mod examples;
mod external;
mod external_observed;
mod heavy;
mod library;
mod line;
mod open_work;
mod ordered;
mod plans;
mod refused_releases;
mod reminders;
mod reproject;
mod running;
mod seen;
mod world;
