//! Tests of the whole: layering and tidiness, and real processes killed under load.

pub mod cluster;
pub mod process;
pub mod proof;
pub mod worker;
pub mod workspace;
