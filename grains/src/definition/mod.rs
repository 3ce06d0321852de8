//! (in work)
pub mod plan;
pub use plan::*;
