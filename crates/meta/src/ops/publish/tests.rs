use crate::tests::world::*;
use std::sync::Arc;
use strake_engine::kv::Kv;
use strake_engine::kv::memory::SyncedKv;
use strake_types::{ErrorKind, FileKind, Timestamp};
use strake_wire::message::common::AttrChange;
use strake_wire::message::meta::{MetaOp, OpenMode, Publish, WriteInline};

#[tokio::test]
async fn the_length_only_grows_and_the_time_is_the_writers() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.move_out(ino).await.unwrap();
    let mtime = Timestamp { seconds: 99, nanos: 9 };
    let publish = Publish {
        ino,
        length_min: 100_000,
        mtime: Some(mtime.into()),
        occupied_delta: 50_000,
        sync: true,
        ..Publish::default()
    };
    let attr = root.publish(publish).await.unwrap();
    assert_eq!((attr.length, attr.occupied, attr.mtime.seconds), (100_000, 50_000, 99));
    let shorter = Publish { ino, length_min: 5, occupied_delta: -90_000, ..Publish::default() };
    let attr = root.publish(shorter).await.unwrap();
    assert_eq!((attr.length, attr.occupied), (100_000, 0));
    let much = Publish { ino, occupied_delta: 1 << 40, ..Publish::default() };
    assert_eq!(root.publish(much).await.unwrap().occupied, 102_400, "no more than the length");
    let same = root.publish(Publish { ino, length_min: 5, ..Publish::default() }).await.unwrap();
    assert_eq!(same, root.getattr(ino).await.unwrap());
    assert_eq!(root.stat().await.bytes, 102_400);
}

/// Somebody has set times after the write: a time of modification of long ago is not when the file was changed.
#[tokio::test]
async fn times_that_were_set_after_a_write_come_with_it() {
    let world = World::new().await;
    let root = world.root();
    let time = |seconds| Some(Timestamp { seconds, nanos: 9 }.into());
    let inline = root.file(1, "inline").await.unwrap();
    let chunks = root.file(1, "chunks").await.unwrap();
    root.move_out(chunks).await.unwrap();
    let changed = root.getattr(chunks).await.unwrap().ctime.seconds + 100;
    let (mtime, ctime, atime) = (time(99), time(changed), time(98));
    let data = "x".into();
    let write = WriteInline { ino: inline, data, mtime, ctime, atime, ..WriteInline::default() };
    root.call(MetaOp::WriteInline(write)).await.unwrap();
    let told = Publish { ino: chunks, length_min: 1, mtime, ctime, atime, ..Publish::default() };
    root.publish(told).await.unwrap();
    for ino in [inline, chunks] {
        let attr = root.getattr(ino).await.unwrap();
        let times = (attr.mtime.seconds, attr.ctime.seconds, attr.atime.seconds);
        assert_eq!(times, (99, changed, 98));
        root.publish(Publish { ino, mtime: time(100), ..Publish::default() }).await.unwrap();
        let attr = root.getattr(ino).await.unwrap();
        let times = (attr.mtime.seconds, attr.ctime.seconds, attr.atime.seconds);
        assert_eq!(times, (100, changed, 98));
    }
}

/// A new file that its client has seen move out, and written to; the file was on disk, and the move went with the power.
async fn moved_in_vain() -> (World, u64) {
    let kv = SyncedKv::new();
    let mut world = World::on(Arc::new(kv.clone())).await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    kv.sync().await.unwrap();
    root.move_out(ino).await.unwrap();
    world.put_chunk(ino, 0, 100).await;
    world.kv = Arc::new(kv.after_power_loss().await.unwrap());
    let world = world.killed().await;
    world.open_session(world.session, &[]).await;
    assert!(world.root().getattr(ino).await.unwrap().inline);
    (world, ino)
}

/// Each `fsync` failed as long as the file stayed open: its client knows that it lies in chunks, and the server did not.
#[tokio::test]
async fn an_empty_file_whose_move_went_with_the_power_is_published_by_who_has_written_it() {
    let (world, ino) = moved_in_vain().await;
    let root = world.root();
    let publish = Publish { ino, length_min: 100, sync: true, ..Publish::default() };
    let attr = root.publish(publish).await.unwrap();
    assert!(!attr.inline && attr.length == 100);
    assert_eq!(world.storage.chunks.lock().len(), 1);
    root.unlink(1, "f").await.unwrap();
    world.all_done().await;
    assert!(world.storage.chunks.lock().is_empty());
}

