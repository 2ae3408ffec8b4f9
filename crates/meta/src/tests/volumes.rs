//! Volumes come, change and go with the map.

use crate::MetaOptions;
use crate::count::AT_ONCE;
use crate::keys;
use crate::records::{self, Stat};
use crate::stored::get;
use crate::tests::world::*;
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use strake_engine::kv::memory::{MemoryKv, SyncedKv};
use strake_engine::kv::{
    Kv, KvError, Moved, Outcome, Pair, Result as KvResult, Snapshot, Transaction, Writes, dump,
};
use strake_types::{ErrorKind, FileKind, GroupId, Layout, VolumeId};
use strake_wire::member::MetaRole;
use strake_wire::message::meta::{
    Create, Lock, MetaAnswer, MetaOp, MetaRequest, Name, Nothing, Publish,
};
use strake_wire::message::storage::StorageOp;
use strake_wire::service::MetaService;

async fn lookup(world: &World, volume: u32) -> strake_types::Result<()> {
    let op = Some(MetaOp::Lookup(Name { parent: 1, name: ".".into() }));
    let request = MetaRequest { volume, op, ..MetaRequest::default() };
    world.server.call(request).await.map(drop)
}

fn change(world: &World, change: impl FnOnce(&mut strake_wire::message::manager::ClusterMap)) {
    let mut map = world.manager.map.lock();
    change(&mut map);
    map.epoch += 1;
}

#[tokio::test]
async fn a_volume_is_used_as_soon_as_the_manager_has_it() {
    let world = World::new().await;
    assert_eq!(kind(lookup(&world, 2).await), ErrorKind::NotFound);
    change(&world, |map| map.volumes.push(volume(2, "second")));
    lookup(&world, 2).await.unwrap();
    change(&world, |map| {
        map.volumes.push({
            let mut other = volume(3, "elsewhere");
            other.meta_server = 9;
            other
        })
    });
    assert_eq!(kind(lookup(&world, 3).await), ErrorKind::StaleMap);
}

/// A metadata server that was not stopped went on to serve by it what another one served by the new store.
#[tokio::test]
async fn no_volume_is_served_from_a_store_that_was_moved_elsewhere() {
    let world = World::new().await;
    lookup(&world, 1).await.unwrap();
    let mut tx = Transaction::begin(&*world.kv).await.unwrap();
    tx.put(b"!exported".to_vec(), vec![7; 16]);
    assert_eq!(tx.commit(&*world.kv).await.unwrap(), Outcome::Committed);
    let (to, host) = ("postgres://u@h:5432/d".into(), "h9".into());
    let moved = Moved { export: [7; 16], at_ms: 0, to, host };
    assert!(dump::close(&*world.kv, &moved).await.unwrap());
    change(&world, |map| map.volumes.push(volume(2, "second")));
    let error = lookup(&world, 2).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.detail.contains("was moved to postgres://u@h:5432/d"), "{error}");
    dump::reopen(&*world.kv).await.unwrap();
    lookup(&world, 2).await.unwrap();
}

#[tokio::test]
async fn settings_hold_for_what_is_made_later() {
    let world = World::new().await;
    let root = world.root();
    let before = root.file(1, "before").await.unwrap();
    change(&world, |map| map.volumes[0].spec.inline_bytes_max = Some(0));
    world.map.refresh().await.unwrap();
    let after = root.make(new(1, "after", FileKind::File, 0o600)).await.unwrap().attr;
    assert!(!after.inline);
    assert_eq!(kind(root.write(before, 0, b"x").await), ErrorKind::FileTooBig);
    assert!(!root.move_out(before).await.unwrap().inline);
}

