//! The black-box proof: real processes, real mounts, and the client over servers in one process.
//!
//! * [`property`] — random sequences of operations on a file system and on the reference model.
//! * [`local`] — all services in this process, restarted at will.
//! * [`mounted`] — the same, with the volume mounted.
//! * [`cluster`] — `strake up` on temporary directories, killed and restarted at will.
//! * [`decoders`] — the rule that every decoder is held to, by tests and by fuzz targets.
//! * [`helpers`] — `mount -t strake`, with nothing installed.
//! * [`system`] — what applications ask of the kernel and no safe library offers.
//! * [`suites`] — suites that nobody here wrote, fetched once into `target/tools`.
//!
//! The tests themselves are in `tests/tests`, one file per subject. What this crate never does: keep
//! anything of a run that passed, depend on another test, or assert how long something took.

pub mod cluster;
pub mod decoders;
pub mod helpers;
pub mod local;
pub mod mounted;
pub mod property;
pub mod suites;
pub mod system;
