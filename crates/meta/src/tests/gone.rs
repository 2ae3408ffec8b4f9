//! Who asked for a change goes away in the middle of its commit; or somebody sees it before its commit has ended.

use crate::ctx::Ctx;
use crate::keys;
use crate::lengths;
use crate::records::Stat;
use crate::stored::get;
use crate::tests::check::check;
use crate::tests::world::*;
use async_trait::async_trait;
use futures::FutureExt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use strake_engine::kv::memory::MemoryKv;
use strake_engine::kv::{Kv, Outcome, Result as KvResult, Snapshot, Writes};
use strake_types::{FileKind, Ino, VolumeId};
use strake_wire::message::meta::{Create, MetaAnswer, MetaOp, Recalls, WriteInline};
use tokio::sync::Mutex;

/// A store that has commits in hand whoever waits for them, as databases have, carries them out through a gate, and answers
/// through another one.
struct InHand {
    kv: MemoryKv,
    gate: Arc<Mutex<()>>,
    answers: Arc<Mutex<()>>,
}

impl InHand {
    fn new() -> Arc<Self> {
        Arc::new(Self { kv: MemoryKv::new(), gate: Arc::default(), answers: Arc::default() })
    }
}

#[async_trait]
impl Kv for InHand {
    fn name(&self) -> &'static str {
        "in hand"
    }

    async fn snapshot(&self) -> KvResult<Arc<dyn Snapshot>> {
        self.kv.snapshot().await
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> KvResult<Outcome> {
        let (kv, gate, answers) = (self.kv.clone(), self.gate.clone(), self.answers.clone());
        let commit = tokio::spawn(async move {
            drop(gate.lock().await);
            let outcome = kv.commit(snapshot, writes).await;
            drop(answers.lock().await);
            outcome
        });
        commit.await.expect("it ends")
    }

    async fn sync(&self) -> KvResult<()> {
        self.kv.sync().await
    }
}

