use crate::MetaOptions;
use crate::ledger::STORED_MAX;
use crate::tests::counted::counted;
use crate::tests::lines::Lines;
use crate::tests::world::*;
use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use strake_engine::kv::memory::MemoryKv;
use strake_engine::kv::{Kv, KvError, Outcome, Result as KvResult, Snapshot, Writes};
use strake_types::{ErrorKind, FileKind, Result, VolumeId};
use strake_wire::lease::Lease;
use strake_wire::member::MetaRole;
use strake_wire::message::meta::{
    Create, Created, Inode, Look, MetaAnswer, MetaOp, MetaRequest, Nothing, OpenSession,
    RenewSession, Session, Unlink,
};
use strake_wire::service::MetaService;
use tokio::sync::{Notify, RwLock};

#[tokio::test]
async fn a_session_ends_by_itself_or_by_the_clock() {
    let world = World::new().await;
    let root = world.root();
    let second = root.clone().at(world.open_session(0, &[]).await.session);
    assert_eq!(root.stat().await.sessions, 2);
    second.call(MetaOp::CloseSession(Nothing {})).await.unwrap();
    assert_eq!(kind(second.getattr(1).await), ErrorKind::NoSession);
    assert_eq!(world.keys(b'S').await, 1);
    let nobody = root.clone().at(0);
    world.clock.advance_ms(31_000);
    world.until(async || nobody.stat().await.sessions == 0).await;
    assert_eq!(kind(root.getattr(1).await), ErrorKind::NoSession);
    let again = world.open_session(world.session, &[]).await;
    assert!(!again.resumed && again.session != world.session);
}

/// What a client asks for that keeps leases, in an incarnation of a session.
async fn ask(world: &World, session: u64, incarnation: u64, op: MetaOp) -> Result<MetaAnswer> {
    let op = Some(op);
    let request =
        MetaRequest { volume: 1, session, incarnation, leases: 1, op, ..MetaRequest::default() };
    Ok(world.server.call(request).await?.answer.unwrap())
}

/// A client has these files open to write, and begins a session or goes on with one.
async fn try_begin(
    world: &World,
    resume: u64,
    (mount, incarnation): (u64, u64),
    open: &[u64],
) -> Result<Session> {
    let (open, writable) = (open.to_vec(), open.to_vec());
    let op = OpenSession { resume, mount, incarnation, open, writable, ..OpenSession::default() };
    match ask(world, 0, 0, MetaOp::OpenSession(op)).await? {
        MetaAnswer::Session(session) => Ok(session),
        other => panic!("{other:?}"),
    }
}

async fn begin(world: &World, resume: u64, own: (u64, u64), open: &[u64]) -> Session {
    try_begin(world, resume, own, open).await.unwrap()
}

/// Nobody could see which mounts still were of a release that was to go.
#[tokio::test]
async fn clients_are_listed_with_the_release_that_they_say() {
    let world = World::new().await;
    let root = world.root();
    let mut resume = 0;
    for release in ["0.1.0 (1a)", "0.1.0 (2b)", ""] {
        let op = OpenSession { resume, release: release.into(), ..OpenSession::default() };
        let opened = ask(&world, 0, 0, MetaOp::OpenSession(op)).await.unwrap();
        let MetaAnswer::Session(session) = opened else { panic!("{opened:?}") };
        assert_eq!(session.resumed, resume != 0);
        resume = session.session;
        let listed = root.call(MetaOp::ListClients(Nothing {})).await.unwrap();
        let MetaAnswer::Clients(list) = listed else { panic!("{listed:?}") };
        let client = list.clients.iter().find(|client| client.session == resume).unwrap();
        assert_eq!(client.release, release);
    }
}

