//! A change that was given up in the middle of its commit, which is carried out all the same.

use super::*;
use std::sync::atomic::AtomicBool;
use strake_engine::kv::{Result as KvResult, Snapshot, Writes};

/// When a commit that was given up is carried out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lands {
    /// Just before the next commit, which is told so: the store of PostgreSQL.
    BeforeTheNext,
    /// When all that is still coming is waited for, or else as soon as somebody has read what was before it: that of etcd.
    WhenDrained,
}

/// A store that keeps one commit and does not answer it, if it is told so.
struct Late {
    kv: MemoryKv,
    lands: Lands,
    keeps: AtomicBool,
    kept: Mutex<Option<(Arc<dyn Snapshot>, Writes)>>,
}

impl Late {
    fn new(lands: Lands) -> Late {
        let (keeps, kept) = (AtomicBool::new(false), Mutex::new(None));
        Late { kv: MemoryKv::new(), lands, keeps, kept }
    }

    /// Carries out what was kept, if it is time.
    async fn land(&self, now: Lands) -> KvResult<()> {
        if self.lands != now {
            return Ok(());
        }
        let kept = self.kept.lock().take();
        if let Some((snapshot, writes)) = kept {
            let outcome = self.kv.commit(snapshot, writes).await?;
            assert_eq!(outcome, Outcome::Committed, "nothing was committed since");
        }
        Ok(())
    }
}

#[async_trait]
impl Kv for Late {
    fn name(&self) -> &'static str {
        "late"
    }

    async fn snapshot(&self) -> KvResult<Arc<dyn Snapshot>> {
        let snapshot = self.kv.snapshot().await?;
        self.land(Lands::WhenDrained).await?;
        Ok(snapshot)
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> KvResult<Outcome> {
        if self.keeps.swap(false, Ordering::SeqCst) {
            *self.kept.lock() = Some((snapshot, writes));
            return std::future::pending().await;
        }
        self.land(Lands::BeforeTheNext).await?;
        self.kv.commit(snapshot, writes).await
    }

    async fn drain(&self) -> KvResult<()> {
        self.land(Lands::WhenDrained).await
    }

    async fn sync(&self) -> KvResult<()> {
        self.kv.sync().await
    }
}

/// The next change was decided on without it, and gave the same numbers to another server and its target.
#[tokio::test(start_paused = true)]
async fn what_comes_late_of_a_change_that_was_given_up_is_not_written_over() {
    for lands in [Lands::BeforeTheNext, Lands::WhenDrained] {
        let late = Arc::new(Late::new(lands));
        let clock = Arc::new(TestClock::default());
        let kv: Arc<dyn Kv> = late.clone();
        let manager = start(&kv, &clock).await;
        let mut bench = Bench { kv, clock, manager };
        late.keeps.store(true, Ordering::SeqCst);
        let given_up = bench.join(server("a:1", &["x"]));
        tokio::time::timeout(Duration::from_secs(1), given_up).await.unwrap_err();
        assert!(late.kept.lock().is_some(), "{lands:?}: it was handed to the store");
        let joined = bench.join(server("b:1", &["y"])).await.unwrap();
        assert_eq!((joined.server, joined.targets.as_slice()), (2, &[2][..]), "{lands:?}");
        for _ in 0..2 {
            let map = bench.map().await;
            let servers: Vec<_> = map.servers.iter().map(|s| (s.id, s.address.as_str())).collect();
            assert_eq!(servers, [(1, "a:1"), (2, "b:1")], "{lands:?}");
            let targets: Vec<_> =
                map.targets.iter().map(|t| (t.id, t.server, t.spec.uuid.as_str())).collect();
            assert_eq!(targets, [(1, 1, "x"), (2, 2, "y")], "{lands:?}");
            bench.restart().await;
        }
    }
}
