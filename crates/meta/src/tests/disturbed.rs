//! A store in which something happens between what a request reads in a cache and what it reads in the store.

use async_trait::async_trait;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use strake_engine::kv::memory::MemoryKv;
use strake_engine::kv::{Kv, Outcome, Result, Snapshot, Writes};
use tokio::sync::Semaphore;

tokio::task_local! {
    /// Whose snapshots wait.
    static IS_DISTURBED: ();
}

/// A store in memory.
pub struct Disturbed {
    kv: MemoryKv,
    /// So many snapshots are still to wait.
    left: AtomicUsize,
    /// Those that have begun to,
    waiting: Semaphore,
    /// and those that may go on.
    free: Semaphore,
}

impl Disturbed {
    /// An empty one.
    pub fn new() -> Arc<Self> {
        let (waiting, free) = (Semaphore::new(0), Semaphore::new(0));
        Arc::new(Self { kv: MemoryKv::new(), left: AtomicUsize::new(0), waiting, free })
    }

    /// What is answered where something happens just before each of the first so many snapshots that are taken for that.
    pub async fn disturb<T>(
        &self,
        asked: impl Future<Output = T>,
        times: usize,
        mut happens: impl AsyncFnMut(),
    ) -> T {
        self.left.store(times, Ordering::SeqCst);
        let disturbing = async {
            for _ in 0..times {
                self.waiting.acquire().await.expect("it is never closed").forget();
                happens().await;
                self.free.add_permits(1);
            }
            pending().await
        };
        tokio::select! {
            biased;
            answer = IS_DISTURBED.scope((), asked) => answer,
            never = disturbing => never,
        }
    }
}

#[async_trait]
impl Kv for Disturbed {
    fn name(&self) -> &'static str {
        "disturbed"
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        let less = |left: usize| left.checked_sub(1);
        if IS_DISTURBED.try_with(|()| ()).is_ok()
            && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
        {
            self.waiting.add_permits(1);
            self.free.acquire().await.expect("it is never closed").forget();
        }
        self.kv.snapshot().await
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> Result<Outcome> {
        self.kv.commit(snapshot, writes).await
    }

    async fn sync(&self) -> Result<()> {
        self.kv.sync().await
    }
}
