//! The state behind the log: rebuildable, written behind.
//!
//! `store` is what a backend must do (`sled`, `fjall`, `memory`), `keys` what lies where, `overlay` and `writer` how rows
//! get there, `head` why replay after a crash is exact, `turn` and `housekeeping` what an entry changes, `read` what an
//! owner may ask.

pub mod closable;
pub mod fjall;
pub mod guard;
pub mod head;
pub mod housekeeping;
pub mod keys;
pub mod memory;
pub mod overlay;
pub mod read;
pub mod sled;
pub mod sled_file;
pub mod stop;
pub mod store;
pub mod turn;
pub mod value;
pub mod writer;

#[cfg(test)]
mod closable_tests;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod overlay_tests;

pub use stop::Stop;
