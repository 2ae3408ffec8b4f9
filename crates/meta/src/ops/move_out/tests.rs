use crate::tests::world::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_engine::kv::Kv;
use strake_engine::kv::memory::SyncedKv;
use strake_types::ErrorKind;
use strake_wire::message::meta::Publish;

#[tokio::test]
async fn contents_lie_in_chunks_afterwards_and_only_there() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let before = root.write(ino, 0, b"contents").await.unwrap();
    let after = root.move_out(ino).await.unwrap();
    assert!(!after.inline && after.length == 8 && after.mtime == before.mtime);
    assert_eq!(world.storage.chunks.lock().len(), 1);
    assert_eq!(world.keys(b'B').await + world.keys(b'G').await, 0);
    assert_eq!(root.move_out(ino).await.unwrap(), after, "done already");
}

#[tokio::test]
async fn an_empty_file_moves_without_a_message() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    world.storage.away.store(true, Ordering::SeqCst);
    assert!(!root.move_out(ino).await.unwrap().inline);
}

#[tokio::test]
async fn what_a_broken_move_left_behind_is_never_seen() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"a long one").await.unwrap();
    world.storage.away.store(true, Ordering::SeqCst);
    assert_eq!(kind(root.move_out(ino).await), ErrorKind::Unavailable);
    // As if the bytes had got there before the answer was lost.
    for target in 11..14 {
        world.storage.chunks.lock().insert((target, ino, 0), b"a long one".to_vec());
    }
    let world = world.killed().await;
    world.open_session(world.session, &[]).await;
    let root = world.root();
    assert_eq!(root.read(ino).await.unwrap().unwrap(), "a long one");
    world.storage.away.store(false, Ordering::SeqCst);
    root.truncate(ino, 1).await.unwrap();
    root.move_out(ino).await.unwrap();
    let chunks = world.storage.chunks.lock().clone();
    assert_eq!(chunks.into_values().collect::<Vec<_>>(), [b"a".to_vec()]);
}

/// Seed 1796300000375: what was left of a move that its server had not finished was deleted, but not on the target's
/// disk. The target lost power, and the chunk was there again, of a file of which nobody looked for chunks any more:
/// deleted with the file it never was, and a file that grew would have shown it.
#[tokio::test]
async fn what_a_broken_move_left_behind_does_not_come_back_with_the_power() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"a long one").await.unwrap();
    world.storage.away.store(true, Ordering::SeqCst);
    assert_eq!(kind(root.move_out(ino).await), ErrorKind::Unavailable);
    world.storage.chunks.lock().insert((11, ino, 0), b"a long one".to_vec());
    world.storage.make_durable();
    let world = world.killed().await;
    world.storage.away.store(false, Ordering::SeqCst);
    world.until(async || world.keys(b'G').await == 0).await;
    world.storage.lose_power();
    assert!(world.storage.chunks.lock().is_empty());
}

/// A small file was synced inside its inode, grew, and lost its first bytes with the power of the
/// target that they had just been moved to.
#[tokio::test]
async fn what_moves_out_is_durable_before_the_inode_lets_it_go() {
    for fails_at_sync in [false, true] {
        let world = World::new().await;
        let root = world.root();
        let ino = root.file(1, "f").await.unwrap();
        root.write(ino, 0, b"synced").await.unwrap();
        world.storage.fails_at_sync.store(fails_at_sync, Ordering::SeqCst);
        root.move_out(ino).await.unwrap();
        assert!(!world.storage.fails_at_sync.load(Ordering::SeqCst));
        world.storage.lose_power();
        let chunks = world.storage.chunks.lock().clone();
        assert_eq!(chunks.into_values().collect::<Vec<_>>(), [b"synced".to_vec()]);
    }
}

/// The old contents came back with the power: what was written to chunks since was nowhere, or each `fsync` failed as long as
/// the file stayed open.
#[tokio::test]
async fn that_an_old_file_has_moved_out_empty_is_on_disk_before_its_client_goes_on() {
    for (by_length, length) in [(false, 5), (true, 1 << 20)] {
        let kv = SyncedKv::new();
        let mut world = World::on(Arc::new(kv.clone())).await;
        let root = world.root();
        let ino = root.file(1, "f").await.unwrap();
        root.write(ino, 0, b"old contents").await.unwrap();
        kv.sync().await.unwrap();
        root.truncate(ino, 0).await.unwrap();
        let moved = match by_length {
            true => root.truncate(ino, length).await,
            false => root.move_out(ino).await,
        };
        assert!(!moved.unwrap().inline);
        world.put_chunk(ino, 0, 5).await;
        world.kv = Arc::new(kv.after_power_loss().await.unwrap());
        let world = world.killed().await;
        world.open_session(world.session, &[]).await;
        let publish = Publish { ino, length_min: 5, sync: true, ..Publish::default() };
        let attr = world.root().publish(publish).await.unwrap();
        assert!(!attr.inline && attr.length == length, "by its length: {by_length}");
    }
}
