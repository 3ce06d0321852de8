//! The pure half of Granary: definitions, conditions, the engine, the bundled Run Control, and the grains made of them.
//!
//! Nothing here reads a clock, draws a random number, opens a file or speaks to the network. Time and entropy are
//! arguments; what shall happen is a value.

pub mod condition;
pub mod definition;
pub mod engine;
pub mod kinds;
pub mod run_control;
