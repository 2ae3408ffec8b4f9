//! Closes that are deferred: files that are opened again by what is known.

use super::*;
use std::time::Duration;
use strake_base::clock::{Clock, WakingClock};

/// Time that stands still: however long a test is kept waiting, no lease is over.
pub(crate) struct Still;

impl Clock for Still {
    fn monotonic(&self) -> Duration {
        Duration::from_secs(3_600)
    }

    fn wall(&self) -> Duration {
        WakingClock.wall()
    }
}

/// A mount to which everything that it learns is leased, and another one.
pub(super) async fn mounts() -> (Arc<Fake>, Arc<Volume>, Arc<Volume>) {
    let fake = Arc::new(Fake::default());
    let leasing = VolumeOptions { leases: true, clock: Arc::new(Still), ..options() };
    let leasing = fake.volume(leasing).await;
    while fake.take_log().iter().all(|line| !line.starts_with("Recalls(Recalls { followed: 1")) {
        tokio::task::yield_now().await;
    }
    (fake.clone(), leasing, fake.volume(options()).await)
}

/// A closed file with these bytes.
async fn written(volume: &Arc<Volume>, bytes: Bytes) -> Ino {
    let file = create(volume, "f").await;
    write(volume, &file, 0, bytes).await;
    volume.release(&file).await.unwrap();
    file.ino()
}

async fn contents(volume: &Arc<Volume>, ino: Ino) -> Vec<u8> {
    let file = open(volume, ino, OpenFlags::READ).await;
    let bytes = read(volume, &file, 0, 100_000).await;
    volume.release(&file).await.unwrap();
    bytes.to_vec()
}

/// Reports what is deferred. How often the server counts a file as open then.
async fn opens_left(fake: &Fake, volume: &Arc<Volume>, ino: Ino) -> i64 {
    volume.report_all_closes();
    assert_eq!(volume.deferred.len(), 0);
    volume.tick_session(volume.share_of(Ino::ROOT), 1).await;
    fake.opens(ino)
}

fn opens(fake: &Fake) -> usize {
    starting(&fake.take_log(), "open").len()
}

#[tokio::test]
async fn a_file_is_opened_again_without_a_message_and_closed_once() {
    for len in [100, 20_000] {
        let (fake, volume, _) = mounts().await;
        let ino = written(&volume, pattern(1, len)).await;
        // What was just made and is small was closed with its contents.
        assert_eq!(contents(&volume, ino).await, pattern(1, len));
        fake.take_log();
        for _ in 0..5 {
            assert_eq!(contents(&volume, ino).await, pattern(1, len));
        }
        assert_eq!((opens(&fake), fake.opens(ino)), (0, 1));
        assert!(volume.report_close(ino) && !volume.report_close(ino));
        volume.tick_session(volume.share_of(Ino::ROOT), 1).await;
        assert_eq!(fake.opens(ino), 0);
        assert_eq!(contents(&volume, ino).await, pattern(1, len));
        assert_eq!(opens(&fake), 1);
    }
}

/// Whoever read it again and again went around the kernel's pages long after nobody wrote to it any more.
#[tokio::test]
async fn a_file_that_others_had_open_is_asked_for_when_it_is_opened_again() {
    let (fake, volume, _) = mounts().await;
    let ino = written(&volume, pattern(1, 20_000)).await;
    let file = open(&volume, ino, OpenFlags::READ).await;
    file.state.core().shared = true;
    volume.release(&file).await.unwrap();
    fake.take_log();
    let file = open(&volume, ino, OpenFlags::READ).await;
    assert_eq!((opens(&fake), file.is_shared(), file.opened_shared()), (1, false, false));
}

/// It stayed among those that are deferred, once for each time.
#[tokio::test]
async fn a_file_that_is_opened_in_full_is_not_deferred_twice() {
    let (fake, volume, _) = mounts().await;
    let ino = written(&volume, pattern(1, 100)).await;
    for _ in 0..5 {
        assert_eq!(contents(&volume, ino).await.len(), 100);
        volume.leases(ino).forget(&[ino], volume.now());
        let file = open(&volume, ino, OpenFlags::READ).await;
        assert_eq!(volume.deferred.len(), 0, "it is open");
        volume.release(&file).await.unwrap();
        let flags = OpenFlags { truncate: true, ..OpenFlags::READ_WRITE };
        let file = open(&volume, ino, flags).await;
        write(&volume, &file, 0, pattern(2, 100)).await;
        volume.release(&file).await.unwrap();
        assert!(volume.deferred.len() <= 1);
    }
    assert_eq!(opens_left(&fake, &volume, ino).await, 0);
}