/// Waits for a change until the store has its commit, and no longer.
async fn abandon<T>(world: &World, change: impl Future<Output = T>) {
    let mut change = pin!(change);
    while world.server.changing() == 0 {
        assert!(futures::poll!(change.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
}

/// The caches were told that it had ended: who read before it came kept the old state for ever, and was leased it.
#[tokio::test]
async fn what_is_read_while_a_commit_goes_on_without_its_caller_is_not_kept() {
    let kv = InHand::new();
    let world = World::on(kv.clone()).await;
    let session = world.open_session_of(0, &[], true).await.session;
    let (root, reader) = (world.root(), world.root().at(session).leasing());
    let (changed, other) = (root.file(1, "f").await.unwrap(), root.file(1, "g").await.unwrap());
    reader.call(MetaOp::Recalls(Recalls::default())).await.unwrap();
    let gate = kv.gate.lock().await;
    abandon(&world, root.chmod(changed, 0o600)).await;
    let before = reader.getattr(changed).await.unwrap();
    assert_eq!((before.mode & 0o777, before.leased), (0o644, false));
    assert!(reader.getattr(other).await.unwrap().leased, "nobody changes it");
    assert!(world.server.core().locks.is_taken(VolumeId(1), Ino(changed)));
    drop(gate);
    world.until(async || world.server.changing() == 0).await;
    let after = reader.getattr(changed).await.unwrap();
    assert_eq!((after.mode & 0o777, after.leased), (0o600, true));
}

/// It was not remembered, and found its own file in its way.
#[tokio::test]
async fn a_change_whose_caller_has_gone_is_carried_out_once_and_counts() {
    let kv = InHand::new();
    let world = World::on(kv.clone()).await;
    let root = world.root();
    let make = || MetaOp::Create(new(1, "a", FileKind::File, 0o644));
    root.file(1, "before").await.unwrap();
    let gate = kv.gate.lock().await;
    abandon(&world, root.call_seq(7, 0, make())).await;
    let volume = world.server.core().volume(VolumeId(1)).await.unwrap();
    assert!(volume.counts.gate.try_write().is_err(), "who counts all would not know of it");
    let session = volume.sessions.get(world.session).unwrap();
    assert!(session.ledger.begin(7).now_or_never().is_none(), "a repeat waits for it");
    drop(gate);
    let answer = root.call_seq(7, 0, make()).await.unwrap();
    assert!(matches!(answer, MetaAnswer::Created(_)), "{answer:?}");
    let inodes = check(&*world.kv).await;
    world.until(async || root.stat().await.inodes == inodes as u64).await;
}

/// It was deleted, as one that nobody has open, by a turn of the background task between its commit and its open.
#[tokio::test(start_paused = true)]
async fn a_file_without_a_name_is_there_when_the_open_of_who_makes_it_counts() {
    let kv = InHand::new();
    let world = World::on(kv.clone()).await;
    let root = world.root();
    root.file(1, "before").await.unwrap();
    let (inodes, core) = (world.keys(b'I').await, world.server.core());
    let volume = core.volume(VolumeId(1)).await.unwrap();
    let answers = kv.answers.lock().await;
    let make = root.make(Create { open: Some(BOTH), ..new(1, "", FileKind::File, 0o600) });
    let turn = async {
        world.until(async || world.keys(b'G').await == 1).await;
        core.has_work(&volume);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(world.keys(b'I').await, inodes + 1);
        drop(answers);
    };
    let (made, ()) = futures::join!(make, turn);
    assert_eq!(world.keys(b'I').await, inodes + 1);
    root.close(made.unwrap().attr.ino).await.unwrap();
    world.until(async || world.keys(b'I').await == inodes).await;
}

/// It was settled again while the store had it in hand, and what the file has more counted twice.
#[tokio::test]
async fn the_length_of_a_lost_clients_file_is_settled_once_however_long_the_store_takes() {
    let kv = InHand::new();
    let world = World::on(kv.clone()).await;
    let (root, core) = (world.root(), world.server.core());
    let ino = root.file(1, "f").await.unwrap();
    let length = world.write_untold(&root, ino).await;
    let before = root.getattr(ino).await.unwrap().occupied;
    let ctx = Ctx::own(&core, &core.volume(VolumeId(1)).await.unwrap());
    let patience = lengths::patience();
    let settle = || lengths::settle(&ctx, Ino(ino), true, &patience);
    let gate = kv.gate.lock().await;
    abandon(&world, settle()).await;
    assert!(core.locks.is_taken(VolumeId(1), Ino(ino)));
    let mut again = pin!(settle());
    assert!(futures::poll!(again.as_mut()).is_pending());
    drop(gate);
    again.await.unwrap();
    let attr = root.getattr(ino).await.unwrap();
    assert_eq!((attr.length, attr.occupied), (length, before + 100));
}

/// It was remembered, and so never closed: what has no name any more was never deleted.
#[tokio::test]
async fn a_close_whose_caller_has_gone_is_done_once_and_asked_for_again_as_well() {
    let kv = InHand::new();
    let world = World::on(kv.clone()).await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.open(ino, BOTH).await.unwrap();
    let volume = world.server.core().volume(VolumeId(1)).await.unwrap();
    let session = volume.sessions.get(world.session).unwrap();
    let close = || {
        let data = "x".into();
        MetaOp::WriteInline(WriteInline { ino, data, close: true, ..WriteInline::default() })
    };
    let gate = kv.gate.lock().await;
    abandon(&world, root.call_seq(7, 0, close())).await;
    assert!(volume.sessions.holds(&session, Ino(ino)), "it is not closed yet");
    drop(gate);
    for _ in 0..2 {
        root.call_seq(7, 0, close()).await.unwrap();
        assert!(!volume.sessions.holds(&session, Ino(ino)));
    }
}

/// What the last commit had changed was counted by nobody, until somebody looked for it.
#[tokio::test(start_paused = true)]
async fn counts_are_not_called_clean_while_a_commit_goes_on_without_its_caller() {
    for under_way in [true, false] {
        let world = World::new().await;
        world.root().file(1, "f").await.unwrap();
        let volume = world.server.core().volume(VolumeId(1)).await.unwrap();
        world.until(async || volume.counts.is_exact()).await;
        let counting = under_way.then(|| volume.counts.gate.clone().try_read_owned().unwrap());
        world.server.stop().await.unwrap();
        drop(counting);
        let snapshot = world.kv.snapshot().await.unwrap();
        let stat: Option<Stat> = get(&*snapshot, &keys::volume_stat(VolumeId(1))).await.unwrap();
        assert_eq!(stat.unwrap().clean, !under_way);
    }
}

/// Its successor began on a store that was still being changed.
#[tokio::test]
async fn a_server_that_was_killed_has_nothing_under_way_any_more() {
    let kv = InHand::new();
    let world = World::on(kv.clone()).await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.open(ino, BOTH).await.unwrap();
    root.unlink(1, "f").await.unwrap();
    let gate = kv.gate.lock().await;
    root.close(ino).await.unwrap();
    world.until(async || world.server.under_way() > 0).await;
    let mut killed = pin!(world.halt());
    for _ in 0..10 {
        assert!(futures::poll!(killed.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    drop(gate);
    killed.await;
    assert_eq!(world.server.under_way(), 0);
}