/// One small disk that was full made each new file fail, while the others had room.
#[tokio::test]
async fn new_files_leave_out_a_target_that_is_nearly_full() {
    let world = World::new().await;
    let root = world.root();
    change(&world, |map| {
        for target in &mut map.targets {
            (target.spec.total_bytes, target.spec.free_bytes) = (1_000, 900);
        }
        map.targets[1].spec.free_bytes = 1;
    });
    world.map.refresh().await.unwrap();
    let made = root.make(new(1, "around", FileKind::File, 0o600)).await.unwrap();
    let layout: Layout = made.attr.layout.unwrap().try_into().unwrap();
    let full = GroupId::of_class(1, 1);
    assert!(layout.width == 2 && !layout.slots().contains(&full), "{layout:?}");
    change(&world, |map| map.targets[1].spec.free_bytes = 900);
    world.map.refresh().await.unwrap();
    let made = root.make(new(1, "over-all", FileKind::File, 0o600)).await.unwrap();
    assert_eq!(made.attr.layout.unwrap().width, 3);
}

/// A store that counts commits, and how many of them a sync has covered; full, or unable to sync, if it
/// is told so. Who has made a sync goes on through a gate.
struct Watched {
    kv: MemoryKv,
    committed: AtomicU64,
    synced: AtomicU64,
    full: AtomicBool,
    fails: AtomicBool,
    failed: AtomicU64,
    syncs: AtomicU64,
    gate: tokio::sync::Mutex<()>,
    at_gate: AtomicU64,
}

impl Watched {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            kv: MemoryKv::new(),
            committed: AtomicU64::default(),
            synced: AtomicU64::default(),
            full: AtomicBool::default(),
            fails: AtomicBool::default(),
            failed: AtomicU64::default(),
            syncs: AtomicU64::default(),
            gate: tokio::sync::Mutex::default(),
            at_gate: AtomicU64::default(),
        })
    }
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
        let outcome = self.kv.commit(snapshot, writes).await;
        self.committed.fetch_add(1, Ordering::SeqCst);
        outcome
    }

    fn check_room(&self) -> KvResult<()> {
        match self.full.load(Ordering::SeqCst) {
            true => Err(KvError::Full { store: "watched".into(), next: "watch it" }),
            false => Ok(()),
        }
    }

    async fn sync(&self) -> KvResult<()> {
        let committed = self.committed.load(Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) {
            self.failed.fetch_add(1, Ordering::SeqCst);
            return Err(KvError::Full { store: "watched".into(), next: "" });
        }
        self.kv.sync().await?;
        self.synced.fetch_max(committed, Ordering::SeqCst);
        self.syncs.fetch_add(1, Ordering::SeqCst);
        self.at_gate.fetch_add(1, Ordering::SeqCst);
        drop(self.gate.lock().await);
        self.at_gate.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

/// A world on such a store, with a file `f` whose contents lie inside its inode.
async fn small_file_on_watched() -> (Arc<Watched>, World, u64) {
    let kv = Watched::new();
    let world = World::on(kv.clone()).await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"contents").await.unwrap();
    (kv, world, ino)
}

/// Whoever wrote was told so, and nobody else: with all volumes at a standstill the cluster was fine.
#[tokio::test]
async fn that_the_store_has_no_room_is_said_to_the_manager_until_it_has_some() {
    let kv = Watched::new();
    let world = World::on(kv.clone()).await;
    for full in [true, false] {
        kv.full.store(full, Ordering::SeqCst);
        world.until(async || world.server.full().contains("watch it") == full).await;
    }
}

#[tokio::test]
async fn with_sync_always_a_change_is_on_disk_before_it_is_answered() {
    let kv = Watched::new();
    let world = World::on(kv.clone()).await;
    let root = world.root();
    let synced = || kv.synced.load(Ordering::SeqCst);
    // For the first one numbers are reserved.
    let ino = root.file(1, "before").await.unwrap();
    let before = synced();
    root.write(ino, 0, b"x").await.unwrap();
    assert_eq!(synced(), before, "nobody asked for it");
    change(&world, |map| map.volumes[0].spec.sync_always = Some(true));
    world.map.refresh().await.unwrap();
    let lock = Lock { ino, owner: 1, flock: true, ..Lock::default() };
    for step in 0..6 {
        let committed = kv.committed.load(Ordering::SeqCst);
        match step {
            0 => root.mkdir(1, "directory").await.map(drop).unwrap(),
            1 => root.write(ino, 0, b"contents").await.map(drop).unwrap(),
            2 => root.chmod(ino, 0o600).await.map(drop).unwrap(),
            3 => root.set_lock(Lock { kind: 2, ..lock }).await.unwrap(),
            4 => root.set_lock(lock).await.unwrap(),
            _ => root.rename((1, "before"), (1, "after")).await.map(drop).unwrap(),
        }
        assert!(synced() > committed, "step {step}");
    }
}

