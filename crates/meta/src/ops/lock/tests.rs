use crate::keys;
use crate::records::{self, HeldLock, Locks};
use crate::tests::world::*;
use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strake_engine::kv::memory::MemoryKv;
use strake_engine::kv::{Kv, KvError, Outcome, Result as KvResult, Snapshot, Transaction, Writes};
use strake_types::{ErrorKind, Ino, VolumeId};
use strake_wire::message::meta::{Lock, MetaAnswer, MetaOp, MetaRequest, Nothing, OpenSession};
use strake_wire::service::MetaService;

fn lock(ino: u64, owner: u64, kind: u32, start: u64, end: u64) -> Lock {
    Lock { ino, owner, pid: owner as u32, start, end, kind, flock: false, wait_ms: 0 }
}

#[tokio::test]
async fn locks_exclude_each_other_and_tell_who_holds_them() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let other = root.clone().at(world.open_session(0, &[]).await.session);
    root.set_lock(lock(ino, 1, 2, 0, 9)).await.unwrap();
    assert_eq!(kind(other.set_lock(lock(ino, 1, 1, 9, 20)).await), ErrorKind::WouldBlock);
    other.set_lock(lock(ino, 1, 1, 10, 20)).await.unwrap();
    let asked = other.call(MetaOp::GetLock(lock(ino, 5, 2, 0, 100))).await.unwrap();
    assert_eq!(asked, MetaAnswer::Lock(lock(ino, 1, 2, 0, 9)));
    root.set_lock(lock(ino, 1, 0, 0, u64::MAX)).await.unwrap();
    let asked = other.call(MetaOp::GetLock(lock(ino, 1, 2, 0, 9))).await.unwrap();
    assert!(matches!(asked, MetaAnswer::Done(_)));
    let flock = Lock { flock: true, ..lock(ino, 1, 2, 0, 0) };
    root.set_lock(flock).await.unwrap();
    assert_eq!(kind(other.set_lock(flock).await), ErrorKind::WouldBlock);
}

/// Who had the file open wrote under the lock, and the cut of before was made, or made again, after that.
#[tokio::test]
async fn a_lock_is_granted_when_what_was_to_be_cut_is_cut() {
    let world = World::new().await;
    let root = world.root();
    let ino = world.cut_while_away(&root).await;
    for flock in [true, false] {
        let wanted = Lock { flock, ..lock(ino, 1, 2, 0, 9) };
        assert_eq!(kind(root.set_lock(wanted).await), ErrorKind::Unavailable);
        let unlock = Lock { kind: 0, ..wanted };
        root.set_lock(unlock).await.unwrap();
    }
    world.storage.away.store(false, Ordering::SeqCst);
    root.set_lock(lock(ino, 1, 2, 0, 9)).await.unwrap();
    let chunks = world.storage.chunks.lock().clone();
    assert_eq!(chunks.into_values().collect::<Vec<_>>(), [b"se".to_vec()]);
}

/// Each request for the lock kept the file's own for half a minute, and unlocks, ends of sessions and whoever wanted to
/// remove it waited behind it. Here the target is back, but the map does not say so: who asks it would be answered.
#[tokio::test]
async fn who_wants_a_lock_does_not_wait_for_a_cut_on_a_target_that_is_known_to_be_away() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"secret").await.unwrap();
    root.move_out(ino).await.unwrap();
    world.set_targets_up(false).await;
    world.storage.away.store(true, Ordering::SeqCst);
    assert_eq!(kind(root.truncate(ino, 2).await), ErrorKind::Unavailable);
    world.storage.away.store(false, Ordering::SeqCst);
    let wanted = lock(ino, 1, 2, 0, 9);
    assert_eq!(kind(root.set_lock(wanted).await), ErrorKind::Unavailable);
    let contents = || world.storage.chunks.lock().values().cloned().collect::<Vec<_>>();
    assert_eq!(contents(), [b"secret".to_vec()]);
    world.set_targets_up(true).await;
    root.set_lock(wanted).await.unwrap();
    assert_eq!(contents(), [b"se".to_vec()]);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_the_lock_when_it_is_released() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.set_lock(lock(ino, 1, 2, 0, 9)).await.unwrap();
    let waiting = Lock { wait_ms: 1_000, ..lock(ino, 2, 2, 5, 5) };
    let (waited, released) = futures::join!(root.set_lock(waiting), async {
        tokio::task::yield_now().await;
        root.set_lock(lock(ino, 1, 0, 0, 9)).await
    });
    waited.unwrap();
    released.unwrap();
    let short = Lock { wait_ms: 10, ..lock(ino, 1, 2, 5, 5) };
    assert_eq!(kind(root.set_lock(short).await), ErrorKind::WouldBlock);
}

