use crate::MetaOptions;
use crate::tests::world::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_engine::kv::memory::MemoryKv;
use strake_types::layout::Placement;
use strake_types::{ChunkIndex, ErrorKind, FileKind, Layout, SetTime, Timestamp};
use strake_wire::message::common::{AttrChange, Template};
use strake_wire::message::meta::{Create, MetaOp, OpenMode, Publish, SetAttr, Told};

fn times(atime: Option<SetTime>, mtime: Option<SetTime>) -> AttrChange {
    AttrChange {
        atime: atime.map(Into::into),
        mtime: mtime.map(Into::into),
        ..AttrChange::default()
    }
}

fn owner(uid: Option<u32>, gid: Option<u32>) -> AttrChange {
    AttrChange { uid, gid, ..AttrChange::default() }
}

const THEN: SetTime = SetTime::At(Timestamp { seconds: -5, nanos: 999_999_999 });

#[tokio::test]
async fn only_the_owner_changes_the_mode() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.setattr(ino, owner(Some(5), Some(50))).await.unwrap();
    assert_eq!(kind(world.user(6, 50).chmod(ino, 0o777).await), ErrorKind::NotPermitted);
    let changed = world.user(5, 50).chmod(ino, 0o6755).await.unwrap();
    assert_eq!(changed.mode, 0o6755);
    let stranger = world.user(5, 51).chmod(ino, 0o6755).await.unwrap();
    assert_eq!(stranger.mode, 0o4755, "setgid of a group that is not his");
    let member = world.user(5, 51).in_groups(&[50]).chmod(ino, 0o2755).await.unwrap();
    assert_eq!(member.mode, 0o2755);
    let checked = world.user(5, 51).checked().chmod(ino, 0o2755).await.unwrap();
    assert_eq!(checked.mode, 0o2755, "the kernel has looked at the groups");
}

#[tokio::test]
async fn a_new_owner_takes_setid_away() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.make(new(1, "f", FileKind::File, 0o6755)).await.unwrap().attr.ino;
    let changed = root.setattr(ino, owner(Some(5), Some(50))).await.unwrap();
    assert_eq!((changed.mode, changed.uid, changed.gid), (0o755, 5, 50));
    let user = world.user(5, 50).in_groups(&[51]);
    user.chmod(ino, 0o6755).await.unwrap();
    let changed = user.setattr(ino, owner(None, Some(51))).await.unwrap();
    assert_eq!((changed.mode, changed.gid), (0o755, 51));
    assert_eq!(kind(user.setattr(ino, owner(Some(6), None)).await), ErrorKind::NotPermitted);
    assert_eq!(kind(user.setattr(ino, owner(None, Some(99))).await), ErrorKind::NotPermitted);
    let dir = root.make(new(1, "d", FileKind::Directory, 0o6755)).await.unwrap().attr.ino;
    assert_eq!(root.setattr(dir, owner(Some(5), None)).await.unwrap().mode, 0o6755);
}

/// The kernel knows what a caller may do whose rights it has checked.
#[tokio::test]
async fn a_cut_takes_setid_away_where_a_kernel_says_so() {
    let world = World::new().await;
    let ino = world.root().make(new(1, "f", FileKind::File, 0o6755)).await.unwrap().attr.ino;
    let user = world.user(5, 50).checked();
    let cut = async |drop_setid: bool| {
        let change = AttrChange { length: Some(0), drop_setid, ..AttrChange::default() };
        user.setattr(ino, change).await.unwrap().mode
    };
    assert_eq!(cut(false).await, 0o6755);
    assert_eq!(cut(true).await, 0o755);
    user.chmod(ino, 0o6745).await.unwrap();
    assert_eq!(cut(true).await, 0o2745, "the mark of mandatory locking stays");
}

