use crate::testing::{CHUNK, Fake, create, options, pattern, read, write};
use crate::unsynced::Unsynced;
use crate::{FallocateMode, OpenFile, OpenFlags, Volume};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use strake_types::{Boot, Credentials, ErrorKind, GroupId, Ino, Result, SetAttr};

async fn cluster() -> (Arc<Fake>, Arc<Volume>) {
    let fake = Arc::new(Fake::default());
    fake.set_boot(1);
    let volume = fake.volume(options()).await;
    fake.take_log();
    (fake, volume)
}

async fn open(volume: &Arc<Volume>, ino: Ino) -> Arc<OpenFile> {
    volume.open(&Credentials::root(), ino, OpenFlags::READ_WRITE).await.unwrap()
}

fn chunk(seed: u8) -> Bytes {
    pattern(seed, CHUNK as usize)
}

/// A file with two chunks that targets have acknowledged from boot 1 and nobody has synced.
async fn written(volume: &Arc<Volume>, name: &str) -> Arc<OpenFile> {
    let file = create(volume, name).await;
    write(volume, &file, 0, chunk(1)).await;
    write(volume, &file, CHUNK, chunk(2)).await;
    volume.flush(&file).await.unwrap();
    file
}

fn assert_lost(result: Result<()>) {
    let error = result.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("lost power"), "{error}");
}

#[tokio::test]
async fn an_fsync_answered_from_another_boot_fails_once_per_handle() {
    let (fake, volume) = cluster().await;
    let file = written(&volume, "lost").await;
    let other = open(&volume, file.ino()).await;
    fake.set_boot(2);
    assert_lost(volume.fsync(&file, false).await);
    volume.fsync(&file, false).await.unwrap();
    assert_lost(volume.fsync(&other, true).await);
    volume.fsync(&other, true).await.unwrap();
    // Who opens it now has nothing to do with it.
    let later = open(&volume, file.ino()).await;
    volume.fsync(&later, false).await.unwrap();
    // The file goes on.
    write(&volume, &file, 0, chunk(3)).await;
    volume.fsync(&file, false).await.unwrap();
    assert_eq!(read(&volume, &file, 0, CHUNK as u32).await, chunk(3));
    volume.release(&file).await.unwrap();
}

#[tokio::test]
async fn a_handle_that_was_not_told_of_a_loss_is_told_when_it_writes_or_closes() {
    let (fake, volume) = cluster().await;
    let file = written(&volume, "lost").await;
    let (writes, closes) = (open(&volume, file.ino()).await, open(&volume, file.ino()).await);
    fake.set_boot(2);
    assert_lost(volume.fsync(&file, false).await);
    assert_lost(volume.write(&writes, 0, chunk(4)).await.map(drop));
    assert_lost(volume.flush(&closes).await);
    volume.release(&closes).await.unwrap();
}

#[tokio::test]
async fn an_fsync_answered_from_the_same_boot_or_from_none_succeeds() {
    for (before, after) in [(1, 1), (0, 0), (0, 2), (1, 0)] {
        let (fake, volume) = cluster().await;
        fake.set_boot(before);
        let file = written(&volume, "kept").await;
        fake.set_boot(after);
        volume.fsync(&file, false).await.unwrap();
    }
}

/// What was synced before is not lost with the power.
#[tokio::test]
async fn a_new_boot_after_a_sync_is_no_loss() {
    let (fake, volume) = cluster().await;
    let file = written(&volume, "kept").await;
    volume.fsync(&file, false).await.unwrap();
    fake.set_boot(2);
    volume.fsync(&file, false).await.unwrap();
    write(&volume, &file, 0, chunk(3)).await;
    volume.fsync(&file, false).await.unwrap();
}

