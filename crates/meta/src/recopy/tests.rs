use super::pace::{Pace, Wish};
use super::pages::PAGE;
use super::spare::QUIET_MS;
use super::walk::{LEFT_MAX, PATIENCE_MS};
use super::work::{self, Outcome, Wanted};
use crate::check::tests::fsck;
use crate::core::Core;
use crate::ctx::Ctx;
use crate::keys;
use crate::records::{self, Recopying, Spare};
use crate::tests::check::check_shares;
use crate::tests::refusing::Refusing;
use crate::tests::world::*;
use crate::view::Tx;
use async_trait::async_trait;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strake_engine::kv::memory::{MemoryKv, SyncedKv};
use strake_engine::kv::{Kv, KvError, Outcome as Committed, Result as KvResult, Snapshot, Writes};
use strake_types::layout::{Groups, Placement};
use strake_types::{ChunkIndex, ErrorKind, FileKind, GroupId, Ino, Layout, Result, VolumeId};
use strake_wire::member::MetaRole;
use strake_wire::message::manager::Group;
use strake_wire::message::meta::{
    Look, MetaAnswer, MetaOp, MetaRequest, Open, OpenMode, OpenSession, Publish, Told,
};
use strake_wire::message::recopies::{RecopyOrder, RecopyProgress};
use strake_wire::message::storage::StorageOp;
use strake_wire::service::MetaService;
use tokio::sync::watch;

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
    file_of(world, name, &contents()).await
}

/// The same with these contents.
async fn file_of(world: &World, name: &str, contents: &[u8]) -> u64 {
    let root = world.root();
    let ino = root.file(1, name).await.unwrap();
    root.move_out(ino).await.unwrap();
    let placement = Placement::new(layout(world, ino).await);
    for (index, bytes) in contents.chunks(CHUNK).enumerate() {
        let at = place(placement.group_of(ChunkIndex(index as u64)));
        world.storage.chunks.lock().insert((at, ino, index as u64), bytes.to_vec());
    }
    let length_min = contents.len() as u64;
    let occupied_delta = length_min as i64;
    let publish = Publish { ino, length_min, occupied_delta, ..Publish::default() };
    root.publish(publish).await.unwrap();
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

/// What became of a file, without the reason.
#[derive(Debug, PartialEq, Eq)]
enum State {
    Done,
    Unchanged,
    Waits,
}

async fn attempt(core: Arc<Core>, ino: u64, copies: u32) -> Result<Outcome> {
    let volume = core.volume(VolumeId(1)).await?;
    let (_wish, receiver) = watch::channel(Wish::Go { paused: false, rate: 0 });
    let pace = Pace::new(receiver);
    let running = volume.recopies.begin(Ino(ino)).expect("it is not under way");
    let wanted = Wanted { ino: Ino(ino), copies, pace: &pace };
    work::run(&Ctx::own(&core, &volume), &wanted, &running.file).await
}

async fn ask(world: &World, ino: u64, copies: u32) -> Result<Outcome> {
    attempt(world.server.core(), ino, copies).await
}

async fn recopy(world: &World, ino: u64, copies: u32) -> (State, String) {
    match ask(world, ino, copies).await.unwrap() {
        Outcome::Done => (State::Done, String::new()),
        Outcome::Unchanged => (State::Unchanged, String::new()),
        Outcome::Waits(why) => (State::Waits, why),
    }
}

/// Something happens while the file has been begun, and before any of it is copied.
async fn meanwhile(world: &World, ino: u64, what: impl AsyncFnOnce()) -> (State, String) {
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
        assert_eq!(state, State::Done, "{detail}");
        assert_eq!(fsck(&world.root(), true).await, [], "while chunks are still being deleted");
        let after = world.root().getattr(ino).await.unwrap();
        assert_eq!((before.mtime, before.ctime), (after.mtime, after.ctime));
        assert!(after.version > before.version);
        assert_eq!(layout(&world, ino).await.copies(), copies);
        assert_eq!(read(&world, ino).await, contents());
        assert_eq!(recopy(&world, ino, copies).await.0, State::Unchanged);
        settled(&world).await;
        assert_eq!(read(&world, ino).await, contents());
        assert_eq!(world.storage.chunks.lock().len(), chunks);
    }
    let answer = ask(&world, ino, 3).await;
    assert_eq!(kind(answer), ErrorKind::Invalid, "there are no groups of three");
}

/// What `fallocate` had reserved was written with zeros, and used up by that, or not there at all.
#[tokio::test]
async fn what_is_reserved_in_a_file_is_reserved_where_it_is_copied() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    let before = Placement::new(layout(&world, ino).await);
    let key = |placement: &Placement, index: u64| {
        (place(placement.group_of(ChunkIndex(index))), ino, index)
    };
    let (first, last) = (key(&before, 0), key(&before, 4));
    world.storage.chunks.lock().get_mut(&first).unwrap().truncate(5000);
    let behind = CHUNK as u64 - 4096;
    let reserved = [(first, vec![(8192, 4096), (16_384, 8192)]), (last, vec![(behind, 8192)])];
    world.storage.reserved.lock().extend(reserved);
    let contents = read(&world, ino).await;
    let (state, detail) = recopy(&world, ino, 2).await;
    assert_eq!(state, State::Done, "{detail}");
    assert_eq!(read(&world, ino).await, contents);
    let after = Placement::new(layout(&world, ino).await);
    let mut reserved = world.storage.reserved.lock().clone();
    let mut found = reserved.remove(&key(&after, 0)).unwrap();
    found.sort_unstable();
    assert_eq!(found, [(8192, 4096), (16_384, 8192)]);
    assert_eq!(reserved.remove(&key(&after, 4)).unwrap(), [(behind, 4096)], "within the chunk");
    let copied = world.storage.chunks.lock()[&key(&after, 0)].len();
    assert_eq!(copied, 5000, "nothing was written to what is reserved");
}

/// Holes were written as zeros: a file with one block in each chunk took 256 times its room.
#[tokio::test]
async fn a_hole_within_a_chunk_stays_one_where_the_file_is_copied() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    let group = Placement::new(layout(&world, ino).await).group_of(ChunkIndex(1));
    let key = (place(group), ino, 1);
    let holes = vec![(4096, 8192), (20_480, CHUNK as u64 - 20_480)];
    for (start, len) in &holes {
        let range = *start as usize..(start + len) as usize;
        world.storage.chunks.lock().get_mut(&key).unwrap()[range].fill(0);
    }
    let empty: u64 = holes.iter().map(|(_, len)| len).sum();
    world.storage.holes.lock().insert(key, holes);
    let contents = read(&world, ino).await;
    obey(&world, &order(ino, 2));
    let end = until_ended(&world).await;
    assert_eq!((end.left, end.tally.files), (0, 1));
    assert_eq!(end.tally.bytes, contents.len() as u64 - empty);
    assert_eq!(read(&world, ino).await, contents);
    forgotten(&world).await;
}

#[tokio::test]
async fn a_file_inside_its_inode_only_learns_where_it_would_lie() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "small").await.unwrap();
    root.write(ino, 0, b"contents").await.unwrap();
    assert_eq!(recopy(&world, ino, 2).await.0, State::Done);
    assert_eq!(root.read(ino).await.unwrap().unwrap(), "contents");
    root.move_out(ino).await.unwrap();
    assert_eq!(read(&world, ino).await, b"contents");
    assert!(world.storage.chunks.lock().keys().all(|key| key.0 > 100));
    let dir = root.mkdir(1, "dir").await.unwrap();
    assert_eq!(recopy(&world, dir, 2).await.0, State::Unchanged);
}

