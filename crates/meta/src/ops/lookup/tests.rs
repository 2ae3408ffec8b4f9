use super::TRIES_MAX;
use crate::cache::Commit;
use crate::core::Core;
use crate::tests::disturbed::Disturbed;
use crate::tests::world::*;
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use strake_engine::kv::memory::MemoryKv;
use strake_engine::kv::{Kv, KvError, Outcome, Pair, Result as KvResult, Snapshot, Writes};
use strake_types::{ErrorKind, Ino, VolumeId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A store that gives one snapshot at a time.
struct Single {
    kv: MemoryKv,
    free: Arc<Semaphore>,
}

struct SingleSnapshot {
    snapshot: Arc<dyn Snapshot>,
    _place: OwnedSemaphorePermit,
}

#[async_trait]
impl Kv for Single {
    fn name(&self) -> &'static str {
        "single"
    }

    async fn snapshot(&self) -> KvResult<Arc<dyn Snapshot>> {
        let place = self.free.clone().acquire_owned();
        let place = tokio::time::timeout(Duration::from_secs(1), place).await;
        let late = |_| KvError::Full { store: "single".into(), next: "" };
        let _place = place.map_err(late)?.expect("it is never closed");
        Ok(Arc::new(SingleSnapshot { snapshot: self.kv.snapshot().await?, _place }))
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> KvResult<Outcome> {
        let any: &dyn std::any::Any = &*snapshot;
        let single = any.downcast_ref::<SingleSnapshot>().expect("one of ours");
        self.kv.commit(single.snapshot.clone(), writes).await
    }

    async fn sync(&self) -> KvResult<()> {
        self.kv.sync().await
    }
}

#[async_trait]
impl Snapshot for SingleSnapshot {
    async fn get(&self, key: &[u8]) -> KvResult<Option<Bytes>> {
        self.snapshot.get(key).await
    }

    async fn multi_get(&self, keys: &[Vec<u8>]) -> KvResult<Vec<Option<Bytes>>> {
        self.snapshot.multi_get(keys).await
    }

    async fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> KvResult<Vec<Pair>> {
        self.snapshot.scan(from, to, limit).await
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self.snapshot.as_any()
    }
}

/// As many as a database gives snapshots each had one and waited for a second, until all of them failed.
#[tokio::test(start_paused = true)]
async fn who_looks_a_name_up_or_makes_one_holds_one_snapshot_at_a_time() {
    let kv = Single { kv: MemoryKv::new(), free: Arc::new(Semaphore::new(1)) };
    let world = World::on(Arc::new(kv)).await;
    let dir = world.root().mkdir(1, "d").await.unwrap();
    let ino = world.root().file(dir, "f").await.unwrap();
    // Nothing is known from before.
    let world = world.killed().await;
    let nobody = world.root().at(0);
    assert_eq!(nobody.lookup(dir, "f").await.unwrap().ino, ino);
}

#[tokio::test]
async fn dot_and_dot_dot_lead_where_they_should() {
    let world = World::new().await;
    let root = world.root();
    let dir = root.mkdir(1, "d").await.unwrap();
    assert_eq!(root.lookup(dir, ".").await.unwrap().ino, dir);
    assert_eq!(root.lookup(dir, "..").await.unwrap().ino, 1);
    assert_eq!(root.lookup(1, "..").await.unwrap().ino, 1);
}

#[tokio::test]
async fn a_file_is_found_by_its_number_and_has_no_names() {
    let world = World::new().await;
    let root = world.root();
    let file = root.file(1, "f").await.unwrap();
    assert_eq!(root.lookup(file, ".").await.unwrap().ino, file);
    assert_eq!(kind(root.lookup(file, "..").await), ErrorKind::NotDirectory);
    assert_eq!(kind(root.lookup(file, "f").await), ErrorKind::NotDirectory);
    root.unlink(1, "f").await.unwrap();
    assert_eq!(kind(root.lookup(file, ".").await), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_missing_name_is_missing_until_it_is_made() {
    let world = World::new().await;
    let root = world.root();
    assert_eq!(kind(root.lookup(1, "f").await), ErrorKind::NotFound);
    let ino = root.file(1, "f").await.unwrap();
    assert_eq!(root.lookup(1, "f").await.unwrap().ino, ino);
    root.unlink(1, "f").await.unwrap();
    assert_eq!(kind(root.lookup(1, "f").await), ErrorKind::NotFound);
    assert_eq!(kind(root.getattr(ino).await), ErrorKind::Stale);
}

#[tokio::test]
async fn searching_needs_the_right_to() {
    let world = World::new().await;
    let dir = world.root().mkdir(1, "d").await.unwrap();
    world.root().file(dir, "f").await.unwrap();
    world.root().chmod(dir, 0o744).await.unwrap();
    assert_eq!(kind(world.user(5, 5).lookup(dir, "f").await), ErrorKind::AccessDenied);
    assert_eq!(kind(world.user(5, 5).lookup(dir, "none").await), ErrorKind::AccessDenied);
    world.user(5, 5).checked().lookup(dir, "f").await.unwrap();
}

/// A lookup that read the entry just before another file was renamed over it, and the inode just
/// after, said that there was no such name. Found by simulation.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_name_that_others_are_renamed_over_is_always_there() {
    let world = std::sync::Arc::new(World::new().await);
    world.root().file(1, "name").await.unwrap();
    let renames = tokio::spawn({
        let world = world.clone();
        async move {
            for _ in 0..20_000 {
                world.root().file(1, "draft").await.unwrap();
                world.root().rename((1, "draft"), (1, "name")).await.unwrap();
            }
        }
    });
    while !renames.is_finished() {
        world.root().lookup(1, "name").await.unwrap();
    }
    renames.await.unwrap();
}

/// It was said that there was none: each time it was looked at it had just been given to another file.
#[tokio::test]
async fn a_name_that_is_given_to_others_whenever_it_is_looked_at_is_there() {
    let kv = Disturbed::new();
    let world = World::on(kv.clone()).await;
    let (root, core) = (world.root(), world.server.core());
    let opening = core.volume(VolumeId(1)).await.unwrap().opening;
    // So that it is read in the store.
    let forget = |ino| core.inodes.forget(Core::inode_key(opening, Ino(ino)), Commit::Ended);
    forget(root.file(1, "name").await.unwrap());
    let mut last = 0;
    let replace = async || {
        last = root.file(1, "draft").await.unwrap();
        root.rename((1, "draft"), (1, "name")).await.unwrap();
        forget(last);
    };
    let found = kv.disturb(root.lookup(1, "name"), TRIES_MAX as usize, replace).await;
    assert_eq!(found.unwrap().ino, last);
}