/// The old contents were back, and what was written and synced since lay in chunks that nobody read.
#[tokio::test]
async fn an_old_file_that_is_cut_and_moves_out_has_done_so_after_a_loss_of_power() {
    let kv = SyncedKv::new();
    let world = World::on(Arc::new(kv.clone())).await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"what it was").await.unwrap();
    kv.sync().await.unwrap();
    world.clock.advance_ms(10_000);
    root.truncate(ino, 0).await.unwrap();
    root.move_out(ino).await.unwrap();
    let left = World::on(Arc::new(kv.after_power_loss().await.unwrap())).await;
    let attr = left.root().getattr(ino).await.unwrap();
    assert!(!attr.inline && attr.length == 0, "{attr:?}");
}

/// Somebody has made it longer, with zeros: nothing said that the writer's bytes were in chunks.
#[tokio::test]
async fn who_has_written_to_chunks_of_a_file_of_zeros_inside_its_inode_moves_it_out() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.truncate(ino, 4_096).await.unwrap();
    assert!(root.getattr(ino).await.unwrap().inline);
    let publish = Publish { ino, length_min: 100, occupied_delta: 100, ..Publish::default() };
    let attr = root.publish(publish).await.unwrap();
    assert!(!attr.inline && attr.length == 4_096, "{attr:?}");
    assert!(attr.occupied > 0);
}

/// It stayed inline, and what was reserved stayed on the targets when it was deleted.
#[tokio::test]
async fn an_empty_file_lies_in_chunks_where_room_is_reserved_in_them() {
    let (world, ino) = moved_in_vain().await;
    let root = world.root();
    let publish = Publish { ino, occupied_delta: 4096, ..Publish::default() };
    assert!(!root.publish(publish).await.unwrap().inline);
    root.unlink(1, "f").await.unwrap();
    world.all_done().await;
    assert!(world.storage.chunks.lock().is_empty());
}

#[tokio::test]
async fn only_writers_publish_and_only_chunks() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"x").await.unwrap();
    let publish = Publish { ino, length_min: 5, ..Publish::default() };
    assert_eq!(kind(root.publish(publish).await), ErrorKind::Invalid);
    root.move_out(ino).await.unwrap();
    assert_eq!(kind(world.user(5, 5).publish(publish).await), ErrorKind::AccessDenied);
    // There are 2^40 chunks of 64 KiB, and no more.
    for length_min in [u64::MAX, (1 << 56) + 1] {
        let beyond = Publish { ino, length_min, ..Publish::default() };
        assert_eq!(kind(root.publish(beyond).await), ErrorKind::FileTooBig);
    }
    let dir = root.mkdir(1, "d").await.unwrap();
    let on_dir = Publish { ino: dir, ..publish };
    assert_eq!(kind(root.publish(on_dir).await), ErrorKind::Invalid);
}

/// What a program may do beyond who runs it was left to whatever it had become.
#[tokio::test]
async fn what_is_written_by_a_user_or_cut_or_given_away_keeps_no_privileges() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.make(new(1, "f", FileKind::File, 0o6755)).await.unwrap().attr.ino;
    let name = "security.capability";
    let give = async || root.setxattr(ino, name, b"value").await.unwrap();
    let gone = async || {
        assert_eq!(kind(root.getxattr(ino, name).await), ErrorKind::NoAttribute);
    };
    root.setxattr(ino, "user.a", b"1").await.unwrap();
    give().await;
    let before = root.getattr(ino).await.unwrap();
    let drop = Publish { ino, drop_setid: true, ..Publish::default() };
    let attr = root.publish(drop).await.unwrap();
    assert_eq!((attr.mode, attr.mtime), (0o755, before.mtime), "nothing is written yet");
    gone().await;
    assert_eq!(root.publish(drop).await.unwrap(), attr, "nothing is left to take away");
    give().await;
    let (data, drop_setid) = ("x".into(), true);
    let write = WriteInline { ino, data, drop_setid, ..WriteInline::default() };
    root.call(MetaOp::WriteInline(write)).await.unwrap();
    gone().await;
    give().await;
    root.truncate(ino, 0).await.unwrap();
    gone().await;
    give().await;
    root.setattr(ino, AttrChange { uid: Some(5), ..AttrChange::default() }).await.unwrap();
    gone().await;
    give().await;
    root.open(ino, OpenMode { truncate: true, ..BOTH }).await.unwrap();
    gone().await;
    assert_eq!(root.getxattr(ino, "user.a").await.unwrap(), "1", "nothing else");
}
