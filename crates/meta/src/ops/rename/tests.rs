use crate::ops::orphan::REPLACED_STAYS_MS;
use crate::tests::world::*;
use strake_types::{ErrorKind, FileKind, Ino, VolumeId};
use strake_wire::message::common::Time;
use strake_wire::message::meta::{MetaOp, Rename};

#[tokio::test]
async fn a_file_moves_and_its_change_time_with_it() {
    let world = World::new().await;
    let root = world.root();
    let dir = root.mkdir(1, "d").await.unwrap();
    let ino = root.file(1, "a").await.unwrap();
    let before = root.getattr(ino).await.unwrap();
    let moved = root.rename((1, "a"), (dir, "b")).await.unwrap();
    assert!(moved.other.is_none());
    assert!(moved.moved.ctime != before.ctime && moved.moved.mtime == before.mtime);
    assert_eq!(root.names(1).await, ["d"]);
    assert_eq!(root.names(dir).await, ["b"]);
    assert_eq!(root.getattr(dir).await.unwrap().length, 64);
    assert_eq!(moved.parent, Some(root.getattr(1).await.unwrap()));
    assert_eq!(moved.new_parent, Some(root.getattr(dir).await.unwrap()));
}

/// It had the times at which it was asked for, and with it the directory had earlier ones than before.
#[tokio::test]
async fn who_has_waited_for_a_directory_sets_no_times_back() {
    let world = World::new().await;
    let root = world.root();
    let mut dirs = [root.mkdir(1, "d").await.unwrap(), root.mkdir(1, "e").await.unwrap()];
    // In the order in which they are locked.
    dirs.sort_unstable();
    let [busy, free] = dirs;
    root.file(busy, "x").await.unwrap();
    let held = world.server.core().locks.lock(VolumeId(1), &[Ino(busy)]).await;
    let moves = root.rename((busy, "x"), (free, "y"));
    futures::pin_mut!(moves);
    assert!(futures::poll!(moves.as_mut()).is_pending());
    root.file(free, "z").await.unwrap();
    let before = root.getattr(free).await.unwrap();
    drop(held);
    let after = moves.await.unwrap().new_parent.unwrap();
    let time = |t: Time| (t.seconds, t.nanos);
    assert!(time(after.mtime) > time(before.mtime) && time(after.ctime) > time(before.ctime));
}

#[tokio::test]
async fn within_a_directory_an_entry_keeps_its_place() {
    let world = World::new().await;
    let root = world.root();
    for name in ["a", "b", "c"] {
        root.file(1, name).await.unwrap();
    }
    let first = root.page(1, 0, 1, false).await.unwrap().entries[0].cookie;
    root.rename((1, "b"), (1, "z")).await.unwrap();
    let rest = root.page(1, first, 10, false).await.unwrap();
    let names: Vec<_> = rest.entries.iter().map(|e| e.name.clone()).collect();
    assert_eq!(names, ["z", "c"]);
}

#[tokio::test]
async fn a_taken_name_is_replaced_by_what_fits() {
    let world = World::new().await;
    let root = world.root();
    let (a, b) = (root.file(1, "a").await.unwrap(), root.file(1, "b").await.unwrap());
    let (d, e) = (root.mkdir(1, "d").await.unwrap(), root.mkdir(1, "e").await.unwrap());
    assert_eq!(kind(root.rename((1, "a"), (1, "d")).await), ErrorKind::IsDirectory);
    assert_eq!(kind(root.rename((1, "d"), (1, "a")).await), ErrorKind::NotDirectory);
    let replaced = root.rename((1, "a"), (1, "b")).await.unwrap();
    let other = replaced.other.unwrap();
    assert_eq!((replaced.moved.ino, other.ino, other.nlink), (a, b, 0));
    root.file(e, "f").await.unwrap();
    assert_eq!(kind(root.rename((1, "d"), (1, "e")).await), ErrorKind::NotEmpty);
    root.rename((1, "e"), (1, "d")).await.unwrap();
    assert_eq!(kind(root.getattr(d).await), ErrorKind::Stale);
    assert_eq!(root.names(1).await, ["b", "d"]);
    let attr = root.getattr(1).await.unwrap();
    assert_eq!((attr.nlink, attr.length), (3, 128));
}

