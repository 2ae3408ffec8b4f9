use crate::MetaOptions;
use crate::ctx::Ctx;
use crate::lengths;
use crate::ops::orphan::REPLACED_STAYS_MS;
use crate::session::Session;
use crate::tests::world::*;
use async_trait::async_trait;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strake_engine::kv::memory::MemoryKv;
use strake_engine::kv::{Kv, KvError, Outcome, Result as KvResult, Snapshot, Writes};
use strake_types::limits::LEASE_MS_AT_SERVER;
use strake_types::{ErrorKind, FileKind, Ino, SessionId, VolumeId};
use strake_wire::message::common::{Attributes, Template};
use strake_wire::message::manager::Group;
use strake_wire::message::meta::{
    Client, ClientRef, Create, Lock, MetaAnswer, MetaOp, Nothing, OpenMode, Publish, Recalls,
};
use strake_wire::message::storage::StorageOp;

const WHOLE: Lock =
    Lock { ino: 0, owner: 1, pid: 1, start: 0, end: u64::MAX, kind: 2, flock: false, wait_ms: 0 };

async fn clients(user: &User<'_>) -> Vec<Client> {
    match user.call(MetaOp::ListClients(Nothing {})).await.unwrap() {
        MetaAnswer::Clients(list) => list.clients,
        other => panic!("{other:?}"),
    }
}

/// Evicts a client and waits until it is fenced. Nobody says how long its files are.
async fn evict_unsettled(world: &World, session: u64) {
    *world.storage.refuses.lock() = Some(|op| matches!(op, StorageOp::Chunks(_)));
    world.root().call(MetaOp::EvictClient(ClientRef { session })).await.unwrap();
    world.until(async || world.map.is_fenced(VolumeId(1), SessionId(session))).await;
}

/// It is asked how long its files are.
fn is_settling(session: &Session) -> bool {
    session.settling.lock().since_ms.is_some()
}

#[tokio::test]
async fn clients_are_listed_with_what_they_hold() {
    let world = World::new().await;
    let root = world.root();
    let (one, two) = (root.file(1, "a").await.unwrap(), root.file(1, "b").await.unwrap());
    let second = world.open_session(0, &[]).await.session;
    let other = root.clone().at(second);
    other.open(one, BOTH).await.unwrap();
    other.open(two, BOTH).await.unwrap();
    other.set_lock(Lock { ino: one, ..WHOLE }).await.unwrap();
    world.clock.advance_ms(5_000);
    let list = clients(&root).await;
    assert_eq!(list.iter().map(|c| c.session).collect::<Vec<_>>(), [world.session, second]);
    assert_eq!((list[0].open, list[0].locked, list[0].silent_ms), (0, 0, 0));
    assert_eq!((list[1].open, list[1].locked), (2, 1));
    assert!((5_000..6_000).contains(&list[1].silent_ms), "{list:?}");
    let user = world.user(7, 7);
    assert_eq!(kind(user.call(MetaOp::ListClients(Nothing {})).await), ErrorKind::NotPermitted);
    let evict = |session| MetaOp::EvictClient(ClientRef { session });
    assert_eq!(kind(user.call(evict(second)).await), ErrorKind::NotPermitted);
    assert_eq!(kind(root.call(evict(999)).await), ErrorKind::NotFound);
}