/// Both waited for ever: each had what the other one waited for, and nobody looks for circles of flocks.
#[tokio::test(start_paused = true)]
async fn of_two_that_share_a_flock_and_both_want_it_alone_each_gets_it_in_its_turn() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let flock = |owner, kind| Lock { flock: true, ..lock(ino, owner, kind, 0, 0) };
    root.set_lock(flock(1, 1)).await.unwrap();
    root.set_lock(flock(2, 1)).await.unwrap();
    assert_eq!(kind(root.set_lock(flock(1, 2)).await), ErrorKind::WouldBlock);
    let refused = root.set_lock(flock(2, 2)).await;
    assert_eq!(kind(refused), ErrorKind::WouldBlock, "who does not wait keeps what it has");
    let wants = async |owner| {
        let granted = root.set_lock(Lock { wait_ms: 1_000, ..flock(owner, 2) }).await;
        root.set_lock(flock(owner, 0)).await.unwrap();
        granted
    };
    let (first, second) = futures::join!(wants(1), wants(2));
    assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
    assert_eq!(world.keys(b'F').await, 0);
}

/// Waits as a client does: asks again and again. What it was told at last.
async fn wait_for(root: &User<'_>, wanted: Lock) -> Result<(), ErrorKind> {
    loop {
        match root.set_lock(Lock { wait_ms: 1_000, ..wanted }).await {
            Err(error) if error.kind == ErrorKind::WouldBlock => {}
            other => return other.map(drop).map_err(|error| error.kind),
        }
    }
}

#[tokio::test]
async fn a_wait_without_end_is_refused() {
    let world = World::new().await;
    let root = world.root();
    let (a, b) = (root.file(1, "a").await.unwrap(), root.file(1, "b").await.unwrap());
    root.set_lock(lock(a, 1, 2, 0, 0)).await.unwrap();
    root.set_lock(lock(b, 2, 2, 0, 0)).await.unwrap();
    let waits = async |owner, own, wanted| {
        let told = wait_for(&root, lock(wanted, owner, 2, 0, 0)).await;
        root.set_lock(lock(own, owner, 0, 0, 0)).await.unwrap();
        told
    };
    let (first, second) = futures::join!(waits(1, a, b), waits(2, b, a));
    let refused = Err(ErrorKind::Deadlock);
    assert!((first == refused) != (second == refused), "{first:?} {second:?}");
    assert!(first.is_ok() != second.is_ok());
}

/// A client that is interrupted in its wait gives it up, and the server does not hear of that: nobody else is
/// refused for it.
#[tokio::test]
async fn a_wait_that_was_given_up_is_in_no_circle() {
    let world = World::new().await;
    let root = world.root();
    let (a, b) = (root.file(1, "a").await.unwrap(), root.file(1, "b").await.unwrap());
    root.set_lock(lock(a, 1, 2, 0, 0)).await.unwrap();
    root.set_lock(lock(b, 2, 2, 0, 0)).await.unwrap();
    let given_up = root.set_lock(Lock { wait_ms: 1_000, ..lock(a, 2, 2, 0, 0) });
    let (given_up, waited, ()) = futures::join!(
        given_up,
        async {
            tokio::task::yield_now().await;
            wait_for(&root, lock(b, 1, 2, 0, 0)).await
        },
        async {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            root.set_lock(lock(b, 2, 0, 0, 0)).await.unwrap();
        }
    );
    assert_eq!(kind(given_up), ErrorKind::WouldBlock);
    assert_eq!(waited, Ok(()));
}