#[tokio::test]
async fn times_are_set_by_the_owner_and_touched_by_writers() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.make(new(1, "f", FileKind::File, 0o622)).await.unwrap().attr.ino;
    let set = root.setattr(ino, times(Some(THEN), None)).await.unwrap();
    assert_eq!((set.atime.seconds, set.atime.nanos), (-5, 999_999_999));
    let user = world.user(5, 5);
    let now = Some(SetTime::Now);
    let touched = user.setattr(ino, times(now, now)).await.unwrap();
    assert!(touched.atime.seconds > 0 && touched.atime == touched.mtime);
    assert_eq!(kind(user.setattr(ino, times(now, None)).await), ErrorKind::NotPermitted);
    assert_eq!(kind(user.setattr(ino, times(Some(THEN), now)).await), ErrorKind::NotPermitted);
    root.chmod(ino, 0o644).await.unwrap();
    assert_eq!(kind(user.setattr(ino, times(now, now)).await), ErrorKind::AccessDenied);
}

#[tokio::test]
async fn the_times_of_a_directory_are_set_too() {
    let world = World::new().await;
    let root = world.root();
    let dir = root.mkdir(1, "d").await.unwrap();
    let before = root.getattr(dir).await.unwrap();
    let set = root.setattr(dir, times(Some(THEN), Some(THEN))).await.unwrap();
    assert_eq!((set.mtime.seconds, set.atime.seconds), (-5, -5));
    assert!((set.ctime.seconds, set.ctime.nanos) > (before.ctime.seconds, before.ctime.nanos));
    assert_eq!(root.getattr(dir).await.unwrap(), set);
    root.file(dir, "f").await.unwrap();
    assert!(root.getattr(dir).await.unwrap().mtime.seconds > 0);
}

#[tokio::test]
async fn an_inline_file_is_cut_and_extended_with_zeros() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"0123456789").await.unwrap();
    assert_eq!(root.truncate(ino, 4).await.unwrap().length, 4);
    assert_eq!(root.truncate(ino, 6).await.unwrap().length, 6);
    assert_eq!(root.read(ino).await.unwrap().unwrap(), &b"0123\0\0"[..]);
    root.truncate(ino, 0).await.unwrap();
    assert_eq!(world.keys(b'B').await, 0);
    assert_eq!(root.stat().await.bytes, 0);
    let big = root.truncate(ino, 1 << 44).await.unwrap();
    assert!(!big.inline && big.length == 1 << 44);
}

#[tokio::test]
async fn contents_that_do_not_fit_any_more_move_out() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"0123456789").await.unwrap();
    let grown = root.truncate(ino, 100_000).await.unwrap();
    assert!(!grown.inline);
    let chunks = world.storage.chunks.lock().clone();
    assert_eq!(chunks.into_values().collect::<Vec<_>>(), [b"0123456789".to_vec()]);
    root.truncate(ino, 3).await.unwrap();
    let chunks = world.storage.chunks.lock().clone();
    assert_eq!(chunks.into_values().collect::<Vec<_>>(), [b"012".to_vec()]);
    assert_eq!(world.keys(b'G').await, 0);
}

#[tokio::test]
async fn a_cut_that_cannot_be_done_now_is_done_before_anybody_sees_the_file() {
    let world = World::new().await;
    let root = world.root();
    let ino = world.cut_while_away(&root).await;
    assert_eq!(root.getattr(ino).await.unwrap().length, 2, "it is committed");
    assert_eq!(kind(root.open(ino, BOTH).await), ErrorKind::Unavailable);
    let grow = Publish { ino, length_min: 6, ..Publish::default() };
    assert_eq!(kind(root.publish(grow).await), ErrorKind::Unavailable);
    // The server is killed and comes back; so does the storage server.
    let world = world.killed().await;
    world.storage.away.store(false, Ordering::SeqCst);
    world.open_session(world.session, &[]).await;
    let root = world.root();
    root.publish(grow).await.unwrap();
    let chunks = world.storage.chunks.lock().clone();
    assert_eq!(chunks.into_values().collect::<Vec<_>>(), [b"se".to_vec()]);
    world.until(async || world.keys(b'G').await == 0).await;
}

