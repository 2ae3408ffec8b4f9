use crate::tests::check::check;
use crate::tests::world::*;
use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::join_all;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use strake_engine::kv::WRITE_BYTES;
use strake_engine::kv::memory::{MemoryKv, Rates};
use strake_engine::kv::{self, Kv, Outcome, Snapshot, Writes};
use strake_types::acl::Acl;
use strake_types::{ErrorKind, FileKind, Ino, Result, VolumeId};
use strake_wire::message::meta::{
    ClientRef, Create, Created, Link, MetaAnswer, MetaOp, Nothing, OpenMode, Publish, Rename,
    Unlink,
};

/// Counts commits, and refuses the next ones.
struct Counting {
    inner: MemoryKv,
    commits: AtomicU64,
    conflicts: AtomicU64,
    /// Bytes that the largest one wrote, with what goes around each key.
    largest: AtomicUsize,
}

#[async_trait]
impl Kv for Counting {
    fn name(&self) -> &'static str {
        "counting"
    }

    async fn snapshot(&self) -> kv::Result<Arc<dyn Snapshot>> {
        self.inner.snapshot().await
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> kv::Result<Outcome> {
        self.commits.fetch_add(1, Ordering::SeqCst);
        let bytes = |(key, value): (&Vec<u8>, &Option<Bytes>)| {
            WRITE_BYTES + key.len() + value.as_ref().map_or(0, Bytes::len)
        };
        self.largest.fetch_max(writes.iter().map(bytes).sum(), Ordering::SeqCst);
        let less = |left: u64| left.checked_sub(1);
        match self.conflicts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
            Ok(_) => Ok(Outcome::Conflict),
            Err(_) => self.inner.commit(snapshot, writes).await,
        }
    }

    async fn sync(&self) -> kv::Result<()> {
        self.inner.sync().await
    }
}

async fn counting() -> (Arc<Counting>, World) {
    let (commits, conflicts, largest) = Default::default();
    let kv = Arc::new(Counting { inner: MemoryKv::new(), commits, conflicts, largest });
    (kv.clone(), World::on(kv).await)
}

/// Who asks, under which number, up to which number it has answers, and for what.
type Ask<'a> = (&'a User<'a>, u64, u64, Create);