/// The sync is answered from the boot that has the second write: the first is lost nevertheless.
#[tokio::test]
async fn a_write_lost_before_a_later_one_to_the_same_target_is_told() {
    let (fake, volume) = cluster().await;
    for told_by_close in [true, false] {
        fake.set_boot(1);
        let file = written(&volume, "lost").await;
        fake.set_boot(2);
        write(&volume, &file, 0, chunk(3)).await;
        match told_by_close {
            true => assert_lost(volume.flush(&file).await),
            false => assert_lost(volume.fsync(&file, false).await),
        }
        // The other chunk lies on another target, which has said nothing since.
        let other_target = volume.fsync(&file, false).await;
        assert_eq!(other_target.is_err(), told_by_close);
        volume.fsync(&file, false).await.unwrap();
        volume.release(&file).await.unwrap();
    }
}

#[tokio::test]
async fn a_lost_hole_and_a_lost_copy_fail_the_fsync() {
    let (fake, volume) = cluster().await;
    let source = written(&volume, "source").await;
    volume.fsync(&source, false).await.unwrap();

    volume.fallocate(&source, FallocateMode::Punch, 0, CHUNK).await.unwrap();
    fake.set_boot(2);
    assert_lost(volume.fsync(&source, false).await);

    let copy = create(&volume, "copy").await;
    assert_eq!(volume.copy_range(&source, 0, &copy, 0, 2 * CHUNK).await.unwrap(), 2 * CHUNK);
    let log = fake.take_log();
    assert!(log.iter().any(|line| line.starts_with("copy")), "{log:?}");
    fake.set_boot(3);
    assert_lost(volume.fsync(&copy, false).await);
}

/// As `sync FILE` does after a copy.
#[tokio::test]
async fn who_opens_a_closed_file_and_syncs_it_learns_of_a_loss() {
    let (fake, volume) = cluster().await;
    for lost in [true, false] {
        fake.set_boot(1);
        let file = written(&volume, "closed").await;
        volume.release(&file).await.unwrap();
        fake.set_boot(if lost { 2 } else { 1 });
        let again = open(&volume, file.ino()).await;
        match lost {
            true => assert_lost(volume.fsync(&again, false).await),
            false => volume.fsync(&again, false).await.unwrap(),
        }
        volume.fsync(&again, false).await.unwrap();
        volume.release(&again).await.unwrap();
    }
}

#[tokio::test]
async fn syncfs_tells_of_losses_of_open_and_of_closed_files() {
    let (fake, volume) = cluster().await;
    let open_file = written(&volume, "open").await;
    fake.set_boot(2);
    assert_lost(volume.sync_all().await);
    volume.sync_all().await.unwrap();
    // Its handle is told as well.
    assert_lost(volume.fsync(&open_file, false).await);

    let closed = written(&volume, "closed").await;
    volume.release(&closed).await.unwrap();
    fake.set_boot(3);
    assert_lost(volume.sync_all().await);
    volume.sync_all().await.unwrap();

    // What an fsync has made durable is none of its business any more.
    let synced = written(&volume, "synced").await;
    volume.fsync(&synced, false).await.unwrap();
    volume.release(&synced).await.unwrap();
    fake.set_boot(4);
    volume.sync_all().await.unwrap();
}

/// A dead target that this mount had not written to kept an unmount waiting.
#[tokio::test]
async fn syncfs_asks_only_groups_that_hold_what_this_mount_wrote() {
    let (fake, volume) = cluster().await;
    let file = written(&volume, "synced").await;
    volume.fsync(&file, false).await.unwrap();
    fake.take_log();
    volume.sync_all().await.unwrap();
    assert_eq!(target_syncs(&fake), 0);

    write(&volume, &file, 0, chunk(2)).await;
    volume.flush(&file).await.unwrap();
    fake.take_log();
    volume.sync_all().await.unwrap();
    assert_eq!(target_syncs(&fake), 1, "the one chunk's group");

    // What the metadata server has had cut may be in any of them.
    let cut = SetAttr { length: Some(1), ..SetAttr::default() };
    volume.setattr(&Credentials::root(), file.ino(), cut, Some(&file)).await.unwrap();
    fake.take_log();
    volume.sync_all().await.unwrap();
    assert!(target_syncs(&fake) > 1);
}