/// Targets that had done it did it again when the last one was back, and what was written to them in between was lost.
#[tokio::test]
async fn a_cut_is_done_once_on_each_target_however_long_another_is_away() {
    let world = World::new().await;
    let root = world.root();
    let template = Some(Template { width: Some(2), ..Template::default() });
    let make = Create { template, ..new(1, "f", FileKind::File, 0o600) };
    let ino = root.make(make).await.unwrap().attr.ino;
    root.open(ino, BOTH).await.unwrap();
    let attr = root.move_out(ino).await.unwrap();
    let layout: Layout = attr.layout.unwrap().try_into().unwrap();
    let placement = Placement::new(layout);
    let place = |index| (11 + placement.group_of(ChunkIndex(index)).0, ino, index);
    let (here, there) = (place(0), (1..).map(place).find(|at| at.0 != place(0).0).unwrap());
    for at in [here, there] {
        world.storage.chunks.lock().insert(at, b"old".to_vec());
    }
    let length_min = there.2 * 65_536 + 3;
    root.publish(Publish { ino, length_min, ..Publish::default() }).await.unwrap();
    world.storage.target_away.store(there.0, Ordering::SeqCst);
    assert_eq!(kind(root.truncate(ino, 0).await), ErrorKind::Unavailable);
    assert!(!world.storage.chunks.lock().contains_key(&here));
    // By whoever has it open.
    world.storage.chunks.lock().insert(here, b"new".to_vec());
    let world = world.killed().await;
    world.storage.target_away.store(0, Ordering::SeqCst);
    world.until(async || world.keys(b'G').await == 0).await;
    let chunks = world.storage.chunks.lock().clone();
    assert_eq!(chunks.into_iter().collect::<Vec<_>>(), [(here, b"new".to_vec())]);
}

/// It was cut when the target was back, with what another client had written to it by then.
#[tokio::test]
async fn a_file_that_others_write_is_not_cut_while_a_target_is_known_to_be_away() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"secret").await.unwrap();
    root.move_out(ino).await.unwrap();
    let other = world.root().at(world.open_session(0, &[]).await.session);
    other.open(ino, BOTH).await.unwrap();
    world.set_targets_up(false).await;
    world.storage.away.store(true, Ordering::SeqCst);
    let cut = OpenMode { truncate: true, ..BOTH };
    assert_eq!(kind(root.truncate(ino, 2).await), ErrorKind::Unavailable);
    assert_eq!(kind(root.open(ino, cut).await), ErrorKind::Unavailable);
    assert_eq!(root.getattr(ino).await.unwrap().length, 6, "nothing is begun");
    // The map does not say so yet.
    world.storage.away.store(false, Ordering::SeqCst);
    world.put_chunk(ino, 0, 104).await;
    let told = Publish { ino, length_min: 104, ..Publish::default() };
    assert_eq!(other.publish(told).await.unwrap().length, 104);
    let lens = || world.storage.chunks.lock().values().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(lens(), [104]);
    world.set_targets_up(true).await;
    assert_eq!(root.truncate(ino, 2).await.unwrap().length, 2);
    assert_eq!(lens(), [2]);
}

/// A file with contents in chunks.
async fn in_chunks(root: &User<'_>, parent: u64, name: &str) -> u64 {
    let ino = root.file(parent, name).await.unwrap();
    root.write(ino, 0, b"secret").await.unwrap();
    root.move_out(ino).await.unwrap();
    ino
}

/// Somebody who follows recalls and opens these files to write, of which he tells each write: nobody has to ask him for that.
async fn writer_of<'a>(world: &'a World, files: &[u64]) -> User<'a> {
    let writer = world.root().at(world.open_session_of(0, &[], true).await.session);
    for &ino in files {
        writer.open(ino, BOTH).await.unwrap();
        writer.call(MetaOp::Told(Told { ino, ..Told::default() })).await.unwrap();
    }
    writer
}