/// One task did both, one after the other: a client that was lost kept its locks as long as anything was to be deleted where
/// nobody answered.
#[tokio::test]
async fn what_a_lost_client_held_is_given_back_while_a_deletion_waits_for_a_storage_server() {
    let options = MetaOptions { storage_wait_ms: 600_000, ..options() };
    let world = World::with(Arc::new(MemoryKv::new()), options).await;
    let root = world.root();
    let (gone, held) = (root.file(1, "gone").await.unwrap(), root.file(1, "held").await.unwrap());
    world.write_untold(&root, gone).await;
    root.close(gone).await.unwrap();
    world.storage.away.store(true, Ordering::SeqCst);
    root.unlink(1, "gone").await.unwrap();
    world.clock.advance_ms(REPLACED_STAYS_MS + 1);
    let session = world.open_session(0, &[]).await.session;
    root.clone().at(session).set_lock(Lock { ino: held, ..WHOLE }).await.unwrap();
    // The deletion is under way.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(world.keys(b'G').await, 1);
    root.call(MetaOp::EvictClient(ClientRef { session })).await.unwrap();
    let mine = Lock { ino: held, owner: 2, ..WHOLE };
    world.until(async || root.set_lock(mine).await.is_ok()).await;
    assert_eq!(world.keys(b'G').await, 1, "it waits still");
    // Nor does it hold up who stops.
    let stopped = tokio::time::timeout(Duration::from_secs(5), world.server.stop()).await;
    stopped.expect("in time").unwrap();
}

#[tokio::test]
async fn an_evicted_client_is_fenced_before_others_get_its_locks() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let session = world.open_session(0, &[]).await.session;
    let client = root.clone().at(session);
    client.set_lock(Lock { ino, ..WHOLE }).await.unwrap();
    world.manager.away.store(true, Ordering::SeqCst);
    root.call(MetaOp::EvictClient(ClientRef { session })).await.unwrap();
    // Refused at once, also when it wants to go on.
    assert_eq!(kind(client.getattr(1).await), ErrorKind::NoSession);
    assert!(!world.open_session(session, &[]).await.resumed);
    let mine = Lock { ino, owner: 2, ..WHOLE };
    assert_eq!(kind(root.set_lock(mine).await), ErrorKind::WouldBlock, "nobody has fenced it yet");
    assert!(clients(&root).await.iter().any(|c| c.session == session && c.lost));
    world.manager.away.store(false, Ordering::SeqCst);
    world.until(async || root.set_lock(mine).await.is_ok()).await;
    assert!(world.map.is_fenced(VolumeId(1), SessionId(session)));
    assert!(!world.map.is_fenced(VolumeId(1), SessionId(world.session)));
    assert!(clients(&root).await.iter().all(|c| c.session != session));
}

/// A change of the file waits until the leases of this session are over, which was evicted; then that is ended.
async fn is_waited_for(world: &World, root: &User<'_>, ino: u64, session: u64) {
    let change = root.chmod(ino, 0o600);
    futures::pin_mut!(change);
    let soon = tokio::time::timeout(Duration::from_millis(300), change.as_mut());
    assert!(soon.await.is_err(), "it has not heard of it");
    assert!(clients(root).await.iter().any(|c| c.session == session));
    world.clock.advance_ms(LEASE_MS_AT_SERVER);
    change.await.unwrap();
    world.until(async || clients(root).await.iter().all(|c| c.session != session)).await;
}

/// Simulation seed 1797000000118: it believed for a moment what somebody else had changed.
#[tokio::test]
async fn what_an_evicted_client_believes_is_waited_for_as_long_as_its_leases_last() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let session = world.open_session_of(0, &[], true).await.session;
    let client = root.clone().at(session).leasing();
    client.call(MetaOp::Recalls(Recalls::default())).await.unwrap();
    assert!(client.getattr(ino).await.unwrap().leased);
    root.call(MetaOp::EvictClient(ClientRef { session })).await.unwrap();
    world.until(async || world.map.is_fenced(VolumeId(1), SessionId(session))).await;
    is_waited_for(&world, &root, ino, session).await;
}

/// The server that came after knew of no lease, and ended the session at once.
#[tokio::test]
async fn what_an_evicted_client_believes_is_waited_for_after_a_restart_too() {
    let world = World::new().await;
    let ino = world.root().file(1, "f").await.unwrap();
    let session = world.open_session_of(0, &[], true).await.session;
    let client = world.root().at(session).leasing();
    client.call(MetaOp::Recalls(Recalls::default())).await.unwrap();
    world.root().call(MetaOp::EvictClient(ClientRef { session })).await.unwrap();
    world.until(async || world.map.is_fenced(VolumeId(1), SessionId(session))).await;
    let own = world.session;
    let world = world.killed().await;
    assert!(world.open_session(own, &[]).await.resumed);
    let root = world.root().at(own);
    is_waited_for(&world, &root, ino, session).await;
}