/// It was granted when it was free, after its owner had given it up and unlocked: to nobody, until the session ended.
#[tokio::test(start_paused = true)]
async fn a_lock_that_was_given_up_while_it_waited_is_not_granted() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let other = root.clone().at(world.open_session(0, &[]).await.session);
    let (wanted, unlock) = (lock(ino, 1, 2, 0, 9), lock(ino, 1, 0, 0, 9));
    other.set_lock(wanted).await.unwrap();
    let waiting = MetaOp::SetLock(Lock { wait_ms: 1_000, ..wanted });
    let waiting = root.call_seq(7, 5, waiting);
    futures::pin_mut!(waiting);
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    root.call_giving_up(&[7], 8, 5, MetaOp::SetLock(unlock)).await.unwrap();
    other.set_lock(unlock).await.unwrap();
    assert_eq!(kind(waiting.await), ErrorKind::Malformed);
    other.set_lock(wanted).await.unwrap();
}

/// Who had given up a wait and asked for the same again counted as if it had waited all the time: with somebody who had
/// waited meanwhile, and had given up as well, it was in a circle that there had never been.
#[tokio::test]
async fn a_wait_that_was_given_up_begins_anew() {
    let world = World::new().await;
    let root = world.root();
    let (a, b) = (root.file(1, "a").await.unwrap(), root.file(1, "b").await.unwrap());
    let ask = async |ino, owner, wait_ms| {
        kind(root.set_lock(Lock { wait_ms, ..lock(ino, owner, 2, 0, 0) }).await)
    };
    root.set_lock(lock(a, 1, 2, 0, 0)).await.unwrap();
    root.set_lock(lock(b, 2, 2, 0, 0)).await.unwrap();
    // A client asks at once first.
    for (ino, owner, wait_ms) in
        [(b, 1, 0), (b, 1, 10), (a, 2, 0), (a, 2, 10), (a, 2, 10), (b, 1, 0)]
    {
        assert_eq!(ask(ino, owner, wait_ms).await, ErrorKind::WouldBlock);
    }
    assert_eq!(ask(b, 1, 10).await, ErrorKind::WouldBlock, "the second has not asked again");
    assert_eq!(ask(a, 2, 10).await, ErrorKind::WouldBlock, "the first has not asked again");
    assert_eq!(ask(b, 1, 10).await, ErrorKind::Deadlock);
}

/// The last request of a wait found the lock free, and did not wait: its owner counted as waiting for 10 s more, and
/// others were refused for it.
#[tokio::test]
async fn a_wait_that_was_granted_is_in_no_circle() {
    let world = World::new().await;
    let root = world.root();
    let (a, b) = (root.file(1, "a").await.unwrap(), root.file(1, "b").await.unwrap());
    let wait =
        async |ino, owner| root.set_lock(Lock { wait_ms: 10, ..lock(ino, owner, 2, 0, 0) }).await;
    root.set_lock(lock(a, 1, 2, 0, 0)).await.unwrap();
    root.set_lock(lock(b, 2, 2, 0, 0)).await.unwrap();
    for (ino, owner) in [(b, 1), (a, 2), (a, 2)] {
        assert_eq!(kind(wait(ino, owner).await), ErrorKind::WouldBlock);
    }
    // Another thread of the first one's.
    root.set_lock(lock(a, 1, 0, 0, 0)).await.unwrap();
    wait(a, 2).await.unwrap();
    root.set_lock(lock(a, 2, 0, 0, 0)).await.unwrap();
    root.set_lock(lock(a, 1, 2, 0, 0)).await.unwrap();
    assert_eq!(kind(wait(b, 1).await), ErrorKind::WouldBlock, "the second waits for nothing");
}

/// Two clients begin to wait for each other within the time that a message takes, and pause for that time between two
/// requests: each was in its pause when the other one's request ended, and neither was ever told.
#[tokio::test(start_paused = true)]
async fn a_wait_without_end_is_refused_however_long_messages_take() {
    let world = World::new().await;
    let root = world.root();
    let (a, b) = (root.file(1, "a").await.unwrap(), root.file(1, "b").await.unwrap());
    root.set_lock(lock(a, 1, 2, 0, 0)).await.unwrap();
    root.set_lock(lock(b, 2, 2, 0, 0)).await.unwrap();
    let waits = async |owner, wanted, later_ms| {
        tokio::time::sleep(Duration::from_millis(later_ms)).await;
        for _ in 0..20 {
            let waiting = Lock { wait_ms: 1_000, ..lock(wanted, owner, 2, 0, 0) };
            match kind(root.set_lock(waiting).await) {
                ErrorKind::WouldBlock => tokio::time::sleep(Duration::from_millis(400)).await,
                other => return other,
            }
        }
        ErrorKind::WouldBlock
    };
    for later_ms in [0, 1, 200, 399, 400, 700] {
        // Once one is refused the other one would wait for ever.
        let refused = tokio::select! {
            refused = waits(1, b, 0) => refused,
            refused = waits(2, a, later_ms) => refused,
        };
        assert_eq!(refused, ErrorKind::Deadlock, "{later_ms}");
    }
}