/// The answer was lost, the client asked again, and waited for itself as for somebody else who holds back what he has written.
#[tokio::test]
async fn a_session_that_is_asked_for_twice_is_begun_once() {
    let world = World::new().await;
    let ino = world.root().file(1, "f").await.unwrap();
    let first = begin(&world, 99, (7, 3), &[ino]).await;
    let second = begin(&world, 99, (7, 3), &[ino]).await;
    assert!(!first.resumed && second == first);
    let both = tokio::join!(begin(&world, 99, (8, 3), &[]), begin(&world, 99, (8, 3), &[]));
    assert!(both.0 == both.1 && both.0.session != first.session);
    assert_eq!(world.keys(b'S').await, 3);
    ask(&world, first.session, 3, MetaOp::Settle(Inode { ino })).await.unwrap();
}

#[tokio::test]
async fn a_session_of_which_its_client_has_never_heard_ends_with_the_next_that_it_begins() {
    let world = World::new().await;
    let ino = world.root().file(1, "f").await.unwrap();
    let look = || MetaOp::GetAttr(Look { ino, ..Look::default() });
    let unheard = begin(&world, 99, (7, 3), &[ino]).await.session;
    let other = begin(&world, 99, (8, 1), &[ino]).await.session;
    let next = begin(&world, 99, (7, 4), &[ino]).await.session;
    assert_eq!(kind(ask(&world, unheard, 3, look()).await), ErrorKind::NoSession);
    assert_eq!(world.keys(b'S').await, 3);
    ask(&world, other, 1, MetaOp::CloseSession(Nothing {})).await.unwrap();
    ask(&world, next, 4, MetaOp::Settle(Inode { ino })).await.unwrap();
    let late = try_begin(&world, 99, (7, 3), &[ino]).await;
    assert_eq!(kind(late), ErrorKind::Conflict, "nobody waits for it");
    begin(&world, 99, (7, 5), &[]).await;
    ask(&world, next, 4, look()).await.expect("its client has heard of it");
}

/// The metadata was put back as it was before, and one number given once more: two mounts had each other's locks and files.
#[tokio::test]
async fn nobody_goes_on_with_the_session_of_another_client() {
    let world = World::new().await;
    let session = begin(&world, 0, (8, 3), &[]).await.session;
    let other = begin(&world, session, (7, 3), &[]).await;
    assert!(!other.resumed && other.session != session);
    for (mount, incarnation) in [(8, 4), (0, 5)] {
        let again = begin(&world, session, (mount, incarnation), &[]).await;
        assert!(
            again.resumed && again.session == session,
            "of a release that does not say: {mount}"
        );
    }
    let third = begin(&world, session, (7, 6), &[]).await;
    assert!(!third.resumed, "who has said which it is stays that");
}

#[tokio::test]
async fn a_late_request_to_go_on_with_a_session_takes_nothing_back() {
    let world = World::new().await;
    let ino = world.root().file(1, "f").await.unwrap();
    let session = begin(&world, 0, (8, 3), &[]).await.session;
    for _ in 0..2 {
        let again = begin(&world, session, (8, 5), &[ino]).await;
        assert!(again.resumed && again.session == session, "also when it is sent once more");
    }
    let late = try_begin(&world, session, (8, 4), &[]).await;
    assert_eq!(kind(late), ErrorKind::Conflict, "nobody waits for it");
    ask(&world, session, 5, MetaOp::Settle(Inode { ino })).await.expect("it has the file open");
    assert_eq!(world.keys(b'S').await, 2);
}

/// Makes the file of a session, with the first number of that.
async fn made(world: &World, session: u64, nth: usize) -> u64 {
    let op = MetaOp::Create(new(1, &format!("f{nth}"), FileKind::File, 0o644));
    match world.root().at(session).call_seq(1, 0, op).await.unwrap() {
        MetaAnswer::Created(Created { attr, .. }) => attr.ino,
        other => panic!("{other:?}"),
    }
}

/// Each session was a question to the database, one after the other, while no other volume could be opened.
#[tokio::test]
async fn the_replies_to_all_sessions_are_asked_for_together_at_a_start() {
    let (kv, questions) = counted();
    let world = World::on(kv).await;
    let mut sessions = Vec::new();
    for nth in 0..30 {
        let session = world.open_session(0, &[]).await.session;
        sessions.push((session, made(&world, session, nth).await));
    }
    let before = questions.about(b"R");
    let world = world.killed().await;
    let asked = questions.about(b"R") - before;
    assert!((1..5).contains(&asked), "{asked} questions");
    for (nth, (session, ino)) in sessions.into_iter().enumerate() {
        assert!(world.open_session(session, &[]).await.resumed);
        assert_eq!(made(&world, session, nth).await, ino, "it was carried out again");
    }
}