#[tokio::test]
async fn who_has_a_file_open_keeps_it_where_it_is() {
    let world = World::new().await;
    let root = world.root();
    let ino = file(&world, "f").await;
    for mode in [READ, BOTH] {
        root.open(ino, mode).await.unwrap();
        let (state, detail) = recopy(&world, ino, 2).await;
        assert_eq!((state, &*detail), (State::Waits, "open by test"));
        assert_eq!(layout(&world, ino).await.copies(), 1);
        root.close(ino).await.unwrap();
    }
    assert_eq!(recopy(&world, ino, 2).await.0, State::Done);
    settled(&world).await;
    assert_eq!(read(&world, ino).await, contents());
}

#[tokio::test]
async fn who_only_defers_to_close_a_file_is_asked_for_it() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    let user = leasing(&world).await;
    user.open(ino, READ).await.unwrap();
    assert!(user.getattr(ino).await.unwrap().leased);
    assert_eq!(recopy(&world, ino, 2).await.0, State::Waits);
    let recalled = user.recalls(0).await;
    assert_eq!(recalled.inodes, [ino]);
    user.close(ino).await.unwrap();
    user.recalls(recalled.number).await;
    assert_eq!(recopy(&world, ino, 2).await.0, State::Done);
    settled(&world).await;
}

/// A client that asks where a file lies before it goes by that.
async fn moving(world: &World) -> User<'_> {
    let client = "mover".into();
    let op = OpenSession { client, claims: true, moves: true, ..OpenSession::default() };
    let op = Some(MetaOp::OpenSession(op));
    let request = MetaRequest { volume: 1, leases: 1, op, ..MetaRequest::default() };
    match world.server.call(request).await.unwrap().answer {
        Some(MetaAnswer::Session(session)) => world.root().at(session.session).leasing(),
        other => panic!("{other:?}"),
    }
}

/// Follows what is recalled, and says of each file that it rests.
async fn obey_recalls(user: &User<'_>) -> Infallible {
    let mut followed = 0;
    loop {
        let recalled = user.recalls(followed).await;
        for ask in recalled.rest {
            let told = Told { ino: ask.ino, number: ask.number, rests: true, ..Told::default() };
            user.call(MetaOp::Told(told)).await.unwrap();
        }
        followed = recalled.number;
    }
}

/// Another number of copies for a file while a client follows what it is asked.
async fn recopy_beside(user: &User<'_>, ino: u64, copies: u32) -> (State, String) {
    tokio::select! {
        ended = recopy(user.world, ino, copies) => ended,
        never = obey_recalls(user) => match never {},
    }
}

/// What a client is told that is about to write.
async fn copies_to_write(user: &User<'_>, ino: u64) -> u32 {
    match user.call(MetaOp::GetAttr(Look { ino, to_write: true, ..Look::default() })).await {
        Ok(MetaAnswer::Entry(attr)) => Layout::try_from(attr.layout.unwrap()).unwrap().copies(),
        other => panic!("{other:?}"),
    }
}

/// What lies where a file was, as it is kept for those who are reading there.
async fn spare(world: &World, ino: u64) -> Option<Spare> {
    let core = world.server.core();
    let volume = core.volume(VolumeId(1)).await.unwrap();
    super::spare::find(&Ctx::own(&core, &volume), Ino(ino)).await.unwrap()
}

/// Nobody reads by where it was when it lies elsewhere, and who is at it finds everything there for a while.
#[tokio::test]
async fn a_file_that_is_open_to_read_is_switched_when_all_have_followed_the_recall() {
    let kv = SyncedKv::new();
    let world = World::on(Arc::new(kv.clone())).await;
    let ino = file(&world, "f").await;
    let user = moving(&world).await;
    user.recalls(0).await;
    user.open(ino, READ).await.unwrap();
    assert!(user.getattr(ino).await.unwrap().leased);
    let reads = async {
        // Before it is copied, for those who only defer to close it.
        let first = user.recalls(0).await;
        assert_eq!(first.inodes, [ino]);
        user.recalls(first.number).await.number
    };
    let gate = world.storage.gate.lock().await;
    let follows = async {
        let followed = reads.await;
        assert!(user.getattr(ino).await.unwrap().leased);
        drop(gate);
        let recalled = user.recalls(followed).await;
        assert_eq!(recalled.inodes, [ino]);
        assert_eq!(layout(&world, ino).await.copies(), 1, "somebody reads by it");
        let left = World::on(Arc::new(kv.after_power_loss().await.unwrap())).await;
        let kept = spare(&left, ino).await.unwrap();
        assert!(kept.again_ms > 0, "he may read by the new one, and the power be lost then");
        user.recalls(recalled.number).await;
    };
    let ((state, detail), ()) = tokio::join!(recopy(&world, ino, 2), follows);
    assert_eq!(state, State::Done, "{detail}");
    assert_eq!(layout(&world, ino).await.copies(), 2);
    let kept = spare(&world, ino).await.unwrap();
    assert!(kept.settled && kept.again_ms >= world.server.core().wall_ms() + QUIET_MS / 2);
    let old = world.storage.chunks.lock().keys().filter(|key| key.0 < 100).count();
    assert_eq!(old, 5, "who was reading reads on");
    quiet(&world).await;
    assert!(world.storage.chunks.lock().keys().all(|key| key.0 > 100));
    assert_eq!(read(&world, ino).await, contents());
}

/// Who was reading where it was would have read zeros.
#[tokio::test]
async fn what_lies_where_a_file_was_stays_when_the_clock_is_set_ahead() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    let user = moving(&world).await;
    user.open(ino, READ).await.unwrap();
    let (state, detail) = recopy_beside(&user, ino, 2).await;
    assert_eq!(state, State::Done, "{detail}");
    let core = world.server.core();
    let volume = core.volume(VolumeId(1)).await.unwrap();
    world.clock.set_ahead_ms(QUIET_MS + 1_000);
    for _ in 0..2 {
        assert_eq!(super::spare::clear(&core, &volume).await.unwrap(), 1);
    }
    let old = || world.storage.chunks.lock().keys().filter(|key| key.0 < 100).count();
    assert_eq!(old(), 5);
    quiet(&world).await;
    assert_eq!(old(), 0);
}

/// What was known of a file belongs to the switch before, or nobody has looked at it since.
#[test]
fn what_is_to_stay_is_not_deleted_by_what_was_known_of_it_before() {
    let recopies = crate::recopies::Recopies::default();
    let may_go = |until_ms, now_ms| recopies.has_kept(Ino(7), until_ms, 600, now_ms);
    assert!(may_go(0, 5) && !may_go(1_000, 5), "nobody has looked at it since");
    recopies.keep(&[(Ino(7), 1_000)], 5);
    recopies.keep(&[(Ino(7), 1_000)], 500);
    assert!(!may_go(1_000, 604) && may_go(1_000, 605));
    recopies.keep(&[(Ino(7), 2_000)], 700);
    assert!(!may_go(2_000, 1_299) && may_go(2_000, 1_300), "it was switched over again");
    recopies.keep(&[], 800);
    assert!(!may_go(2_000, 9_000));
}

#[tokio::test]
async fn a_file_that_is_open_to_write_is_switched_while_its_writer_rests() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    let user = moving(&world).await;
    user.open(ino, BOTH).await.unwrap();
    let (state, detail) = recopy(&world, ino, 2).await;
    assert_eq!((state, &*detail), (State::Waits, "open by mover"), "it says nothing");
    let (state, detail) = recopy_beside(&user, ino, 2).await;
    assert_eq!(state, State::Done, "{detail}");
    assert_eq!(copies_to_write(&user, ino).await, 2, "before it writes it learns where to");
    assert_eq!(recopy(&world, ino, 1).await.1, "open by mover", "it may be writing");
    assert_eq!(read(&world, ino).await, contents());
}

