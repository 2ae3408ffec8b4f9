use super::spare::QUIET_MS;
use crate::check::tests::fsck;
use crate::tests::world::*;
use std::sync::atomic::Ordering;
use strake_types::layout::Placement;
use strake_types::{ChunkIndex, ErrorKind, FileKind, GroupId, Layout};
use strake_wire::message::meta::{
    MetaAnswer, MetaOp, OpenMode, Publish, Recopied, Recopy, RecopyState,
};
use strake_wire::message::storage::StorageOp;

/// Bytes of a chunk in the test cluster.
const CHUNK: usize = 65_536;
const READ: OpenMode = OpenMode { read: true, write: false, truncate: false };
/// Keys of the records.
const SPARE: u8 = b'A';

fn contents() -> Vec<u8> {
    (0..CHUNK * 4 + 100).map(|at| (at / 1000) as u8).collect()
}

async fn layout(world: &World, ino: u64) -> Layout {
    let attr = world.root().getattr(ino).await.unwrap();
    attr.layout.expect("a file has a layout").try_into().unwrap()
}

fn place(group: GroupId) -> u32 {
    11 + group.ordinal() + 100 * (group.copies() - 1)
}

/// A file of several chunks that nobody has open.
async fn file(world: &World, name: &str) -> u64 {
    let root = world.root();
    let ino = root.file(1, name).await.unwrap();
    root.move_out(ino).await.unwrap();
    let placement = Placement::new(layout(world, ino).await);
    for (index, bytes) in contents().chunks(CHUNK).enumerate() {
        let at = place(placement.group_of(ChunkIndex(index as u64)));
        world.storage.chunks.lock().insert((at, ino, index as u64), bytes.to_vec());
    }
    let length_min = contents().len() as u64;
    root.publish(Publish { ino, length_min, ..Publish::default() }).await.unwrap();
    ino
}

/// What somebody reads who opens the file now.
async fn read(world: &World, ino: u64) -> Vec<u8> {
    let length = world.root().getattr(ino).await.unwrap().length as usize;
    let placement = Placement::new(layout(world, ino).await);
    let chunks = world.storage.chunks.lock();
    let chunk = |index| {
        let at = place(placement.group_of(ChunkIndex(index)));
        let mut bytes = chunks.get(&(at, ino, index)).cloned().unwrap_or_default();
        bytes.resize(CHUNK, 0);
        bytes
    };
    let mut all: Vec<u8> = (0..length.div_ceil(CHUNK) as u64).flat_map(chunk).collect();
    all.truncate(length);
    all
}

async fn ask(world: &World, ino: u64, copies: u32) -> strake_types::Result<Recopied> {
    loop {
        let op = MetaOp::Recopy(Recopy { ino, copies, rate: 0 });
        match world.root().call(op).await? {
            MetaAnswer::Recopied(answer) if answer.state == RecopyState::UnderWay as u32 => {}
            MetaAnswer::Recopied(answer) => return Ok(answer),
            other => panic!("{other:?}"),
        }
    }
}

async fn recopy(world: &World, ino: u64, copies: u32) -> (RecopyState, String) {
    let answer = ask(world, ino, copies).await.unwrap();
    (RecopyState::of(answer.state).unwrap(), answer.detail)
}

/// Something happens while the file has been begun, and before any of it is copied.
async fn meanwhile(world: &World, ino: u64, what: impl AsyncFnOnce()) -> (RecopyState, String) {
    let gate = world.storage.gate.lock().await;
    let before = world.storage.at_gate.load(Ordering::SeqCst);
    let happens = async {
        world.until(async || world.storage.at_gate.load(Ordering::SeqCst) > before).await;
        what().await;
        drop(gate);
    };
    tokio::join!(recopy(world, ino, 2), happens).0
}

/// Waits until no chunk is left that no layout names, and checks that the volume is whole.
async fn settled(world: &World) {
    world.until(async || world.keys(SPARE).await == 0).await;
    assert_eq!(fsck(&world.root(), false).await, []);
}

