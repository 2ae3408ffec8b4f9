use super::*;
use crate::MetaOptions;
use crate::check::tests::fsck;
use crate::tests::refusing::Refusing;
use crate::tests::world::*;
use std::sync::atomic::Ordering;
use strake_types::VolumeId;
use tokio::time::timeout;

/// Under these nothing is done in the background by the time alone.
fn without_turns() -> MetaOptions {
    MetaOptions { tick_ms: 3_600_000, ..options() }
}

/// A file of 100 bytes in chunks that a client has open.
async fn written(world: &World) -> u64 {
    written_as(world, "f").await
}

/// The same, of another name.
async fn written_as(world: &World, name: &str) -> u64 {
    let root = world.root();
    let ino = root.file(1, name).await.unwrap();
    root.open(ino, BOTH).await.unwrap();
    root.move_out(ino).await.unwrap();
    let told = Publish { ino, length_min: 100, occupied_delta: 100, ..Publish::default() };
    root.publish(told).await.unwrap();
    ino
}

/// Its client has written 200 bytes more, of which the store, as from now on of all that is of this file, takes nothing.
async fn write_more(kv: &Refusing, world: &World, ino: u64) {
    world.put_chunk(ino, 0, 300).await;
    kv.refuse(ino);
    let told = Publish { ino, length_min: 300, ..Publish::default() };
    assert_eq!(kind(world.root().publish(told).await), ErrorKind::NoSpace);
}

async fn refused(options: MetaOptions) -> (Arc<Refusing>, World, u64) {
    let kv = Refusing::new();
    let world = World::with(kv.clone(), options).await;
    let ino = written(&world).await;
    write_more(&kv, &world, ino).await;
    (kv, world, ino)
}

/// The lengths of all chunks, ascending.
fn chunks(world: &World) -> Vec<usize> {
    let mut lens: Vec<usize> = world.storage.chunks.lock().values().map(Vec::len).collect();
    lens.sort_unstable();
    lens
}

/// Looks whether a file can be cut, as the background task does.
async fn cut(ctx: &Ctx, ino: u64) -> Result<()> {
    cut_unused(ctx, Ino(ino), &Patience::new(TARGET_WAIT, SILENT_MS)).await
}

async fn own(world: &World) -> Ctx {
    let core = world.server.core();
    let volume = core.volume(VolumeId(1)).await.unwrap();
    Ctx::own(&core, &volume)
}

/// It read as what the write that had failed had sent.
#[tokio::test]
async fn what_is_added_to_a_file_is_zeros_also_where_a_write_could_not_be_told() {
    let (kv, world, ino) = refused(options()).await;
    kv.refuse(0);
    assert_eq!(world.root().truncate(ino, 50_000).await.unwrap().length, 50_000);
    assert_eq!(chunks(&world), [100]);
}

/// The target brought it back, as a part of the file, and no `fsync` of who had made it longer had asked for the cut.
#[tokio::test]
async fn what_could_not_be_told_is_cut_for_good_before_the_file_grows_over_it() {
    for grows in [true, false] {
        let (kv, world, ino) = refused(without_turns()).await;
        world.storage.make_durable();
        kv.refuse(0);
        if grows {
            world.root().truncate(ino, 50_000).await.unwrap();
        } else {
            world.root().close(ino).await.unwrap();
            cut(&own(&world).await, ino).await.unwrap();
        }
        world.storage.lose_power();
        assert_eq!(chunks(&world), [100], "it grows: {grows}");
    }
}

/// `strake fsck` called it broken, and nothing gave the room back.
#[tokio::test]
async fn what_could_not_be_told_is_cut_when_nobody_has_the_file_open_and_there_is_room() {
    let (kv, world, ino) = refused(options()).await;
    let root = world.root();
    root.close(ino).await.unwrap();
    assert_eq!(world.opens(ino).await, 0);
    assert_eq!(fsck(&root, false).await, Vec::new(), "it waits for room");
    assert_eq!(chunks(&world), [300]);
    kv.refuse(0);
    world.until(async || chunks(&world) == [100]).await;
    assert_eq!(root.getattr(ino).await.unwrap().length, 100);
    assert_eq!(fsck(&root, false).await, Vec::new());
    assert_eq!(root.truncate(ino, 50_000).await.unwrap().length, 50_000);
    assert_eq!(chunks(&world), [100]);
}

/// The other one is about to tell of what it has there.
#[tokio::test]
async fn what_others_write_is_not_cut_with_what_could_not_be_told() {
    let (kv, world, ino) = refused(options()).await;
    let other = world.root().at(world.open_session(0, &[]).await.session);
    other.open(ino, BOTH).await.unwrap();
    world.put_chunk(ino, 1, 200).await;
    kv.refuse(0);
    assert_eq!(world.root().truncate(ino, 100_000).await.unwrap().length, 100_000);
    assert_eq!(chunks(&world), [200, 300]);
    let told = Publish { ino, length_min: 65_536 + 200, occupied_delta: 200, ..Publish::default() };
    let attr = other.publish(told).await.unwrap();
    assert_eq!((attr.length, attr.occupied), (100_000, 300));
    assert_eq!(chunks(&world), [200, 300]);
}