/// A store of which the answer to a commit is lost, and a file that the first of two clients may have locked.
async fn with_a_lost_lock(kv: &MemoryKv) -> (World, u64, u64) {
    let world = World::on(Arc::new(kv.clone())).await;
    let ino = world.root().file(1, "f").await.unwrap();
    let other = world.open_session(0, &[]).await.session;
    kv.get_lost_at_commit();
    assert_eq!(kind(world.root().set_lock(lock(ino, 1, 2, 0, 9)).await), ErrorKind::Unavailable);
    kv.come_back();
    assert_eq!(world.keys(b'P').await, 1, "it was stored");
    (world, ino, other)
}

/// The store had the lock of the one who was told nothing, and the table that of the other: a server that read them back
/// had both.
#[tokio::test]
async fn a_lock_whose_commit_was_lost_is_nobody_s_when_another_is_granted_it() {
    let kv = MemoryKv::new();
    let (world, ino, session) = with_a_lost_lock(&kv).await;
    let other = world.root().at(session);
    other.set_lock(lock(ino, 1, 2, 5, 20)).await.unwrap();
    assert_eq!(world.keys(b'P').await, 1);
    assert_eq!(kind(world.root().set_lock(lock(ino, 1, 2, 0, 9)).await), ErrorKind::WouldBlock);
    let world = world.killed().await;
    assert!(world.open_session(world.session, &[]).await.resumed);
    assert!(world.open_session(session, &[]).await.resumed);
    let (root, other) = (world.root(), world.root().at(session));
    assert_eq!(kind(root.set_lock(lock(ino, 1, 2, 0, 9)).await), ErrorKind::WouldBlock);
    other.set_lock(lock(ino, 1, 0, 0, u64::MAX)).await.unwrap();
    root.set_lock(lock(ino, 1, 2, 0, 9)).await.unwrap();
}

#[tokio::test]
async fn a_lock_whose_commit_was_lost_is_granted_when_it_is_asked_for_again() {
    let kv = MemoryKv::new();
    let (world, ino, session) = with_a_lost_lock(&kv).await;
    world.root().set_lock(lock(ino, 1, 2, 0, 9)).await.unwrap();
    let other = world.root().at(session);
    assert_eq!(kind(other.set_lock(lock(ino, 1, 2, 5, 20)).await), ErrorKind::WouldBlock);
    world.root().set_lock(lock(ino, 1, 0, 0, 9)).await.unwrap();
    assert_eq!(world.keys(b'P').await, 0);
}

/// Nobody would ever have given it back.
#[tokio::test]
async fn a_lock_whose_commit_was_lost_ends_with_its_session() {
    let kv = MemoryKv::new();
    let (world, ..) = with_a_lost_lock(&kv).await;
    world.root().call(MetaOp::CloseSession(Nothing {})).await.unwrap();
    assert_eq!(world.keys(b'P').await, 0);
}

/// It was refused to others, and free for them after a restart, while its holder had been told nothing.
#[tokio::test]
async fn a_lock_that_was_to_be_given_back_is_held_where_that_was_lost() {
    let kv = MemoryKv::new();
    let world = World::on(Arc::new(kv.clone())).await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.set_lock(lock(ino, 1, 2, 0, 9)).await.unwrap();
    let session = world.open_session(0, &[]).await.session;
    kv.get_lost_at_commit();
    assert_eq!(kind(root.set_lock(lock(ino, 1, 0, 0, 9)).await), ErrorKind::Unavailable);
    kv.come_back();
    assert_eq!(world.keys(b'P').await, 0, "it was deleted");
    let other = root.clone().at(session);
    assert_eq!(kind(other.set_lock(lock(ino, 1, 1, 0, 0)).await), ErrorKind::WouldBlock);
    let world = world.killed().await;
    assert!(world.open_session(session, &[]).await.resumed);
    let other = world.root().at(session);
    assert_eq!(kind(other.set_lock(lock(ino, 1, 1, 0, 0)).await), ErrorKind::WouldBlock);
}

