//! What was sent is kept for the next reader of the same mount, and for nobody longer than it is
//! true.

use super::{cluster, length, open, starting};
use crate::testing::{CHUNK, Fake, create, options, pattern, read, write};
use crate::*;
use std::sync::Arc;
use strake_types::{Credentials, ErrorKind, Ino, SetAttr, SetTime, Timestamp};

const CHUNKS: usize = 5;

fn whole(seed: u8) -> bytes::Bytes {
    pattern(seed, CHUNKS * CHUNK as usize)
}

/// A closed file of [`CHUNKS`] chunks, written by this volume.
async fn written(volume: &Arc<Volume>, name: &str) -> Ino {
    let file = create(volume, name).await;
    write(volume, &file, 0, whole(1)).await;
    volume.release(&file).await.unwrap();
    file.ino()
}

/// What a reader that opens the file now sees, and how many messages to targets that took.
async fn seen(fake: &Fake, volume: &Arc<Volume>, ino: Ino) -> (Vec<u8>, usize) {
    fake.take_log();
    let file = open(volume, ino, OpenFlags::READ).await;
    let bytes = read(volume, &file, 0, u32::MAX).await;
    volume.release(&file).await.unwrap();
    (bytes, starting(&fake.take_log(), "read").len())
}

#[tokio::test]
async fn who_reads_what_this_mount_has_written_asks_no_target() {
    let (fake, volume) = cluster().await;
    let ino = written(&volume, "own").await;
    assert!(seen(&fake, &volume, ino).await == (whole(1).to_vec(), 0));
    // Through a handle that wrote, too, and again.
    let file = open(&volume, ino, OpenFlags::READ_WRITE).await;
    write(&volume, &file, 8192, pattern(2, 70_000)).await;
    volume.fsync(&file, false).await.unwrap();
    fake.take_log();
    assert!(read(&volume, &file, 8192, 70_000).await == pattern(2, 70_000));
    volume.release(&file).await.unwrap();
    let mut expected = whole(1).to_vec();
    expected[8192..78_192].copy_from_slice(&pattern(2, 70_000));
    assert!(seen(&fake, &volume, ino).await == (expected, 0));
}

#[tokio::test]
async fn changes_of_ours_beside_contents_leave_what_is_kept() {
    let (fake, volume) = cluster().await;
    let ino = written(&volume, "changed").await;
    let cred = Credentials::root();
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let time = Timestamp { seconds: 5, nanos: 0 };
    let mtime = SetAttr { mtime: Some(SetTime::At(time)), ..SetAttr::default() };
    for change in [mode.clone(), mtime.clone()] {
        volume.setattr(&cred, ino, change, None).await.unwrap();
        assert_eq!(seen(&fake, &volume, ino).await.1, 0);
    }
    let file = open(&volume, ino, OpenFlags::READ_WRITE).await;
    for change in [mode, mtime] {
        volume.setattr(&cred, ino, change, Some(&file)).await.unwrap();
    }
    volume.release(&file).await.unwrap();
    assert!(seen(&fake, &volume, ino).await == (whole(1).to_vec(), 0));
}

/// Another mount's change lies between two of ours: our own length and time hide it.
#[tokio::test]
async fn another_mount_s_write_between_our_write_and_our_close_is_seen() {
    let fake = Arc::new(Fake::default());
    let (one, two) = (fake.volume(options()).await, fake.volume(options()).await);
    let ino = written(&one, "between").await;
    let ours = open(&one, ino, OpenFlags::READ_WRITE).await;
    write(&one, &ours, 0, pattern(3, CHUNK as usize)).await;
    one.flush(&ours).await.unwrap();
    let theirs = open(&two, ino, OpenFlags::WRITE).await;
    write(&two, &theirs, CHUNK, pattern(4, CHUNK as usize)).await;
    two.release(&theirs).await.unwrap();
    write(&one, &ours, 4 * CHUNK, pattern(5, CHUNK as usize)).await;
    one.flush(&ours).await.unwrap();
    let again = open(&one, ino, OpenFlags::READ).await;
    assert!(!again.keep_cache(), "the kernel must not believe its pages either");
    assert!(read(&one, &again, CHUNK, CHUNK as u32).await == pattern(4, CHUNK as usize));
    one.release(&again).await.unwrap();
    one.release(&ours).await.unwrap();
    let mut expected = whole(1).to_vec();
    for (chunk, seed) in [(0, 3), (1, 4), (4, 5)] {
        let at = chunk * CHUNK as usize;
        expected[at..at + CHUNK as usize].copy_from_slice(&pattern(seed, CHUNK as usize));
    }
    assert!(seen(&fake, &one, ino).await.0 == expected);
    // From here on it is ours alone again.
    assert!(open(&one, ino, OpenFlags::READ).await.keep_cache());
}

