//! Tests of the whole: layering and tidiness, a simulated cluster, and real processes killed under load.

pub mod cluster;
pub mod process;
pub mod proof;
pub mod sim;
pub mod worker;
pub mod workspace;
