use crate::MetaOptions;
use crate::tests::world::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_engine::kv::memory::MemoryKv;
use strake_types::{ErrorKind, FileKind};
use strake_wire::message::common::Template;
use strake_wire::message::meta::{Create, OpenMode};

/// Whoever opened such a file with O_CREAT kept everybody out of its directory until its targets were back.
#[tokio::test(start_paused = true)]
async fn a_directory_is_used_while_an_open_with_create_waits_for_targets() {
    let options = MetaOptions { storage_wait_ms: 30_000, ..options() };
    let world = World::with(Arc::new(MemoryKv::new()), options).await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"contents").await.unwrap();
    root.move_out(ino).await.unwrap();
    world.storage.away.store(true, Ordering::SeqCst);
    for (truncate, other) in [(true, "g"), (false, "h")] {
        let open = Some(OpenMode { truncate, ..BOTH });
        let make = Create { open, exclusive: false, ..new(1, "f", FileKind::File, 0o600) };
        let use_it = async {
            world.until(async || world.keys(b'G').await == 1).await;
            root.file(1, other).await.unwrap();
        };
        tokio::select! {
            biased;
            answer = root.make(make) => panic!("its targets are away: {answer:?}"),
            () = use_it => {}
        }
    }
}

#[tokio::test]
async fn every_kind_is_made_with_its_mode_less_the_umask() {
    let world = World::new().await;
    let root = world.root();
    for kind in [FileKind::File, FileKind::Directory, FileKind::Fifo, FileKind::Socket] {
        let name = format!("{kind:?}");
        let op = Create { umask: 0o027, ..new(1, &name, kind, 0o7777) };
        let made = root.make(op).await.unwrap();
        assert!(made.created);
        assert_eq!((made.attr.kind, made.attr.mode), (kind as u32, 0o7750));
        assert_eq!(made.attr.nlink, if kind == FileKind::Directory { 2 } else { 1 });
        assert_eq!(root.lookup(1, &name).await.unwrap(), made.attr);
    }
    let device = Create { rdev: 0x501, ..new(1, "dev", FileKind::CharDevice, 0o600) };
    assert_eq!(root.make(device).await.unwrap().attr.rdev, 0x501);
}

#[tokio::test]
async fn the_directory_counts_its_entries_and_its_times_move() {
    let world = World::new().await;
    let root = world.root();
    let before = root.getattr(1).await.unwrap();
    root.mkdir(1, "d").await.unwrap();
    let made = root.make(new(1, "f", FileKind::File, 0o644)).await.unwrap();
    let after = root.getattr(1).await.unwrap();
    assert_eq!(made.parent, Some(after.clone()));
    assert_eq!(after.nlink, 3);
    assert_eq!(after.length, 2 * 64);
    assert!(after.version > before.version);
    let time = |t: strake_wire::message::common::Time| (t.seconds, t.nanos);
    assert!(time(after.mtime) > time(before.mtime) && time(after.ctime) > time(before.ctime));
    assert_eq!(after.mtime, made.attr.mtime);
}

#[tokio::test]
async fn a_name_that_is_taken_or_impossible_is_refused() {
    let world = World::new().await;
    let root = world.root();
    root.file(1, "a").await.unwrap();
    for (name, error) in [
        ("a", ErrorKind::Exists),
        (".", ErrorKind::Exists),
        ("..", ErrorKind::Exists),
        ("a/b", ErrorKind::Invalid),
        (&"x".repeat(256), ErrorKind::NameTooLong),
    ] {
        assert_eq!(kind(root.file(1, name).await), error, "{name}");
    }
    root.file(1, &"x".repeat(255)).await.unwrap();
    let file = root.lookup(1, "a").await.unwrap().ino;
    assert_eq!(kind(root.file(file, "b").await), ErrorKind::NotDirectory);
    assert_eq!(kind(root.file(999, "b").await), ErrorKind::NotFound);
}

#[tokio::test]
async fn permissions_of_the_directory_are_checked_unless_the_kernel_did() {
    let world = World::new().await;
    let dir = world.root().mkdir(1, "d").await.unwrap();
    let user = world.user(5, 5);
    assert_eq!(kind(user.file(dir, "f").await), ErrorKind::AccessDenied);
    user.clone().checked().file(dir, "f").await.unwrap();
    world.root().chmod(dir, 0o777).await.unwrap();
    let made = user.make(new(dir, "g", FileKind::File, 0o600)).await.unwrap();
    assert_eq!((made.attr.uid, made.attr.gid), (5, 5));
    let device = new(dir, "dev", FileKind::BlockDevice, 0o600);
    assert_eq!(kind(user.make(device).await), ErrorKind::NotPermitted);
    // An existing name is told before a missing right.
    world.root().chmod(dir, 0o755).await.unwrap();
    assert_eq!(kind(user.file(dir, "g").await), ErrorKind::Exists);
}

#[tokio::test]
async fn setgid_directories_hand_down_group_and_bit() {
    let world = World::new().await;
    let op = new(1, "d", FileKind::Directory, 0o2777);
    let dir = world.user(0, 42).make(op).await.unwrap().attr.ino;
    let user = world.user(5, 5);
    let file = user.make(new(dir, "f", FileKind::File, 0o2755)).await.unwrap().attr;
    assert_eq!((file.gid, file.mode), (42, 0o755));
    let sub = user.make(new(dir, "s", FileKind::Directory, 0o755)).await.unwrap().attr;
    assert_eq!((sub.gid, sub.mode), (42, 0o2755));
}