/// A mount overwrites all of a file, and sets its old time again.
async fn disguised_write(volume: &Arc<Volume>, ino: Ino) {
    let before = volume.getattr(ino).await.unwrap();
    let file = open(volume, ino, OpenFlags::WRITE).await;
    write(volume, &file, 0, whole(2)).await;
    let mtime = SetAttr { mtime: Some(SetTime::At(before.mtime)), ..SetAttr::default() };
    volume.setattr(&Credentials::root(), ino, mtime, Some(&file)).await.unwrap();
    volume.release(&file).await.unwrap();
    let now = volume.getattr(ino).await.unwrap();
    assert_eq!((now.length, now.mtime), (before.length, before.mtime));
}

#[tokio::test]
async fn another_mount_that_sets_the_old_time_again_is_noticed() {
    let fake = Arc::new(Fake::default());
    let (one, two) = (fake.volume(options()).await, fake.volume(options()).await);
    let ino = written(&one, "disguised").await;
    disguised_write(&two, ino).await;
    assert!(seen(&fake, &one, ino).await == (whole(2).to_vec(), CHUNKS));
}

/// True if who opens the file now may keep the kernel's pages.
async fn keeps_pages(volume: &Arc<Volume>, ino: Ino) -> bool {
    let file = open(volume, ino, OpenFlags::READ).await;
    volume.release(&file).await.unwrap();
    file.keep_cache()
}

/// Length and time were all that a kernel's pages were held to: who had read the file before read that for ever.
#[tokio::test]
async fn pages_of_before_a_write_of_another_mount_that_set_the_old_time_again_are_not_kept() {
    for stays_open in [false, true] {
        let fake = Arc::new(Fake::default());
        let (one, two) = (fake.volume(options()).await, fake.volume(options()).await);
        let ino = written(&one, "disguised").await;
        let held = if stays_open { Some(open(&one, ino, OpenFlags::READ).await) } else { None };
        assert!(keeps_pages(&one, ino).await);
        disguised_write(&two, ino).await;
        // Nor does a change of our own hide it.
        let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        one.setattr(&Credentials::root(), ino, mode, held.as_ref()).await.unwrap();
        assert!(!keeps_pages(&one, ino).await, "stays open: {stays_open}");
    }
}

#[tokio::test]
async fn what_a_mount_changes_itself_costs_it_no_pages() {
    let (_, volume) = cluster().await;
    let ino = written(&volume, "changed").await;
    let (cred, time) = (Credentials::root(), Timestamp { seconds: 5, nanos: 0 });
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let mtime = SetAttr { mtime: Some(SetTime::At(time)), ..SetAttr::default() };
    for change in [mode, mtime] {
        volume.setattr(&cred, ino, change.clone(), None).await.unwrap();
        assert!(keeps_pages(&volume, ino).await);
        let file = open(&volume, ino, OpenFlags::READ_WRITE).await;
        volume.setattr(&cred, ino, change, Some(&file)).await.unwrap();
        write(&volume, &file, CHUNK, pattern(3, 4_096)).await;
        volume.release(&file).await.unwrap();
        assert!(keeps_pages(&volume, ino).await);
    }
    // With a cut of what is closed they go.
    volume.setattr(&cred, ino, length(CHUNK), None).await.unwrap();
    assert!(!keeps_pages(&volume, ino).await);
}

