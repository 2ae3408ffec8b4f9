use crate::tests::world::*;
use strake_types::{ErrorKind, FileKind};
use strake_wire::capability::{CapabilityKey, Rights};
use strake_wire::message::meta::OpenMode;

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
