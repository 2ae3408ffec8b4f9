//! What whoever starts a manager gives it.

use async_trait::async_trait;
use std::sync::Arc;
use strake_base::clock::{Clock, SystemClock};
use strake_types::Result;
use strake_wire::message::manager::VolumeSpec;

/// Silence after which a server counts as down.
const LEASE_MS: u64 = 3_000;

/// The ways to servers, as others go them.
#[async_trait]
pub trait Ways: Send + Sync {
    /// Calls a server at its address; fails if nobody of this cluster answers there. The caller bounds the time.
    async fn reach(&self, server: u32, address: &str) -> Result<()>;
}

/// How a manager works.
#[derive(Clone)]
pub struct ManagerOptions {
    /// Time within which a server's next heartbeat must arrive.
    pub lease_ms: u64,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// The volume that a new cluster begins with.
    pub first_volume: VolumeSpec,
    /// How it looks whether servers are reached; `None`: whoever is heard counts as reached.
    pub ways: Option<Arc<dyn Ways>>,
}

impl Default for ManagerOptions {
    fn default() -> Self {
        Self {
            lease_ms: LEASE_MS,
            clock: Arc::new(SystemClock::default()),
            first_volume: VolumeSpec { name: "main".into(), ..VolumeSpec::default() },
            ways: None,
        }
    }
}