/// Waits until somebody who may write to a file is told that a cut of it may stay undone.
async fn until_told_of_a_cut(writer: &User<'_>, ino: u64) {
    writer.world.until(async || writer.recalls(0).await.cuts == [ino]).await;
}

/// He went on by the right that he had, and what he wrote to the target that was lost was cut when that was back.
#[tokio::test]
async fn who_may_write_is_told_of_a_cut_that_may_stay_undone_as_long_as_it_is() {
    let world = World::new().await;
    let root = world.root();
    let ino = in_chunks(&root, 1, "f").await;
    let writer = writer_of(&world, &[ino]).await;
    let session = writer.session;
    world.storage.away.store(true, Ordering::SeqCst);
    assert_eq!(kind(root.truncate(ino, 2).await), ErrorKind::Unavailable);
    assert_eq!(writer.recalls(0).await.cuts, [ino]);
    // An answer may be lost.
    until_told_of_a_cut(&writer, ino).await;
    world.set_targets_up(false).await;
    for _ in 0..3 {
        until_told_of_a_cut(&writer, ino).await;
    }
    let world = world.killed().await;
    world.open_session_of(session, &[ino], true).await;
    until_told_of_a_cut(&world.root().at(session), ino).await;
    world.storage.away.store(false, Ordering::SeqCst);
    world.set_targets_up(true).await;
    world.until(async || world.keys(b'G').await == 0).await;
    world.until(async || world.root().at(session).recalls(0).await.cuts.is_empty()).await;
}

/// Told when it had failed he would have written by then. And who cut it was told, too, and asked for his right once more.
#[tokio::test(start_paused = true)]
async fn who_else_may_write_is_told_of_a_cut_while_it_takes_long_and_not_of_a_quick_one() {
    let world = World::new().await;
    let ino = in_chunks(&world.root(), 1, "f").await;
    let (writer, cutter) = (writer_of(&world, &[ino]).await, writer_of(&world, &[ino]).await);
    cutter.truncate(ino, 5).await.unwrap();
    assert!(writer.recalls(0).await.cuts.is_empty(), "it is made");
    world.storage.slow_ms.store(5_000, Ordering::SeqCst);
    {
        let cut = cutter.truncate(ino, 4);
        futures::pin_mut!(cut);
        tokio::select! {
            biased;
            done = &mut cut => panic!("he was not told before: {done:?}"),
            () = until_told_of_a_cut(&writer, ino) => {}
        }
        cut.await.unwrap();
    }
    assert!(cutter.recalls(0).await.cuts.is_empty(), "it was his own");
    world.storage.slow_ms.store(0, Ordering::SeqCst);
    world.storage.away.store(true, Ordering::SeqCst);
    assert_eq!(kind(world.root().truncate(ino, 2).await), ErrorKind::Unavailable);
    until_told_of_a_cut(&cutter, ino).await;
}

/// What was held back for targets that were there was given up when those who wrote had asked in vain for half a minute.
#[tokio::test(start_paused = true)]
async fn who_may_write_to_a_file_that_is_not_strict_is_not_told_of_its_cuts() {
    let world = World::new().await;
    let root = world.root();
    let dir = root.mkdir(1, "relaxed").await.unwrap();
    root.setxattr(dir, "user.strake.layout.consistency", b"close-to-open").await.unwrap();
    let (relaxed, strict) = (in_chunks(&root, dir, "f").await, in_chunks(&root, 1, "f").await);
    let writer = writer_of(&world, &[relaxed, strict]).await;
    world.storage.away.store(true, Ordering::SeqCst);
    for ino in [relaxed, strict] {
        assert_eq!(kind(root.truncate(ino, 0).await), ErrorKind::Unavailable);
    }
    assert_eq!(world.keys(b'G').await, 2);
    world.set_targets_up(false).await;
    let mut told = 0;
    while told < 5 {
        let cuts = writer.recalls(0).await.cuts;
        assert!(!cuts.contains(&relaxed));
        told += cuts.len();
    }
}