/// A store that may be full: then only what deletes is taken.
struct Filling {
    kv: MemoryKv,
    full: Arc<AtomicBool>,
}

#[async_trait]
impl Kv for Filling {
    fn name(&self) -> &'static str {
        "filling"
    }

    async fn snapshot(&self) -> KvResult<Arc<dyn Snapshot>> {
        self.kv.snapshot().await
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> KvResult<Outcome> {
        if self.full.load(Ordering::SeqCst) && writes.values().any(Option::is_some) {
            return Err(KvError::Full { store: "filling".into(), next: "make room" });
        }
        self.kv.commit(snapshot, writes).await
    }

    async fn sync(&self) -> KvResult<()> {
        self.kv.sync().await
    }
}

/// What was certainly not stored was in doubt, and had to be written before anybody else could unlock.
#[tokio::test]
async fn a_lock_that_a_full_store_refused_is_in_nobody_s_way() {
    let full = Arc::new(AtomicBool::new(false));
    let kv = Filling { kv: MemoryKv::new(), full: full.clone() };
    let world = World::on(Arc::new(kv)).await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let other = root.clone().at(world.open_session(0, &[]).await.session);
    root.set_lock(lock(ino, 1, 2, 0, 9)).await.unwrap();
    other.set_lock(lock(ino, 1, 2, 20, 29)).await.unwrap();
    full.store(true, Ordering::SeqCst);
    assert_eq!(kind(root.set_lock(lock(ino, 1, 2, 12, 15)).await), ErrorKind::NoSpace);
    other.set_lock(lock(ino, 1, 0, 20, 29)).await.unwrap();
    assert_eq!(kind(other.set_lock(lock(ino, 1, 2, 9, 9)).await), ErrorKind::WouldBlock);
    root.set_lock(lock(ino, 1, 0, 0, 9)).await.unwrap();
    assert_eq!(world.keys(b'P').await, 0);
}

/// As it comes when the server has lost the volume and got it back, and has forgotten what it has answered.
#[tokio::test]
async fn a_copy_that_comes_after_the_volume_was_elsewhere_does_nothing() {
    let world = World::new().await;
    let ino = world.root().file(1, "f").await.unwrap();
    let send = async |world: &World, session, incarnation, seq, op| {
        let op = Some(op);
        let request =
            MetaRequest { volume: 1, session, incarnation, seq, op, ..Default::default() };
        world.server.call(request).await.map(|reply| reply.answer)
    };
    let begin = async |world: &World, resume, incarnation| {
        let op = OpenSession { resume, incarnation, ..OpenSession::default() };
        match send(world, 0, 0, 0, MetaOp::OpenSession(op)).await.unwrap() {
            Some(MetaAnswer::Session(session)) => session.session,
            other => panic!("{other:?}"),
        }
    };
    let session = begin(&world, 0, 1).await;
    let take = MetaOp::SetLock(lock(ino, 1, 2, 0, 9));
    send(&world, session, 1, 1, take.clone()).await.unwrap();
    send(&world, session, 1, 2, MetaOp::SetLock(lock(ino, 1, 0, 0, 9))).await.unwrap();
    let world = world.killed().await;
    let copy = async || kind(send(&world, session, 1, 1, take.clone()).await);
    assert_eq!(copy().await, ErrorKind::NoSession);
    assert_eq!(begin(&world, session, 2).await, session);
    assert_eq!(copy().await, ErrorKind::NoSession);
    assert_eq!(world.keys(b'P').await, 0);
}