/// Or a loss of power would give the name back, and not what the file had.
#[tokio::test]
async fn chunks_are_deleted_when_the_unlink_is_on_disk() {
    let (kv, world, ino) = small_file_on_watched().await;
    let root = world.root();
    root.move_out(ino).await.unwrap();
    kv.fails.store(true, Ordering::SeqCst);
    root.unlink(1, "f").await.unwrap();
    deleted_when_it_syncs(&kv, &world, 0).await;
}

/// The one chunk that there is stays while syncs fail again and again, after so many that have before, and goes then.
async fn deleted_when_it_syncs(kv: &Watched, world: &World, failed: u64) {
    world.until(async || kv.failed.load(Ordering::SeqCst) >= failed + 3).await;
    assert_eq!(world.storage.chunks.lock().len(), 1);
    kv.fails.store(false, Ordering::SeqCst);
    world.all_done().await;
    assert!(world.storage.chunks.lock().is_empty());
}

/// The file was in the queue with a cut: who had found it there, and then had the journal synced, took the unlink that came
/// after the sync for durable.
#[tokio::test]
async fn an_unlink_of_what_waits_to_be_cut_is_on_disk_before_chunks_are_deleted() {
    let kv = Watched::new();
    let world = World::on(kv.clone()).await;
    let root = world.root();
    world.cut_while_away(&root).await;
    // So that it stays in the queue, and nobody begins the cut; who has begun it before comes to his end.
    world.set_targets_up(false).await;
    let syncs = kv.syncs.load(Ordering::SeqCst);
    world.until(async || kv.syncs.load(Ordering::SeqCst) >= syncs + 3).await;
    let gate = kv.gate.lock().await;
    world.until(async || kv.at_gate.load(Ordering::SeqCst) > 0).await;
    root.unlink(1, "f").await.unwrap();
    world.clock.advance_ms(5);
    world.storage.away.store(false, Ordering::SeqCst);
    world.set_targets_up(true).await;
    kv.fails.store(true, Ordering::SeqCst);
    let failed = kv.failed.load(Ordering::SeqCst);
    drop(gate);
    deleted_when_it_syncs(&kv, &world, failed).await;
}

/// Or a loss of power would give the length back, with zeros.
#[tokio::test]
async fn chunks_are_cut_when_the_new_length_is_on_disk() {
    let (kv, world, ino) = small_file_on_watched().await;
    let root = world.root();
    root.move_out(ino).await.unwrap();
    kv.fails.store(true, Ordering::SeqCst);
    root.truncate(ino, 3).await.unwrap_err();
    assert!(kv.failed.load(Ordering::SeqCst) > 0);
    let len = || world.storage.chunks.lock().values().map(|chunk| chunk.len()).sum::<usize>();
    assert_eq!(len(), 8);
    kv.fails.store(false, Ordering::SeqCst);
    root.truncate(ino, 3).await.unwrap();
    assert_eq!(len(), 3);
}

/// The mark could go with the power, and the chunks stayed: deleted with the file they never were, and a file that was cut
/// short meanwhile, and grew, would have shown them.
#[tokio::test]
async fn what_moves_out_is_marked_on_disk_before_it_is_written_to_chunks() {
    let (kv, world, ino) = small_file_on_watched().await;
    let root = world.root();
    kv.fails.store(true, Ordering::SeqCst);
    assert!(root.move_out(ino).await.is_err());
    assert!(world.storage.chunks.lock().is_empty());
    kv.fails.store(false, Ordering::SeqCst);
    assert!(!root.move_out(ino).await.unwrap().inline);
    assert_eq!(world.storage.chunks.lock().len(), 1);
}