#[tokio::test]
async fn a_write_or_sync_that_failed_keeps_nothing() {
    for what in ["write 2", "sync target"] {
        let (fake, volume) = cluster().await;
        let ino = written(&volume, "failed").await;
        let file = open(&volume, ino, OpenFlags::READ_WRITE).await;
        fake.fail(what, ErrorKind::Io);
        write(&volume, &file, 0, whole(2)).await;
        volume.fsync(&file, false).await.unwrap_err();
        fake.take_log();
        read(&volume, &file, 2 * CHUNK, CHUNK as u32).await;
        assert_eq!(starting(&fake.take_log(), "read 2").len(), 1, "{what}");
    }
}

#[tokio::test]
async fn with_o_direct_the_servers_are_asked() {
    let (fake, volume) = cluster().await;
    let ino = written(&volume, "direct").await;
    let flags = OpenFlags { direct: true, ..OpenFlags::READ_WRITE };
    let file = open(&volume, ino, flags).await;
    assert_eq!(volume.memory().kept().bytes(), 0);
    write(&volume, &file, 0, whole(2)).await;
    volume.fsync(&file, false).await.unwrap();
    fake.take_log();
    assert!(read(&volume, &file, 0, CHUNK as u32).await == whole(2)[..CHUNK as usize]);
    assert_eq!(starting(&fake.take_log(), "read 0").len(), 1);
    volume.release(&file).await.unwrap();
    let file = open(&volume, ino, OpenFlags::WRITE).await;
    write(&volume, &file, 0, whole(3)).await;
    volume.release(&file).await.unwrap();
    assert!(seen(&fake, &volume, ino).await == (whole(3).to_vec(), 0));
}

#[tokio::test]
async fn what_is_cut_off_never_comes_back() {
    let (fake, volume) = cluster().await;
    let cred = Credentials::root();
    let ino = written(&volume, "cut").await;
    // Closed, then open.
    volume.setattr(&cred, ino, length(CHUNK), None).await.unwrap();
    volume.setattr(&cred, ino, length(3 * CHUNK), None).await.unwrap();
    let mut expected = whole(1)[..CHUNK as usize].to_vec();
    expected.resize(3 * CHUNK as usize, 0);
    assert!(seen(&fake, &volume, ino).await.0 == expected);
    let file = open(&volume, ino, OpenFlags::READ_WRITE).await;
    write(&volume, &file, 0, whole(2)).await;
    volume.setattr(&cred, ino, length(10), Some(&file)).await.unwrap();
    volume.setattr(&cred, ino, length(CHUNK), Some(&file)).await.unwrap();
    let mut expected = whole(2)[..10].to_vec();
    expected.resize(CHUNK as usize, 0);
    assert!(read(&volume, &file, 0, u32::MAX).await == expected);
    volume.release(&file).await.unwrap();
    // By opening it.
    let flags = OpenFlags { truncate: true, ..OpenFlags::READ_WRITE };
    let file = open(&volume, ino, flags).await;
    volume.setattr(&cred, ino, length(CHUNK), Some(&file)).await.unwrap();
    assert_eq!(read(&volume, &file, 0, u32::MAX).await, vec![0; CHUNK as usize]);
}

#[tokio::test]
async fn kept_bytes_stay_within_the_bound_and_go_with_what_the_kernel_forgets() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "large").await;
    for nth in 0..60 {
        write(&volume, &file, nth << 20, pattern(nth as u8, 1 << 20)).await;
    }
    volume.release(&file).await.unwrap();
    let bytes = volume.memory().kept().bytes();
    assert!(bytes > 28 << 20 && bytes <= 32 << 20, "{bytes}");
    fake.take_log();
    let reader = open(&volume, file.ino(), OpenFlags::READ).await;
    assert!(read(&volume, &reader, 59 << 20, 1 << 20).await == pattern(59, 1 << 20));
    assert!(starting(&fake.take_log(), "read").is_empty());
    volume.release(&reader).await.unwrap();
    volume.let_go(file.ino());
    assert_eq!(volume.memory().kept().bytes(), 0);
}
