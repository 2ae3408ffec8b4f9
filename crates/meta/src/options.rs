//! Limits and times of a metadata server.

use std::sync::Arc;
use strake_types::ServerId;
use strake_wire::lease::Lease;

/// Limits and times of a metadata server.
#[derive(Clone, Debug)]
pub struct MetaOptions {
    /// This server, so that it serves only the volumes that are its own; 0: whatever is asked for.
    pub server: ServerId,
    /// Where volumes may be given to another server: while it holds, what the map says is ours is served by nobody else.
    pub tenure: Option<Arc<Lease>>,
    /// Time within which a client must be heard of.
    pub lease_ms: u64,
    /// How long a capability lasts; a client that still has the file open asks for a new one.
    pub capability_ms: u64,
    /// How long an operation waits for storage servers that are away.
    pub storage_wait_ms: u64,
    /// How often the background tasks look for work when nobody has told them of any.
    pub tick_ms: u64,
    /// How long a loan of another share is kept for the next directory that is made there. Longer than its lender waits for
    /// it (6 s) is of no use: he ends it then.
    pub loan_kept_ms: u64,
    /// Number of the user and of the group who run the server: to them the root directory of a new volume belongs.
    pub root_owner: (u32, u32),
}

impl Default for MetaOptions {
    fn default() -> Self {
        MetaOptions {
            server: ServerId(0),
            tenure: None,
            lease_ms: 30_000,
            capability_ms: 24 * 3_600_000,
            storage_wait_ms: 30_000,
            tick_ms: 1_000,
            loan_kept_ms: 1_000,
            root_owner: (0, 0),
        }
    }
}