/// Asks for all of these at once, while the root is locked until all of them wait and `meanwhile` is over.
async fn together(
    world: &World,
    asks: &[Ask<'_>],
    meanwhile: impl Future<Output = ()>,
) -> Vec<Result<MetaAnswer>> {
    let asked = asks.iter().map(|(user, seq, answered, op)| {
        user.call_seq(*seq, *answered, MetaOp::Create(op.clone()))
    });
    all_wait(world, asked, meanwhile).await
}

/// The same of any calls.
async fn all_wait(
    world: &World,
    asked: impl Iterator<Item = impl Future<Output = Result<MetaAnswer>>>,
    meanwhile: impl Future<Output = ()>,
) -> Vec<Result<MetaAnswer>> {
    let held = world.server.core().locks.lock(VolumeId(1), &[Ino::ROOT]).await;
    let release = async {
        tokio::task::yield_now().await;
        meanwhile.await;
        drop(held);
    };
    futures::join!(join_all(asked), release).0
}

/// The same, of one client, under the numbers from 1 on.
async fn at_once(world: &World, user: &User<'_>, ops: &[Create]) -> Vec<Result<MetaAnswer>> {
    let asks: Vec<Ask<'_>> =
        ops.iter().zip(1..).map(|(op, seq)| (user, seq, 0, op.clone())).collect();
    together(world, &asks, async {}).await
}

fn created(answer: &Result<MetaAnswer>) -> Created {
    match answer {
        Ok(MetaAnswer::Created(created)) => created.clone(),
        other => panic!("{other:?}"),
    }
}

fn files(count: usize) -> Vec<Create> {
    (0..count).map(|nth| new(1, &format!("file{nth:03}"), FileKind::File, 0o644)).collect()
}

#[tokio::test]
async fn creates_that_wait_for_a_directory_are_one_commit_and_each_is_remembered() {
    let (kv, world) = counting().await;
    let root = world.root();
    root.file(1, "first").await.unwrap();
    let before = kv.commits.load(Ordering::SeqCst);
    let ops = files(60);
    let made = at_once(&world, &root, &ops).await;
    assert_eq!(kv.commits.load(Ordering::SeqCst), before + 1);
    assert_eq!(root.names(1).await.len(), 61);
    assert_eq!(root.getattr(1).await.unwrap().length, 61 * 64);
    assert_eq!(root.stat().await.inodes, 62);
    // Answers got lost: each is given again, and nothing is made twice.
    for ((op, seq), made) in ops.into_iter().zip(1..).zip(made) {
        assert_eq!(root.call_seq(seq, 0, MetaOp::Create(op)).await.unwrap(), made.unwrap());
    }
    let world = world.killed().await;
    world.open_session(world.session, &[]).await;
    let again = world.root().call_seq(7, 0, MetaOp::Create(files(7).remove(6))).await.unwrap();
    assert!(matches!(again, MetaAnswer::Created(created) if created.created));
    assert_eq!(world.root().names(1).await.len(), 61);
}

#[tokio::test]
async fn what_is_refused_leaves_the_others_and_two_of_one_name_are_one() {
    let (kv, world) = counting().await;
    let root = world.root();
    let file = root.file(1, "there").await.unwrap();
    let before = kv.commits.load(Ordering::SeqCst);
    let exclusive = |name: &str| new(1, name, FileKind::File, 0o644);
    let open = |name: &str| Create { exclusive: false, ..exclusive(name) };
    let ops = [
        exclusive("one"),
        exclusive("one"),
        exclusive("there"),
        new(1, &"x".repeat(256), FileKind::File, 0o644),
        new(1, "two", FileKind::Directory, 0o755),
        // Goes its own way, and finds what another one has made.
        open("one"),
        open("there"),
        new(1, "link", FileKind::Symlink, 0o777),
    ];
    let answers = at_once(&world, &root, &ops).await;
    let found = |answer: &Result<MetaAnswer>| match answer {
        Ok(MetaAnswer::Created(created)) => Ok((created.created, created.attr.ino)),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.kind),
    };
    let answers: Vec<_> = answers.iter().map(found).collect();
    let (made, one) = answers[0].unwrap();
    assert!(made && answers[4].unwrap().0, "{answers:?}");
    let refused = [ErrorKind::Exists, ErrorKind::Exists, ErrorKind::NameTooLong].map(Err);
    assert_eq!(answers[1..4], refused);
    assert_eq!(answers[5..7], [Ok((false, one)), Ok((false, file))]);
    assert_eq!(answers[7], Err(ErrorKind::NotFound), "a link to nothing");
    assert_eq!(root.names(1).await, ["there", "one", "two"]);
    assert_eq!(kv.commits.load(Ordering::SeqCst), before + 1, "what opens nothing writes nothing");
}

#[tokio::test]
async fn a_merged_commit_that_conflicts_is_made_again_by_each() {
    let (kv, world) = counting().await;
    let root = world.root();
    kv.conflicts.store(3, Ordering::SeqCst);
    let made = at_once(&world, &root, &files(20)).await;
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    assert_eq!(root.names(1).await.len(), 20);
}

