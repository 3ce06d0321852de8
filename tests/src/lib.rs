//! Tests of the whole: layering and tidiness here, processes under `tests/`.

pub mod workspace;
