use crate::tests::world::*;
use async_trait::async_trait;
use futures::future::join_all;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strake_engine::kv::memory::{MemoryKv, Rates};
use strake_engine::kv::{self, Kv, Outcome, Snapshot, Writes};
use strake_types::{ErrorKind, FileKind, Ino, Result, VolumeId};
use strake_wire::message::meta::{Create, MetaAnswer, MetaOp};

/// Counts commits, and refuses the next ones.
struct Counting {
    inner: MemoryKv,
    commits: AtomicU64,
    conflicts: AtomicU64,
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
    let (commits, conflicts) = Default::default();
    let kv = Arc::new(Counting { inner: MemoryKv::new(), commits, conflicts });
    (kv.clone(), World::on(kv).await)
}

/// Asks for all of these at once, under the numbers from 1 on, while the root is locked until all of them wait.
async fn at_once(world: &World, user: &User<'_>, ops: &[Create]) -> Vec<Result<MetaAnswer>> {
    let held = world.server.core().locks.lock(VolumeId(1), &[Ino::ROOT]).await;
    let asked =
        ops.iter().zip(1..).map(|(op, seq)| user.call_seq(seq, 0, MetaOp::Create(op.clone())));
    let release = async {
        tokio::task::yield_now().await;
        drop(held);
    };
    futures::join!(join_all(asked), release).0
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

#[tokio::test]
async fn creates_of_two_clients_are_not_merged() {
    let (kv, world) = counting().await;
    let (root, other) = (world.root(), world.open_session(0, &[]).await.session);
    root.file(1, "first").await.unwrap();
    let before = kv.commits.load(Ordering::SeqCst);
    let held = world.server.core().locks.lock(VolumeId(1), &[Ino::ROOT]).await;
    let asked = files(10).into_iter().enumerate().map(|(nth, op)| {
        let user = if nth % 2 == 0 { world.root() } else { world.root().at(other) };
        async move { user.call_seq(1 + nth as u64, 0, MetaOp::Create(op)).await.map(drop) }
    });
    let release = async { drop(held) };
    let (made, ()) = futures::join!(join_all(asked), release);
    assert!(made.iter().all(Result::is_ok));
    assert_eq!(kv.commits.load(Ordering::SeqCst), before + 2);
    assert_eq!(root.names(1).await.len(), 11);
}

/// Whatever the store answers, and however often a client asks again, each name is made once.
#[tokio::test]
async fn merged_creates_on_a_store_at_its_worst_are_made_once() {
    for seed in 1..20 {
        let rates = Rates { suspend: 0.2, ..Rates::ROUGH };
        let world = World::on(Arc::new(MemoryKv::adversarial(seed, rates))).await;
        let root = &world.root();
        let create = |op: Create, seq: u64| async move {
            for _ in 0..1000 {
                match root.call_seq(seq, 0, MetaOp::Create(op.clone())).await {
                    Ok(MetaAnswer::Created(created)) => return created.created,
                    Ok(other) => panic!("{other:?}"),
                    Err(error) if error.kind == ErrorKind::Exists => panic!("{} twice", seq),
                    Err(_) => tokio::task::yield_now().await,
                }
            }
            panic!("never")
        };
        let asked = files(40).into_iter().zip(1..).map(|(op, seq)| create(op, seq));
        assert!(join_all(asked).await.into_iter().all(|made| made), "seed {seed}");
        assert_eq!(root.names(1).await.len(), 40);
        world.until(async || root.stat().await.inodes == 41).await;
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
        assert!(!core.merges.is_empty());
    }
    assert!(core.merges.is_empty());
    let release = async { drop(held) };
    let (made, ()) = futures::join!(create(), release);
    assert!(matches!(made.unwrap(), MetaAnswer::Created(created) if created.created));
    assert!(core.merges.is_empty());
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
    assert!(world.server.core().merges.is_empty());
}