/// Else it would go on with a session whose writes are refused.
#[tokio::test]
async fn a_fenced_client_cannot_come_back_after_a_restart() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let session = world.open_session(0, &[]).await.session;
    let client = root.clone().at(session);
    client.move_out(ino).await.unwrap();
    client.set_lock(Lock { ino, ..WHOLE }).await.unwrap();
    // Fenced; but what it held cannot be given back before the server stops.
    evict_unsettled(&world, session).await;
    let world = world.killed().await;
    assert!(!world.open_session(session, &[]).await.resumed);
    assert!(world.open_session(world.session, &[]).await.resumed);
    *world.storage.refuses.lock() = None;
    let root = world.root();
    let mine = Lock { ino, owner: 2, ..WHOLE };
    world.until(async || root.set_lock(mine).await.is_ok()).await;
}

/// A client locks a file and writes to it, and tells nobody. Its session, and how long the file is.
async fn untold_under_a_lock(world: &World, ino: u64) -> (u64, u64) {
    let session = world.open_session(0, &[]).await.session;
    let writer = world.root().at(session);
    writer.set_lock(Lock { ino, ..WHOLE }).await.unwrap();
    (session, world.write_untold(&writer, ino).await)
}

/// It reached to where the last chunk began in which there was room, and read as zeros.
#[tokio::test]
async fn room_that_a_lost_client_has_reserved_makes_no_file_longer() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let (session, length) = untold_under_a_lock(&world, ino).await;
    world.put_chunk(ino, 3, 0).await;
    root.call(MetaOp::EvictClient(ClientRef { session })).await.unwrap();
    let mine = Lock { ino, owner: 2, ..WHOLE };
    world.until(async || root.set_lock(mine).await.is_ok()).await;
    assert_eq!(root.getattr(ino).await.unwrap().length, length);
}

/// Who got the lock once saw the file grow.
#[tokio::test]
async fn what_a_lost_client_had_written_is_there_before_others_get_its_locks() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let (session, length) = untold_under_a_lock(&world, ino).await;
    evict_unsettled(&world, session).await;
    let mine = Lock { ino, owner: 2, ..WHOLE };
    assert_eq!(
        kind(root.set_lock(mine).await),
        ErrorKind::WouldBlock,
        "nobody knows how long it is"
    );
    *world.storage.refuses.lock() = None;
    world.until(async || root.set_lock(mine).await.is_ok()).await;
    assert_eq!(root.getattr(ino).await.unwrap().length, length);
}

/// A file of ten bytes that are on targets, as its writer has told.
async fn told_file(root: &User<'_>, name: &str) -> Attributes {
    let ino = root.file(1, name).await.unwrap();
    root.open(ino, BOTH).await.unwrap();
    root.move_out(ino).await.unwrap();
    let (length_min, occupied_delta) = (10, 10);
    let told = Publish { ino, length_min, occupied_delta, ..Publish::default() };
    let told = root.publish(told).await.unwrap();
    root.close(ino).await.unwrap();
    told
}