/// The background task waited for the lock of the other file, and told nobody of any cut meanwhile.
#[tokio::test(start_paused = true)]
async fn who_may_write_is_told_of_an_undone_cut_whoever_waits_for_that_of_another_file() {
    let options = MetaOptions { storage_wait_ms: 30_000, ..options() };
    let world = World::with(Arc::new(MemoryKv::new()), options).await;
    let root = world.root();
    let (ino, other) = (in_chunks(&root, 1, "f").await, in_chunks(&root, 1, "g").await);
    let writer = writer_of(&world, &[ino]).await;
    world.storage.away.store(true, Ordering::SeqCst);
    for ino in [ino, other] {
        assert_eq!(kind(root.truncate(ino, 0).await), ErrorKind::Unavailable);
    }
    world.set_targets_up(false).await;
    let told = async {
        for _ in 0..10 {
            until_told_of_a_cut(&writer, ino).await;
        }
    };
    tokio::select! {
        biased;
        opened = root.open(other, OpenMode { truncate: true, ..BOTH }) => panic!("{opened:?}"),
        () = told => {}
    }
}

/// Every target refused to cut it there, and the length stayed: nobody could open the file any more, nor cut it again.
#[tokio::test]
async fn a_length_beyond_the_last_chunk_is_refused_before_it_counts() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"x").await.unwrap();
    root.move_out(ino).await.unwrap();
    // So many chunks of 64 KiB there are.
    let most = 1 << 56;
    assert_eq!(kind(root.truncate(ino, most + 1).await), ErrorKind::FileTooBig);
    assert_eq!(root.getattr(ino).await.unwrap().length, 1);
    root.open(ino, BOTH).await.unwrap();
    root.truncate(ino, most).await.unwrap();
}

#[tokio::test]
async fn lengths_are_checked() {
    let world = World::new().await;
    let root = world.root();
    let dir = root.mkdir(1, "d").await.unwrap();
    let fifo = root.make(new(1, "p", FileKind::Fifo, 0o644)).await.unwrap().attr.ino;
    let ino = root.file(1, "f").await.unwrap();
    assert_eq!(kind(root.truncate(dir, 0).await), ErrorKind::IsDirectory);
    assert_eq!(kind(root.truncate(fifo, 0).await), ErrorKind::Invalid);
    assert_eq!(kind(root.truncate(ino, u64::MAX).await), ErrorKind::FileTooBig);
    let user = world.user(5, 5);
    assert_eq!(kind(user.truncate(ino, 0).await), ErrorKind::AccessDenied);
    let change = AttrChange { length: Some(9), ..AttrChange::default() };
    user.call(MetaOp::SetAttr(SetAttr { ino, change, writable_handle: true })).await.unwrap();
}

#[tokio::test]
async fn a_chmod_changes_the_mask_of_an_acl() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let acl = strake_types::acl::Acl {
        users: vec![(10, 6)],
        mask: Some(6),
        ..strake_types::acl::Acl::from_mode(0o640)
    };
    root.setxattr(ino, "system.posix_acl_access", &acl.encode()).await.unwrap();
    assert_eq!(root.getattr(ino).await.unwrap().mode, 0o660);
    world.user(10, 10).open(ino, BOTH).await.unwrap();
    root.chmod(ino, 0o640).await.unwrap();
    assert_eq!(kind(world.user(10, 10).open(ino, BOTH).await), ErrorKind::AccessDenied);
}

#[tokio::test]
async fn writing_back_a_kernels_times_keeps_its_change_time() {
    let world = World::new().await;
    let ino = world.root().file(1, "f").await.unwrap();
    let ctime = Timestamp { seconds: 77, nanos: 7 };
    let change = AttrChange { ctime: Some(ctime.into()), ..AttrChange::default() };
    let kept = world.root().checked().setattr(ino, change.clone()).await.unwrap();
    assert_eq!(kept.ctime.seconds, 77);
    let refused = world.root().setattr(ino, change).await.unwrap();
    assert_ne!(refused.ctime.seconds, 77);
}