/// A store in which the next sync waits while something holds the gate, and says so.
struct Gated {
    kv: MemoryKv,
    next_waits: AtomicBool,
    waits: Notify,
    gate: RwLock<()>,
}

#[async_trait]
impl Kv for Gated {
    fn name(&self) -> &'static str {
        "gated"
    }

    async fn snapshot(&self) -> KvResult<Arc<dyn Snapshot>> {
        self.kv.snapshot().await
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> KvResult<Outcome> {
        self.kv.commit(snapshot, writes).await
    }

    async fn sync(&self) -> KvResult<()> {
        if self.next_waits.swap(false, Ordering::SeqCst) {
            self.waits.notify_one();
            drop(self.gate.read().await);
        }
        self.kv.sync().await
    }
}

/// It was entered beside the one that its client had begun after it, and its client would have waited for itself.
#[tokio::test]
async fn a_session_is_not_begun_after_a_later_one_of_its_client_was() {
    let kv = Arc::new(Gated {
        kv: MemoryKv::new(),
        next_waits: AtomicBool::new(false),
        waits: Notify::new(),
        gate: RwLock::new(()),
    });
    let world = World::on(kv.clone()).await;
    let ino = world.root().file(1, "f").await.unwrap();
    let gate = kv.gate.write().await;
    let next = async {
        kv.next_waits.store(true, Ordering::SeqCst);
        kv.waits.notified().await;
        let next = begin(&world, 0, (7, 4), &[ino]).await.session;
        drop(gate);
        next
    };
    let files = [ino];
    let (next, late) = tokio::join!(next, try_begin(&world, 0, (7, 3), &files));
    assert_eq!(kind(late), ErrorKind::Conflict);
    ask(&world, next, 4, MetaOp::Settle(Inode { ino })).await.unwrap();
    assert_eq!(world.keys(b'S').await, 2, "nothing of the other is left");
}

/// Every mount was evicted the moment the managers were back, however often it had asked meanwhile.
#[tokio::test(start_paused = true)]
async fn who_was_refused_for_want_of_a_manager_does_not_count_as_silent() {
    let tenure = Arc::new(Lease::new(Arc::new(TestClock::default())));
    tenure.renew(tenure.now(), 1_000_000_000);
    let options = MetaOptions { tenure: Some(tenure.clone()), ..options() };
    let world = World::with(Arc::new(MemoryKv::new()), options).await;
    let root = world.root();
    tenure.end();
    world.clock.advance_ms(31_000);
    assert_eq!(kind(root.getattr(1).await), ErrorKind::Unavailable);
    world.server.renew(tenure.now(), 1_000_000_000, 0);
    has_upkeep_and_then_expires(&world).await;
}

/// The same when the server's process had stood still.
#[tokio::test(start_paused = true)]
async fn who_asked_a_server_that_stood_still_does_not_count_as_silent() {
    let world = World::new().await;
    world.clock.advance_ms(31_000);
    tokio::time::advance(Duration::from_secs(31)).await;
    has_upkeep_and_then_expires(&world).await;
}

/// The session outlives some turns of the upkeep, but not another lease without a word.
async fn has_upkeep_and_then_expires(world: &World) {
    let (root, nobody) = (world.root(), world.root().at(0));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(nobody.stat().await.sessions, 1);
    root.getattr(1).await.unwrap();
    world.clock.advance_ms(31_000);
    world.until(async || nobody.stat().await.sessions == 0).await;
    assert_eq!(kind(root.getattr(1).await), ErrorKind::NoSession);
}