#[tokio::test]
async fn an_existing_file_is_opened_where_that_is_allowed() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"old").await.unwrap();
    let op = Create { exclusive: false, open: Some(BOTH), ..new(1, "f", FileKind::File, 0o600) };
    let opened = root.make(op.clone()).await.unwrap();
    assert!(!opened.created);
    assert_eq!(opened.opened.unwrap().inline.unwrap(), "old");
    assert_eq!(opened.attr.mode, 0o644);
    let denied = world.user(5, 5).make(op.clone()).await;
    assert_eq!(kind(denied), ErrorKind::AccessDenied);
    root.mkdir(1, "d").await.unwrap();
    let on_dir = Create { at: at(1, "d"), ..op };
    assert_eq!(kind(root.make(on_dir).await), ErrorKind::IsDirectory);
}

#[tokio::test]
async fn symbolic_links_keep_their_target() {
    let world = World::new().await;
    let root = world.root();
    let op = |name: &str, len: usize| Create {
        target: vec![b't'; len].into(),
        ..new(1, name, FileKind::Symlink, 0)
    };
    let made = root.make(op("s", 4095)).await.unwrap().attr;
    assert_eq!((made.mode, made.length), (0o777, 4095));
    let read = strake_wire::message::meta::MetaOp::ReadLink;
    let target = root.bytes(read(strake_wire::message::meta::Inode { ino: made.ino })).await;
    assert_eq!(target.unwrap().len(), 4095);
    assert_eq!(kind(root.make(op("t", 4096)).await), ErrorKind::NameTooLong);
    assert_eq!(kind(root.make(op("t", 0)).await), ErrorKind::NotFound);
    let file = root.file(1, "f").await.unwrap();
    let wrong = root.bytes(read(strake_wire::message::meta::Inode { ino: file })).await;
    assert_eq!(kind(wrong), ErrorKind::Invalid);
    root.unlink(1, "s").await.unwrap();
    assert_eq!(world.keys(b'B').await, 0);
}

#[tokio::test]
async fn a_default_acl_takes_the_place_of_the_umask() {
    let world = World::new().await;
    let root = world.root();
    let dir = root.mkdir(1, "d").await.unwrap();
    let acl = strake_types::acl::Acl {
        owner: 7,
        users: vec![(10, 7)],
        group: 5,
        groups: vec![],
        mask: Some(7),
        other: 4,
    };
    root.setxattr(dir, "system.posix_acl_default", &acl.encode()).await.unwrap();
    let op = Create { umask: 0o077, ..new(dir, "f", FileKind::File, 0o666) };
    let file = root.make(op).await.unwrap().attr;
    assert_eq!(file.mode, 0o664);
    assert!(root.getxattr(file.ino, "system.posix_acl_access").await.is_ok());
    let missing = root.getxattr(file.ino, "system.posix_acl_default").await;
    assert_eq!(kind(missing), ErrorKind::NoAttribute);
    let sub = root.make(new(dir, "s", FileKind::Directory, 0o755)).await.unwrap().attr;
    let inherited = root.getxattr(sub.ino, "system.posix_acl_default").await.unwrap();
    assert_eq!(inherited, acl.encode());
    assert_eq!(kind(world.user(11, 11).open(file.ino, BOTH).await), ErrorKind::AccessDenied);
    world.user(10, 10).open(file.ino, BOTH).await.unwrap();
}

#[tokio::test]
async fn a_file_without_a_name_lives_while_it_is_open() {
    let world = World::new().await;
    let root = world.root();
    let nameless = Create { open: Some(BOTH), ..new(1, "", FileKind::File, 0o600) };
    let kept = root.make(nameless.clone()).await.unwrap().attr;
    let lost = root.make(nameless).await.unwrap().attr;
    assert_eq!(kept.nlink, 0);
    assert!(root.names(1).await.is_empty());
    assert_eq!(root.link(kept.ino, 1, "named").await.unwrap().nlink, 1);
    root.close(kept.ino).await.unwrap();
    root.close(lost.ino).await.unwrap();
    world.until(async || root.getattr(lost.ino).await.is_err()).await;
    assert_eq!(root.lookup(1, "named").await.unwrap().ino, kept.ino);
    assert_eq!(world.keys(b'G').await, 0);
}

#[tokio::test]
async fn a_template_of_its_own_goes_over_what_is_inherited() {
    let world = World::new().await;
    let template = Template { chunk_size: Some(1 << 20), ..Template::default() };
    let op = Create { template: Some(template), ..new(1, "f", FileKind::File, 0o600) };
    let layout = world.root().make(op).await.unwrap().attr.layout.unwrap();
    assert_eq!((layout.chunk_size, layout.width), (1 << 20, 3));
    let plain = world.root().make(new(1, "g", FileKind::File, 0o600)).await.unwrap();
    assert_eq!(plain.attr.layout.unwrap().chunk_size, 65_536);
}