#[tokio::test]
async fn locks_survive_a_restart_and_end_with_their_session() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.set_lock(lock(ino, 1, 2, 0, 9)).await.unwrap();
    root.set_lock(Lock { flock: true, ..lock(ino, 1, 2, 0, 0) }).await.unwrap();
    let world = world.killed().await;
    assert!(world.open_session(world.session, &[]).await.resumed);
    let other = world.root().at(world.open_session(0, &[]).await.session);
    assert_eq!(kind(other.set_lock(lock(ino, 1, 1, 0, 0)).await), ErrorKind::WouldBlock);
    world.clock.advance_ms(20_000);
    other.getattr(1).await.unwrap();
    world.clock.advance_ms(50_000 - 20_000);
    world.until(async || other.set_lock(lock(ino, 1, 1, 0, 0)).await.is_ok()).await;
    world.until(async || world.keys(b'F').await == 0).await;
}

#[tokio::test]
async fn nonsense_is_refused() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    assert_eq!(kind(root.set_lock(lock(ino, 1, 2, 5, 4)).await), ErrorKind::Invalid);
    assert_eq!(kind(root.set_lock(lock(ino, 1, 3, 0, 4)).await), ErrorKind::Malformed);
    assert_eq!(kind(root.set_lock(lock(99, 1, 2, 0, 4)).await), ErrorKind::Stale);
    let nobody = root.clone().at(0);
    assert_eq!(kind(nobody.set_lock(lock(ino, 1, 2, 0, 4)).await), ErrorKind::NoSession);
}

/// A copy of a request to lock comes when its client has unlocked again: it would hold the lock for ever. A
/// copy of the unlocking comes when it has locked again: it would lose the lock without a word.
#[tokio::test]
async fn a_late_copy_neither_locks_nor_unlocks() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let other = root.clone().at(world.open_session(0, &[]).await.session);
    let (take, give) = (lock(ino, 1, 2, 0, 9), lock(ino, 1, 0, 0, 9));
    let from_other = lock(ino, 5, 2, 0, 9);
    let send = async |seq, answered, op| root.call_seq(seq, answered, MetaOp::SetLock(op)).await;
    other.set_lock(from_other).await.unwrap();
    assert_eq!(kind(send(1, 0, take).await), ErrorKind::WouldBlock);
    other.set_lock(lock(ino, 5, 0, 0, 9)).await.unwrap();
    assert_eq!(kind(send(1, 0, take).await), ErrorKind::WouldBlock, "as it was answered");
    send(2, 1, take).await.unwrap();
    send(2, 1, take).await.unwrap();
    send(3, 2, give).await.unwrap();
    assert_eq!(kind(send(2, 1, take).await), ErrorKind::Malformed);
    other.set_lock(from_other).await.unwrap();
    other.set_lock(lock(ino, 5, 0, 0, 9)).await.unwrap();
    send(4, 3, take).await.unwrap();
    assert_eq!(kind(send(3, 2, give).await), ErrorKind::Malformed);
    assert_eq!(kind(other.set_lock(from_other).await), ErrorKind::WouldBlock, "it is held");
}

/// A session locks so many bytes of a file, apart from each other.
async fn lock_many(root: &User<'_>, ino: u64, count: u64) {
    for nth in 0..count {
        root.set_lock(lock(ino, 1, 2, nth * 10, nth * 10)).await.unwrap();
    }
}

/// One of those as it is stored.
fn tenth(nth: u64) -> HeldLock {
    HeldLock { owner: 1, pid: 1, start: nth * 10, end: nth * 10, exclusive: true }
}

/// Each lock stored all of them again.
#[tokio::test]
async fn many_locks_of_a_session_lie_in_pages_survive_a_restart_and_end_with_it() {
    let world = World::new().await;
    let ino = world.root().file(1, "f").await.unwrap();
    lock_many(&world.root(), ino, 600).await;
    assert!(world.keys(b'P').await > 5);
    let world = world.killed().await;
    assert!(world.open_session(world.session, &[]).await.resumed);
    let (root, other) = (world.root(), world.root().at(world.open_session(0, &[]).await.session));
    let at = |byte| lock(ino, 1, 2, byte, byte);
    for held in [0, 2_990, 5_990] {
        assert_eq!(kind(other.set_lock(at(held)).await), ErrorKind::WouldBlock);
    }
    other.set_lock(at(5)).await.unwrap();
    root.set_lock(Lock { kind: 0, ..at(2_990) }).await.unwrap();
    other.set_lock(at(2_990)).await.unwrap();
    root.call(MetaOp::CloseSession(Nothing {})).await.unwrap();
    assert_eq!(world.keys(b'P').await, 1, "those of the other");
}