#[tokio::test]
async fn orphans_outlive_a_restart_while_they_are_open() {
    let world = World::new().await;
    let root = world.root();
    let open = Create { open: Some(BOTH), ..new(1, "kept", FileKind::File, 0o600) };
    let kept = root.make(open.clone()).await.unwrap().attr.ino;
    let lost = root.make(Create { at: at(1, "lost"), ..open }).await.unwrap().attr.ino;
    root.unlink(1, "kept").await.unwrap();
    root.unlink(1, "lost").await.unwrap();
    let world = world.killed().await;
    let nobody = world.root().at(0);
    for ino in [kept, lost] {
        nobody.getattr(ino).await.unwrap();
    }
    // The client comes back and has only one of them open still.
    assert!(world.open_session(world.session, &[kept, kept]).await.resumed);
    world.until(async || nobody.getattr(lost).await.is_err()).await;
    let root = world.root();
    root.write(kept, 0, b"x").await.unwrap();
    root.close(kept).await.unwrap();
    world.until(async || nobody.getattr(kept).await.is_err()).await;
    assert_eq!(world.keys(b'G').await + world.keys(b'B').await, 0);
}

/// It has no name, and its client could not say that it has it open: it was deleted before the answer was given again.
#[tokio::test]
async fn a_file_without_a_name_is_there_when_an_answer_that_a_restart_has_lost_is_given_again() {
    let world = World::new().await;
    let root = world.root();
    let make = || Create { open: Some(BOTH), ..new(1, "", FileKind::File, 0o600) };
    let first = root.call_seq(1, 0, MetaOp::Create(make())).await.unwrap();
    let MetaAnswer::Created(Created { attr, .. }) = &first else { panic!("{first:?}") };
    let (ino, closed) = (attr.ino, root.make(make()).await.unwrap().attr.ino);
    let world = world.killed().await;
    assert!(world.open_session(world.session, &[]).await.resumed);
    let root = world.root();
    world.until(async || root.getattr(closed).await.is_err()).await;
    let again = root.call_seq(1, 0, MetaOp::Create(make())).await.unwrap();
    assert!(matches!(again, MetaAnswer::Created(again) if again.attr.ino == ino));
    root.write(ino, 0, b"x").await.unwrap();
    // It has the answer, and closes the file.
    let close = RenewSession { closed: vec![ino], ..RenewSession::default() };
    root.call_seq(0, 1, MetaOp::RenewSession(close)).await.unwrap();
    world.until(async || root.getattr(ino).await.is_err()).await;
}

/// Else nothing would be deleted for as long as it lives.
#[tokio::test]
async fn a_client_from_before_a_restart_is_served_when_it_has_said_what_it_has_open() {
    let world = World::new().await;
    let ino = world.root().file(1, "f").await.unwrap();
    let world = world.killed().await;
    let root = world.root();
    assert_eq!(kind(root.getattr(ino).await), ErrorKind::NoSession);
    assert_eq!(kind(root.unlink(1, "f").await), ErrorKind::NoSession);
    assert!(world.open_session(world.session, &[]).await.resumed);
    root.unlink(1, "f").await.unwrap();
    world.until(async || root.getattr(ino).await.is_err()).await;
    assert_eq!(world.keys(b'G').await, 0);
}

#[tokio::test]
async fn orphans_of_a_client_that_does_not_come_back_are_deleted_after_the_grace_time() {
    let world = World::new().await;
    let root = world.root();
    let open = Create { open: Some(BOTH), ..new(1, "f", FileKind::File, 0o600) };
    let ino = root.make(open).await.unwrap().attr.ino;
    root.unlink(1, "f").await.unwrap();
    let world = world.killed().await;
    let nobody = world.root().at(0);
    world.clock.advance_ms(29_000);
    nobody.getattr(ino).await.unwrap();
    world.clock.advance_ms(2_000);
    world.until(async || nobody.getattr(ino).await.is_err()).await;
}

