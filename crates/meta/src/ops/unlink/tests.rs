use crate::MetaOptions;
use crate::tests::world::*;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use strake_engine::kv::memory::MemoryKv;
use strake_types::{ErrorKind, FileKind, Ino, VolumeId};
use strake_wire::message::meta::{Create, Link, MetaAnswer, MetaOp, Unlink};

#[tokio::test]
async fn a_file_that_nobody_has_open_leaves_nothing() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"contents").await.unwrap();
    root.setxattr(ino, "user.a", b"1").await.unwrap();
    let gone = root.unlink(1, "f").await.unwrap();
    assert_eq!((gone.nlink, gone.ino), (0, ino));
    for letter in *b"BXDEG" {
        assert_eq!(world.keys(letter).await, 0, "{}", char::from(letter));
    }
    assert_eq!(world.keys(b'I').await, 1);
    assert_eq!((root.stat().await.inodes, root.stat().await.bytes), (1, 0));
}

#[tokio::test]
async fn answers_show_the_directory_after_the_change() {
    let world = World::new().await;
    let root = world.root();
    let made = root.make(new(1, "f", FileKind::File, 0o644)).await.unwrap();
    assert_eq!(made.parent, Some(root.getattr(1).await.unwrap()));
    let link = MetaOp::Link(Link { ino: made.attr.ino, to: at(1, "g") });
    let MetaAnswer::Named(linked) = root.call(link).await.unwrap() else { panic!("a name") };
    assert_eq!(linked.parent, Some(root.getattr(1).await.unwrap()));
    let unlink = MetaOp::Unlink(Unlink { at: at(1, "g"), directory: false });
    let MetaAnswer::Named(left) = root.call(unlink).await.unwrap() else { panic!("a name") };
    assert_eq!(left.parent, Some(root.getattr(1).await.unwrap()));
    assert_ne!(left.parent, linked.parent);
}

#[tokio::test]
async fn an_open_file_lives_on_without_its_name() {
    let world = World::new().await;
    let root = world.root();
    let op = Create { open: Some(BOTH), ..new(1, "f", FileKind::File, 0o600) };
    let ino = root.make(op).await.unwrap().attr.ino;
    root.open(ino, BOTH).await.unwrap();
    assert_eq!(root.unlink(1, "f").await.unwrap().nlink, 0);
    root.write(ino, 0, b"still").await.unwrap();
    assert_eq!(root.read(ino).await.unwrap().unwrap(), "still");
    assert_eq!(kind(root.link(ino, 1, "again").await), ErrorKind::NotFound);
    root.close(ino).await.unwrap();
    assert_eq!(root.getattr(ino).await.unwrap().nlink, 0);
    root.close(ino).await.unwrap();
    world.until(async || root.getattr(ino).await.is_err()).await;
    assert_eq!(world.keys(b'B').await + world.keys(b'G').await, 0);
}

#[tokio::test]
async fn chunks_are_deleted_later_and_survive_a_server_that_is_away() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"contents").await.unwrap();
    root.move_out(ino).await.unwrap();
    assert_eq!(world.storage.chunks.lock().len(), 1);
    world.storage.away.store(true, SeqCst);
    root.unlink(1, "f").await.unwrap();
    assert_eq!(world.keys(b'G').await, 1);
    world.storage.away.store(false, SeqCst);
    world.until(async || world.keys(b'G').await == 0).await;
    assert!(world.storage.chunks.lock().is_empty());
    assert_eq!(kind(root.getattr(ino).await), ErrorKind::Stale);
}

/// Each was tried again in each turn, with a line in the log for each: hundreds of kilobytes a second.
#[tokio::test(start_paused = true)]
async fn nothing_is_tried_on_a_target_that_is_known_to_take_no_changes() {
    let world = World::new().await;
    let root = world.root();
    let names: Vec<String> = (0..300).map(|nth| format!("f{nth}")).collect();
    for name in &names {
        let ino = root.file(1, name).await.unwrap();
        root.write(ino, 0, b"contents").await.unwrap();
        root.move_out(ino).await.unwrap();
    }
    world.poison_targets(true).await;
    let before = world.storage.calls.load(SeqCst);
    for name in &names {
        root.unlink(1, name).await.unwrap();
    }
    // Ten turns, and more.
    tokio::time::sleep(Duration::from_millis(20 * world.options.tick_ms)).await;
    assert_eq!(world.storage.calls.load(SeqCst), before);
    assert_eq!(world.keys(b'G').await, names.len());
    world.poison_targets(false).await;
    world.until(async || world.keys(b'G').await == 0).await;
    assert!(world.storage.chunks.lock().is_empty());
}

