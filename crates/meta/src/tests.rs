//! Tests of the server as a whole: random operations against a model, on a store that does
//! everything its contract permits; damage; restarts.

pub mod check;
pub mod counted;
mod damage;
pub mod disturbed;
mod gone;
#[path = "../../../tests/src/lines.rs"]
pub mod lines;
mod lost;
mod model;
mod random;
pub mod refusing;
mod shares;
mod storm;
mod volumes;
pub mod world;