/// Each numbers what it asks for by itself.
#[tokio::test]
async fn creates_of_several_clients_are_one_commit_and_each_is_answered_for_itself() {
    let (kv, world) = counting().await;
    world.root().file(1, "first").await.unwrap();
    world.root().chmod(1, 0o777).await.unwrap();
    let other = world.open_session(0, &[]).await.session;
    let third = world.open_session(0, &[]).await.session;
    let users = [world.root(), world.user(1000, 100).at(other), world.user(1001, 100).at(third)];
    let asks: Vec<Ask<'_>> = files(30)
        .into_iter()
        .enumerate()
        .map(|(nth, op)| (&users[nth % 3], 1 + nth as u64 / 3, 0, op))
        .collect();
    let before = kv.commits.load(Ordering::SeqCst);
    let made = together(&world, &asks, async {}).await;
    assert_eq!(kv.commits.load(Ordering::SeqCst), before + 1);
    assert_eq!(world.root().names(1).await.len(), 31);
    // Answers got lost: each is given again, and nothing is made twice.
    for ((user, seq, _, op), made) in asks.iter().zip(made) {
        assert_eq!(created(&made).attr.uid, user.cred.uid);
        let again = user.call_seq(*seq, 0, MetaOp::Create(op.clone())).await;
        assert_eq!(again, made);
    }
    let world = world.killed().await;
    world.open_session(other, &[]).await;
    let user = world.user(1000, 100).at(other);
    let again = user.call_seq(1, 0, MetaOp::Create(files(2).remove(1))).await;
    assert!(created(&again).created);
    assert_eq!(created(&again).attr.uid, 1000);
    assert_eq!(user.names(1).await.len(), 31);
}

/// Who makes something knows nothing of what others make together with it.
#[tokio::test(start_paused = true)]
async fn clients_that_make_something_together_believe_nothing_of_the_directory() {
    let world = World::new().await;
    let (a, b) = (leasing(&world).await, leasing(&world).await);
    for user in [&a, &b] {
        assert!(user.page(1, 0, 10, false).await.unwrap().leased);
    }
    let asks: Vec<Ask<'_>> =
        [&a, &b].into_iter().zip(files(2)).map(|(user, op)| (user, 1, 0, op)).collect();
    let follow = async {
        for user in [&a, &b] {
            let recalled = user.recalls(0).await;
            assert_eq!(recalled.inodes, [1], "also of who makes something there");
            assert!(world.root().names(1).await.is_empty(), "somebody believes that still");
            assert!(user.recalls(recalled.number).now_or_never().is_none());
        }
    };
    let (made, ()) = futures::join!(together(&world, &asks, async {}), follow);
    for made in made {
        let made = created(&made);
        assert!(made.attr.leased, "nobody else knows of it yet");
        assert!(!made.parent.unwrap().leased);
    }
    assert_eq!(a.names(1).await, ["file000", "file001"]);
    // What it makes alone leaves it what it knows.
    let asks: Vec<Ask<'_>> =
        files(4).into_iter().skip(2).zip(2..).map(|(op, seq)| (&a, seq, 0, op)).collect();
    let made = together(&world, &asks, async {}).await;
    assert!(made.iter().all(|made| created(made).parent.unwrap().leased));
}

#[tokio::test]
async fn a_client_that_is_evicted_while_it_waits_is_refused_and_the_others_are_not() {
    let world = World::new().await;
    let (root, other) = (world.root(), world.open_session(0, &[]).await.session);
    let evicted = world.root().at(other);
    let users = [&evicted, &root];
    let asks: Vec<Ask<'_>> = files(10)
        .into_iter()
        .enumerate()
        .map(|(nth, op)| (users[nth % 2], 1 + nth as u64 / 2, 0, op))
        .collect();
    let evict = async {
        root.call(MetaOp::EvictClient(ClientRef { session: other })).await.unwrap();
    };
    let made = together(&world, &asks, evict).await;
    for ((user, ..), made) in asks.iter().zip(made) {
        match user.session == other {
            true => assert_eq!(kind(made), ErrorKind::NoSession),
            false => assert!(created(&made).created),
        }
    }
    assert_eq!(root.names(1).await.len(), 5);
}

