//! Whether a metadata server reaches the database that its volumes are in.
//!
//! While it does not, it cannot serve what another server could: it says so to the manager with each heartbeat.

use crate::core::Core;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strake_base::task::{Owned, spawn_owned};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// How long a look may take.
const LOOK_MAX: Duration = Duration::from_millis(1_000);
/// Without an answer for so long it counts as cut off, in milliseconds.
const CUT_OFF_MS: u64 = 2_000;

/// What looks, until this is dropped.
pub(crate) struct Reach {
    core: Arc<Core>,
    /// When it was reached last, by [`Core::monotonic_ms`].
    reached_ms: Arc<AtomicU64>,
    _looking: Owned<()>,
}

impl Reach {
    /// Begins to look. It was reached just now.
    pub fn watch(core: &Arc<Core>) -> Self {
        let reached_ms = Arc::new(AtomicU64::new(core.monotonic_ms()));
        let looking = spawn_owned(look_on(core.clone(), reached_ms.clone()));
        Self { core: core.clone(), reached_ms, _looking: looking }
    }

    /// True if it was not reached for a while.
    pub fn is_cut_off(&self) -> bool {
        let reached = self.reached_ms.load(Ordering::Relaxed);
        self.core.monotonic_ms().saturating_sub(reached) > CUT_OFF_MS
    }
}

async fn look_on(core: Arc<Core>, reached_ms: Arc<AtomicU64>) {
    // No key begins so.
    let key = [b"?".to_vec()];
    loop {
        let asked = core.monotonic_ms();
        let looked = core.store.look(&key);
        match tokio::time::timeout(LOOK_MAX, looked).await {
            Ok(Ok(_)) => reached_ms.store(asked, Ordering::Relaxed),
            Ok(Err(error)) => tracing::debug!("{error}"),
            Err(_) => tracing::debug!("the database does not answer"),
        }
        tokio::time::sleep(LOOK).await;
    }
}