/// Who makes a file and writes to it waits for no disk; of an older one, what it was before would come back with the power.
#[tokio::test]
async fn a_new_file_moves_out_without_a_sync_and_an_older_one_with_one() {
    let kv = Watched::new();
    let world = World::on(kv.clone()).await;
    let root = world.root();
    let synced = || kv.synced.load(Ordering::SeqCst);
    // For the first one numbers are reserved.
    let [new, older] = [root.file(1, "new").await.unwrap(), root.file(1, "older").await.unwrap()];
    let before = synced();
    root.move_out(new).await.unwrap();
    assert_eq!(synced(), before);
    world.clock.advance_ms(3_000);
    let committed = kv.committed.load(Ordering::SeqCst);
    root.move_out(older).await.unwrap();
    assert!(synced() > committed);
}

/// Its client was told that it had moved already, and went on.
#[tokio::test]
async fn who_asks_again_is_not_told_that_a_file_has_moved_out_before_that_is_on_disk() {
    let (kv, world, ino) = small_file_on_watched().await;
    let root = world.root();
    root.truncate(ino, 0).await.unwrap();
    kv.fails.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        assert!(root.move_out(ino).await.is_err());
    }
    kv.fails.store(false, Ordering::SeqCst);
    let committed = kv.committed.load(Ordering::SeqCst);
    assert!(!root.move_out(ino).await.unwrap().inline);
    assert!(kv.synced.load(Ordering::SeqCst) >= committed);
}

/// The mark of the cut was on disk, and that it was done was not: what its client had written since was cut off when it told
/// the length, and its `fsync` succeeded.
#[tokio::test]
async fn what_is_written_after_a_cut_is_not_cut_off_after_a_loss_of_power() {
    let kv = SyncedKv::new();
    let mut world = World::on(Arc::new(kv.clone())).await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"contents").await.unwrap();
    root.move_out(ino).await.unwrap();
    root.truncate(ino, 0).await.unwrap();
    world.put_chunk(ino, 0, 100).await;
    world.kv = Arc::new(kv.after_power_loss().await.unwrap());
    let world = world.killed().await;
    world.open_session(world.session, &[]).await;
    let publish = Publish { ino, length_min: 100, sync: true, ..Publish::default() };
    assert_eq!(world.root().publish(publish).await.unwrap().length, 100);
    assert_eq!(world.storage.chunks.lock().values().map(Vec::len).sum::<usize>(), 100);
}

/// The targets that had done their part were cut once more with those that had not, and what was written there since was gone.
#[tokio::test]
async fn which_targets_are_left_to_cut_is_on_disk_before_others_are_written_to() {
    let kv = Watched::new();
    let world = World::on(kv.clone()).await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.move_out(ino).await.unwrap();
    for index in 0..3 {
        world.put_chunk(ino, index, 65_536).await;
    }
    let publish = Publish { ino, length_min: 3 * 65_536, sync: true, ..Publish::default() };
    root.publish(publish).await.unwrap();
    world.storage.target_away.store(11, Ordering::SeqCst);
    let committed = kv.committed.load(Ordering::SeqCst);
    assert_eq!(kind(root.truncate(ino, 0).await), ErrorKind::Unavailable);
    // The new length, and which targets are left.
    assert!(kv.synced.load(Ordering::SeqCst) >= committed + 2);
}

/// A user who had started everything himself could write nothing into what he had mounted.
#[tokio::test]
async fn the_root_directory_of_a_new_volume_belongs_to_who_runs_the_server() {
    let options = MetaOptions { root_owner: (65_534, 65_533), ..options() };
    let world = World::with(Arc::new(MemoryKv::new()), options).await;
    let attr = world.root().getattr(1).await.unwrap();
    assert_eq!((attr.uid, attr.gid, attr.mode & 0o777), (65_534, 65_533, 0o755));
}