#[tokio::test]
async fn what_several_clients_open_as_they_make_it_is_open_to_each_of_them_alone() {
    let (_, world) = counting().await;
    let other = world.open_session(0, &[]).await.session;
    let users = [world.root(), world.root().at(other)];
    let asks: Vec<Ask<'_>> = users
        .iter()
        .zip(files(2))
        .map(|(user, op)| (user, 1, 0, Create { open: Some(BOTH), ..op }))
        .collect();
    let made = together(&world, &asks, async {}).await;
    let volume = world.server.core().volume(VolumeId(1)).await.unwrap();
    for (user, made) in users.iter().zip(made) {
        let ino = Ino(created(&made).attr.ino);
        for session in volume.sessions.all() {
            assert_eq!(volume.sessions.holds(&session, ino), session.id == user.session);
        }
    }
}

/// A copy of the message that came when the file was closed again opened it for as long as the session went on.
#[tokio::test]
async fn what_is_opened_as_it_is_made_with_others_counts_once_however_often_it_is_sent() {
    let (_, world) = counting().await;
    let root = world.root();
    let ops = files(3).into_iter().map(|op| Create { open: Some(BOTH), ..op });
    let ops: Vec<Create> = ops.collect();
    let made = at_once(&world, &root, &ops).await;
    for ((op, seq), made) in ops.iter().zip(1..).zip(&made) {
        let ino = created(made).attr.ino;
        let again = || root.call_seq(seq, 0, MetaOp::Create(op.clone()));
        again().await.unwrap();
        assert_eq!(world.opens(ino).await, 1);
        root.close(ino).await.unwrap();
        again().await.unwrap();
        assert_eq!(world.opens(ino).await, 0);
    }
}

/// Those of a transaction that was not carried out are deleted by the next of the same client.
#[tokio::test]
async fn replies_that_several_clients_have_are_deleted_though_the_commit_conflicts() {
    let (kv, world) = counting().await;
    let other = world.open_session(0, &[]).await.session;
    let users = [world.root(), world.root().at(other)];
    let mut ops = files(4).into_iter();
    for (user, op) in users.iter().zip(ops.by_ref()) {
        created(&user.call_seq(1, 0, MetaOp::Create(op)).await);
    }
    assert_eq!(world.keys(b'R').await, 2);
    kv.conflicts.store(1, Ordering::SeqCst);
    let asks: Vec<Ask<'_>> = users.iter().zip(ops).map(|(user, op)| (user, 2, 1, op)).collect();
    let made = together(&world, &asks, async {}).await;
    assert!(made.iter().all(|made| created(made).created));
    assert_eq!(world.keys(b'R').await, 2, "those of number 2");
}

/// Whatever the store answers, and however often a client asks again, each name is made once.
#[tokio::test]
async fn merged_creates_on_a_store_at_its_worst_are_made_once() {
    for seed in 1..20 {
        let rates = Rates { suspend: 0.2, ..Rates::ROUGH };
        let world = World::on(Arc::new(MemoryKv::adversarial(seed, rates))).await;
        let other = world.open_session(0, &[]).await.session;
        let users = &[world.root(), world.root().at(other)];
        let create = |op: Create, nth: usize| async move {
            let (user, seq) = (&users[nth % 2], 1 + nth as u64 / 2);
            for _ in 0..1000 {
                match user.call_seq(seq, 0, MetaOp::Create(op.clone())).await {
                    Ok(MetaAnswer::Created(created)) => return created.created,
                    Ok(other) => panic!("{other:?}"),
                    Err(error) if error.kind == ErrorKind::Exists => panic!("{nth} twice"),
                    Err(_) => tokio::task::yield_now().await,
                }
            }
            panic!("never")
        };
        let asked = files(40).into_iter().zip(0..).map(|(op, nth)| create(op, nth));
        assert!(join_all(asked).await.into_iter().all(|made| made), "seed {seed}");
        assert_eq!(users[0].names(1).await.len(), 40);
        world.until(async || users[0].stat().await.inodes == 41).await;
    }
}

