use super::TELL_AFTER;
use crate::MetaOptions;
use crate::tests::world::*;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use strake_engine::kv::memory::MemoryKv;
use strake_types::layout::Placement;
use strake_types::{ChunkIndex, ErrorKind, Layout, Result};
use strake_wire::message::manager::Group;
use strake_wire::message::meta::{MetaAnswer, MetaOp, Nothing, Wait};

/// A world in which targets that are away are waited for.
async fn patient_world() -> World {
    let options = MetaOptions { storage_wait_ms: 30_000, ..options() };
    World::with(Arc::new(MemoryKv::new()), options).await
}

/// A small file of so many copies, in its inode still, and the group that it is to lie in.
async fn file(world: &World, copies: &[u8]) -> (u64, Group) {
    let root = world.root();
    root.setxattr(1, "user.strake.layout.width", b"1").await.unwrap();
    root.setxattr(1, "user.strake.layout.copies", copies).await.unwrap();
    let ino = root.file(1, "f").await.unwrap();
    root.write(ino, 0, b"contents").await.unwrap();
    let layout: Layout = root.getattr(ino).await.unwrap().layout.unwrap().try_into().unwrap();
    let group = Placement::new(layout).group_of(ChunkIndex(0));
    (ino, world.map.group(group).unwrap())
}

/// Once so much was asked with a number, a new epoch of the group begins, which the next member leads. Who fetches the map
/// hears of it.
async fn lead_on(world: &World, group: &Group, asked: usize) {
    world.until(async || world.storage.numbered.lock().len() == asked).await;
    let mut map = world.manager.map.lock();
    map.epoch += 1;
    let group = map.groups.iter_mut().find(|one| one.id == group.id).unwrap();
    group.epoch += 1;
    group.members.rotate_left(1);
}

/// What comes sooner than a call may take.
async fn soon<T>(asked: impl Future<Output = Result<T>>) -> T {
    let answer = tokio::time::timeout(Duration::from_secs(5), asked).await;
    answer.expect("nobody waits for who hangs").unwrap()
}

/// It was waited for as long as a call may take, with the lock of the file held.
#[tokio::test(start_paused = true)]
async fn a_cut_leaves_a_primary_that_hangs_when_another_leads() {
    let world = patient_world().await;
    let root = world.root();
    let (ino, group) = file(&world, b"2").await;
    root.move_out(ino).await.unwrap();
    let [old, new] = group.members[..] else { panic!("{group:?}") };
    let key = |target: u32| (100 + target, ino, 0);
    world.storage.chunks.lock().insert(key(new), b"contents".to_vec());
    world.storage.numbered.lock().clear();
    world.storage.target_silent.store(old, SeqCst);
    tokio::join!(soon(root.truncate(ino, 2)), lead_on(&world, &group, 1));
    assert_eq!(world.storage.chunks.lock()[&key(new)], b"co");
    let asked = world.storage.numbered.lock().clone();
    let [(first, before, number), (second, after, again)] = asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!((first, second, again), (old, new, number), "it is the same change");
    assert!(before < after, "who hangs refuses it by its epoch, should it come to it later");
}

/// That was waited for two minutes: a sync may take as long.
#[tokio::test(start_paused = true)]
async fn a_move_out_leaves_a_primary_that_hangs_at_its_sync_when_another_leads() {
    let world = patient_world().await;
    let root = world.root();
    let (ino, group) = file(&world, b"2").await;
    let [old, new] = group.members[..] else { panic!("{group:?}") };
    world.storage.silent_at_syncs.store(true, SeqCst);
    world.storage.target_silent.store(old, SeqCst);
    tokio::join!(soon(root.move_out(ino)), lead_on(&world, &group, 2));
    let asked = world.storage.numbered.lock().clone();
    let [(written_to, ..), (first, _, number), (second, _, again)] = asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!((written_to, first, second, again), (old, old, new, number));
}

