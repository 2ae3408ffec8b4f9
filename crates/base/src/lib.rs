//! The world below Strake: clock, randomness, disks, tasks and sockets, real and simulated.
//!
//! Everything that makes a run different from the next comes from here, so that a whole cluster can
//! be run from one seed. Other crates do not call the operating system for these. What measures file
//! systems finds here, behind safe calls, the ways to a file that need care with memory:
//! [`aligned`] buffers, files [`mapped`] into memory, and the [`uring`] of the kernel.
//!
//! What this crate never does: know a word of what Strake is for.

pub mod aligned;
pub mod clock;
pub mod descriptor;
pub mod disk;
pub mod mapped;
pub mod process;
pub mod random;
pub mod uring;