/// Lets time go by until chunks of which nobody knew the end are deleted for good.
async fn quiet(world: &World) {
    let goes_by = async || {
        world.clock.advance_ms(QUIET_MS / 30);
        world.open_session(world.session, &[]).await;
        world.keys(SPARE).await == 0
    };
    world.until(goes_by).await;
    settled(world).await;
}

#[tokio::test]
async fn a_file_gets_more_copies_and_fewer_again_and_nothing_is_left() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    let chunks = world.storage.chunks.lock().len();
    world.root().link(ino, 1, "other name").await.unwrap();
    for copies in [2, 1, 2] {
        let before = world.root().getattr(ino).await.unwrap();
        let (state, detail) = recopy(&world, ino, copies).await;
        assert_eq!(state, RecopyState::Done, "{detail}");
        assert_eq!(fsck(&world.root(), true).await, [], "while chunks are still being deleted");
        let after = world.root().getattr(ino).await.unwrap();
        assert_eq!((before.mtime, before.ctime), (after.mtime, after.ctime));
        assert!(after.version > before.version);
        assert_eq!(layout(&world, ino).await.copies(), copies);
        assert_eq!(read(&world, ino).await, contents());
        assert_eq!(recopy(&world, ino, copies).await.0, RecopyState::Unchanged);
        settled(&world).await;
        assert_eq!(read(&world, ino).await, contents());
        assert_eq!(world.storage.chunks.lock().len(), chunks);
    }
    let answer = ask(&world, ino, 3).await;
    assert_eq!(kind(answer), ErrorKind::Invalid, "there are no groups of three");
}

#[tokio::test]
async fn a_file_inside_its_inode_only_learns_where_it_would_lie() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "small").await.unwrap();
    root.write(ino, 0, b"contents").await.unwrap();
    assert_eq!(recopy(&world, ino, 2).await.0, RecopyState::Done);
    assert_eq!(root.read(ino).await.unwrap().unwrap(), "contents");
    root.move_out(ino).await.unwrap();
    assert_eq!(read(&world, ino).await, b"contents");
    assert!(world.storage.chunks.lock().keys().all(|key| key.0 > 100));
    let dir = root.mkdir(1, "dir").await.unwrap();
    assert_eq!(recopy(&world, dir, 2).await.0, RecopyState::Unchanged);
    let op = MetaOp::Recopy(Recopy { ino, copies: 1, rate: 0 });
    assert_eq!(kind(world.user(7, 7).call(op).await), ErrorKind::NotPermitted);
}

#[tokio::test]
async fn who_has_a_file_open_keeps_it_where_it_is() {
    let world = World::new().await;
    let root = world.root();
    let ino = file(&world, "f").await;
    for mode in [READ, BOTH] {
        root.open(ino, mode).await.unwrap();
        let (state, detail) = recopy(&world, ino, 2).await;
        assert_eq!((state, &*detail), (RecopyState::Waits, "open by test"));
        assert_eq!(layout(&world, ino).await.copies(), 1);
        root.close(ino).await.unwrap();
    }
    assert_eq!(recopy(&world, ino, 2).await.0, RecopyState::Done);
    settled(&world).await;
    assert_eq!(read(&world, ino).await, contents());
}

#[tokio::test]
async fn who_reads_while_it_is_copied_disturbs_nothing_and_who_writes_does() {
    let world = World::new().await;
    let root = world.root();
    let ino = file(&world, "f").await;
    let writes = meanwhile(&world, ino, async || {
        root.open(ino, BOTH).await.unwrap();
        // It writes to where it knows the file to be.
        let at = place(Placement::new(layout(&world, ino).await).group_of(ChunkIndex(0)));
        world.storage.chunks.lock().get_mut(&(at, ino, 0)).unwrap()[7] = 77;
        root.close(ino).await.unwrap();
    });
    let (state, detail) = writes.await;
    assert_eq!(state, RecopyState::Waits, "{detail}");
    settled(&world).await;
    assert!(world.storage.chunks.lock().keys().all(|key| key.0 < 100), "what was copied is gone");
    assert_eq!(read(&world, ino).await[7], 77);

    let reads = meanwhile(&world, ino, async || {
        root.open(ino, READ).await.unwrap();
        assert_eq!(layout(&world, ino).await.copies(), 1);
        root.close(ino).await.unwrap();
    });
    assert_eq!(reads.await.0, RecopyState::Done);
    settled(&world).await;
    let mut expected = contents();
    expected[7] = 77;
    assert_eq!(read(&world, ino).await, expected);
}

