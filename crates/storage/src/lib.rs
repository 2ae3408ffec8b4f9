//! Contents: the role that answers for the chunks on a server's targets.
//!
//! A call names a target, shows a capability and says what to do with a chunk. [`StorageServer`]
//! checks the capability, then lets the target's [`ChunkStore`](strake_engine::chunk::ChunkStore) do
//! it: at once where the answer is in memory, else on a thread that may wait for the disk, of which
//! every target has a bounded number at work. So a slow disk holds up neither the other targets nor
//! the thread that asked.
//!
//! ```text
//! StorageServer::call -> capability -> Shelf -> Target::run -> ChunkStore
//!                                   |-> Replica (a group of several copies) -> Shelf, other members
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
//! done), or order the writes of a group of one copy (the engine's order is the order). Of several
//! copies the primary's replica orders them.
//!
//! * `server` — the service: what each operation needs, and who carries it out.
//! * `replica` — groups of several copies: `docs/design/0040-replication.md`.
//! * `gate` — groups of one member, and how they come to have several and back. What targets hold of
//!   each group, and the clearing of what is not theirs any more, is in `server`.
//! * `apply`, `copy` — what an operation does to a store, and copies between chunks.
//! * `tag` — how chunks of different groups are kept apart on one target.
//! * `attempts` — what makes a change happen once; `order` — what a request says beside its operation.
//! * `room` — when a target is short of room, as primaries are told.
//! * `syncs` — what makes many syncs of a target one, and waits for the same however often its client asks.
//! * [`soundness`] — whether what targets hold is sound, asked of any server of the cluster; `scrubs` —
//!   the walks over targets of this server that jobs of the manager want verified.
//! * `target` — one target, its bounded threads and its metrics; `watch` — whether its disk answers; `member` — what the cluster hears of
//!   a server with targets, and has it do; `opener` — who makes targets while it runs.

mod apply;
mod attempts;
mod copy;
mod gate;
mod member;
mod opener;
mod order;
mod replica;
mod room;
mod scrubs;
mod server;
pub mod soundness;
mod syncs;
mod tag;
mod target;
mod watch;

pub use member::{Disks, Here};
pub use opener::Opener;
pub use scrubs::{Scrubbed, Scrubs};
pub use server::StorageServer;
