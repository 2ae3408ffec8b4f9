//! What a loss of power leaves of what the manager has told.

use super::*;
use std::sync::atomic::AtomicBool;
use strake_engine::kv::memory::SyncedKv;
use strake_engine::kv::{Result as KvResult, Snapshot, Writes};

/// A store whose syncs do not end, if it is told so.
struct Stuck {
    kv: SyncedKv,
    stuck: AtomicBool,
}

#[async_trait]
impl Kv for Stuck {
    fn name(&self) -> &'static str {
        "stuck"
    }

    async fn snapshot(&self) -> KvResult<Arc<dyn Snapshot>> {
        self.kv.snapshot().await
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> KvResult<Outcome> {
        self.kv.commit(snapshot, writes).await
    }

    async fn sync(&self) -> KvResult<()> {
        if self.stuck.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.kv.sync().await
    }
}

/// Who had asked for it first did not wait until it was on disk; whoever asked again was told that it was so already.
#[tokio::test(start_paused = true)]
async fn a_change_that_was_stored_for_nobody_is_on_disk_before_it_is_told() {
    let kv = Arc::new(Stuck { kv: SyncedKv::new(), stuck: AtomicBool::new(false) });
    let clock = Arc::new(TestClock::default());
    let shown: Arc<dyn Kv> = kv.clone();
    let manager = start(&shown, &clock).await;
    let mut bench = Bench { kv: shown, clock, manager };
    let op = || ManagerOp::SetVolume(VolumeSpec { sync_always: Some(true), ..named("main") });
    kv.stuck.store(true, Ordering::SeqCst);
    tokio::time::timeout(Duration::from_secs(1), bench.ask(op())).await.unwrap_err();
    kv.stuck.store(false, Ordering::SeqCst);
    bench.ask(op()).await.unwrap();
    let told = bench.map().await;
    bench.kv = Arc::new(kv.kv.after_power_loss().await.unwrap());
    bench.restart().await;
    let left = bench.map().await;
    assert_eq!((left.epoch, left.volumes[0].spec.sync_always), (told.epoch, Some(true)));
}