#[tokio::test]
async fn who_goes_away_while_he_waits_leaves_nothing_and_may_ask_again() {
    let (_, world) = counting().await;
    let root = world.root();
    let core = world.server.core();
    let held = core.locks.lock(VolumeId(1), &[Ino::ROOT]).await;
    let create = || root.call_seq(5, 0, MetaOp::Create(files(1).remove(0)));
    {
        let first = create();
        futures::pin_mut!(first);
        assert!(futures::poll!(first.as_mut()).is_pending());
        assert!(!core.merge_queue.is_empty());
    }
    let release = async { drop(held) };
    let (made, ()) = futures::join!(create(), release);
    assert!(matches!(made.unwrap(), MetaAnswer::Created(created) if created.created));
    assert!(core.merge_queue.is_empty());
    let held = core.locks.lock(VolumeId(1), &[Ino::ROOT]).await;
    {
        let gone = root.call_seq(6, 0, MetaOp::Create(files(2).remove(1)));
        futures::pin_mut!(gone);
        assert!(futures::poll!(gone.as_mut()).is_pending());
    }
    drop(held);
    world.until(async || core.merge_queue.is_empty()).await;
    assert_eq!(root.names(1).await, ["file000"]);
}

fn unlink(name: &str) -> MetaOp {
    MetaOp::Unlink(Unlink { at: at(1, name), directory: false })
}

fn rename(from: &str, to: &str) -> MetaOp {
    MetaOp::Rename(Rename { from: at(1, from), to: at(1, to), no_replace: false, exchange: false })
}

fn link(ino: u64, name: &str) -> MetaOp {
    MetaOp::Link(Link { ino, to: at(1, name) })
}

#[tokio::test]
async fn all_changes_of_names_in_a_directory_are_one_commit_and_each_is_remembered() {
    let (kv, world) = counting().await;
    let root = world.root();
    let mut inos = Vec::new();
    for op in files(40) {
        inos.push(root.make(op).await.unwrap().attr.ino);
    }
    let dir = root.mkdir(1, "empty").await.unwrap();
    let mut ops = vec![MetaOp::Unlink(Unlink { at: at(1, "empty"), directory: true })];
    for nth in 0..10 {
        ops.push(unlink(&format!("file{nth:03}")));
        ops.push(rename(&format!("file{:03}", 10 + nth), &format!("moved{nth}")));
        ops.push(link(inos[20 + nth], &format!("link{nth}")));
        ops.push(MetaOp::Create(new(1, &format!("new{nth}"), FileKind::File, 0o600)));
    }
    let before = kv.commits.load(Ordering::SeqCst);
    let call = |(op, seq): (&MetaOp, u64)| root.call_seq(seq, 0, op.clone());
    let answers = all_wait(&world, ops.iter().zip(1..).map(call), async {}).await;
    assert_eq!(kv.commits.load(Ordering::SeqCst), before + 1);
    assert_eq!(root.names(1).await.len(), 50);
    assert_eq!(root.stat().await.inodes, 41);
    assert_eq!(root.getattr(1).await.unwrap().nlink, 2);
    assert_eq!(kind(root.getattr(dir).await), ErrorKind::Stale);
    assert_eq!(kind(root.getattr(inos[3]).await), ErrorKind::Stale);
    assert_eq!(root.lookup(1, "moved3").await.unwrap().ino, inos[13]);
    assert_eq!(root.lookup(1, "link3").await.unwrap().nlink, 2);
    for (asked, answer) in ops.iter().zip(1..).zip(answers) {
        assert_eq!(call(asked).await.unwrap(), answer.unwrap());
    }
    world.all_done().await;
    check(&*world.kv).await;
}