/// Whatever they say it stays where it is.
#[tokio::test]
async fn who_has_a_parallel_file_open_is_not_asked_whether_he_rests() {
    let world = World::new().await;
    world.root().setxattr(1, "user.strake.layout.consistency", b"parallel").await.unwrap();
    let ino = file(&world, "f").await;
    let user = moving(&world).await;
    user.open(ino, BOTH).await.unwrap();
    assert_eq!(recopy(&world, ino, 2).await.1, "open by mover");
    let volume = world.server.core().volume(VolumeId(1)).await.unwrap();
    for session in volume.sessions.all() {
        assert!(session.holder.fetch(Duration::ZERO).await.rest.is_empty());
    }
}

#[tokio::test]
async fn who_is_about_to_write_while_a_file_is_copied_keeps_it_where_it_is() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    let user = moving(&world).await;
    user.open(ino, BOTH).await.unwrap();
    let writes = meanwhile(&world, ino, async || {
        assert_eq!(copies_to_write(&user, ino).await, 1);
        let at = place(Placement::new(layout(&world, ino).await).group_of(ChunkIndex(0)));
        world.storage.chunks.lock().get_mut(&(at, ino, 0)).unwrap()[7] = 77;
    });
    let (state, detail) = tokio::select! {
        ended = writes => ended,
        never = obey_recalls(&user) => match never {},
    };
    assert_eq!(state, State::Waits, "{detail}");
    settled(&world).await;
    assert_eq!(layout(&world, ino).await.copies(), 1);
    assert_eq!(read(&world, ino).await[7], 77);
}

#[tokio::test]
async fn a_file_that_nobody_has_open_cannot_be_asked_for_to_write() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    let user = moving(&world).await;
    let look = Look { ino, to_write: true, ..Look::default() };
    assert_eq!(kind(user.call(MetaOp::GetAttr(look)).await), ErrorKind::Invalid);
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
    assert_eq!(state, State::Waits, "{detail}");
    settled(&world).await;
    assert!(world.storage.chunks.lock().keys().all(|key| key.0 < 100), "what was copied is gone");
    assert_eq!(read(&world, ino).await[7], 77);

    let reads = meanwhile(&world, ino, async || {
        root.open(ino, READ).await.unwrap();
        assert_eq!(layout(&world, ino).await.copies(), 1);
        root.close(ino).await.unwrap();
    });
    assert_eq!(reads.await.0, State::Done);
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
    assert_eq!(cut.await.0, State::Waits);
    settled(&world).await;
    let mut expected = contents();
    expected[10..].fill(0);
    assert_eq!(read(&world, ino).await, expected);

    let gone = file(&world, "gone").await;
    let (state, _) = meanwhile(&world, gone, async || {
        root.unlink(1, "gone").await.unwrap();
    })
    .await;
    assert_eq!(state, State::Waits);
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
    assert_eq!(state, State::Waits, "{detail}");
    settled(&world).await;
    *world.storage.refuses.lock() = Some(|op| matches!(op, StorageOp::Copy(_)));
    assert_eq!(kind(ask(&world, ino, 2).await), ErrorKind::Unavailable);
    *world.storage.refuses.lock() = None;
    // Nobody knows when the last request comes to its end.
    assert_eq!(recopy(&world, ino, 2).await.0, State::Waits);
    quiet(&world).await;
    assert_eq!(recopy(&world, ino, 2).await.0, State::Done);
    settled(&world).await;
    assert_eq!(read(&world, ino).await, contents());
}

/// What was asked before and after the copying itself writes nothing: nobody has to wait for it.
#[tokio::test]
async fn a_file_is_tried_again_at_once_unless_a_request_to_copy_has_failed() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    for refused in [(|op| matches!(op, StorageOp::Chunks(_))) as fn(&StorageOp) -> bool, |op| {
        matches!(op, StorageOp::Sync(_))
    }] {
        *world.storage.refuses.lock() = Some(refused);
        assert_eq!(kind(ask(&world, ino, 2).await), ErrorKind::Unavailable);
        *world.storage.refuses.lock() = None;
        settled(&world).await;
    }
    assert_eq!(recopy(&world, ino, 2).await.0, State::Done);
    settled(&world).await;
    assert_eq!(read(&world, ino).await, contents());
}

/// All that it has was listed first, and kept in memory: of a large one that was more than there is.
#[tokio::test]
async fn a_page_of_a_file_is_copied_while_the_next_one_is_asked_for() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    *world.storage.refuses.lock() = Some(|op| matches!(op, StorageOp::Chunks(of) if of.from > 0));
    assert_eq!(kind(ask(&world, ino, 2).await), ErrorKind::Unavailable);
    assert!(world.storage.at_gate.load(Ordering::SeqCst) > 0);
    *world.storage.refuses.lock() = None;
    // No request to copy has failed.
    settled(&world).await;
    assert_eq!(recopy(&world, ino, 2).await.0, State::Done);
    settled(&world).await;
    assert_eq!(read(&world, ino).await, contents());
}

/// Each of the others was waited for as long: hours for a file, while no target of its group was there.
#[tokio::test]
async fn after_a_piece_that_failed_no_more_of_the_file_is_asked_for() {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let world = World::new().await;
    world.storage.page_chunks.store(100, Ordering::SeqCst);
    let ino = file_of(&world, "f", &contents().repeat(15)).await;
    *world.storage.refuses.lock() = Some(|op| {
        let StorageOp::Copy(copy) = op else { return false };
        ASKED.fetch_or(1 << copy.to.chunk.index, Ordering::SeqCst);
        true
    });
    assert_eq!(kind(ask(&world, ino, 2).await), ErrorKind::Unavailable);
    let asked = ASKED.load(Ordering::SeqCst).count_ones();
    assert!((1..=4).contains(&asked), "{asked} pieces");
}

/// One group came after the other: a file of a chunk in each was copied piece by piece.
#[tokio::test]
async fn pieces_of_several_groups_are_copied_together() {
    let world = World::new().await;
    world.storage.page_chunks.store(100, Ordering::SeqCst);
    let ino = file(&world, "f").await;
    assert_eq!(Placement::new(layout(&world, ino).await).groups().len(), 3);
    let gate = world.storage.gate.lock().await;
    let release = async {
        world.until(async || world.storage.at_gate.load(Ordering::SeqCst) == 4).await;
        drop(gate);
    };
    let ((state, detail), ()) = tokio::join!(recopy(&world, ino, 2), release);
    assert_eq!(state, State::Done, "{detail}");
    assert_eq!(read(&world, ino).await, contents());
    settled(&world).await;
}

/// All chunks of a page were asked for first, also after a cancel, and what they said was kept in memory.
#[tokio::test]
async fn no_more_chunks_are_asked_for_their_holes_than_are_copied_soon() {
    const FULL: u64 = 60;
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let world = World::new().await;
    world.storage.page_chunks.store(100, Ordering::SeqCst);
    let ino = file_of(&world, "f", &contents().repeat(FULL as usize / 4)).await;
    let chunks: Vec<_> = world.storage.chunks.lock().keys().copied().collect();
    let full = chunks.into_iter().filter(|key| key.2 < FULL);
    world.storage.holes.lock().extend(full.map(|key| (key, vec![(4096, 4096)])));
    *world.storage.refuses.lock() = Some(|op| {
        ASKED.fetch_add(u64::from(matches!(op, StorageOp::Extents(_))), Ordering::SeqCst);
        false
    });
    let gate = world.storage.gate.lock().await;
    obey(&world, &order(ino, 2));
    world.until(async || world.storage.at_gate.load(Ordering::SeqCst) == 4).await;
    world.server.obey_recopies(&[]);
    drop(gate);
    forgotten(&world).await;
    settled(&world).await;
    let asked = ASKED.load(Ordering::SeqCst);
    assert!((2..16).contains(&asked), "{asked} chunks");
}