fn target_syncs(fake: &Fake) -> usize {
    fake.take_log().iter().filter(|line| *line == "sync target").count()
}

/// `syncfs` waited for what was unsent and answered that all was well, whatever had become of it.
#[tokio::test]
async fn syncfs_tells_of_a_failed_write() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "full").await;
    fake.fail("write", ErrorKind::NoSpace);
    write(&volume, &file, 0, chunk(1)).await;
    assert_eq!(volume.sync_all().await.unwrap_err().kind, ErrorKind::NoSpace);
    volume.sync_all().await.unwrap();
    assert_eq!(volume.fsync(&file, false).await.unwrap_err().kind, ErrorKind::NoSpace);

    // Once its handle has told, nobody else has to.
    fake.fail("write", ErrorKind::NoSpace);
    write(&volume, &file, 0, chunk(1)).await;
    assert_eq!(volume.fsync(&file, false).await.unwrap_err().kind, ErrorKind::NoSpace);
    volume.sync_all().await.unwrap();
}

/// One handle's `fsync` met the failure and gave up what all handles had written; the other's found
/// nothing to do and answered that all was well.
#[tokio::test]
async fn what_the_metadata_server_refuses_is_told_to_every_handle_once() {
    let (fake, volume) = cluster().await;
    let small = create(&volume, "small").await;
    let large = written(&volume, "large").await;
    for (file, request, at) in [(small, "inline", 0), (large, "publish", 2 * CHUNK)] {
        let other = open(&volume, file.ino()).await;
        write(&volume, &file, at, pattern(1, 100)).await;
        write(&volume, &other, at + 100, pattern(2, 100)).await;
        fake.fail(request, ErrorKind::NoSpace);
        assert_eq!(volume.fsync(&file, false).await.unwrap_err().kind, ErrorKind::NoSpace);
        volume.fsync(&file, false).await.unwrap();
        assert_eq!(volume.fsync(&other, false).await.unwrap_err().kind, ErrorKind::NoSpace);
        volume.fsync(&other, false).await.unwrap();
    }
}

/// What is remembered of closed files is bounded: the targets are asked, and it is durable or known
/// to be lost.
#[tokio::test]
async fn what_closed_files_have_left_is_settled_in_the_background() {
    let (fake, volume) = cluster().await;
    let lost = written(&volume, "lost").await;
    volume.release(&lost).await.unwrap();
    fake.set_boot(2);
    for ino in 0..20_000 {
        let mut unsynced = Unsynced::default();
        assert!(!unsynced.add(GroupId(0), Some(Boot(2))));
        volume.left().put(Ino(1_000 + ino), unsynced, volume.now());
    }
    volume.settle_left();
    while volume.left().marks().len() > 1 {
        tokio::task::yield_now().await;
    }
    let again = open(&volume, lost.ino()).await;
    assert_lost(volume.fsync(&again, false).await);
    assert!(volume.left().marks().is_empty());
}

/// The log knew of the loss, and who was to say whether all is well did not.
#[tokio::test]
async fn closed_files_that_have_lost_something_are_handed_out() {
    let (fake, volume) = cluster().await;
    volume.gather_lost();
    let lost = written(&volume, "lost").await;
    volume.release(&lost).await.unwrap();
    fake.set_boot(2);
    assert_lost(volume.sync_all().await);
    let kept = written(&volume, "kept").await;
    volume.release(&kept).await.unwrap();
    volume.sync_all().await.unwrap();
    // Who opens it is told, and it is lost all the same.
    let again = open(&volume, lost.ino()).await;
    assert_lost(volume.fsync(&again, false).await);
    volume.release(&again).await.unwrap();
    assert_eq!(volume.take_unsure(), BTreeSet::from([lost.ino()]));
    assert_eq!(volume.take_unsure(), BTreeSet::new(), "once");
}