#[tokio::test]
async fn two_changes_of_one_file_are_made_one_after_the_other() {
    let (_, world) = counting().await;
    let root = world.root();
    let file = root.file(1, "a").await.unwrap();
    let asked = [rename("a", "b"), rename("b", "c"), unlink("a"), link(file, "d"), unlink("c")];
    let call = |(op, seq): (MetaOp, u64)| root.call_seq(seq, 0, op);
    let answers = all_wait(&world, asked.into_iter().zip(1..).map(call), async {}).await;
    let kinds: Vec<_> = answers.into_iter().map(|answer| answer.err().map(|e| e.kind)).collect();
    assert_eq!(kinds[0], None);
    assert_eq!(kinds[2], Some(ErrorKind::NotFound));
    assert_eq!(kinds[3], None);
    assert!(root.getattr(file).await.unwrap().nlink as usize == root.names(1).await.len());
    check(&*world.kv).await;
}

/// It was cut by no target, and what its opener wrote and told of afterwards was.
#[tokio::test]
async fn who_opens_and_cuts_a_file_that_gets_its_name_meanwhile_finds_it_cut() {
    let (_, world) = counting().await;
    let root = world.root();
    let file = root.file(1, "tmp").await.unwrap();
    root.open(file, BOTH).await.unwrap();
    root.move_out(file).await.unwrap();
    root.publish(Publish { ino: file, length_min: 100_000, ..Publish::default() }).await.unwrap();
    root.close(file).await.unwrap();
    let cutting = OpenMode { truncate: true, ..BOTH };
    let open = Create { exclusive: false, open: Some(cutting), ..files(1).remove(0) };
    for (seq, give_name) in [(1, rename("tmp", "file000")), (3, link(file, "file000"))] {
        let asked = [give_name, MetaOp::Create(open.clone())];
        let calls = asked.into_iter().zip(seq..).map(|(op, seq)| root.call_seq(seq, 0, op));
        let answers = all_wait(&world, calls, async {}).await;
        let opened = created(&answers[1]);
        assert_eq!((opened.created, opened.attr.ino, opened.attr.length), (false, file, 0));
        assert_eq!(world.keys(b'G').await, 0, "no cut is left to be done");
        root.close(file).await.unwrap();
        root.rename((1, "file000"), (1, "tmp")).await.unwrap();
    }
}

#[tokio::test]
async fn a_file_that_is_locked_elsewhere_is_waited_for_by_its_own_change_only() {
    let (_, world) = counting().await;
    let root = world.root();
    let (busy, _) = (root.file(1, "busy").await.unwrap(), root.file(1, "free").await.unwrap());
    let held = world.server.core().locks.lock(VolumeId(1), &[Ino(busy)]).await;
    let calls = [(unlink("busy"), 1), (unlink("free"), 2)];
    let gone = async {
        let free = |name: String| name == "free";
        world.until(async || !root.names(1).await.into_iter().any(free)).await;
        assert_eq!(root.names(1).await, ["busy"]);
        drop(held);
    };
    let call = |(op, seq): (MetaOp, u64)| root.call_seq(seq, 0, op);
    let all = all_wait(&world, calls.into_iter().map(call), async {});
    let (answers, ()) = futures::join!(all, gone);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert!(root.names(1).await.is_empty());
}

/// It stayed for ever.
#[tokio::test]
async fn a_session_that_ends_while_it_waits_for_others_leaves_no_reply() {
    let world = World::new().await;
    let reader = leasing(&world).await;
    let other = world.root().at(world.open_session(0, &[]).await.session);
    assert!(reader.page(1, 0, 10, false).await.unwrap().leased);
    let create = other.call_seq(1, 0, MetaOp::Create(files(1).remove(0)));
    futures::pin_mut!(create);
    assert!(futures::poll!(create.as_mut()).is_pending());
    other.call(MetaOp::CloseSession(Nothing {})).await.unwrap();
    let recalled = reader.recalls(0).await;
    assert!(reader.recalls(recalled.number).now_or_never().is_none());
    created(&create.await);
    assert_eq!(world.keys(b'R').await, 0);
}