/// Of what it had written over it had told nobody: others went on by what they had read ahead, or kept, of that.
#[tokio::test]
async fn what_a_lost_client_may_have_written_over_has_another_version() {
    let world = World::new().await;
    let root = world.root();
    let session = world.open_session(0, &[]).await.session;
    let client = root.clone().at(session);
    let mut files = Vec::new();
    for (name, writes) in [("written", true), ("read", false)] {
        let before = told_file(&root, name).await;
        client.open(before.ino, OpenMode { write: writes, ..BOTH }).await.unwrap();
        files.push((before, u64::from(writes)));
    }
    root.call(MetaOp::EvictClient(ClientRef { session })).await.unwrap();
    let volume = world.server.core().volume(VolumeId(1)).await.unwrap();
    world.until(async || volume.sessions.get(session).is_none()).await;
    for (before, steps) in files {
        let after = root.getattr(before.ino).await.unwrap();
        assert_eq!(after.version, before.version + steps);
        assert_eq!((after.length, after.mtime, after.occupied), (10, before.mtime, 10));
    }
}

/// It kept its version, and so did those who had kept what was before.
#[tokio::test]
async fn what_a_lost_client_may_have_written_over_has_another_version_in_the_end() {
    let world = World::new().await;
    let root = world.root();
    let before = told_file(&root, "f").await;
    let session = world.open_session(0, &[]).await.session;
    root.clone().at(session).open(before.ino, BOTH).await.unwrap();
    evict_unsettled(&world, session).await;
    let volume = world.server.core().volume(VolumeId(1)).await.unwrap();
    world.until(async || volume.sessions.get(session).is_some_and(|s| is_settling(&s))).await;
    world.clock.advance_ms(70_000);
    let again = world.open_session(0, &[]).await.session;
    world.until(async || volume.sessions.get(session).is_none()).await;
    let after = world.root().at(again).getattr(before.ino).await.unwrap();
    assert_eq!((after.version, after.length), (before.version + 1, 10));
}

/// Only who asked how long it is noted that, and of thousands of files nobody may come to the last in time.
#[tokio::test]
async fn a_file_of_a_lost_client_is_counted_also_where_nobody_was_asked_how_long_it_is() {
    let world = World::new().await;
    let root = world.root();
    let ino = told_file(&root, "f").await.ino;
    // It is counted when nobody may write to it any more.
    root.open(ino, BOTH).await.unwrap();
    let core = world.server.core();
    let volume = core.volume(VolumeId(1)).await.unwrap();
    assert!(!volume.uncounted.has(Ino(ino)));
    lengths::give_up(&Ctx::own(&core, &volume), Ino(ino)).await.unwrap();
    assert!(volume.uncounted.has(Ino(ino)));
}

/// Done when the next change of an inode comes, which is refused.
type Instead = Box<dyn FnOnce() + Send>;

/// A store that refuses a change of an inode once.
struct Refusing {
    kv: MemoryKv,
    next: Arc<Mutex<Option<Instead>>>,
}

#[async_trait]
impl Kv for Refusing {
    fn name(&self) -> &'static str {
        "refusing"
    }

    async fn snapshot(&self) -> KvResult<Arc<dyn Snapshot>> {
        self.kv.snapshot().await
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> KvResult<Outcome> {
        if writes.keys().any(|key| key[0] == b'I') {
            let instead = self.next.lock().take();
            if let Some(instead) = instead {
                instead();
                return Err(KvError::Full { store: "refusing".into(), next: "make room" });
            }
        }
        self.kv.commit(snapshot, writes).await
    }

    async fn sync(&self) -> KvResult<()> {
        self.kv.sync().await
    }
}