#[tokio::test(start_paused = true)]
async fn the_only_target_of_a_group_is_waited_for_in_whatever_epoch() {
    let world = patient_world().await;
    let root = world.root();
    let (ino, group) = file(&world, b"1").await;
    root.move_out(ino).await.unwrap();
    world.storage.numbered.lock().clear();
    world.storage.target_silent.store(group.members[0], SeqCst);
    let goes_on = async {
        lead_on(&world, &group, 1).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        world.storage.target_silent.store(0, SeqCst);
    };
    tokio::join!(soon(root.truncate(ino, 2)), goes_on);
    assert_eq!(world.storage.numbered.lock().len(), 1, "it is asked once");
}

/// What the server is told to wait for.
async fn waits(root: &User<'_>) -> Vec<Wait> {
    match root.call(MetaOp::ListClients(Nothing {})).await.unwrap() {
        MetaAnswer::Clients(list) => list.waits,
        other => panic!("{other:?}"),
    }
}

/// `strake status` said nothing of it, and after 20 s that the metadata server does not answer.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_a_target_is_told_until_it_is_answered() {
    let world = patient_world().await;
    let root = world.root();
    let (ino, group) = file(&world, b"1").await;
    root.move_out(ino).await.unwrap();
    let told = async || waits(&root).await;
    world.storage.away.store(true, SeqCst);
    let looks = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(told().await.is_empty(), "not yet for long");
        world.clock.advance_ms(5_000);
        world.until(async || !told().await.is_empty()).await;
        let wait = told().await.remove(0);
        assert_eq!((wait.ino, wait.limit_ms), (ino, 30_000));
        assert!(wait.waited_ms >= 5_000, "{wait:?}");
        let what = format!("the target of group {}: ", group.id);
        assert!(wait.what.starts_with(&what), "{wait:?}");
        world.storage.away.store(false, SeqCst);
    };
    tokio::join!(soon(root.truncate(ino, 2)), looks);
    assert!(told().await.is_empty(), "it is answered");
}

/// It was told when an attempt had failed: of a server that stands still after 20 s.
#[tokio::test(start_paused = true)]
async fn a_call_to_a_target_that_says_nothing_is_told_before_that_is_given_up() {
    let world = patient_world().await;
    let root = world.root();
    let (ino, group) = file(&world, b"1").await;
    root.move_out(ino).await.unwrap();
    world.storage.slow_ms.store(10_000, SeqCst);
    let looks = async {
        tokio::time::sleep(TELL_AFTER / 2).await;
        assert!(waits(&root).await.is_empty(), "not yet for long");
        tokio::time::sleep(TELL_AFTER).await;
        let what = waits(&root).await.remove(0).what;
        assert_eq!(what, format!("the target of group {}: no answer", group.id));
    };
    let (cut, ()) = tokio::join!(root.truncate(ino, 2), looks);
    cut.unwrap();
    assert!(waits(&root).await.is_empty(), "it is answered");
}

/// It was told that there is no answer, and never why: each attempt is quiet until it is refused.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_a_target_is_told_with_what_that_said_last() {
    let world = patient_world().await;
    let root = world.root();
    let (ino, group) = file(&world, b"1").await;
    root.move_out(ino).await.unwrap();
    world.storage.slow_ms.store(1, SeqCst);
    *world.storage.refuses.lock() = Some(|_| true);
    let told = async |why: &str| {
        let what = format!("the target of group {}: {why}", group.id);
        world.until(async || waits(&root).await.iter().any(|wait| wait.what == what)).await;
    };
    let refused = strake_types::Error::from(ErrorKind::Unavailable).to_string();
    let looks = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.clock.advance_ms(5_000);
        world.until(async || !waits(&root).await.is_empty()).await;
        let what = waits(&root).await.remove(0).what;
        assert_eq!(what, format!("the target of group {}: {refused}", group.id));
        world.storage.target_silent.store(group.members[0], SeqCst);
        told("no answer").await;
        world.storage.target_silent.store(0, SeqCst);
        told(&refused).await;
        *world.storage.refuses.lock() = None;
    };
    let (cut, ()) = tokio::join!(root.truncate(ino, 2), looks);
    cut.unwrap();
    assert!(waits(&root).await.is_empty(), "it is answered");
}