/// Each was waited for: of ten thousand files that was ten hours before the job failed.
#[tokio::test]
async fn a_file_waits_at_once_where_a_target_is_known_to_be_away() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    world.set_targets_up(false).await;
    let (state, detail) = recopy(&world, ino, 2).await;
    assert_eq!((state, &*detail), (State::Waits, "a target that it lies on is away"));
    assert_eq!(world.keys(SPARE).await, 0, "nothing was begun");
    world.set_targets_up(true).await;
    assert_eq!(recopy(&world, ino, 2).await.0, State::Done);
    settled(&world).await;
}

/// It was waited for with every file, as wide as they are by default, although nothing was to come to it.
#[tokio::test]
async fn a_target_that_is_away_holds_up_no_file_of_which_nothing_is_to_lie_on_it() {
    let world = World::new().await;
    let ino = file_of(&world, "f", b"one chunk").await;
    assert_eq!(recopy(&world, ino, 2).await, (State::Done, String::new()));
    settled(&world).await;
    let placed = Placement::new(layout(&world, ino).await);
    let away = (placed.group_of(ChunkIndex(0)).ordinal() + 1) % 3;
    // Its other member leads the group since.
    let mut groups = world.map.current().groups.clone();
    let led = groups.iter_mut().find(|one| one.id == GroupId::of_class(2, away).0).unwrap();
    (led.epoch, led.members) = (led.epoch + 1, vec![11 + (away + 1) % 3, 11 + away]);
    {
        let mut map = world.manager.map.lock();
        map.targets.iter_mut().find(|target| target.id == 11 + away).unwrap().up = false;
    }
    world.set_groups(groups).await;
    assert_eq!(recopy(&world, ino, 1).await, (State::Done, String::new()));
    let slots = layout(&world, ino).await.slots();
    assert!(slots.contains(&GroupId::of_class(1, away)), "it is as wide as before");
    assert_eq!(read(&world, ino).await, b"one chunk");
}

/// It is read still, and there may be no other copy.
#[tokio::test]
async fn what_a_poisoned_target_has_is_copied_from_it_but_nothing_to_it() {
    let world = World::new().await;
    let mut groups = world.manager.map.lock().groups.clone();
    // Each group of two is led by another target than the one of one.
    let pairs = groups.iter_mut().filter(|group| GroupId(group.id).copies() == 2);
    pairs.for_each(|group| group.members.reverse());
    world.set_groups(groups).await;
    world.root().setxattr(1, "user.strake.layout.width", b"1").await.unwrap();
    let ino = file(&world, "f").await;
    world.poison_targets(true).await;
    let (state, detail) = recopy(&world, ino, 2).await;
    assert_eq!((state, &*detail), (State::Waits, "a target that it is to lie on is away"));
    world.poison_targets(false).await;
    let of = layout(&world, ino).await.slots()[0].ordinal();
    {
        let mut map = world.manager.map.lock();
        let target = map.targets.iter_mut().find(|target| target.id == 11 + of).unwrap();
        target.spec.poisoned = "EIO".into();
        map.epoch += 1;
    }
    world.map.refresh().await.unwrap();
    let (state, detail) = recopy(&world, ino, 2).await;
    assert_eq!(state, State::Done, "{detail}");
}

#[tokio::test]
async fn a_crash_while_it_is_copied_leaves_the_file_and_no_chunks() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    let storage = world.storage.clone();
    let gate = storage.gate.lock().await;
    tokio::spawn(attempt(world.server.core(), ino, 2));
    world.until(async || storage.at_gate.load(Ordering::SeqCst) > 0).await;
    let world = world.killed().await;
    world.open_session(world.session, &[]).await;
    drop(gate);
    world.until(async || storage.at_gate.load(Ordering::SeqCst) >= 4).await;
    assert_eq!(recopy(&world, ino, 2).await.0, State::Waits);
    assert_eq!(fsck(&world.root(), true).await, []);
    quiet(&world).await;
    assert!(world.storage.chunks.lock().keys().all(|key| key.0 < 100));
    assert_eq!(read(&world, ino).await, contents());
    assert_eq!(recopy(&world, ino, 2).await.0, State::Done);
}

#[tokio::test]
async fn a_crash_after_the_switch_deletes_what_was_left() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    *world.storage.refuses.lock() = Some(|op| matches!(op, StorageOp::Truncate(_)));
    assert_eq!(recopy(&world, ino, 2).await.0, State::Done);
    let (state, _) = recopy(&world, ino, 1).await;
    assert_eq!(state, State::Waits, "the chunks of before are to be deleted there");
    let world = world.killed().await;
    world.open_session(world.session, &[]).await;
    assert_eq!(fsck(&world.root(), true).await, []);
    *world.storage.refuses.lock() = None;
    settled(&world).await;
    assert!(world.storage.chunks.lock().keys().all(|key| key.0 > 100));
    assert_eq!(read(&world, ino).await, contents());
}

/// Who opened it then wrote where it lies, synced that, and found the file where it was before when the power came back.
#[tokio::test]
async fn a_file_lies_where_it_was_copied_after_a_loss_of_power_as_well() {
    let kv = SyncedKv::new();
    let world = World::on(Arc::new(kv.clone())).await;
    let ino = file(&world, "f").await;
    assert_eq!(recopy(&world, ino, 2).await.0, State::Done);
    let left = World::on(Arc::new(kv.after_power_loss().await.unwrap())).await;
    assert_eq!(layout(&left, ino).await.copies(), 2);
}

/// The same of one that was empty: it has no chunks that are copied, and may get some at once.
#[tokio::test]
async fn an_empty_file_lies_where_it_is_to_lie_after_a_loss_of_power_as_well() {
    let kv = SyncedKv::new();
    let world = World::on(Arc::new(kv.clone())).await;
    let ino = world.root().file(1, "f").await.unwrap();
    assert_eq!(recopy(&world, ino, 2).await.0, State::Done);
    let left = World::on(Arc::new(kv.after_power_loss().await.unwrap())).await;
    assert_eq!(layout(&left, ino).await.copies(), 2);
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
    assert_eq!(recopy(&world, other, 2).await.0, State::Done);
    let world = world.killed().await;
    assert!(recopy(&world, ino, 2).await.1.contains("not come back"));
    world.open_session(world.session, &[]).await;
    assert!(recopy(&world, ino, 2).await.1.contains("lost"));
    world.clock.advance_ms(24 * 3_600_000 + 1_000);
    world.open_session(world.session, &[]).await;
    assert_eq!(recopy(&world, ino, 2).await.0, State::Done);
    world.until(async || world.keys(b'H').await == 0).await;
}

/// A store that takes no large transactions.
struct Narrow(MemoryKv);

#[async_trait]
impl Kv for Narrow {
    fn name(&self) -> &'static str {
        "narrow"
    }

    async fn snapshot(&self) -> KvResult<Arc<dyn Snapshot>> {
        self.0.snapshot().await
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> KvResult<Committed> {
        if writes.len() > 1_000 {
            return Err(KvError::Full { store: "narrow".into(), next: "ask for less" });
        }
        self.0.commit(snapshot, writes).await
    }

    async fn sync(&self) -> KvResult<()> {
        self.0.sync().await
    }
}

/// All of it was noted in one transaction, which etcd refuses from some 10,000 files on: then nothing that the client had
/// was ever given back.
#[tokio::test]
async fn what_a_lost_client_had_open_is_given_back_however_much_it_was() {
    const OPEN: usize = 5_000;
    let world = World::on(Arc::new(Narrow(MemoryKv::new()))).await;
    let open: Vec<u64> = (0..OPEN as u64).map(|nth| 1_000_000 + nth).collect();
    world.open_session(0, &open).await;
    world.clock.advance_ms(20_000);
    world.open_session(world.session, &[]).await;
    world.clock.advance_ms(20_000);
    world.until(async || world.keys(b'S').await == 1).await;
    assert_eq!(world.keys(b'H').await, OPEN);
    world.clock.advance_ms(24 * 3_600_000 + 1_000);
    world.open_session(world.session, &[]).await;
    world.until(async || world.keys(b'H').await == 0).await;
}

