use super::bytes_between;
use crate::tests::world::*;
use std::sync::atomic::{AtomicU64, Ordering};
use strake_types::{Layout, Timestamp, VolumeId};
use strake_wire::message::meta::{ClientRef, MetaOp, Publish};
use strake_wire::message::storage::{ChunkList, StorageOp};

/// A file that was made long and is open for writing.
async fn long_file(root: &User<'_>, name: &str) -> u64 {
    let ino = root.file(1, name).await.unwrap();
    root.open(ino, BOTH).await.unwrap();
    root.truncate(ino, 1 << 20).await.unwrap();
    ino
}

/// What went into a hole did not count, and a file that was made long first and filled then had no block at all.
#[tokio::test]
async fn what_was_written_into_a_hole_is_counted_when_nobody_writes_any_more() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.open(ino, BOTH).await.unwrap();
    root.truncate(ino, 1 << 20).await.unwrap();
    world.put_chunk(ino, 3, 50_000).await;
    let mtime = Some(Timestamp { seconds: 99, nanos: 9 }.into());
    let told = root.publish(Publish { ino, mtime, ..Publish::default() }).await.unwrap();
    assert!(told.occupied > 0, "no program takes it for a hole");
    root.close(ino).await.unwrap();
    world.until(async || root.getattr(ino).await.unwrap().occupied == 50_000).await;
    assert_eq!(root.stat().await.bytes, 50_000);
}

/// It occupied nothing for ever, and `tar -S` stored zeros.
#[tokio::test]
async fn what_a_lost_client_had_written_is_counted_as_occupied() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let session = world.open_session(0, &[]).await.session;
    // It tells of 10 bytes, and not what they occupy.
    let length = world.write_untold(&root.clone().at(session), ino).await;
    world.put_chunk(ino, 0, 10).await;
    root.call(MetaOp::EvictClient(ClientRef { session })).await.unwrap();
    world.until(async || root.getattr(ino).await.unwrap().length == length).await;
    assert!(root.getattr(ino).await.unwrap().occupied >= 100, "as soon as it is longer");
    world.until(async || root.getattr(ino).await.unwrap().occupied == 110).await;
}

/// What waits to be counted is known only while the server lives, unless it ends in good order: after another end it occupied
/// nothing for ever.
#[tokio::test]
async fn what_a_lost_client_has_written_into_a_hole_shows_a_block_also_after_a_restart() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let session = world.open_session(0, &[]).await.session;
    let writer = root.clone().at(session);
    writer.open(ino, BOTH).await.unwrap();
    writer.truncate(ino, 1 << 20).await.unwrap();
    world.put_chunk(ino, 3, 50_000).await;
    // How long it is the targets say, and not what it occupies.
    *world.storage.refuses.lock() = Some(|op| matches!(op, StorageOp::Chunks(of) if of.from == 0));
    root.call(MetaOp::EvictClient(ClientRef { session })).await.unwrap();
    let occupied = async |world: &World| world.root().at(0).getattr(ino).await.unwrap().occupied;
    world.until(async || occupied(&world).await > 0).await;
    let world = world.restarted().await;
    assert!(occupied(&world).await > 0, "no program takes it for a hole");
}

/// It was known only while the server lived: a file that stayed open over an orderly restart had one block for ever, and so much
/// less counted the volume.
#[tokio::test]
async fn what_waits_to_be_counted_is_counted_also_after_an_orderly_stop() {
    let world = World::new().await;
    let root = world.root();
    let ino = long_file(&root, "f").await;
    world.put_chunk(ino, 3, 50_000).await;
    let mtime = Some(Timestamp { seconds: 99, nanos: 9 }.into());
    root.publish(Publish { ino, mtime, ..Publish::default() }).await.unwrap();
    let is_exact = async |world: &World| {
        let volume = world.server.core().volume(VolumeId(1)).await.unwrap();
        volume.counts.is_exact()
    };
    world.until(async || is_exact(&world).await).await;
    let world = world.restarted().await;
    assert!(is_exact(&world).await, "nothing else is counted for that");
    assert!(world.open_session(world.session, &[ino]).await.resumed);
    let root = world.root();
    assert!(root.getattr(ino).await.unwrap().occupied < 50_000, "somebody may still write to it");
    root.close(ino).await.unwrap();
    world.until(async || root.getattr(ino).await.unwrap().occupied == 50_000).await;
    assert_eq!(root.stat().await.bytes, 50_000);
}

