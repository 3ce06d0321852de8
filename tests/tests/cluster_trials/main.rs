//! Real processes under load that are killed, frozen, cut off, slowed, restarted, joined by others, and robbed of their disks; then
//! the proof. One binary, so that one link serves them all; they take turns by themselves.
//!
//! The short ones run with all tests. The long ones are ignored there and run by `cargo xtask chaos`.

mod alone;
mod clock;
mod counts;
mod cut;
mod disk;
mod founding;
mod freeze;
mod join;
mod kill;
mod restart;
mod timers;
mod volume;