/// Nor is what those may have written of whom nobody knows yet what they have open.
#[tokio::test]
async fn while_somebody_has_not_come_back_nothing_is_cut_behind_an_end() {
    let kv = Refusing::new();
    let world = World::on(kv.clone()).await;
    let ino = written(&world).await;
    let other = world.open_session(0, &[]).await.session;
    world.root().at(other).open(ino, BOTH).await.unwrap();
    let world = world.killed().await;
    assert!(world.open_session(world.session, &[ino]).await.resumed);
    write_more(&kv, &world, ino).await;
    kv.refuse(0);
    let root = world.root();
    root.close(ino).await.unwrap();
    cut(&own(&world).await, ino).await.unwrap();
    root.open(ino, BOTH).await.unwrap();
    assert_eq!(root.truncate(ino, 50_000).await.unwrap().length, 50_000);
    assert_eq!(chunks(&world), [300]);
    assert!(world.open_session(other, &[ino]).await.resumed);
    let told = Publish { ino, length_min: 300, ..Publish::default() };
    assert_eq!(root.at(other).publish(told).await.unwrap().length, 50_000);
    assert_eq!(chunks(&world), [300]);
}

/// It took of the room that is kept for deletions.
#[tokio::test]
async fn nothing_is_marked_where_there_is_no_room_for_what_is_new_and_files_are_opened() {
    let (kv, world, ino) = refused(without_turns()).await;
    let (root, ctx) = (world.root(), own(&world).await);
    kv.refuse(0);
    kv.full.store(true, Ordering::SeqCst);
    root.close(ino).await.unwrap();
    assert_eq!(kind(cut(&ctx, ino).await), ErrorKind::NoSpace);
    root.open(ino, BOTH).await.unwrap();
    root.close(ino).await.unwrap();
    assert_eq!(Tx::reader(&ctx).inode(Ino(ino)).await.unwrap().cut_from, None);
    assert_eq!(chunks(&world), [300]);
    kv.full.store(false, Ordering::SeqCst);
    cut(&ctx, ino).await.unwrap();
    assert_eq!(chunks(&world), [100]);
}

#[tokio::test]
async fn whoever_is_busy_with_a_file_or_away_is_not_waited_for() {
    let (kv, world, ino) = refused(without_turns()).await;
    let (root, ctx) = (world.root(), own(&world).await);
    kv.refuse(0);
    root.close(ino).await.unwrap();
    let busy = ctx.core.locks.lock(ctx.volume.id, &[Ino(ino)]).await;
    cut(&ctx, ino).await.unwrap();
    drop(busy);
    world.set_targets_up(false).await;
    cut(&ctx, ino).await.unwrap();
    assert_eq!(Tx::reader(&ctx).inode(Ino(ino)).await.unwrap().cut_from, None);
    assert_eq!(chunks(&world), [300]);
    world.set_targets_up(true).await;
    cut(&ctx, ino).await.unwrap();
    assert_eq!(chunks(&world), [100]);
}

/// It was marked, and from then on whoever opened it waited for the target.
#[tokio::test]
async fn what_could_not_be_told_waits_where_a_target_says_nothing_and_the_file_is_opened() {
    let (kv, world, ino) = refused(without_turns()).await;
    let (root, ctx) = (world.root(), own(&world).await);
    kv.refuse(0);
    root.close(ino).await.unwrap();
    // By the map it is there.
    world.storage.away.store(true, Ordering::SeqCst);
    cut(&ctx, ino).await.unwrap();
    world.storage.away.store(false, Ordering::SeqCst);
    world.set_disks_hang(true).await;
    cut(&ctx, ino).await.unwrap();
    assert_eq!(Tx::reader(&ctx).inode(Ino(ino)).await.unwrap().cut_from, None);
    assert_eq!(chunks(&world), [300]);
    root.open(ino, BOTH).await.unwrap();
    root.close(ino).await.unwrap();
    world.set_disks_hang(false).await;
    cut(&ctx, ino).await.unwrap();
    assert_eq!(chunks(&world), [100]);
}

/// It was waited for with the lock of each file held, and the files of others came after that.
#[tokio::test(start_paused = true)]
async fn a_target_that_says_nothing_does_not_hold_up_what_is_cut_on_others() {
    let kv = Refusing::new();
    let world = World::with(kv.clone(), without_turns()).await;
    let (root, ctx) = (world.root(), own(&world).await);
    let mut files = Vec::new();
    for (name, target) in [("a", "11"), ("b", "11"), ("c", "12")] {
        root.setxattr(1, "user.strake.layout.targets", target.as_bytes()).await.unwrap();
        let ino = written_as(&world, name).await;
        write_more(&kv, &world, ino).await;
        root.close(ino).await.unwrap();
        files.push(ino);
    }
    kv.refuse(0);
    world.storage.target_silent.store(11, Ordering::SeqCst);
    let (core, stop) = (world.server.core(), Stop::default());
    let patience = Patience::new(TARGET_WAIT, SILENT_MS);
    let turn = cut_some(&core, &ctx.volume, &patience, &stop);
    timeout(2 * FILE_WAIT, turn).await.expect("one file waits for it");
    assert_eq!(chunks(&world), [100, 300, 300]);
    for ino in files {
        assert_eq!(Tx::reader(&ctx).inode(Ino(ino)).await.unwrap().cut_from, None);
    }
}

/// It went with the cut of nothing: what could not be told had been written into a hole.
#[tokio::test]
async fn room_that_is_reserved_behind_an_end_stays_where_no_write_has_left_anything() {
    let kv = Refusing::new();
    let world = World::with(kv.clone(), without_turns()).await;
    let (root, ctx, ino) = (world.root(), own(&world).await, written(&world).await);
    world.put_chunk(ino, 0, 100).await;
    // Of no length: there is only room in it.
    world.put_chunk(ino, 1, 0).await;
    kv.refuse(ino);
    let told = Publish { ino, length_min: 100, occupied_delta: 50, ..Publish::default() };
    assert_eq!(kind(root.publish(told).await), ErrorKind::NoSpace);
    kv.refuse(0);
    root.close(ino).await.unwrap();
    cut(&ctx, ino).await.unwrap();
    assert_eq!(chunks(&world), [0, 100]);
    assert!(!ctx.volume.refused.has(Ino(ino)), "nothing is left to do");
}