/// Of servers that empty a deleted volume for the last time as soon as they have done so once.
async fn hasty_world() -> World {
    let options = MetaOptions { capability_ms: 0, ..options() };
    World::with(Arc::new(MemoryKv::new()), options).await
}

#[tokio::test]
async fn a_deleted_volume_is_emptied_on_disk() {
    let world = hasty_world().await;
    let root = world.root();
    for nth in 0..600 {
        root.file(1, &format!("f{nth}")).await.unwrap();
    }
    let moved = root.file(1, "moved").await.unwrap();
    root.write(moved, 0, b"x").await.unwrap();
    root.move_out(moved).await.unwrap();
    change(&world, |map| map.volumes[0].deleting = true);
    world.map.refresh().await.unwrap();
    assert_eq!(kind(root.getattr(1).await), ErrorKind::Stale);
    world.until(async || world.keys(b'I').await + world.keys(b'S').await == 0).await;
    assert!(world.storage.chunks.lock().is_empty());
    for letter in *b"BDEFGILNPRSTUX" {
        world.until(async || world.keys(letter).await == 0).await;
    }
    world.until(async || is_emptied(&world, 1).await).await;
}

/// What is stored of a volume beside its contents.
async fn stat_of(world: &World, volume: u32) -> Stat {
    let snapshot = world.kv.snapshot().await.unwrap();
    let stat: Option<Stat> = get(&*snapshot, &keys::volume_stat(VolumeId(volume))).await.unwrap();
    stat.unwrap_or_default()
}

/// True once it is stored that nothing is left of a deleted volume.
async fn is_emptied(world: &World, volume: u32) -> bool {
    stat_of(world, volume).await.emptied
}

/// True once it is stored when a deleted volume was emptied first.
async fn is_emptied_once(world: &World, volume: u32) -> bool {
    stat_of(world, volume).await.emptied_once_ms > 0
}

/// Each start of a server emptied all that were ever deleted, on all targets.
#[tokio::test]
async fn a_volume_that_was_emptied_is_not_emptied_again_by_the_next_process() {
    let world = hasty_world().await;
    let delete = |world: &World, nth: usize| change(world, |map| map.volumes[nth].deleting = true);
    change(&world, |map| map.volumes.push(volume(2, "second")));
    delete(&world, 0);
    world.map.refresh().await.unwrap();
    world.until(async || is_emptied(&world, 1).await).await;
    let before = world.storage.dropped.lock().len();
    let world = world.killed().await;
    delete(&world, 1);
    world.map.refresh().await.unwrap();
    world.until(async || is_emptied(&world, 2).await).await;
    // Twice, as each is.
    let targets = world.map.current().targets.len();
    assert_eq!(world.storage.dropped.lock().len(), before + 2 * targets);
}

/// Where no process lived for as long as capabilities hold, each start emptied all that were ever deleted, on all targets.
#[tokio::test]
async fn the_time_until_a_deleted_volume_is_emptied_again_goes_on_over_restarts() {
    let mut world = World::new().await;
    let half_ms = world.options.capability_ms / 2;
    change(&world, |map| map.volumes[0].deleting = true);
    world.map.refresh().await.unwrap();
    world.until(async || is_emptied_once(&world, 1).await).await;
    let targets = world.map.current().targets.len();
    let turns = Duration::from_millis(20 * world.options.tick_ms);
    let mut dropped = Vec::new();
    for pause_ms in [0, half_ms] {
        world.clock.advance_ms(pause_ms);
        world = world.killed().await;
        tokio::time::sleep(turns).await;
        dropped.push(world.storage.dropped.lock().len());
    }
    assert_eq!(dropped, [targets; 2], "it is not time yet");
    world.clock.advance_ms(half_ms);
    world = world.killed().await;
    world.until(async || is_emptied(&world, 1).await).await;
    assert_eq!(world.storage.dropped.lock().len(), 2 * targets);
}