#[tokio::test]
async fn a_client_that_never_came_back_after_a_restart_may_use_any_file() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    world.open_session(0, &[]).await;
    let world = world.killed().await;
    world.open_session(world.session, &[]).await;
    world.clock.advance_ms(20_000);
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
    assert_eq!(recopy(&world, ino, 2).await.0, State::Done);
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
    assert_eq!((state, &*detail), (State::Waits, "open by test"));
}

/// It counted as who only reads and was not asked whether it rests: what it wrote then went to where the file had been.
#[tokio::test]
async fn who_is_answered_an_open_to_write_again_counts_as_one_who_may_beside_a_handle_that_reads() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    let open = strake_wire::message::meta::Create {
        open: Some(BOTH),
        exclusive: false,
        ..new(1, "f", FileKind::File, 0o644)
    };
    let core = world.server.core();
    let volume = core.volume(VolumeId(1)).await.unwrap();
    let stay = || volume.sessions.staying(Ino(ino), false).len();
    let user = moving(&world).await;
    user.call_seq(1, 0, MetaOp::Create(open.clone())).await.unwrap();
    assert_eq!(stay(), 1);
    // The answer was lost. It comes back, and has another handle of the file.
    let (client, resume) = ("mover".into(), user.session);
    let op = OpenSession { client, resume, open: vec![ino], moves: true, ..OpenSession::default() };
    let op = Some(MetaOp::OpenSession(op));
    let request = MetaRequest { volume: 1, leases: 1, op, ..MetaRequest::default() };
    world.server.call(request).await.unwrap();
    assert_eq!(stay(), 0, "who reads asks where it lies");
    user.call_seq(1, 0, MetaOp::Create(open)).await.unwrap();
    assert_eq!(stay(), 1);
}

/// It had rested since it was sent first, and counted as resting: what it wrote then went to where the file had been.
#[tokio::test]
async fn who_sends_an_open_to_write_again_is_awake() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    let core = world.server.core();
    let volume = core.volume(VolumeId(1)).await.unwrap();
    let stay = || volume.sessions.staying(Ino(ino), false).len();
    let user = moving(&world).await;
    user.recalls(0).await;
    let open = || user.call_seq(1, 0, MetaOp::Open(Open { ino, mode: BOTH }));
    open().await.unwrap();
    assert_eq!(stay(), 1);
    let session = volume.sessions.get(user.session).unwrap();
    volume.sessions.ask_to_rest(&session, Ino(ino), 1);
    tokio::select! {
        () = world.until(async || stay() == 0) => {}
        never = obey_recalls(&user) => match never {},
    }
    open().await.unwrap();
    assert_eq!((stay(), world.opens(ino).await), (1, 1));
}

#[tokio::test]
async fn a_report_of_closed_files_counts_once() {
    use strake_wire::message::meta::RenewSession;
    let world = World::new().await;
    let root = world.root();
    let ino = file(&world, "f").await;
    root.open(ino, BOTH).await.unwrap();
    let report =
        MetaOp::RenewSession(RenewSession { closed: vec![ino], number: 1, incarnation: 0 });
    root.call(report.clone()).await.unwrap();
    root.open(ino, BOTH).await.unwrap();
    root.call(report).await.unwrap();
    assert_eq!(recopy(&world, ino, 2).await.0, State::Waits);
    let next = MetaOp::RenewSession(RenewSession { closed: vec![ino], number: 2, incarnation: 0 });
    root.call(next).await.unwrap();
    assert_eq!(recopy(&world, ino, 2).await.0, State::Done);
}

/// The number of the job.
const JOB: u64 = 5;

fn order(ino: u64, copies: u32) -> RecopyOrder {
    RecopyOrder { job: JOB, volume: 1, ino, copies, paused: false, rate: 0 }
}

fn obey(world: &World, order: &RecopyOrder) {
    world.server.obey_recopies(std::slice::from_ref(order));
}

fn told(world: &World) -> RecopyProgress {
    world.server.recopies().into_iter().next().expect("a job is under way")
}

async fn until_ended(world: &World) -> RecopyProgress {
    world.until(async || told(world).ended).await;
    told(world)
}

/// The order comes no more: nothing is left of the job.
async fn forgotten(world: &World) {
    world.server.obey_recopies(&[]);
    assert!(world.server.recopies().is_empty());
    world.until(async || world.keys(b'J').await == 0).await;
}

/// Directories in each other, with a file each; the files.
async fn tree(world: &World) -> Vec<u64> {
    let root = world.root();
    let mut files = vec![file(world, "f").await];
    let (mut dir, mut inside) = (1, Vec::new());
    for depth in 0..3 {
        dir = root.mkdir(dir, &format!("d{depth}")).await.unwrap();
        inside.push(dir);
    }
    for (nth, dir) in inside.into_iter().enumerate() {
        let ino = file(world, &format!("m{nth}")).await;
        root.rename((1, &format!("m{nth}")), (dir, "f")).await.unwrap();
        files.push(ino);
    }
    files
}

async fn copies(world: &World, files: &[u64]) -> Vec<u32> {
    let mut copies = Vec::new();
    for &ino in files {
        copies.push(layout(world, ino).await.copies());
    }
    copies
}

#[tokio::test]
async fn a_job_gives_all_below_a_directory_copies_and_what_is_made_there_later() {
    let world = World::new().await;
    let root = world.root();
    let files = tree(&world).await;
    let dir = root.page(1, 0, 100, false).await.unwrap().entries;
    let dir = dir.iter().find(|entry| entry.name == "d0").unwrap().ino;
    root.link(files[2], dir, "other name").await.unwrap();
    obey(&world, &order(dir, 2));
    let end = until_ended(&world).await;
    assert_eq!((end.left, end.trouble.as_str()), (0, ""));
    assert_eq!((end.tally.files, end.tally.bytes), (3, 3 * contents().len() as u64), "{end:?}");
    assert_eq!(copies(&world, &files).await, [1, 2, 2, 2]);
    for &ino in &files {
        assert_eq!(read(&world, ino).await, contents());
    }
    let made = root.file(dir, "made").await.unwrap();
    let outside = root.file(1, "outside").await.unwrap();
    assert_eq!(copies(&world, &[made, outside]).await, [2, 1]);
    forgotten(&world).await;
    // One file, and back.
    obey(&world, &RecopyOrder { job: JOB + 1, ..order(files[3], 1) });
    world.until(async || world.server.recopies().iter().any(|said| said.ended)).await;
    assert_eq!(copies(&world, &files).await, [1, 2, 2, 1]);
    forgotten(&world).await;
    settled(&world).await;
}

/// Who made a file there was told EINVAL: the server of another share had set what the directory hands down, by a younger map.
#[tokio::test]
async fn who_makes_a_file_with_more_copies_than_the_map_has_yet_is_to_come_again() {
    let world = World::new().await;
    let root = world.root();
    let dir = root.mkdir(1, "d").await.unwrap();
    obey(&world, &order(dir, 2));
    until_ended(&world).await;
    let pairs = {
        let mut map = world.manager.map.lock();
        map.epoch += 1;
        let is_pair = |group: &mut Group| GroupId(group.id).copies() == 2;
        map.groups.extract_if(.., is_pair).collect::<Vec<_>>()
    };
    world.map.refresh().await.unwrap();
    let nth = Cell::new(0);
    world
        .until(async || {
            nth.set(nth.get() + 1);
            let made = root.file(dir, &format!("before{}", nth.get())).await;
            made.is_err_and(|error| error.kind == ErrorKind::Invalid)
        })
        .await;
    {
        let mut map = world.manager.map.lock();
        map.epoch += 1;
        map.groups.extend(pairs);
    }
    // Or it has heard of it by itself.
    let first = root.file(dir, "first").await;
    assert!(first.is_ok() || kind(first) == ErrorKind::StaleMap);
    world.until(async || root.file(dir, "again").await.is_ok()).await;
    let made = root.lookup(dir, "again").await.unwrap().ino;
    assert_eq!(copies(&world, &[made]).await, [2]);
}

