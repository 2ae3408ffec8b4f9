//! A store in memory of which a loss of power leaves what was synced.

use super::MemoryKv;
use crate::kv::{Kv, Outcome, Result, Snapshot, Transaction, Writes};
use async_trait::async_trait;
use parking_lot::Mutex;
use std::ops::Bound;
use std::sync::Arc;

/// The store. Cheap to clone: clones are the same.
#[derive(Clone)]
pub struct SyncedKv {
    now: MemoryKv,
    /// As it was when it was last synced; none: never.
    synced: Arc<Mutex<Option<Arc<dyn Snapshot>>>>,
}

impl SyncedKv {
    /// An empty store.
    #[expect(clippy::new_without_default, reason = "an empty store is made, not defaulted")]
    pub fn new() -> Self {
        Self { now: MemoryKv::new().booted(1), synced: Arc::default() }
    }

    /// What a loss of power now would leave.
    ///
    /// # Errors
    /// None: memory is always there.
    pub async fn after_power_loss(&self) -> Result<MemoryKv> {
        let left = MemoryKv::new().booted(2);
        let synced = self.synced.lock().clone();
        if let Some(synced) = synced {
            let mut filled = Transaction::begin(&left).await?;
            for (key, value) in synced.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).await? {
                filled.put(key.to_vec(), value);
            }
            let outcome = filled.commit(&left).await?;
            assert_eq!(outcome, Outcome::Committed, "nobody else knows it yet");
        }
        Ok(left)
    }
}

#[async_trait]
impl Kv for SyncedKv {
    fn name(&self) -> &'static str {
        self.now.name()
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.now.snapshot().await
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> Result<Outcome> {
        self.now.commit(snapshot, writes).await
    }

    fn boot(&self) -> Option<String> {
        self.now.boot()
    }

    async fn sync(&self) -> Result<()> {
        let synced = self.now.snapshot().await?;
        *self.synced.lock() = Some(synced);
        Ok(())
    }
}