#[tokio::test]
async fn a_repeated_mutation_is_answered_and_not_repeated() {
    let world = World::new().await;
    let root = world.root();
    let make = || MetaOp::Create(new(1, "f", FileKind::File, 0o600));
    let first = root.call_seq(1, 0, make()).await.unwrap();
    assert_eq!(root.call_seq(1, 0, make()).await.unwrap(), first);
    assert_eq!(kind(root.call_seq(2, 0, make()).await), ErrorKind::Exists);
    // Also by a server that was started since.
    let world = world.killed().await;
    world.open_session(world.session, &[]).await;
    let root = world.root();
    assert_eq!(root.call_seq(1, 0, make()).await.unwrap(), first);
    let other = MetaOp::Create(new(1, "g", FileKind::File, 0o600));
    root.call_seq(3, 2, other).await.unwrap();
    assert_eq!(world.keys(b'R').await, 1, "what was answered is forgotten");
    assert_eq!(kind(root.call_seq(1, 2, make()).await), ErrorKind::Malformed);
    root.call(MetaOp::CloseSession(Nothing {})).await.unwrap();
    assert_eq!(world.keys(b'R').await, 0);
}

/// Each of its changes left a reply in the store, for as long as it went on.
#[tokio::test]
async fn a_client_that_acknowledges_no_reply_changes_nothing_any_more_until_it_does() {
    let world = World::new().await;
    let root = world.root();
    let make = |name: &str| MetaOp::Create(new(1, name, FileKind::File, 0o600));
    let first = root.call_seq(1, 0, make("f")).await.unwrap();
    let volume = world.server.core().volume(VolumeId(1)).await.unwrap();
    let session = volume.sessions.get(world.session).unwrap();
    let last = STORED_MAX as u64;
    session.ledger.keep(&(2..=last).collect::<Vec<_>>());
    assert_eq!(kind(root.call_seq(last + 1, 0, make("g")).await), ErrorKind::Conflict);
    assert_eq!(kind(root.lookup(1, "g").await), ErrorKind::NotFound);
    assert_eq!(root.call_seq(1, 0, make("f")).await.unwrap(), first, "what is made is answered");
    let other = root.clone().at(world.open_session(0, &[]).await.session);
    other.call_seq(1, 0, make("h")).await.unwrap();
    // As many as it acknowledges are deleted for those that are added.
    root.call_seq(last + 1, 1, make("g")).await.unwrap();
    assert_eq!(kind(root.call_seq(last + 2, 1, make("i")).await), ErrorKind::Conflict);
    root.call_seq(last + 2, last, make("i")).await.unwrap();
    root.call_seq(last + 3, last, make("j")).await.unwrap();
}

#[tokio::test]
async fn what_a_lost_client_had_written_is_not_cut_off() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    let session = world.open_session(0, &[]).await.session;
    let writer = root.clone().at(session);
    // It died before it told the length.
    let length = world.write_untold(&writer, ino).await;
    world.clock.advance_ms(31_000);
    let nobody = root.clone().at(0);
    world.until(async || nobody.getattr(ino).await.unwrap().length == length).await;
}

#[tokio::test]
async fn what_is_closed_with_the_request_that_takes_its_name_is_not_kept_and_counts_once() {
    let world = World::new().await;
    let root = world.root();
    let report = |ino| RenewSession { closed: vec![ino], number: 1, incarnation: 0 };
    let unlink = async |ino, name| {
        let request = MetaRequest {
            volume: 1,
            session: world.session,
            closed: Some(report(ino)),
            op: Some(MetaOp::Unlink(Unlink { at: at(1, name), directory: false })),
            ..MetaRequest::default()
        };
        world.server.call(request).await.unwrap();
    };
    let ino = root.file(1, "f").await.unwrap();
    root.open(ino, BOTH).await.unwrap();
    unlink(ino, "f").await;
    assert_eq!((world.keys(b'G').await, kind(root.getattr(ino).await)), (0, ErrorKind::Stale));
    // The same report once more, also by itself, closes nothing.
    let ino = root.file(1, "g").await.unwrap();
    root.open(ino, BOTH).await.unwrap();
    root.call(MetaOp::RenewSession(report(ino))).await.unwrap();
    unlink(ino, "g").await;
    assert_eq!(root.getattr(ino).await.unwrap().nlink, 0);
}

/// A store that knows whether keys that begin so are on disk.
struct Watched {
    kv: MemoryKv,
    first: u8,
    on_disk: Arc<AtomicBool>,
}