#[tokio::test]
async fn directories_take_their_link_along() {
    let world = World::new().await;
    let root = world.root();
    let (d, e) = (root.mkdir(1, "d").await.unwrap(), root.mkdir(1, "e").await.unwrap());
    root.rename((1, "d"), (e, "d")).await.unwrap();
    assert_eq!(root.getattr(1).await.unwrap().nlink, 3);
    assert_eq!(root.getattr(e).await.unwrap().nlink, 3);
    assert_eq!(root.lookup(d, "..").await.unwrap().ino, e);
    assert_eq!(world.keys(b'T').await, 1);
}

#[tokio::test]
async fn no_directory_comes_to_lie_within_itself() {
    let world = World::new().await;
    let root = world.root();
    let a = root.mkdir(1, "a").await.unwrap();
    let b = root.mkdir(a, "b").await.unwrap();
    let c = root.mkdir(b, "c").await.unwrap();
    assert_eq!(kind(root.rename((1, "a"), (a, "x")).await), ErrorKind::Invalid);
    assert_eq!(kind(root.rename((1, "a"), (c, "x")).await), ErrorKind::Invalid);
    assert_eq!(kind(root.rename((b, "c"), (1, "a")).await), ErrorKind::NotEmpty);
    root.file(b, "f").await.unwrap();
    let over = "a file over the directory that holds it: seed 858376975418 of the property tests";
    assert_eq!(kind(root.rename((b, "f"), (1, "a")).await), ErrorKind::NotEmpty, "{over}");
    let exchanged = root.rename_with((b, "c"), (1, "a"), false, true).await;
    assert_eq!(kind(exchanged), ErrorKind::Invalid);
    assert_eq!(kind(root.rename((1, "a"), (1, "..")).await), ErrorKind::Invalid);
}

#[tokio::test]
async fn two_names_of_one_file_stay_as_they_are() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "a").await.unwrap();
    root.link(ino, 1, "b").await.unwrap();
    let before = root.getattr(ino).await.unwrap();
    root.rename((1, "a"), (1, "b")).await.unwrap();
    root.rename((1, "a"), (1, "a")).await.unwrap();
    assert_eq!(root.names(1).await, ["a", "b"]);
    assert_eq!(root.getattr(ino).await.unwrap(), before);
}

#[tokio::test]
async fn flags_are_honoured() {
    let world = World::new().await;
    let root = world.root();
    let d = root.mkdir(1, "d").await.unwrap();
    let a = root.file(1, "a").await.unwrap();
    let sub = root.mkdir(d, "s").await.unwrap();
    let taken = root.rename_with((1, "a"), (d, "s"), true, false).await;
    assert_eq!(kind(taken), ErrorKind::Exists);
    let missing = root.rename_with((1, "a"), (d, "x"), false, true).await;
    assert_eq!(kind(missing), ErrorKind::NotFound);
    let both = root.rename_with((1, "a"), (d, "s"), true, true).await;
    assert_eq!(kind(both), ErrorKind::Invalid);
    root.rename_with((1, "a"), (d, "s"), false, true).await.unwrap();
    assert_eq!(root.lookup(1, "a").await.unwrap().ino, sub);
    assert_eq!(root.lookup(d, "s").await.unwrap().ino, a);
    assert_eq!(root.lookup(sub, "..").await.unwrap().ino, 1);
    assert_eq!(root.getattr(1).await.unwrap().nlink, 4);
    assert_eq!(root.getattr(d).await.unwrap().nlink, 2);
    root.rename_with((d, "s"), (d, "t"), true, false).await.unwrap();
    assert_eq!(root.names(d).await, ["t"]);
}

