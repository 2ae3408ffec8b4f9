//! Measuring file systems: the four founding studies, their generators, a testbed and reports.
//!
//! Anyone can ask how fast a mounted directory is, beside other directories and beside the physical
//! limit, in one run, with a protocol that is written down. Nothing here is about Strake's insides: a
//! measured directory is only a path.
//!
//! * [`result`] is what a run leaves: figures with what they are of. Everything else makes these or
//!   shows them.
//!
//! What this crate never does: show a figure that was not measured, unless it says who published it;
//! leave files behind in a measured directory.

pub mod result;
