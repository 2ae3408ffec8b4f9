//! A store that does not take changes of an inode.

use crate::keys;
use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use strake_engine::kv::memory::MemoryKv;
use strake_engine::kv::{Kv, KvError, Outcome, Result, Snapshot, Writes};
use strake_types::{Ino, VolumeId};

/// A store in memory.
pub struct Refusing {
    kv: MemoryKv,
    /// The inode, of volume 1; 0: none.
    refused: AtomicU64,
    /// It says that it has no room for what is new, and takes it all the same.
    pub full: AtomicBool,
}

impl Refusing {
    /// An empty one, which takes everything.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            kv: MemoryKv::new(),
            refused: AtomicU64::new(0),
            full: AtomicBool::new(false),
        })
    }

    /// From now on it does not take this inode; 0: it takes everything.
    pub fn refuse(&self, ino: u64) {
        self.refused.store(ino, Ordering::SeqCst);
    }
}

fn full() -> KvError {
    KvError::Full { store: "refusing".into(), next: "make room" }
}

#[async_trait]
impl Kv for Refusing {
    fn name(&self) -> &'static str {
        "refusing"
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.kv.snapshot().await
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> Result<Outcome> {
        let refused = Ino(self.refused.load(Ordering::SeqCst));
        if writes.contains_key(&keys::inode(VolumeId(1), refused)) {
            return Err(full());
        }
        self.kv.commit(snapshot, writes).await
    }

    fn check_room(&self) -> Result<()> {
        match self.full.load(Ordering::SeqCst) {
            true => Err(full()),
            false => Ok(()),
        }
    }

    async fn sync(&self) -> Result<()> {
        self.kv.sync().await
    }
}