/// That file kept its version, and others that had not begun; and nobody asked again how long those were that had another one.
#[tokio::test]
async fn what_a_store_refuses_once_of_a_lost_client_is_done_in_the_next_turn() {
    for heals in [false, true] {
        let next = Arc::<Mutex<Option<Instead>>>::default();
        let kv = Refusing { kv: MemoryKv::new(), next: next.clone() };
        let world = World::on(Arc::new(kv)).await;
        let root = world.root();
        let session = world.open_session(0, &[]).await.session;
        let client = root.clone().at(session);
        let mut files = Vec::new();
        // More than are looked at at the same time.
        for number in 0..20 {
            let before = told_file(&root, &format!("f{number}")).await;
            client.open(before.ino, BOTH).await.unwrap();
            world.put_chunk(before.ino, 1, 100).await;
            files.push(before);
        }
        evict_unsettled(&world, session).await;
        let volume = world.server.core().volume(VolumeId(1)).await.unwrap();
        world.until(async || volume.sessions.get(session).is_some_and(|s| is_settling(&s))).await;
        let storage = world.storage.clone();
        *next.lock() = Some(Box::new(move || {
            if heals {
                *storage.refuses.lock() = None;
            }
        }));
        world.clock.advance_ms(70_000);
        let again = world.open_session(0, &[]).await.session;
        world.until(async || volume.sessions.get(session).is_none()).await;
        let root = world.root().at(again);
        let length = if heals { 65_536 + 100 } else { 10 };
        for before in files {
            let after = root.getattr(before.ino).await.unwrap();
            assert!(after.version > before.version && after.length == length, "{after:?}");
        }
    }
}

/// Groups were asked one after the other, and one that says nothing took all the time there was: what the others have came to
/// lie behind the end of the file.
#[tokio::test(start_paused = true)]
async fn what_a_lost_client_had_written_counts_at_once_though_another_group_says_nothing() {
    const SILENT: u32 = 11;
    let world = World::new().await;
    let root = world.root();
    let session = world.open_session(0, &[]).await.session;
    let writer = root.clone().at(session);
    let mut files = Vec::new();
    // More than are looked at at the same time, and each has something to ask of all groups.
    for number in 0..60 {
        let template = Some(Template { width: Some(3), ..Template::default() });
        let name = format!("f{number}");
        let make = Create { template, ..new(1, &name, FileKind::File, 0o644) };
        let ino = root.make(make).await.unwrap().attr.ino;
        let length = world.write_untold(&writer, ino).await;
        files.push((ino, length));
    }
    let answers = |(ino, _): &(u64, u64)| {
        let chunks = world.storage.chunks.lock();
        !chunks.contains_key(&(SILENT, *ino, 1))
    };
    let (known, unknown): (Vec<_>, Vec<_>) = files.into_iter().partition(answers);
    assert!(!known.is_empty() && !unknown.is_empty());
    world.storage.target_silent.store(SILENT, Ordering::SeqCst);
    root.call(MetaOp::EvictClient(ClientRef { session })).await.unwrap();
    world
        .until(async || {
            for (ino, length) in &known {
                if root.getattr(*ino).await.unwrap().length != *length {
                    return false;
                }
            }
            true
        })
        .await;
    for (ino, _) in &unknown {
        assert_eq!(root.getattr(*ino).await.unwrap().length, 10, "nobody knows how long it is");
    }
    world.storage.target_silent.store(0, Ordering::SeqCst);
    for (ino, length) in unknown {
        world.until(async || root.getattr(ino).await.unwrap().length == length).await;
    }
}

/// It was waited for anew with every sixteen of them, and meanwhile no session of any volume ended.
#[tokio::test(start_paused = true)]
async fn a_target_that_says_nothing_is_waited_for_once_however_many_clients_are_lost() {
    let world = World::new().await;
    let root = world.root();
    let mut lost = Vec::new();
    for number in 0..100 {
        let session = world.open_session(0, &[]).await.session;
        let template = Some(Template { width: Some(3), ..Template::default() });
        let name = format!("f{number}");
        let make = Create { template, ..new(1, &name, FileKind::File, 0o644) };
        let ino = root.make(make).await.unwrap().attr.ino;
        world.write_untold(&root.clone().at(session), ino).await;
        lost.push(session);
    }
    world.storage.target_silent.store(11, Ordering::SeqCst);
    let volume = world.server.core().volume(VolumeId(1)).await.unwrap();
    for session in lost.iter().copied() {
        root.call(MetaOp::EvictClient(ClientRef { session })).await.unwrap();
    }
    let is_asked =
        |session: &u64| volume.sessions.get(*session).is_some_and(|session| is_settling(&session));
    // It is waited for 4 s, and as long again by who has asked just before that was over.
    let most = tokio::time::Instant::now() + Duration::from_secs(9);
    world.until(async || lost.iter().all(is_asked)).await;
    assert!(tokio::time::Instant::now() < most);
}