#[tokio::test]
async fn in_a_volume_of_several_shares_all_files_get_copies_wherever_they_and_their_names_are() {
    let world = World::of_shares(Arc::new(MemoryKv::new()), options(), 3).await;
    let root = world.root();
    let mut files = tree(&world).await;
    let outside = root.file(1, "outside").await.unwrap();
    let d0 = root.lookup(1, "d0").await.unwrap().ino;
    let mut directories = Vec::new();
    for nth in 0..12 {
        let dir = root.mkdir(d0, &format!("e{nth}")).await.unwrap();
        files.push(root.file(dir, "own").await.unwrap());
        directories.push(dir);
    }
    let homes: BTreeSet<VolumeId> = files.iter().map(|ino| world.shares.of(Ino(*ino))).collect();
    assert_eq!(homes.len(), 3);
    for (job, copies_wanted) in [(JOB, 2), (JOB + 1, 1)] {
        let of_share = |VolumeId(volume)| RecopyOrder { job, volume, ..order(d0, copies_wanted) };
        let orders: Vec<_> = world.shares.all().map(of_share).collect();
        world.server.obey_recopies(&orders);
        world.until(async || world.server.recopies().iter().all(|said| said.ended)).await;
        let said = world.server.recopies();
        let shares: Vec<_> = said.iter().map(|said| VolumeId(said.volume)).collect();
        assert_eq!(shares, world.shares.all().collect::<Vec<_>>());
        assert!(said.iter().all(|said| (said.left, &*said.trouble) == (0, "")), "{said:?}");
        let done: u64 = said.iter().map(|said| said.tally.files).sum();
        // But for the one that lies outside.
        assert_eq!(done, files.len() as u64 - 1, "{said:?}");
        assert_eq!(copies(&world, &files[1..]).await, vec![copies_wanted; files.len() - 1]);
        assert_eq!(copies(&world, &[files[0], outside]).await, [1, 1]);
        for &ino in &files[..4] {
            assert_eq!(read(&world, ino).await, contents());
        }
        for &dir in &directories {
            let made = root.file(dir, &format!("made{job}")).await.unwrap();
            assert_eq!(copies(&world, &[made]).await, [copies_wanted]);
            root.unlink(dir, &format!("made{job}")).await.unwrap();
        }
        forgotten(&world).await;
        world.until(async || world.keys(SPARE).await == 0).await;
    }
    check_shares(&*world.kv, world.shares).await;
}

/// Places that a walk has still before it, as it is stored.
async fn places_left(world: &World) -> usize {
    let core = world.server.core();
    let volume = core.volume(VolumeId(1)).await.unwrap();
    let ctx = Ctx::own(&core, &volume);
    let key = keys::recopying(volume.id);
    let found: Option<Recopying> = Tx::reader(&ctx).get(&key).await.unwrap();
    found.map_or(0, |found| found.stack.len())
}

/// A walk that had found nothing to do was the last one, also if it was the first.
#[tokio::test]
async fn files_that_are_moved_past_the_first_walk_are_met_by_the_next() {
    let world = World::new().await;
    let root = world.root();
    let late = root.mkdir(1, "late").await.unwrap();
    let held = root.mkdir(1, "held").await.unwrap();
    // Gone through first of these.
    let early = root.mkdir(1, "early").await.unwrap();
    let moved = root.mkdir(late, "moved").await.unwrap();
    let ino = file(&world, "f").await;
    root.rename((1, "f"), (moved, "f")).await.unwrap();
    let lock = world.server.core().locks.lock(VolumeId(1), &[Ino(held)]).await;
    obey(&world, &order(1, 2));
    // It wants to hand down what is wanted there.
    world.until(async || places_left(&world).await == 2).await;
    root.rename((late, "moved"), (early, "moved")).await.unwrap();
    drop(lock);
    let end = until_ended(&world).await;
    assert_eq!((end.left, end.tally.files), (0, 1));
    assert_eq!(copies(&world, &[ino]).await, [2]);
    forgotten(&world).await;
}

/// What is told to be ahead: files, bytes, and that these are all.
fn ahead(world: &World) -> (u64, u64, bool) {
    let ahead = told(world).ahead.expect("it counts");
    (ahead.files, ahead.bytes, ahead.whole)
}

#[tokio::test]
async fn a_job_says_how_much_is_ahead_of_it_until_that_is_nothing() {
    let world = World::new().await;
    let root = world.root();
    let files = tree(&world).await;
    let length = contents().len() as u64;
    let dir = root.lookup(1, "d0").await.unwrap().ino;
    // By two names and once, without what has as many copies or lies elsewhere.
    root.link(files[2], dir, "other name").await.unwrap();
    assert_eq!(recopy(&world, files[3], 2).await.0, State::Done);
    settled(&world).await;
    root.open(files[1], READ).await.unwrap();
    let gate = world.storage.gate.lock().await;
    obey(&world, &order(dir, 2));
    world.until(async || ahead(&world) == (2, 2 * length, true)).await;
    drop(gate);
    world.until(async || told(&world).left == 1 && told(&world).tally.files == 1).await;
    assert_eq!(ahead(&world), (1, length, true), "what waits is still ahead");
    root.close(files[1]).await.unwrap();
    until_ended(&world).await;
    assert_eq!(ahead(&world), (0, 0, true));
    forgotten(&world).await;
}

#[tokio::test]
async fn a_job_names_who_has_a_file_open_and_copies_it_when_it_is_closed() {
    let world = World::new().await;
    let root = world.root();
    let files = tree(&world).await;
    root.open(files[1], READ).await.unwrap();
    obey(&world, &order(1, 2));
    world.until(async || told(&world).tally.files == 3 && told(&world).left == 1).await;
    let said = told(&world);
    assert_eq!(said.waiting[0].path, ":/main/d0/f");
    assert_eq!(said.waiting[0].reason, "open by test");
    assert!(!said.ended);
    root.close(files[1]).await.unwrap();
    let end = until_ended(&world).await;
    assert_eq!((end.left, end.tally.files), (0, 4));
    assert_eq!(copies(&world, &files).await, [2; 4]);
    settled(&world).await;
}

/// Somebody has these files open for longer than a job is patient.
async fn an_hour_passes(world: &World, open: &[u64]) {
    for _ in 0..PATIENCE_MS / 20_000 + 1 {
        world.clock.advance_ms(20_000);
        world.open_session(world.session, open).await;
    }
}

/// Each page of the first walk counted as if a file had got ready.
#[tokio::test]
async fn an_hour_of_the_first_walk_in_which_no_file_got_ready_counts() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    world.root().open(ino, READ).await.unwrap();
    let held = world.server.core().locks.lock(VolumeId(1), &[Ino(ino)]).await;
    obey(&world, &order(1, 2));
    world.until(async || told(&world).tally.looked > 0).await;
    an_hour_passes(&world, &[ino]).await;
    drop(held);
    let end = until_ended(&world).await;
    assert_eq!((end.left, end.tally.looked), (1, 1));
    forgotten(&world).await;
}

/// More files than are remembered that somebody has open, in a directory.
async fn many_open(world: &World, dir: u64) -> Vec<u64> {
    let mut files = Vec::new();
    for nth in 0..LEFT_MAX + 60 {
        let ino = world.root().file(dir, &format!("f{nth}")).await.unwrap();
        world.root().open(ino, READ).await.unwrap();
        files.push(ino);
    }
    files
}

/// A job is paused after the first page of these files, in its first walk.
async fn paused_in_first_walk(world: &World, order: &RecopyOrder, files: &[u64]) {
    let held = world.server.core().locks.lock(VolumeId(1), &[Ino(files[0])]).await;
    obey(world, order);
    world.until(async || told(world).left == u64::from(PAGE) - 1).await;
    obey(world, &RecopyOrder { paused: true, ..order.clone() });
    drop(held);
    world.until(async || told(world).left == u64::from(PAGE)).await;
}