/// What was given back was taken off what had not been counted: nothing was left, and `tar -S` stored zeros.
#[tokio::test]
async fn a_file_with_contents_in_a_hole_shows_a_block_when_more_is_given_back_than_was_counted() {
    let world = World::new().await;
    let root = world.root();
    let ino = long_file(&root, "f").await;
    world.put_chunk(ino, 3, 50_000).await;
    let mtime = Some(Timestamp { seconds: 99, nanos: 9 }.into());
    let publish = Publish { ino, mtime, occupied_delta: -4096, ..Publish::default() };
    assert!(root.publish(publish).await.unwrap().occupied > 0);
    root.close(ino).await.unwrap();
    world.until(async || root.getattr(ino).await.unwrap().occupied == 50_000).await;
}

/// It is on the targets when what the lost one had written is counted, and told after that.
#[tokio::test]
async fn what_a_living_client_tells_after_another_is_lost_counts_once() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.open(ino, BOTH).await.unwrap();
    let session = world.open_session(0, &[]).await.session;
    world.write_untold(&root.clone().at(session), ino).await;
    world.put_chunk(ino, 2, 50).await;
    root.call(MetaOp::EvictClient(ClientRef { session })).await.unwrap();
    let length_min = 2 * 65_536 + 50;
    world.until(async || root.getattr(ino).await.unwrap().length == length_min).await;
    let publish = Publish { ino, length_min, occupied_delta: 50, ..Publish::default() };
    assert!(root.publish(publish).await.unwrap().occupied >= 150);
    root.close(ino).await.unwrap();
    world.until(async || root.getattr(ino).await.unwrap().occupied == 150).await;
}

/// Of this one its targets do not say what they have.
static UNKNOWN: AtomicU64 = AtomicU64::new(0);

/// The first that failed ended each turn, and each turn began with it: no file behind it was ever counted.
#[tokio::test]
async fn a_file_that_cannot_be_counted_holds_up_no_other() {
    let world = World::new().await;
    let root = world.root();
    let (a, b) = (long_file(&root, "a").await, long_file(&root, "b").await);
    let (first, second) = (a.min(b), a.max(b));
    UNKNOWN.store(first, Ordering::SeqCst);
    *world.storage.refuses.lock() = Some(|op| {
        let unknown = UNKNOWN.load(Ordering::SeqCst);
        matches!(op, StorageOp::Chunks(of) if of.ino == unknown)
    });
    for ino in [first, second] {
        world.put_chunk(ino, 3, 50_000).await;
        root.close(ino).await.unwrap();
    }
    let is_counted = async |ino| root.getattr(ino).await.unwrap().occupied == 50_000;
    world.until(async || is_counted(second).await).await;
    assert!(!is_counted(first).await);
    *world.storage.refuses.lock() = None;
    // It is tried again after a second.
    world.clock.advance_ms(2_000);
    world.until(async || is_counted(first).await).await;
}

#[tokio::test]
async fn a_block_that_is_shown_for_a_write_that_failed_goes_when_the_file_is_counted() {
    let world = World::new().await;
    let root = world.root();
    let ino = long_file(&root, "f").await;
    let mtime = Some(Timestamp { seconds: 99, nanos: 9 }.into());
    let told = root.publish(Publish { ino, mtime, ..Publish::default() }).await.unwrap();
    assert!(told.occupied > 0, "whoever has written it may only have filled a hole");
    root.close(ino).await.unwrap();
    world.until(async || root.getattr(ino).await.unwrap().occupied == 0).await;
    assert_eq!(root.stat().await.bytes, 0);
}

#[tokio::test]
async fn bytes_are_counted_as_clients_count_them_and_up_to_the_end_of_the_file() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let layout: Layout = root.getattr(ino).await.unwrap().layout.unwrap().try_into().unwrap();
    let list = ChunkList {
        indices: vec![0, 1],
        lens: vec![100, 65_536],
        occupied: vec![4096 + 8192, 65_536],
        reserved: vec![8192],
        next: None,
    };
    let length = 65_536 + 5_000;
    assert_eq!(bytes_between(&list, &layout, 0, length), 100 + 8192 + 8192);
    assert_eq!(bytes_between(&list, &layout, 65_536 + 1_000, length), 8192 - 1_000);
}
