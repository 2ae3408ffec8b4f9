//! The black-box proof: real processes, real mounts, and the client over servers in one process.
//!
//! * [`property`] — random sequences of operations on a file system and on the reference model.
//! * [`local`] — all services in this process, restarted at will.
//! * [`mounted`] — the same, with the volume mounted.
//! * [`cluster`] — `strake up` on temporary directories, killed and restarted at will.
//! * [`owners`] — a cluster with several metadata servers or managers on one database.
//! * [`applications`] — processes that use what is mounted, and tell what came of it.
//! * [`servers`] — a witness and storage servers that come and go.
//! * [`stores`] — a metadata store, changed while its server is stopped.
//! * [`records`] — a file that shows whether something that was acknowledged is old or torn.
//! * [`decoders`] — the rule that every decoder is held to, by tests and by fuzz targets.
//! * [`made`] — files that the examples make through the native client.
//! * [`network`] — hosts as network namespaces, which can be cut off.
//! * [`way`] — a way to a port of this machine, which can be cut.
//! * [`helpers`] — `mount -t strake`, with nothing installed.
//! * [`system`] — what applications ask of the kernel and no safe library offers.
//! * [`postgres`] — a PostgreSQL server of the distribution's package.
//! * [`etcd`] — an etcd cluster of the distribution's package.
//! * `guard` — the shell between this program and a server of a package.
//! * [`programs`] — programs that a test makes up.
//! * [`suites`] — suites that nobody here wrote, fetched once into `target/tools`.
//!
//! The tests themselves are in `tests/tests`, one file per subject. What this crate never does: keep
//! anything of a run that passed, depend on another test, or assert how long something took.

pub mod applications;
pub mod cluster;
pub mod decoders;
pub mod etcd;
mod guard;
pub mod helpers;
pub mod local;
pub mod made;
pub mod mounted;
pub mod network;
pub mod owners;
pub mod postgres;
pub mod programs;
pub mod property;
pub mod records;
pub mod servers;
pub mod stores;
pub mod suites;
pub mod system;
pub mod way;
