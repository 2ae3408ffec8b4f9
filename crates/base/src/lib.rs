//! The world below Strake: clock, randomness, disks, tasks and sockets, real and simulated.
//!
//! Everything that makes a run different from the next comes from here, so that a whole cluster can
//! be run from one seed. Other crates do not call the operating system for these.
//!
//! What this crate never does: know a word of what Strake is for.

pub mod clock;
pub mod disk;
pub mod random;