/// Its lock was taken for half a minute at a time, and whoever wanted to unlink it kept the lock of its directory meanwhile.
#[tokio::test(start_paused = true)]
async fn a_file_is_not_locked_to_finish_a_cut_while_its_targets_are_known_to_be_away() {
    let options = MetaOptions { storage_wait_ms: 30_000, ..options() };
    let world = World::with(Arc::new(MemoryKv::new()), options).await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"contents").await.unwrap();
    root.move_out(ino).await.unwrap();
    world.storage.away.store(true, SeqCst);
    world.set_targets_up(false).await;
    assert_eq!(kind(root.truncate(ino, 2).await), ErrorKind::Unavailable);
    assert_eq!(world.keys(b'G').await, 1);
    // It has been looked at again by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!world.server.core().locks.is_taken(VolumeId(1), Ino(ino)));
}

/// The simulation found it: nothing named them any more, so nobody deleted them again.
#[tokio::test]
async fn chunks_that_were_deleted_do_not_come_back_with_the_power() {
    for fails_at_sync in [false, true] {
        let world = World::new().await;
        let root = world.root();
        let ino = root.file(1, "f").await.unwrap();
        root.write(ino, 0, b"contents").await.unwrap();
        root.move_out(ino).await.unwrap();
        world.storage.fails_at_sync.store(fails_at_sync, SeqCst);
        root.unlink(1, "f").await.unwrap();
        world.until(async || world.keys(b'G').await == 0).await;
        assert!(!world.storage.fails_at_sync.load(SeqCst));
        world.storage.lose_power();
        assert!(world.storage.chunks.lock().is_empty());
    }
}

#[tokio::test]
async fn only_empty_directories_are_removed_and_only_as_such() {
    let world = World::new().await;
    let root = world.root();
    let dir = root.mkdir(1, "d").await.unwrap();
    root.file(dir, "f").await.unwrap();
    assert_eq!(kind(root.unlink(1, "d").await), ErrorKind::IsDirectory);
    assert_eq!(kind(root.rmdir(dir, "f").await), ErrorKind::NotDirectory);
    assert_eq!(kind(root.rmdir(1, "d").await), ErrorKind::NotEmpty);
    assert_eq!(kind(root.rmdir(dir, ".").await), ErrorKind::Invalid);
    assert_eq!(kind(root.rmdir(dir, "..").await), ErrorKind::NotEmpty);
    assert_eq!(kind(root.unlink(dir, ".").await), ErrorKind::IsDirectory);
    root.unlink(dir, "f").await.unwrap();
    let gone = root.rmdir(1, "d").await.unwrap();
    assert_eq!(gone.nlink, 0);
    assert_eq!(root.getattr(1).await.unwrap().nlink, 2);
    assert_eq!(kind(root.file(dir, "f").await), ErrorKind::NotFound);
    assert_eq!(world.keys(b'U').await, 1);
}

#[tokio::test]
async fn missing_rights_and_sticky_directories_refuse() {
    let world = World::new().await;
    let root = world.root();
    let dir = root.mkdir(1, "d").await.unwrap();
    root.chmod(dir, 0o777).await.unwrap();
    world.user(5, 5).file(dir, "f").await.unwrap();
    root.chmod(dir, 0o1777).await.unwrap();
    assert_eq!(kind(world.user(6, 6).unlink(dir, "f").await), ErrorKind::NotPermitted);
    root.chmod(dir, 0o755).await.unwrap();
    assert_eq!(kind(world.user(5, 5).unlink(dir, "f").await), ErrorKind::AccessDenied);
    assert_eq!(kind(world.user(5, 5).unlink(dir, "none").await), ErrorKind::NotFound);
    root.chmod(dir, 0o1777).await.unwrap();
    world.user(5, 5).unlink(dir, "f").await.unwrap();
}

#[tokio::test]
async fn what_has_many_attributes_goes_with_all_of_them() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    for nth in 0..100 {
        root.setxattr(ino, &format!("user.{nth}"), b"v").await.unwrap();
    }
    root.unlink(1, "f").await.unwrap();
    assert_eq!(world.keys(b'X').await, 0);
}