#[tokio::test]
async fn what_changes_a_file_by_name_while_it_is_copied_is_not_undone() {
    let world = World::new().await;
    let root = world.root();
    let ino = file(&world, "f").await;
    let cut = meanwhile(&world, ino, async || {
        root.truncate(ino, 10).await.unwrap();
        root.truncate(ino, contents().len() as u64).await.unwrap();
    });
    assert_eq!(cut.await.0, RecopyState::Waits);
    settled(&world).await;
    let mut expected = contents();
    expected[10..].fill(0);
    assert_eq!(read(&world, ino).await, expected);

    let gone = file(&world, "gone").await;
    let (state, _) = meanwhile(&world, gone, async || {
        root.unlink(1, "gone").await.unwrap();
    })
    .await;
    assert_eq!(state, RecopyState::Waits);
    settled(&world).await;
    world.until(async || world.storage.chunks.lock().keys().all(|key| key.1 != gone)).await;
    assert_eq!(kind(ask(&world, gone, 2).await), ErrorKind::Stale);
}

#[tokio::test]
async fn a_copy_that_fails_or_is_lost_with_the_power_leaves_the_file_as_it_was() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    world.storage.fails_at_sync.store(true, Ordering::SeqCst);
    // What the file is made of was synced before.
    world.storage.make_durable();
    let (state, detail) = recopy(&world, ino, 2).await;
    assert_eq!(state, RecopyState::Waits, "{detail}");
    settled(&world).await;
    *world.storage.refuses.lock() = Some(|op| matches!(op, StorageOp::Copy(_)));
    assert_eq!(kind(ask(&world, ino, 2).await), ErrorKind::Unavailable);
    *world.storage.refuses.lock() = None;
    // Nobody knows when the last request comes to its end.
    assert_eq!(recopy(&world, ino, 2).await.0, RecopyState::Waits);
    quiet(&world).await;
    assert_eq!(recopy(&world, ino, 2).await.0, RecopyState::Done);
    settled(&world).await;
    assert_eq!(read(&world, ino).await, contents());
}

#[tokio::test]
async fn a_crash_while_it_is_copied_leaves_the_file_and_no_chunks() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    let storage = world.storage.clone();
    let gate = storage.gate.lock().await;
    let op = MetaOp::Recopy(Recopy { ino, copies: 2, rate: 0 });
    world.root().call(op).await.unwrap();
    assert!(storage.at_gate.load(Ordering::SeqCst) > 0);
    let world = world.killed().await;
    world.open_session(world.session, &[]).await;
    drop(gate);
    world.until(async || storage.at_gate.load(Ordering::SeqCst) >= 4).await;
    assert_eq!(recopy(&world, ino, 2).await.0, RecopyState::Waits);
    assert_eq!(fsck(&world.root(), true).await, []);
    quiet(&world).await;
    assert!(world.storage.chunks.lock().keys().all(|key| key.0 < 100));
    assert_eq!(read(&world, ino).await, contents());
    assert_eq!(recopy(&world, ino, 2).await.0, RecopyState::Done);
}

#[tokio::test]
async fn a_crash_after_the_switch_deletes_what_was_left() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    *world.storage.refuses.lock() = Some(|op| matches!(op, StorageOp::Truncate(_)));
    assert_eq!(recopy(&world, ino, 2).await.0, RecopyState::Done);
    let (state, _) = recopy(&world, ino, 1).await;
    assert_eq!(state, RecopyState::Waits, "the chunks of before are to be deleted there");
    let world = world.killed().await;
    world.open_session(world.session, &[]).await;
    assert_eq!(fsck(&world.root(), true).await, []);
    *world.storage.refuses.lock() = None;
    settled(&world).await;
    assert!(world.storage.chunks.lock().keys().all(|key| key.0 > 100));
    assert_eq!(read(&world, ino).await, contents());
}