#[tokio::test]
async fn rights_on_both_directories_and_on_what_moves_are_needed() {
    let world = World::new().await;
    let root = world.root();
    let (d, e) = (root.mkdir(1, "d").await.unwrap(), root.mkdir(1, "e").await.unwrap());
    root.chmod(d, 0o777).await.unwrap();
    let user = world.user(5, 5);
    user.file(d, "f").await.unwrap();
    assert_eq!(kind(user.rename((d, "f"), (e, "f")).await), ErrorKind::AccessDenied);
    root.chmod(e, 0o1777).await.unwrap();
    user.rename((d, "f"), (e, "f")).await.unwrap();
    assert_eq!(kind(world.user(6, 6).rename((e, "f"), (d, "f")).await), ErrorKind::NotPermitted);
    // A directory of somebody else's cannot get another parent: its `..` would change.
    root.make(new(d, "s", FileKind::Directory, 0o755)).await.unwrap();
    root.chmod(e, 0o777).await.unwrap();
    assert_eq!(kind(user.rename((d, "s"), (e, "s")).await), ErrorKind::AccessDenied);
    user.rename((d, "s"), (d, "t")).await.unwrap();
    assert_eq!(kind(user.rename((d, "none"), (e, "s")).await), ErrorKind::NotFound);
}

#[tokio::test]
async fn an_open_file_that_is_replaced_lives_on() {
    let world = World::new().await;
    let root = world.root();
    let old = root.file(1, "old").await.unwrap();
    root.open(old, BOTH).await.unwrap();
    root.file(1, "new").await.unwrap();
    root.rename((1, "new"), (1, "old")).await.unwrap();
    root.write(old, 0, b"x").await.unwrap();
    root.close(old).await.unwrap();
    world.clock.advance_ms(REPLACED_STAYS_MS + 1);
    world.until(async || root.getattr(old).await.is_err()).await;
}

/// Who had looked a name up when it was replaced got ESTALE for opening what he had found; the kernel looks again
/// once, and the second time was not better where names are replaced often.
#[tokio::test]
async fn a_replaced_file_can_be_opened_for_a_moment_by_who_has_just_looked_it_up() {
    let world = World::new().await;
    let root = world.root();
    let old = root.file(1, "name").await.unwrap();
    root.file(1, "new").await.unwrap();
    root.rename((1, "new"), (1, "name")).await.unwrap();
    world.clock.advance_ms(REPLACED_STAYS_MS - 1);
    assert_eq!(root.open(old, BOTH).await.unwrap().attr.nlink, 0);
    world.clock.advance_ms(2);
    root.write(old, 0, b"x").await.unwrap();
    root.close(old).await.unwrap();
    world.until(async || root.getattr(old).await.is_err()).await;
}

#[tokio::test]
async fn a_replaced_file_that_nobody_opens_is_deleted_when_its_moment_is_over() {
    let world = World::new().await;
    let root = world.root();
    let old = root.file(1, "name").await.unwrap();
    root.file(1, "new").await.unwrap();
    let inodes = root.stat().await.inodes;
    root.rename((1, "new"), (1, "name")).await.unwrap();
    world.clock.advance_ms(REPLACED_STAYS_MS + 1);
    world.until(async || root.getattr(old).await.is_err()).await;
    assert_eq!(root.stat().await.inodes, inodes - 1);
}

/// Between two names of one file a rename does nothing, and left nothing in the ledger. A copy of the
/// message that came late was carried out when another file had one of the names. Found by simulation.
#[tokio::test]
async fn a_rename_that_had_nothing_to_do_does_nothing_however_late_a_copy_comes() {
    let world = World::new().await;
    let root = world.root();
    let (a, b) = (root.file(1, "a").await.unwrap(), root.file(1, "b").await.unwrap());
    root.link(a, 1, "also a").await.unwrap();
    let rename =
        MetaOp::Rename(Rename { from: at(1, "also a"), to: at(1, "a"), ..Rename::default() });
    root.call_seq(7, 0, rename.clone()).await.unwrap();
    root.rename((1, "b"), (1, "also a")).await.unwrap();
    root.call_seq(7, 0, rename.clone()).await.unwrap();
    assert_eq!(root.lookup(1, "also a").await.unwrap().ino, b);
    assert_eq!(root.lookup(1, "a").await.unwrap().ino, a);
    // Also when its client has long had the answer.
    let no = Rename { from: at(1, "no"), to: at(1, "x"), ..Rename::default() };
    root.call_seq(10, 8, MetaOp::Rename(no)).await.unwrap_err();
    assert_eq!(kind(root.call_seq(7, 0, rename).await), ErrorKind::Malformed);
}