/// Whoever renames it together with what others do.
#[tokio::test]
async fn who_believes_something_of_a_file_hears_of_its_merged_rename_before_it_is_made() {
    let world = World::new().await;
    let file = world.root().file(1, "old").await.unwrap();
    world.root().file(1, "other").await.unwrap();
    let (reader, writer) = (leasing(&world).await, leasing(&world).await);
    assert!(reader.getattr(file).await.unwrap().leased);
    let calls = [(&writer, rename("old", "new")), (&reader, unlink("other"))];
    let follow = async {
        let recalled = reader.recalls(0).await;
        assert_eq!(recalled.inodes, [file]);
        assert_eq!(world.root().names(1).await, ["old", "other"], "somebody believes that still");
        assert!(reader.recalls(recalled.number).now_or_never().is_none());
    };
    let asked = calls.into_iter().map(|(user, op)| user.call_seq(1, 0, op));
    let (answers, ()) = futures::join!(all_wait(&world, asked, async {}), follow);
    let Ok(MetaAnswer::Renamed(renamed)) = &answers[0] else { panic!("{answers:?}") };
    assert!(renamed.moved.leased && !renamed.parent.as_ref().unwrap().leased);
    assert_eq!(world.root().names(1).await, ["new"]);
}

/// Whatever the store answers, and however often a client asks again, each is made, renamed, and unlinked once.
#[tokio::test]
async fn merged_changes_on_a_store_at_its_worst_are_made_once() {
    for seed in 1..20 {
        let rates = Rates { suspend: 0.2, ..Rates::ROUGH };
        let world = World::on(Arc::new(MemoryKv::adversarial(seed, rates))).await;
        let root = &world.root();
        let until_answered = |seq: u64, op: MetaOp| async move {
            for _ in 0..1000 {
                match root.call_seq(seq, 0, op.clone()).await {
                    Ok(_) => return,
                    Err(error) => assert!(
                        !matches!(error.kind, ErrorKind::NotFound | ErrorKind::Exists),
                        "seed {seed}, number {seq} twice: {error}"
                    ),
                }
                tokio::task::yield_now().await;
            }
            panic!("seed {seed}: never")
        };
        let life = |nth: u64| async move {
            let (name, new_name) = (format!("one{nth}"), format!("two{nth}"));
            let create = MetaOp::Create(new(1, &name, FileKind::File, 0o644));
            let ops = [create, rename(&name, &new_name), unlink(&new_name)];
            for (step, op) in (1..).zip(ops).take(if nth.is_multiple_of(4) { 2 } else { 3 }) {
                until_answered(3 * nth + step, op).await;
            }
        };
        join_all((0..24).map(life)).await;
        assert_eq!(root.names(1).await.len(), 6, "seed {seed}");
        world.until(async || root.stat().await.inodes == 7).await;
        world.all_done().await;
        check(&*world.kv).await;
    }
}

/// More than go into one transaction.
#[tokio::test]
async fn however_many_wait_all_are_carried_out() {
    let (kv, world) = counting().await;
    let root = world.root();
    root.file(1, "first").await.unwrap();
    let before = kv.commits.load(Ordering::SeqCst);
    let made = at_once(&world, &root, &files(600)).await;
    assert!(made.iter().all(Result::is_ok));
    assert_eq!(root.names(1).await.len(), 601);
    assert!(kv.commits.load(Ordering::SeqCst) <= before + 10, "three, and those of new numbers");
    assert!(world.server.core().merge_queue.is_empty());
}

/// What is made in the root has a long ACL.
async fn hand_down_much(root: &User<'_>) {
    let users = (0..400).map(|uid| (uid, 7)).collect();
    let acl = Acl { users, mask: Some(7), ..Acl::from_mode(0o755) };
    root.setxattr(1, "system.posix_acl_default", &acl.encode()).await.unwrap();
}