/// A group that had no member for a moment was passed over, and what it had was behind the end of the file for good.
#[tokio::test]
async fn what_a_lost_client_had_written_is_waited_for_where_a_group_has_no_member() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let (session, length) = untold_under_a_lock(&world, ino).await;
    let groups = world.manager.map.lock().groups.clone();
    let deserted = groups.iter().map(|group| Group { members: Vec::new(), ..group.clone() });
    world.set_groups(deserted.collect()).await;
    root.call(MetaOp::EvictClient(ClientRef { session })).await.unwrap();
    let volume = world.server.core().volume(VolumeId(1)).await.unwrap();
    world.until(async || volume.sessions.get(session).is_none_or(|s| is_settling(&s))).await;
    let mine = Lock { ino, owner: 2, ..WHOLE };
    assert_eq!(
        kind(root.set_lock(mine).await),
        ErrorKind::WouldBlock,
        "nobody knows how long it is"
    );
    world.set_groups(groups).await;
    world.until(async || root.set_lock(mine).await.is_ok()).await;
    assert_eq!(root.getattr(ino).await.unwrap().length, length);
}

/// A storage server that does not come back holds up nobody for ever.
#[tokio::test]
async fn locks_are_given_back_in_the_end_though_lengths_are_not_settled() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let session = world.open_session(0, &[]).await.session;
    let writer = root.clone().at(session);
    writer.move_out(ino).await.unwrap();
    writer.set_lock(Lock { ino, ..WHOLE }).await.unwrap();
    evict_unsettled(&world, session).await;
    world.clock.advance_ms(70_000);
    let again = world.open_session(0, &[]).await.session;
    let root = world.root().at(again);
    let mine = Lock { ino, owner: 2, ..WHOLE };
    world.until(async || root.set_lock(mine).await.is_ok()).await;
}

/// It once held the lock for ever: nobody was left to give it back.
#[tokio::test(start_paused = true)]
async fn who_waits_for_a_lock_when_it_is_evicted_does_not_get_it() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.set_lock(Lock { ino, ..WHOLE }).await.unwrap();
    let session = world.open_session(0, &[]).await.session;
    let waiter = root.clone().at(session);
    let waiting = waiter.set_lock(Lock { ino, owner: 2, wait_ms: 1_000, ..WHOLE });
    let (waited, freed) = futures::join!(waiting, async {
        tokio::task::yield_now().await;
        root.call(MetaOp::EvictClient(ClientRef { session })).await.unwrap();
        root.set_lock(Lock { ino, kind: 0, ..WHOLE }).await
    });
    freed.unwrap();
    assert_eq!(kind(waited), ErrorKind::NoSession);
    root.set_lock(Lock { ino, ..WHOLE }).await.unwrap();
}

/// Each `strake status` left one behind in the map if it was interrupted.
#[tokio::test]
async fn who_only_asked_for_names_is_not_fenced_when_its_session_is_over() {
    let world = World::new().await;
    let ino = world.root().file(1, "f").await.unwrap();
    let [asks, writes] = [world.open_session(0, &[]).await, world.open_session(0, &[]).await];
    world.root().at(asks.session).getattr(ino).await.unwrap();
    world.root().at(writes.session).open(ino, BOTH).await.unwrap();
    for _ in 0..2 {
        world.clock.advance_ms(20_000);
        world.open_session(world.session, &[]).await;
    }
    world.until(async || world.keys(b'S').await == 1).await;
    let is_fenced = |session| world.map.is_fenced(VolumeId(1), SessionId(session));
    assert_eq!((is_fenced(asks.session), is_fenced(writes.session)), (false, true));
}
