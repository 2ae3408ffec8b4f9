use crate::tests::world::*;
use std::sync::atomic::Ordering;
use strake_types::{ErrorKind, FileKind};
use strake_wire::capability::{CapabilityKey, Rights};
use strake_wire::message::meta::{MetaOp, Open, OpenMode};

/// It counted as open for as long as the session lasted, and was not deleted when its name was gone.
#[tokio::test]
async fn an_open_that_fails_again_when_it_is_repeated_leaves_the_file_closed() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"contents").await.unwrap();
    root.move_out(ino).await.unwrap();
    world.storage.away.store(true, Ordering::SeqCst);
    let open = || MetaOp::Open(Open { ino, mode: OpenMode { truncate: true, ..BOTH } });
    for _ in 0..2 {
        assert_eq!(kind(root.call_seq(1, 0, open()).await), ErrorKind::Unavailable);
    }
    world.storage.away.store(false, Ordering::SeqCst);
    root.unlink(1, "f").await.unwrap();
    world.until(async || root.getattr(ino).await.is_err()).await;
}

#[tokio::test]
async fn an_open_gives_attributes_contents_and_the_right_to_chunks() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"abc").await.unwrap();
    let opened = root.open(ino, OpenMode { read: true, ..OpenMode::default() }).await.unwrap();
    assert_eq!(opened.inline.unwrap(), "abc");
    assert_eq!(opened.attr, root.getattr(ino).await.unwrap());
    let right = CapabilityKey::new([7; 32]).verify(&opened.capability, 0).unwrap();
    assert_eq!((right.ino.0, right.rights, right.session.0), (ino, Rights::READ, world.session));
    root.move_out(ino).await.unwrap();
    assert_eq!(root.open(ino, BOTH).await.unwrap().inline, None);
}

#[tokio::test]
async fn rights_and_kinds_are_checked() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let user = world.user(5, 5);
    let read = OpenMode { read: true, ..OpenMode::default() };
    user.open(ino, read).await.unwrap();
    assert_eq!(kind(user.open(ino, BOTH).await), ErrorKind::AccessDenied);
    let cut = OpenMode { truncate: true, ..read };
    assert_eq!(kind(user.open(ino, cut).await), ErrorKind::AccessDenied);
    let dir = root.mkdir(1, "d").await.unwrap();
    let fifo = root.make(new(1, "p", FileKind::Fifo, 0o644)).await.unwrap().attr.ino;
    assert_eq!(kind(root.open(dir, read).await), ErrorKind::IsDirectory);
    assert_eq!(kind(root.open(fifo, read).await), ErrorKind::Invalid);
    assert_eq!(kind(root.open(999, read).await), ErrorKind::Stale);
    assert_eq!(kind(root.clone().at(0).open(ino, read).await), ErrorKind::NoSession);
    assert_eq!(kind(root.clone().at(999).open(ino, read).await), ErrorKind::NoSession);
}

#[tokio::test]
async fn a_cut_at_open_empties_the_file_and_takes_setid_away() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.make(new(1, "f", FileKind::File, 0o6777)).await.unwrap().attr.ino;
    root.write(ino, 0, b"abc").await.unwrap();
    let cut = OpenMode { truncate: true, ..BOTH };
    let opened = world.user(5, 5).open(ino, cut).await.unwrap();
    assert_eq!((opened.attr.length, opened.attr.mode), (0, 0o777));
    assert_eq!(opened.inline.unwrap(), "");
    root.write(ino, 0, b"abc").await.unwrap();
    root.move_out(ino).await.unwrap();
    root.open(ino, cut).await.unwrap();
    assert!(world.storage.chunks.lock().is_empty());
    assert_eq!(root.stat().await.bytes, 0);
}