/// It was gone through to its end, although each file of it may be waited for.
#[tokio::test]
async fn another_walk_ends_where_it_is_after_an_hour_and_all_that_is_left_is_counted() {
    let world = World::new().await;
    let dir = world.root().mkdir(1, "many").await.unwrap();
    let files = many_open(&world, dir).await;
    let many = files.len() as u64;
    paused_in_first_walk(&world, &order(dir, 2), &files).await;
    let held = world.server.core().locks.lock(VolumeId(1), &[Ino(files[0])]).await;
    obey(&world, &order(dir, 2));
    world.until(async || told(&world).tally.looked > many).await;
    an_hour_passes(&world, &files).await;
    drop(held);
    let end = until_ended(&world).await;
    assert!(end.tally.looked < 2 * many, "it went on");
    assert_eq!((end.left, ahead(&world).0), (many, many));
    forgotten(&world).await;
}

/// It was ended there, with all that it had still before it: of a large tree no job came to its end.
#[tokio::test]
async fn another_walk_goes_on_after_an_hour_in_which_it_met_nothing_that_waits() {
    let world = World::new().await;
    let root = world.root();
    let top = root.mkdir(1, "top").await.unwrap();
    let dir = root.mkdir(top, "many").await.unwrap();
    let slow = root.mkdir(1, "slow").await.unwrap();
    let files = many_open(&world, dir).await;
    paused_in_first_walk(&world, &order(top, 2), &files).await;
    // The next walk goes through it first, and stays there.
    root.rename((1, "slow"), (top, "slow")).await.unwrap();
    let held = world.server.core().locks.lock(VolumeId(1), &[Ino(slow)]).await;
    obey(&world, &order(top, 2));
    world.until(async || places_left(&world).await == 2).await;
    an_hour_passes(&world, &files).await;
    for &ino in &files {
        root.close(ino).await.unwrap();
    }
    drop(held);
    let end = until_ended(&world).await;
    assert_eq!((end.left, end.tally.files), (0, files.len() as u64));
    assert_eq!(end.trouble, "");
    forgotten(&world).await;
}

/// Nobody was told why.
#[tokio::test]
async fn why_another_walk_does_not_get_on_is_told_when_it_is_ended() {
    let kv = Refusing::new();
    let world = World::on(kv.clone()).await;
    let root = world.root();
    let top = root.mkdir(1, "top").await.unwrap();
    let above = root.mkdir(top, "above").await.unwrap();
    // Gone through before it.
    let dir = root.mkdir(top, "many").await.unwrap();
    let stuck = root.mkdir(1, "stuck").await.unwrap();
    let files = many_open(&world, dir).await;
    paused_in_first_walk(&world, &order(top, 2), &files).await;
    let held = world.server.core().locks.lock(VolumeId(1), &[Ino(files[0])]).await;
    obey(&world, &order(top, 2));
    let many = files.len() as u64;
    world.until(async || told(&world).tally.looked > many).await;
    // That is another walk, which comes to it at its end.
    root.rename((1, "stuck"), (above, "stuck")).await.unwrap();
    kv.refuse(stuck);
    for &ino in &files[1..] {
        root.close(ino).await.unwrap();
    }
    drop(held);
    root.close(files[0]).await.unwrap();
    world.until(async || !told(&world).trouble.is_empty()).await;
    an_hour_passes(&world, &[]).await;
    let end = until_ended(&world).await;
    assert!(end.trouble.contains("make room"), "{end:?}");
    kv.refuse(0);
    forgotten(&world).await;
}

#[tokio::test]
async fn what_stays_open_for_an_hour_is_given_up_and_a_pause_does_not_count() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    world.root().open(ino, READ).await.unwrap();
    obey(&world, &order(1, 2));
    world.until(async || told(&world).left == 1).await;
    obey(&world, &RecopyOrder { paused: true, ..order(1, 2) });
    // It has to see that.
    tokio::time::sleep(Duration::from_millis(200)).await;
    an_hour_passes(&world, &[ino]).await;
    obey(&world, &order(1, 2));
    let looked = told(&world).tally.looked;
    world.until(async || told(&world).tally.looked > looked).await;
    assert!(!told(&world).ended);
    an_hour_passes(&world, &[ino]).await;
    let end = until_ended(&world).await;
    assert_eq!((end.left, &*end.waiting[0].reason), (1, "open by test"));
    assert_eq!(layout(&world, ino).await.copies(), 1);
    forgotten(&world).await;
}

#[tokio::test]
async fn a_paused_job_begins_nothing_and_a_cancelled_one_gives_up_what_it_has_begun() {
    let world = World::new().await;
    let files = tree(&world).await;
    let paused = RecopyOrder { paused: true, ..order(1, 2) };
    obey(&world, &paused);
    world.until(async || !world.server.recopies().is_empty()).await;
    assert_eq!((told(&world).under_way.len(), copies(&world, &files).await), (0, vec![1; 4]));
    let gate = world.storage.gate.lock().await;
    obey(&world, &order(1, 2));
    world.until(async || world.storage.at_gate.load(Ordering::SeqCst) > 0).await;
    let under_way = told(&world).under_way;
    assert!(under_way.iter().any(|file| file.path.ends_with("/f") && file.bytes > 0));
    world.server.obey_recopies(&[]);
    drop(gate);
    forgotten(&world).await;
    settled(&world).await;
    // What is to be done there next begins at once.
    obey(&world, &RecopyOrder { job: JOB + 1, ..order(1, 2) });
    until_ended(&world).await;
    assert_eq!(copies(&world, &files).await, [2; 4]);
    settled(&world).await;
}

/// A group of two copies.
fn two(ordinal: u32, members: &[u32]) -> Group {
    let id = GroupId::of_class(2, ordinal).0;
    Group { id, epoch: 1, members: members.to_vec(), ..Group::default() }
}

/// Groups were looked for by their numbers, which are those of other targets, or of none.
#[tokio::test]
async fn a_file_on_listed_targets_stays_on_them_with_other_copies() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.setxattr(ino, "user.strake.layout.targets", b"13").await.unwrap();
    root.move_out(ino).await.unwrap();
    world.put_chunk(ino, 0, 100).await;
    let publish = Publish { ino, length_min: 100, occupied_delta: 100, ..Publish::default() };
    root.publish(publish).await.unwrap();
    let mut groups = world.map.current().groups.clone();
    groups.retain(|group| GroupId(group.id).copies() == 1);
    groups.push(two(0, &[12, 13]));
    world.set_groups(groups.clone()).await;
    let refused = ask(&world, ino, 2).await.unwrap_err();
    assert!(refused.detail.contains("target 13 is the first of no group"), "{refused}");
    groups.push(two(1, &[13, 12]));
    world.set_groups(groups).await;
    assert_eq!(recopy(&world, ino, 2).await, (State::Done, String::new()));
    let moved = layout(&world, ino).await;
    assert_eq!(moved.groups, Groups::List(vec![GroupId::of_class(2, 1)]));
}

