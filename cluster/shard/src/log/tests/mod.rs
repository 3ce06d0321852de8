//! Tests of the whole log, on a disk that forgets and fails as told (`double`) and on a real one.

mod damage;
mod driver;
mod faults;
mod grouping;
mod kill;
mod life;
mod model;
mod power;
mod random;
mod suite;
