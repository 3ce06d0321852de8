//! (in work)
pub mod methods;