/// The last close of a small file goes with its contents. That was counted as closed, and was not.
#[tokio::test]
async fn a_file_that_is_opened_again_while_it_is_closed_stays_counted() {
    let (fake, volume, _) = mounts().await;
    let ino = written(&volume, pattern(1, 100)).await;
    let first = open(&volume, ino, OpenFlags::READ_WRITE).await;
    write(&volume, &first, 0, pattern(2, 100)).await;
    let order = first.state.order.lock().await;
    let release = volume.release(&first);
    futures::pin_mut!(release);
    assert!(futures::poll!(release.as_mut()).is_pending(), "it waits for the other one");
    let second = open(&volume, ino, OpenFlags::READ).await;
    drop(order);
    release.await.unwrap();
    assert_eq!(fake.opens(ino), 1);
    volume.release(&second).await.unwrap();
    assert_eq!(opens_left(&fake, &volume, ino).await, 0);
}

#[tokio::test]
async fn small_contents_that_another_mount_disguised_by_the_old_time_are_asked_for() {
    let (_fake, volume, other) = mounts().await;
    let ino = written(&volume, pattern(1, 100)).await;
    let kept_open = open(&volume, ino, OpenFlags::READ).await;
    let before = volume.getattr(ino).await.unwrap();
    let theirs = open(&other, ino, OpenFlags::WRITE).await;
    write(&other, &theirs, 0, pattern(2, 100)).await;
    let mtime = SetAttr { mtime: Some(SetTime::At(before.mtime)), ..SetAttr::default() };
    other.setattr(&Credentials::root(), ino, mtime, Some(&theirs)).await.unwrap();
    other.release(&theirs).await.unwrap();
    // As a recall does.
    volume.forget_attr(ino);
    volume.leases(ino).forget(&[ino], volume.now());
    let now = volume.getattr(ino).await.unwrap();
    assert_eq!((now.length, now.mtime), (before.length, before.mtime));
    assert_eq!(contents(&volume, ino).await, pattern(2, 100));
    volume.release(&kept_open).await.unwrap();
}

#[tokio::test]
async fn small_contents_that_the_server_refused_are_not_shown_by_later_opens() {
    let (fake, volume, _) = mounts().await;
    let ino = written(&volume, pattern(1, 100)).await;
    let file = open(&volume, ino, OpenFlags::READ_WRITE).await;
    write(&volume, &file, 0, pattern(2, 50)).await;
    fake.fail("inline", ErrorKind::NoSpace);
    volume.fsync(&file, false).await.unwrap_err();
    volume.getattr(ino).await.unwrap();
    let _told = volume.release(&file).await;
    for _ in 0..2 {
        assert_eq!(contents(&volume, ino).await, pattern(1, 100));
    }
}

/// The number of an open is no sign that it has changed something.
#[tokio::test]
async fn a_refused_open_lets_nothing_be_asked_anew() {
    let (fake, volume, _) = mounts().await;
    let ino = written(&volume, pattern(1, 100)).await;
    assert_eq!(contents(&volume, ino).await, pattern(1, 100));
    assert_eq!(opens_left(&fake, &volume, ino).await, 0);
    volume.getattr(ino).await.unwrap();
    fake.take_log();
    fake.fail("open", ErrorKind::AccessDenied);
    let refused = volume.open(&Credentials::root(), ino, OpenFlags::READ).await;
    assert_eq!(refused.map(drop).unwrap_err().kind, ErrorKind::AccessDenied);
    volume.getattr(ino).await.unwrap();
    let log = fake.take_log();
    assert_eq!((starting(&log, "open").len(), starting(&log, "getattr").len()), (1, 0), "{log:?}");
}
