//! Contents: the role that answers for the chunks on a server's targets.
//!
//! A call names a target, shows a capability and says what to do with a chunk. [`StorageServer`]
//! checks the capability, then lets the target's [`ChunkStore`](strake_engine::chunk::ChunkStore) do
//! it: at once where the answer is in memory, else on a thread that may wait for the disk, of which
//! every target has a bounded number at work. So a slow disk holds up neither the other targets nor
//! the thread that asked.
//!
//! ```text
//! StorageServer::call -> capability -> Target::run -> ChunkStore
//!                                   `-> copy (from another target, perhaps another server's)
//! ```
//!
//! Checksums pass through: a write's is checked by the engine against the bytes that came, a read's
//! comes from the engine and is checked by the client. Nothing in between computes it again.
//!
//! A write is answered before it is on disk, so the answer names the boot that vouches for it: a sync
//! answered from another one does not cover it.
//!
//! What this crate never does: look at names, owners or modes (the capability says what may be
//! done), or order writes (with one member a group, the engine's order is the order).
//!
//! * [`server`] — the service: what each operation needs and does.
//! * `target` — one target, its bounded threads and its metrics.

mod copy;
pub mod server;
mod target;

pub use server::StorageServer;