/// etcd refused what they wrote together for its size, and so again when all of them were asked for again.
#[tokio::test]
async fn changes_that_write_much_are_several_commits_and_none_is_too_large() {
    let (kv, world) = counting().await;
    let root = world.root();
    hand_down_much(&root).await;
    let before = kv.commits.load(Ordering::SeqCst);
    kv.largest.store(0, Ordering::SeqCst);
    let directory = |nth| new(1, &format!("d{nth}"), FileKind::Directory, 0o755);
    let made = at_once(&world, &root, &(0..250).map(directory).collect::<Vec<_>>()).await;
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    assert_eq!(root.names(1).await.len(), 250);
    let (commits, largest) = (&kv.commits, kv.largest.load(Ordering::SeqCst));
    assert!((256 << 10..1 << 20).contains(&largest), "{largest} bytes");
    assert!(commits.load(Ordering::SeqCst) <= before + 10, "four, and those of new numbers");
}

/// The same of many short keys: what goes around each of them was not weighed.
#[tokio::test]
async fn removals_of_files_with_very_many_xattrs_are_several_commits_and_none_is_too_large() {
    let (kv, world) = counting().await;
    let root = world.root();
    let names: Vec<String> = (0..30).map(|nth| format!("f{nth}")).collect();
    for name in &names {
        let ino = root.file(1, name).await.unwrap();
        for nth in 0..250 {
            root.setxattr(ino, &format!("user.{nth}"), b"").await.unwrap();
        }
    }
    let before = kv.commits.load(Ordering::SeqCst);
    kv.largest.store(0, Ordering::SeqCst);
    let calls = names.iter().zip(1..).map(|(name, seq)| root.call_seq(seq, 0, unlink(name)));
    let gone = all_wait(&world, calls, async {}).await;
    assert!(gone.iter().all(Result::is_ok), "{gone:?}");
    assert!(root.names(1).await.is_empty());
    let (commits, largest) = (&kv.commits, kv.largest.load(Ordering::SeqCst));
    assert!((256 << 10..768 << 10).contains(&largest), "{largest} bytes");
    assert!(commits.load(Ordering::SeqCst) <= before + 10, "two, and those of the upkeep");
}

/// Each of those that were left waited for it once more by itself, for 10 s.
#[tokio::test(start_paused = true)]
async fn who_is_left_when_a_directory_is_not_to_be_had_any_more_is_told_so_with_the_others() {
    let world = World::of_shares(Arc::new(MemoryKv::new()), options(), 2).await;
    let root = world.root();
    hand_down_much(&root).await;
    let core = world.server.core();
    let held = core.locks.lock(VolumeId(1), &[Ino::ROOT]).await;
    let ops = files(250);
    let calls = ops.iter().zip(1..).map(|(op, seq)| {
        let op = MetaOp::Create(op.clone());
        root.call_seq(seq, 0, op)
    });
    let begun = tokio::time::Instant::now();
    let asked = async { (join_all(calls).await, begun.elapsed()) };
    // It comes between the first of them, which go into one transaction, and the others.
    let comes_between = async {
        tokio::task::yield_now().await;
        let next = core.locks.lock(VolumeId(1), &[Ino::ROOT]);
        futures::pin_mut!(next);
        assert!(futures::poll!(next.as_mut()).is_pending());
        drop(held);
        let _held = next.await;
        tokio::time::sleep(Duration::from_secs(30)).await;
    };
    let ((answers, waited), ()) = futures::join!(asked, comes_between);
    let made = answers.iter().filter(|answer| answer.is_ok()).count();
    assert!((1..250).contains(&made), "{made}");
    let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
    let kinds: Vec<_> = refused.map(|error| error.kind).collect();
    assert_eq!(kinds, vec![ErrorKind::Unavailable; 250 - made]);
    assert!(waited < Duration::from_secs(15), "{waited:?}");
}