/// The walk stayed at such a directory until the job failed, whatever came after it; later it was left for good with what there
/// was to list then, and with nothing if that was nothing.
#[tokio::test]
async fn a_directory_of_which_a_listed_target_leads_no_such_group_does_not_hold_up_a_job() {
    let world = World::new().await;
    let root = world.root();
    let above = root.mkdir(1, "above").await.unwrap();
    let pinned = root.mkdir(above, "pinned").await.unwrap();
    let other = root.mkdir(pinned, "other").await.unwrap();
    root.setxattr(pinned, "user.strake.layout.targets", b"13,11").await.unwrap();
    let later = root.file(other, "f").await.unwrap();
    let of_class = |copies, ordinal| GroupId::of_class(copies, ordinal);
    let third_is = async |members: [u32; 2]| {
        let mut groups = world.map.current().groups.clone();
        let third = groups.iter_mut().find(|group| group.id == of_class(2, 2).0).unwrap();
        (third.epoch, third.members) = (third.epoch + 1, members.to_vec());
        world.set_groups(groups).await;
    };
    third_is([12, 13]).await;
    obey(&world, &order(above, 2));
    world.until(async || told(&world).left == 1 && told(&world).tally.files == 1).await;
    assert_eq!(copies(&world, &[later]).await, [2]);
    assert_eq!(told(&world).directories, 1);
    let waits = told(&world).waiting.remove(0);
    assert_eq!(waits.path, ":/main/above/pinned");
    assert!(waits.reason.contains("target 13 is the first of no group"), "{}", waits.reason);
    let made = root.file(pinned, "made").await.unwrap();
    let listed = async |ino| layout(&world, ino).await.groups;
    let before = Groups::List(vec![of_class(1, 2), of_class(1, 0)]);
    assert_eq!(listed(made).await, before, "it is as it was");
    third_is([13, 11]).await;
    let end = until_ended(&world).await;
    assert_eq!((end.left, end.trouble.as_str()), (0, ""));
    let after = Groups::List(vec![of_class(2, 2), of_class(2, 0)]);
    assert_eq!(listed(made).await, after, "it was met by another walk");
    assert_eq!(listed(root.file(pinned, "more").await.unwrap()).await, after);
    forgotten(&world).await;
    settled(&world).await;
}

/// What nearly full targets had left of a table was taken for a list: there may be no groups of such numbers.
#[tokio::test]
async fn a_file_that_went_around_a_full_target_gets_other_copies_by_the_table() {
    let world = World::new().await;
    world.set_free(13, 10).await;
    let ino = file(&world, "f").await;
    let around = layout(&world, ino).await;
    assert_eq!((around.around_full, around.slots().len()), (Some(3), 2));
    assert_eq!(recopy(&world, ino, 2).await, (State::Done, String::new()));
    let copied = layout(&world, ino).await;
    assert_eq!(copied.groups, Groups::Table { copies: 2, size: 3 });
    assert_eq!(read(&world, ino).await, contents());
    settled(&world).await;
}

/// It was copied to where there was no room, in vain, for an hour; and it stayed as narrow as it had become.
#[tokio::test]
async fn a_file_gets_other_copies_around_a_full_target_and_its_width_when_there_is_room() {
    let world = World::new().await;
    let mut groups = world.map.current().groups.clone();
    groups.retain(|group| GroupId(group.id).copies() == 1);
    groups.extend([two(0, &[11, 12]), two(1, &[12, 11]), two(2, &[13, 11])]);
    world.set_groups(groups).await;
    world.set_free(13, 10).await;
    let ino = file(&world, "f").await;
    assert_eq!(recopy(&world, ino, 2).await, (State::Done, String::new()));
    let around = layout(&world, ino).await;
    assert_eq!((around.around_full, around.copies(), around.slots().len()), (Some(3), 2, 2));
    assert!(!around.slots().contains(&GroupId::of_class(2, 2)), "{around:?}");
    assert_eq!(read(&world, ino).await, contents());
    settled(&world).await;
    world.set_free(13, 900).await;
    assert_eq!(recopy(&world, ino, 1).await, (State::Done, String::new()));
    let wide = layout(&world, ino).await;
    assert_eq!((wide.groups, wide.width), (Groups::Table { copies: 1, size: 3 }, 3));
    assert_eq!(read(&world, ino).await, contents());
    settled(&world).await;
}

/// Chunks were to be deleted again ten minutes later, and the clock was put back by ten days.
#[tokio::test]
async fn chunks_are_deleted_again_soon_after_the_clock_was_put_back() {
    let world = World::new().await;
    let ino = file(&world, "f").await;
    let two = vec![GroupId::of_class(2, 0)];
    let two = Layout { groups: Groups::List(two), width: 1, ..layout(&world, ino).await };
    let again_ms = world.server.core().wall_ms() + 10 * 24 * 3_600_000;
    let spare = Spare { layout: (&two).into(), settled: false, again_ms };
    let key = keys::spare(VolumeId(1), Ino(ino));
    let volume = world.server.core().volumes().remove(0);
    volume.put(key, records::encode(&spare)).await.unwrap();
    quiet(&world).await;
    assert_eq!(read(&world, ino).await, contents());
}

/// The server is killed while a file is copied, and again when everything is done.
#[tokio::test]
async fn a_job_goes_on_after_a_kill_with_what_it_has_done_and_ends() {
    let world = World::new().await;
    let files = tree(&world).await;
    let storage = world.storage.clone();
    world.root().open(files[3], READ).await.unwrap();
    obey(&world, &order(1, 2));
    world.until(async || told(&world).tally.files == 3 && told(&world).left == 1).await;
    let gate = storage.gate.lock().await;
    let before = storage.at_gate.load(Ordering::SeqCst);
    world.root().close(files[3]).await.unwrap();
    world.until(async || storage.at_gate.load(Ordering::SeqCst) > before).await;
    let world = world.killed().await;
    world.open_session(world.session, &[]).await;
    drop(gate);
    assert!(world.server.recopies().is_empty(), "nobody has ordered it yet");
    obey(&world, &order(1, 2));
    world.until(async || told(&world).left == 1).await;
    assert_eq!(told(&world).tally.files, 3, "what was done before is known");
    let reason = told(&world).waiting[0].reason.clone();
    assert!(reason.contains("still being deleted"), "{reason}");
    quiet(&world).await;
    assert_eq!(until_ended(&world).await.tally.files, 4);
    let world = world.killed().await;
    world.open_session(world.session, &[]).await;
    obey(&world, &order(1, 2));
    let end = until_ended(&world).await;
    assert_eq!((end.tally.files, end.left), (4, 0), "nobody had heard that it has ended");
    assert_eq!(copies(&world, &files).await, [2; 4]);
    for &ino in &files {
        assert_eq!(read(&world, ino).await, contents());
    }
    forgotten(&world).await;
    settled(&world).await;
}

#[tokio::test]
async fn an_orderly_stop_leaves_nothing_begun_and_the_job_goes_on() {
    let world = World::new().await;
    let files = tree(&world).await;
    let storage = world.storage.clone();
    let gate = storage.gate.lock().await;
    obey(&world, &order(1, 2));
    world.until(async || storage.at_gate.load(Ordering::SeqCst) > 0).await;
    let release = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(gate);
    };
    let (world, ()) = tokio::join!(world.restarted(), release);
    world.open_session(world.session, &[]).await;
    obey(&world, &order(1, 2));
    assert_eq!(until_ended(&world).await.left, 0);
    assert_eq!(copies(&world, &files).await, [2; 4]);
    settled(&world).await;
}

#[tokio::test]
async fn more_files_that_wait_than_are_remembered_are_counted_and_copied_all_the_same() {
    let world = World::new().await;
    let root = world.root();
    let (dir, many) = (root.mkdir(1, "many").await.unwrap(), LEFT_MAX + 60);
    let mut files = Vec::new();
    for nth in 0..many {
        let ino = root.file(dir, &format!("f{nth}")).await.unwrap();
        root.open(ino, READ).await.unwrap();
        files.push(ino);
    }
    obey(&world, &order(dir, 2));
    world.until(async || told(&world).left == many as u64).await;
    assert_eq!((told(&world).waiting.len(), ahead(&world).0), (LEFT_MAX, many as u64));
    for &ino in &files {
        root.close(ino).await.unwrap();
    }
    let end = until_ended(&world).await;
    assert_eq!((end.left, end.tally.files), (0, many as u64));
    assert_eq!(end.tally.bytes, 0, "they are inside their inodes");
}
