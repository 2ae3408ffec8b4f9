//! Syncs of a few bytes.

use super::deferred::mounts;
use super::*;
use crate::testing::TARGETS;
use strake_types::ChunkIndex;

/// A file of one chunk that is synced, on a mount to which it is leased.
async fn synced() -> (Arc<Fake>, Arc<Volume>, Arc<OpenFile>) {
    let (fake, volume, _other) = mounts().await;
    let file = create(&volume, "f").await;
    write(&volume, &file, 0, pattern(1, CHUNK as usize)).await;
    volume.fsync(&file, false).await.unwrap();
    fake.take_log();
    (fake, volume, file)
}

fn count(log: &[String], start: &str) -> usize {
    starting(log, start).len()
}

#[tokio::test]
async fn an_overwrite_of_a_few_bytes_is_synced_by_one_request_to_each_server() {
    let (fake, volume, file) = synced().await;
    for nth in 1..4 {
        write(&volume, &file, nth * 4096, pattern(9, 4096)).await;
        volume.fsync(&file, false).await.unwrap();
        let log = fake.take_log();
        assert_eq!((count(&log, "write"), count(&log, "publish")), (1, 1), "{log:?}");
        assert_eq!((count(&log, "sync target"), count(&log, "sync")), (0, 0), "{log:?}");
        assert!(file.state.is_idle(), "all of it has been told");
    }
    volume.fsync(&file, false).await.unwrap();
    let log = fake.take_log();
    assert_eq!((count(&log, "write"), count(&log, "publish")), (0, 0), "{log:?}");
}

#[tokio::test]
async fn the_time_is_told_while_the_bytes_are_on_their_way_only_where_others_wait_for_those() {
    for (shared, longer) in [(false, false), (true, false), (false, true)] {
        let (fake, volume, file) = synced().await;
        let at = if longer { CHUNK - 100 } else { 0 };
        write(&volume, &file, at, pattern(9, 4096)).await;
        file.state.core().shared = shared;
        let gate = fake.gate.write().await;
        {
            let fsync = volume.fsync(&file, false);
            futures::pin_mut!(fsync);
            for _ in 0..100 {
                assert!(futures::poll!(fsync.as_mut()).is_pending());
                tokio::task::yield_now().await;
            }
            let told = count(&fake.take_log(), "publish");
            assert_eq!(told == 1, !shared && !longer, "shared {shared}, longer {longer}");
            drop(gate);
            fsync.await.unwrap();
        }
        assert!(file.state.is_idle());
        assert_eq!(read(&volume, &file, at, 4096).await, pattern(9, 4096));
    }
}

/// No target was asked once the file had been synced here: what was read of the other mount, and synced, went with the power.
#[tokio::test]
async fn an_fsync_covers_what_another_mount_has_written_since_the_last_one() {
    for by_opening in [false, true] {
        let (fake, one, file, two) = two_mounts(4 * CHUNK as usize).await;
        let ino = file.ino();
        let theirs = open(&two, ino, OpenFlags::READ_WRITE).await;
        write(&two, &theirs, 0, pattern(2, 20_000)).await;
        two.release(&theirs).await.unwrap();
        if by_opening {
            open(&one, ino, OpenFlags::READ).await;
        } else {
            one.fetch_attr(ino, false).await.unwrap();
        }
        let synced = async || {
            fake.take_log();
            one.fsync(&file, false).await.unwrap();
            count(&fake.take_log(), "sync target")
        };
        assert_eq!(synced().await, TARGETS as usize);
        assert_eq!(synced().await, 0, "nobody has written since");
        write(&one, &file, 0, pattern(3, 4096)).await;
        assert!(synced().await <= 1, "it is ours");
        assert_eq!(synced().await, 0, "so is what was told of it");
    }
}

/// It asked all targets of the layout, and waited for those of which nobody needed anything.
#[tokio::test]
async fn an_fsync_of_a_small_file_of_others_does_not_need_targets_that_have_nothing_of_it() {
    let (fake, one, file, two) = two_mounts(20_000).await;
    let theirs = open(&two, file.ino(), OpenFlags::READ_WRITE).await;
    write(&two, &theirs, 0, pattern(2, 20_000)).await;
    two.release(&theirs).await.unwrap();
    one.fetch_attr(file.ino(), false).await.unwrap();
    let placement = file.state.core().placement().unwrap();
    let here = placement.group_of(ChunkIndex(0));
    let elsewhere = placement.groups().into_iter().find(|group| *group != here);
    fake.lose_group(elsewhere.unwrap());
    fake.take_log();
    one.fsync(&file, false).await.unwrap();
    assert_eq!(count(&fake.take_log(), "sync target"), 1);
}

/// What was cut off is to stay away as well.
#[tokio::test]
async fn an_fsync_covers_what_another_mount_has_cut_off() {
    let (fake, one, file, two) = two_mounts(4 * CHUNK as usize).await;
    let cut = SetAttr { length: Some(10), ..SetAttr::default() };
    two.setattr(&Credentials::root(), file.ino(), cut, None).await.unwrap();
    one.fetch_attr(file.ino(), false).await.unwrap();
    fake.take_log();
    one.fsync(&file, false).await.unwrap();
    assert_eq!(count(&fake.take_log(), "sync target"), TARGETS as usize);
}

#[tokio::test]
async fn a_write_that_fails_while_its_time_is_told_fails_the_sync() {
    let (fake, volume, file) = synced().await;
    write(&volume, &file, 0, pattern(9, 4096)).await;
    fake.fail("write", ErrorKind::NoSpace);
    assert_eq!(volume.fsync(&file, false).await.unwrap_err().kind, ErrorKind::NoSpace);
}

/// A write ended with its process while it told of what it had added, and nobody knew that it was told: it was told once
/// more, and counted twice.
#[tokio::test]
async fn what_a_killed_write_has_added_is_told_once() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    volume.fsync(&file, false).await.unwrap();
    for (at, shared) in [(20_000, false), (40_000, true)] {
        file.state.core().shared = shared;
        fake.take_log();
        fake.lose_answer("publish");
        {
            let written = async {
                volume.write(&file, at, pattern(2, 20_000)).await?;
                volume.sync_written(&file).await
            };
            futures::pin_mut!(written);
            // It is told, and waits before it asks again.
            while count(&fake.take_log(), "publish") == 0 {
                assert!(futures::poll!(written.as_mut()).is_pending());
                tokio::task::yield_now().await;
            }
        }
        volume.fsync(&file, false).await.unwrap();
    }
    assert_eq!(volume.getattr(file.ino()).await.unwrap().occupied, 60_000);
}