/// A client wrote by the capability that it had, and a copy was under way: nobody looked for that any more, not even the next process.
#[tokio::test]
async fn what_comes_to_a_deleted_volume_as_long_as_capabilities_hold_is_deleted_too() {
    let world = World::new().await;
    change(&world, |map| map.volumes[0].deleting = true);
    world.map.refresh().await.unwrap();
    world.until(async || is_emptied_once(&world, 1).await).await;
    world.storage.chunks.lock().insert((11, 9, 0), b"late".to_vec());
    let world = world.killed().await;
    let is_emptied = async || {
        world.clock.advance_ms(world.options.capability_ms);
        is_emptied(&world, 1).await
    };
    world.until(is_emptied).await;
    assert!(world.storage.chunks.lock().is_empty());
}

#[tokio::test]
async fn a_volume_that_is_in_use_is_none_that_was_emptied() {
    let world = World::new().await;
    let stat = Stat { emptied: true, ..Stat::default() };
    let mut tx = Transaction::begin(&*world.kv).await.unwrap();
    tx.put(keys::volume_stat(VolumeId(2)), records::encode(&stat));
    assert_eq!(tx.commit(&*world.kv).await.unwrap(), Outcome::Committed);
    change(&world, |map| map.volumes.push(volume(2, "second")));
    lookup(&world, 2).await.unwrap();
    assert!(!is_emptied(&world, 2).await);
}

/// They waited for it one after the other, each as long as it is waited for.
#[tokio::test]
async fn deleted_volumes_are_emptied_beside_one_that_waits_for_a_target() {
    let world = hasty_world().await;
    change(&world, |map| map.volumes.push(volume(2, "second")));
    lookup(&world, 2).await.unwrap();
    world.storage.target_silent.store(12, Ordering::SeqCst);
    change(&world, |map| map.volumes.iter_mut().for_each(|volume| volume.deleting = true));
    world.map.refresh().await.unwrap();
    let at_first = || world.storage.dropped.lock().iter().filter(|target| **target == 11).count();
    world.until(async || at_first() == 2).await;
    world.storage.target_silent.store(0, Ordering::SeqCst);
    for volume in [1, 2] {
        world.until(async || is_emptied(&world, volume).await).await;
    }
}

/// Each tick all targets that were there were told to drop it again.
#[tokio::test(start_paused = true)]
async fn a_deleted_volume_is_tried_again_ever_later_while_a_target_is_away() {
    let world = hasty_world().await;
    world.storage.target_away.store(12, Ordering::SeqCst);
    change(&world, |map| map.volumes[0].deleting = true);
    world.map.refresh().await.unwrap();
    let at_first = || world.storage.dropped.lock().iter().filter(|target| **target == 11).count();
    let ticks = Duration::from_millis(60 * world.options.tick_ms);
    for (nth, pause_ms) in [(1, 1_000), (2, 2_000), (3, 4_000)] {
        world.until(async || at_first() >= nth).await;
        tokio::time::sleep(ticks).await;
        assert_eq!(at_first(), nth);
        world.clock.advance_ms(pause_ms);
    }
    world.storage.target_away.store(0, Ordering::SeqCst);
    world.clock.advance_ms(60_000);
    world.until(async || is_emptied(&world, 1).await).await;
}

/// It was emptied twice, one turn after the other, and what had waited longer for a storage server wrote its inode after that.
#[tokio::test]
async fn nothing_stays_of_a_deleted_volume_by_what_was_under_way_when_it_was_emptied() {
    let options = MetaOptions { storage_wait_ms: 600_000, capability_ms: 0, ..options() };
    let world = World::with(Arc::new(MemoryKv::new()), options).await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"secret").await.unwrap();
    root.move_out(ino).await.unwrap();
    *world.storage.refuses.lock() = Some(|op| matches!(op, StorageOp::Truncate(_)));
    // Its client goes away, and the background task takes the cut up.
    let turns = Duration::from_millis(100);
    tokio::time::timeout(turns, root.truncate(ino, 2)).await.unwrap_err();
    tokio::time::sleep(turns).await;
    let volume = Arc::downgrade(&world.server.core().volume(VolumeId(1)).await.unwrap());
    change(&world, |map| map.volumes[0].deleting = true);
    world.map.refresh().await.unwrap();
    world.until(async || world.keys(b'I').await == 0).await;
    tokio::time::sleep(turns).await;
    assert!(volume.strong_count() > 0, "the cut is still under way");
    *world.storage.refuses.lock() = None;
    world.until(async || volume.strong_count() == 0).await;
    world.until(async || world.keys(b'I').await == 0).await;
}

