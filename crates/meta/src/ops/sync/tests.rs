use crate::tests::world::*;
use std::sync::Arc;
use strake_engine::kv::Kv;
use strake_engine::kv::memory::SyncedKv;
use strake_types::ErrorKind;

/// Its client still had it open, and was told that it was on disk: it was nowhere.
#[tokio::test]
async fn a_file_whose_making_went_with_the_power_is_not_synced() {
    let kv = SyncedKv::new();
    let mut world = World::on(Arc::new(kv.clone())).await;
    let root = world.root();
    let kept = root.file(1, "kept").await.unwrap();
    kv.sync().await.unwrap();
    let lost = root.file(1, "lost").await.unwrap();
    world.kv = Arc::new(kv.after_power_loss().await.unwrap());
    let world = world.killed().await;
    world.open_session(world.session, &[kept, lost]).await;
    let root = world.root();
    root.sync(kept).await.unwrap();
    assert_eq!(kind(root.sync(lost).await), ErrorKind::Stale);
    root.sync(0).await.unwrap();
}

#[tokio::test]
async fn a_file_that_was_removed_while_it_is_open_is_synced_also_after_a_restart() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.open(ino, BOTH).await.unwrap();
    root.unlink(1, "f").await.unwrap();
    root.sync(ino).await.unwrap();
    let world = world.killed().await;
    world.open_session(world.session, &[ino]).await;
    let root = world.root();
    root.sync(ino).await.unwrap();
}
