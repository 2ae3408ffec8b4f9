use crate::tests::world::*;
use strake_types::limits::LINKS_MAX;
use strake_types::{ErrorKind, FileKind};

#[tokio::test]
async fn names_are_counted_and_each_may_be_the_last() {
    let world = World::new().await;
    let root = world.root();
    let dir = root.mkdir(1, "d").await.unwrap();
    let ino = root.file(1, "a").await.unwrap();
    root.write(ino, 0, b"x").await.unwrap();
    let before = root.getattr(ino).await.unwrap();
    let linked = root.link(ino, dir, "b").await.unwrap();
    assert_eq!(linked.nlink, 2);
    assert!(linked.version > before.version && linked.ctime != before.ctime);
    assert_eq!(linked.mtime, before.mtime);
    assert_eq!(world.keys(b'L').await, 2);
    assert_eq!(root.unlink(1, "a").await.unwrap().nlink, 1);
    root.rename((dir, "b"), (1, "c")).await.unwrap();
    assert_eq!(world.keys(b'L').await, 1);
    assert_eq!(root.unlink(1, "c").await.unwrap().nlink, 0);
    assert_eq!(world.keys(b'L').await + world.keys(b'B').await, 0);
}

#[tokio::test]
async fn directories_and_taken_names_are_refused() {
    let world = World::new().await;
    let root = world.root();
    let dir = root.mkdir(1, "d").await.unwrap();
    let ino = root.file(1, "a").await.unwrap();
    assert_eq!(kind(root.link(dir, 1, "x").await), ErrorKind::NotPermitted);
    assert_eq!(kind(root.link(ino, 1, "d").await), ErrorKind::Exists);
    assert_eq!(kind(root.link(ino, ino, "x").await), ErrorKind::NotDirectory);
    assert_eq!(kind(root.link(77, 1, "x").await), ErrorKind::NotFound);
    assert_eq!(kind(root.link(ino, 1, &"x".repeat(256)).await), ErrorKind::NameTooLong);
    assert_eq!(kind(world.user(5, 5).link(ino, 1, "x").await), ErrorKind::AccessDenied);
}

#[tokio::test]
async fn symbolic_links_and_devices_have_further_names_too() {
    let world = World::new().await;
    let root = world.root();
    let fifo = root.make(new(1, "p", FileKind::Fifo, 0o644)).await.unwrap().attr.ino;
    assert_eq!(root.link(fifo, 1, "q").await.unwrap().nlink, 2);
}

#[tokio::test]
async fn a_file_has_65000_links_and_not_one_more() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "1").await.unwrap();
    for nth in 2..=LINKS_MAX {
        root.link(ino, 1, &nth.to_string()).await.unwrap();
    }
    assert_eq!(kind(root.link(ino, 1, "more").await), ErrorKind::TooManyLinks);
    assert_eq!(root.unlink(1, "1").await.unwrap().nlink, LINKS_MAX - 1);
    assert_eq!(root.link(ino, 1, "more").await.unwrap().nlink, LINKS_MAX);
}