/// It was waited for whatever it had to do, by the deletion of files, too.
#[tokio::test]
async fn who_stops_does_not_wait_for_a_target_that_does_not_drop_a_deleted_volume() {
    let world = World::new().await;
    let gate = world.storage.gate.lock().await;
    change(&world, |map| map.volumes[0].deleting = true);
    world.map.refresh().await.unwrap();
    world.until(async || world.storage.at_gate.load(Ordering::SeqCst) > 0).await;
    let stopped = tokio::time::timeout(Duration::from_secs(5), world.server.stop()).await;
    stopped.expect("in time").unwrap();
    drop(gate);
}

#[tokio::test]
async fn counts_are_true_after_a_kill() {
    let world = World::new().await;
    let root = world.root();
    for nth in 0..20 {
        let ino = root.file(1, &format!("f{nth}")).await.unwrap();
        root.write(ino, 0, b"12345").await.unwrap();
    }
    let world = world.killed().await;
    let nobody = world.root().at(0);
    let stat = nobody.stat().await;
    assert_eq!((stat.inodes, stat.bytes), (21, 100));
    nobody.unlink(1, "f0").await.unwrap();
    let world = world.restarted().await;
    let stat = world.root().at(0).stat().await;
    assert_eq!((stat.inodes, stat.bytes), (21, 100), "it waits for the absent session");
    let refused = world.server.stop().await;
    refused.unwrap();
    assert_eq!(kind(world.root().getattr(1).await), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_store_without_room_takes_what_frees_some_and_nothing_else() {
    let kv = Watched::new();
    let world = World::on(kv.clone()).await;
    let root = world.root();
    let ino = root.file(1, "file").await.unwrap();
    root.write(ino, 0, b"contents").await.unwrap();
    root.setxattr(ino, "user.a", b"value").await.unwrap();
    root.mkdir(1, "directory").await.unwrap();
    kv.full.store(true, Ordering::SeqCst);
    let refused = root.file(1, "new").await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NoSpace);
    assert_eq!(refused.detail, "metadata store watched: no space left; watch it");
    assert_eq!(kind(root.mkdir(1, "new").await), ErrorKind::NoSpace);
    assert_eq!(kind(root.link(ino, 1, "new").await), ErrorKind::NoSpace);
    assert_eq!(kind(root.write(ino, 0, b"more contents").await), ErrorKind::NoSpace);
    assert_eq!(kind(root.setxattr(ino, "user.b", b"value").await), ErrorKind::NoSpace);
    assert_eq!(root.names(1).await.len(), 2);
    assert_eq!(root.read(ino).await.unwrap().unwrap(), "contents");
    let opened =
        Create { exclusive: false, open: Some(BOTH), ..new(1, "file", FileKind::File, 0o600) };
    assert!(!root.make(opened).await.unwrap().created, "the opening of a file takes no room");
    root.removexattr(ino, "user.a").await.unwrap();
    root.truncate(ino, 1).await.unwrap();
    root.rename((1, "file"), (1, "renamed")).await.unwrap();
    root.unlink(1, "renamed").await.unwrap();
    root.rmdir(1, "directory").await.unwrap();
    kv.full.store(false, Ordering::SeqCst);
    root.file(1, "new").await.unwrap();
}

/// A store in which the inodes of a volume cannot be gone through until it is opened.
struct Closed {
    kv: MemoryKv,
    opened: Arc<tokio::sync::Semaphore>,
    counting: Arc<AtomicU64>,
}

struct ClosedSnapshot(Arc<dyn Snapshot>, Arc<tokio::sync::Semaphore>, Arc<AtomicU64>);

#[async_trait]
impl Kv for Closed {
    fn name(&self) -> &'static str {
        "closed"
    }

    async fn snapshot(&self) -> KvResult<Arc<dyn Snapshot>> {
        let (opened, counting) = (self.opened.clone(), self.counting.clone());
        Ok(Arc::new(ClosedSnapshot(self.kv.snapshot().await?, opened, counting)))
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> KvResult<Outcome> {
        let any: &dyn std::any::Any = &*snapshot;
        let snapshot = any.downcast_ref::<ClosedSnapshot>().expect("one of ours");
        self.kv.commit(snapshot.0.clone(), writes).await
    }

    async fn sync(&self) -> KvResult<()> {
        self.kv.sync().await
    }
}

#[async_trait]
impl Snapshot for ClosedSnapshot {
    async fn get(&self, key: &[u8]) -> KvResult<Option<Bytes>> {
        self.0.get(key).await
    }

    async fn multi_get(&self, keys: &[Vec<u8>]) -> KvResult<Vec<Option<Bytes>>> {
        self.0.multi_get(keys).await
    }

    async fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> KvResult<Vec<Pair>> {
        if matches!(from, Bound::Included([b'I', ..])) {
            self.2.fetch_add(1, Ordering::SeqCst);
            let _opened = self.1.acquire().await;
            self.2.fetch_sub(1, Ordering::SeqCst);
        }
        self.0.scan(from, to, limit).await
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self.0.as_any()
    }
}

/// A snapshot for each volume of a server that has died would be more than a database has.
#[tokio::test]
async fn volumes_are_counted_in_turn() {
    const VOLUMES: u32 = 8;
    let opened = Arc::new(tokio::sync::Semaphore::new(0));
    let counting = Arc::new(AtomicU64::default());
    let kv = Closed { kv: MemoryKv::new(), opened: opened.clone(), counting: counting.clone() };
    let world = World::on(Arc::new(kv)).await;
    change(&world, |map| {
        map.volumes.extend((2..=VOLUMES).map(|id| volume(id, &format!("volume{id}"))));
    });
    for id in 1..=VOLUMES {
        lookup(&world, id).await.unwrap();
    }
    let made = world.root().file(1, "while its volume waits to be counted").await;
    made.unwrap();
    world.until(async || counting.load(Ordering::SeqCst) == AT_ONCE as u64).await;
    tokio::task::yield_now().await;
    assert_eq!(counting.load(Ordering::SeqCst), AT_ONCE as u64, "the others wait");
    opened.add_permits(1);
    for id in 1..=VOLUMES {
        let request = MetaRequest {
            volume: id,
            op: Some(MetaOp::VolumeStat(Nothing {})),
            ..MetaRequest::default()
        };
        let reply = world.server.call(request).await.unwrap();
        let Some(MetaAnswer::VolumeStat(stat)) = reply.answer else { panic!("{reply:?}") };
        assert_eq!(stat.inodes, if id == 1 { 2 } else { 1 }, "volume {id}");
    }
}

/// All volumes were looked through with each turn.
#[tokio::test]
async fn a_volume_in_which_nothing_waits_is_left_alone_until_something_does() {
    let world = World::new().await;
    let root = world.root();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"contents").await.unwrap();
    root.move_out(ino).await.unwrap();
    let volume = world.server.core().volume(VolumeId(1)).await.unwrap();
    world.until(async || volume.chores.is_idle()).await;
    world.storage.away.store(true, Ordering::SeqCst);
    root.unlink(1, "f").await.unwrap();
    world.until(async || volume.chores.left() == 1).await;
    world.storage.away.store(false, Ordering::SeqCst);
    world.until(async || volume.chores.is_idle()).await;
    assert_eq!(world.keys(b'G').await, 0);
    assert!(world.storage.chunks.lock().is_empty());
}
