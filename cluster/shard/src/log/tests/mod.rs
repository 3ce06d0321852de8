//! Tests of the whole log, on a disk that forgets and fails as told (`double`) and on a real one.

mod double;
mod driver;
mod life;