#[async_trait]
impl Kv for Watched {
    fn name(&self) -> &'static str {
        "watched"
    }

    async fn snapshot(&self) -> KvResult<Arc<dyn Snapshot>> {
        self.kv.snapshot().await
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> KvResult<Outcome> {
        if writes.keys().any(|key| key[0] == self.first) {
            self.on_disk.store(false, Ordering::SeqCst);
        }
        self.kv.commit(snapshot, writes).await
    }

    async fn sync(&self) -> KvResult<()> {
        self.on_disk.store(true, Ordering::SeqCst);
        self.kv.sync().await
    }
}

/// The machine lost power, the next client was given the same id, and the first one went on with that session: each had
/// the other's locks, and was told that its requests had been carried out.
#[tokio::test]
async fn a_session_that_a_client_knows_is_on_disk() {
    let on_disk = Arc::new(AtomicBool::new(false));
    let kv = Watched { kv: MemoryKv::new(), first: b'S', on_disk: on_disk.clone() };
    let world = World::on(Arc::new(kv)).await;
    assert!(on_disk.load(Ordering::SeqCst));
    world.open_session(0, &[]).await;
    assert!(on_disk.load(Ordering::SeqCst));
}

/// The machine lost power, and the first file that was made then had the number, and the chunks, of one that a client still
/// had open.
#[tokio::test]
async fn the_number_of_a_file_that_a_client_knows_is_taken_on_disk() {
    let on_disk = Arc::new(AtomicBool::new(true));
    let kv = Watched { kv: MemoryKv::new(), first: b'N', on_disk: on_disk.clone() };
    let world = World::on(Arc::new(kv)).await;
    // Whatever the session needed was synced with it, or not.
    on_disk.store(false, Ordering::SeqCst);
    world.root().file(1, "f").await.unwrap();
    assert!(on_disk.load(Ordering::SeqCst));
}

/// A store that may be full, and how often it has refused something then.
struct Full {
    kv: MemoryKv,
    full: AtomicBool,
    refused: AtomicUsize,
}

#[async_trait]
impl Kv for Full {
    fn name(&self) -> &'static str {
        "full"
    }

    async fn snapshot(&self) -> KvResult<Arc<dyn Snapshot>> {
        self.kv.snapshot().await
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> KvResult<Outcome> {
        if self.full.load(Ordering::SeqCst) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Err(KvError::Full { store: "full".into(), next: "make room" });
        }
        self.kv.commit(snapshot, writes).await
    }

    async fn sync(&self) -> KvResult<()> {
        self.kv.sync().await
    }
}

/// That was a line for each of them, each second.
#[tokio::test]
async fn that_a_full_store_keeps_sessions_that_are_over_is_told_once() {
    const SESSIONS: usize = 100;
    let (full, refused) = Default::default();
    let kv = Arc::new(Full { kv: MemoryKv::new(), full, refused });
    let world = World::on(kv.clone()).await;
    let lines = Lines::default();
    let _collected = tracing::subscriber::set_default(lines.clone());
    for times in 1..=2 {
        while world.keys(b'S').await < SESSIONS {
            world.open_session(0, &[]).await;
        }
        kv.full.store(true, Ordering::SeqCst);
        kv.refused.store(0, Ordering::SeqCst);
        world.clock.advance_ms(31_000);
        world.until(async || kv.refused.load(Ordering::SeqCst) >= 10 * SESSIONS).await;
        assert_eq!(lines.count("which is lost"), times);
        kv.full.store(false, Ordering::SeqCst);
        world.until(async || world.keys(b'S').await == 0).await;
    }
}

/// It was told once, as if the store kept the session, and never again.
#[tokio::test]
async fn that_targets_have_no_room_for_what_a_lost_client_had_is_told_again_and_again() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    world.write_untold(&root, ino).await;
    let lines = Lines::default();
    let _collected = tracing::subscriber::set_default(lines.clone());
    world.storage.full.store(true, Ordering::SeqCst);
    world.clock.advance_ms(31_000);
    world.until(async || lines.count("which is lost") > 1).await;
}