#[tokio::test]
async fn locks_that_a_release_without_pages_has_stored_are_read_and_put_into_pages() {
    let world = World::new().await;
    let ino = world.root().file(1, "f").await.unwrap();
    let held = Locks { held: (0..600).map(tenth).collect() };
    let mut tx = Transaction::begin(&*world.kv).await.unwrap();
    let key = keys::lock(VolumeId(1), false, Ino(ino), world.session, None);
    tx.put(key, records::encode(&held));
    assert_eq!(tx.commit(&*world.kv).await.unwrap(), Outcome::Committed);
    let world = world.killed().await;
    assert!(world.open_session(world.session, &[]).await.resumed);
    world.root().set_lock(lock(ino, 1, 2, 9_999, 9_999)).await.unwrap();
    assert!(world.keys(b'P').await > 5);
    let world = world.killed().await;
    assert!(world.open_session(world.session, &[]).await.resumed);
    let other = world.root().at(world.open_session(0, &[]).await.session);
    for held in [0, 2_990, 5_990, 9_999] {
        let refused = other.set_lock(lock(ino, 1, 2, held, held)).await;
        assert_eq!(kind(refused), ErrorKind::WouldBlock, "{held}");
    }
    other.set_lock(lock(ino, 1, 2, 5, 5)).await.unwrap();
}

/// A server died between the transactions in which a page was cut, or one that knows of no pages has stored all in one record beside
/// those there are.
#[tokio::test]
async fn what_is_given_back_of_a_page_that_was_cut_in_part_does_not_come_back() {
    let world = World::new().await;
    let ino = world.root().file(1, "f").await.unwrap();
    let mut tx = Transaction::begin(&*world.kv).await.unwrap();
    for (page, held) in [(None, 0..10), (Some((1, 50)), 5..8)] {
        let key = keys::lock(VolumeId(1), false, Ino(ino), world.session, page);
        tx.put(key, records::encode(&Locks { held: held.map(tenth).collect() }));
    }
    assert_eq!(tx.commit(&*world.kv).await.unwrap(), Outcome::Committed);
    let world = world.killed().await;
    assert!(world.open_session(world.session, &[]).await.resumed);
    world.root().set_lock(lock(ino, 1, 0, 60, 60)).await.unwrap();
    let world = world.killed().await;
    assert!(world.open_session(world.session, &[]).await.resumed);
    let other = world.root().at(world.open_session(0, &[]).await.session);
    other.set_lock(lock(ino, 1, 2, 60, 60)).await.unwrap();
    for held in [0, 50, 90] {
        let refused = other.set_lock(lock(ino, 1, 2, held, held)).await;
        assert_eq!(kind(refused), ErrorKind::WouldBlock, "{held}");
    }
}

#[tokio::test]
async fn pages_of_which_the_commit_was_lost_are_as_they_were_before_another_locks() {
    let kv = MemoryKv::new();
    let world = World::on(Arc::new(kv.clone())).await;
    let ino = world.root().file(1, "f").await.unwrap();
    let session = world.open_session(0, &[]).await.session;
    lock_many(&world.root(), ino, 512).await;
    assert_eq!(world.keys(b'P').await, 1);
    let at = |byte| lock(ino, 1, 2, byte, byte);
    kv.get_lost_at_commit();
    assert_eq!(kind(world.root().set_lock(at(9_000)).await), ErrorKind::Unavailable);
    kv.come_back();
    assert!(world.keys(b'P').await > 5, "it was stored");
    world.root().at(session).set_lock(at(20_000)).await.unwrap();
    assert_eq!(world.keys(b'P').await, 2);
    let world = world.killed().await;
    assert!(world.open_session(world.session, &[]).await.resumed);
    assert!(world.open_session(session, &[]).await.resumed);
    let other = world.root().at(session);
    for held in [0, 2_990, 5_110] {
        assert_eq!(kind(other.set_lock(at(held)).await), ErrorKind::WouldBlock);
    }
    other.set_lock(at(9_000)).await.unwrap();
}