#[tokio::test]
async fn what_a_lost_client_had_open_stays_until_its_rights_are_over() {
    let world = World::new().await;
    let (ino, other) = (file(&world, "f").await, file(&world, "other").await);
    let lost = world.open_session(0, &[]).await.session;
    world.root().at(lost).open(ino, BOTH).await.unwrap();
    world.clock.advance_ms(20_000);
    world.open_session(world.session, &[]).await;
    world.clock.advance_ms(20_000);
    world.until(async || world.keys(b'S').await == 1).await;
    assert!(recopy(&world, ino, 2).await.1.contains("lost"));
    assert_eq!(recopy(&world, other, 2).await.0, RecopyState::Done);
    let world = world.killed().await;
    let op = MetaOp::Recopy(Recopy { ino, copies: 2, rate: 0 });
    match world.root().at(0).call(op).await.unwrap() {
        MetaAnswer::Recopied(answer) => assert!(answer.detail.contains("not come back")),
        other => panic!("{other:?}"),
    }
    world.open_session(world.session, &[]).await;
    assert!(recopy(&world, ino, 2).await.1.contains("lost"));
    world.clock.advance_ms(24 * 3_600_000 + 1_000);
    world.open_session(world.session, &[]).await;
    assert_eq!(recopy(&world, ino, 2).await.0, RecopyState::Done);
    world.until(async || world.keys(b'H').await == 0).await;
}

#[tokio::test]
async fn a_client_that_never_came_back_after_a_restart_may_use_any_file() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    world.open_session(0, &[]).await;
    let world = world.killed().await;
    world.open_session(world.session, &[]).await;
    world.clock.advance_ms(50_000);
    world.open_session(world.session, &[]).await;
    world.clock.advance_ms(20_000);
    world.until(async || world.keys(b'S').await == 1).await;
    assert!(recopy(&world, ino, 2).await.1.contains("lost"));
}

/// The answer to an open was lost, the client came back without naming the file, and the file was
/// copied before it asked for the answer again.
#[tokio::test]
async fn an_open_that_is_answered_again_tells_where_the_file_is_now() {
    let world = World::new().await;
    let root = world.root();
    let ino = file(&world, "f").await;
    let open = strake_wire::message::meta::Create {
        open: Some(BOTH),
        exclusive: false,
        ..new(1, "f", FileKind::File, 0o644)
    };
    let first = root.call_seq(1, 0, MetaOp::Create(open.clone())).await.unwrap();
    world.open_session(world.session, &[]).await;
    assert_eq!(recopy(&world, ino, 2).await.0, RecopyState::Done);
    let again = root.call_seq(1, 0, MetaOp::Create(open)).await.unwrap();
    let (MetaAnswer::Created(first), MetaAnswer::Created(again)) = (first, again) else {
        panic!("not what was asked for");
    };
    let copies = |attr: strake_wire::message::common::Attributes| {
        Layout::try_from(attr.layout.unwrap()).unwrap().copies()
    };
    assert_eq!((copies(first.attr), copies(again.attr)), (1, 2));
    assert_eq!(copies(again.opened.unwrap().attr), 2);
    let (state, detail) = recopy(&world, ino, 1).await;
    assert_eq!((state, &*detail), (RecopyState::Waits, "open by test"));
}

#[tokio::test]
async fn a_report_of_closed_files_counts_once() {
    use strake_wire::message::meta::RenewSession;
    let world = World::new().await;
    let root = world.root();
    let ino = file(&world, "f").await;
    root.open(ino, BOTH).await.unwrap();
    let report = MetaOp::RenewSession(RenewSession { closed: vec![ino], number: 1 });
    root.call(report.clone()).await.unwrap();
    root.open(ino, BOTH).await.unwrap();
    root.call(report).await.unwrap();
    assert_eq!(recopy(&world, ino, 2).await.0, RecopyState::Waits);
    let next = MetaOp::RenewSession(RenewSession { closed: vec![ino], number: 2 });
    root.call(next).await.unwrap();
    assert_eq!(recopy(&world, ino, 2).await.0, RecopyState::Done);
}
