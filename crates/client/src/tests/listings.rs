//! Listings that are answered without asking, and until when.

use super::*;
use crate::testing::{Paused, entry_name};
use std::time::Duration;

/// The numbers of directories of one page and of three.
const SMALL: std::ops::Range<u64> = 100..300;
const LARGE: std::ops::Range<u64> = 300..303;
const LARGE_ENTRIES: u64 = 5_000;

/// A mount whose leases have begun. Time passes only while everybody waits.
async fn leased() -> (Arc<Fake>, Arc<Volume>) {
    let fake = Arc::new(Fake::default());
    let clock = Arc::new(Paused::default());
    let volume = fake.volume(VolumeOptions { leases: true, clock, ..options() }).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    fake.take_log();
    (fake, volume)
}

/// Lists a directory as a kernel does, a few entries at a time. How many there are.
async fn list(volume: &Arc<Volume>, ino: u64) -> u64 {
    let (mut entries, mut after) = (0, 0);
    loop {
        let cred = volume.root_cred();
        let page = volume.readdir(&cred, Ino(ino), after, 100, true).await.unwrap();
        for entry in &page.entries {
            entries += 1;
            assert_eq!((entry.cookie, &entry.name), (entries, &entry_name(entries)));
            assert_eq!(entry.attr.as_ref().map(|attr| attr.ino), Some(entry.ino));
            after = entry.cookie;
        }
        if page.end {
            return entries;
        }
    }
}

/// How many pages were asked for since this was looked at last.
fn asked(fake: &Fake) -> usize {
    starting(&fake.take_log(), "ReadDir").len()
}

/// Waits until the recall with this number is followed.
async fn followed(fake: &Fake, number: u64) {
    let followed = format!("Recalls(Recalls {{ followed: {number}");
    while starting(&fake.take_log(), &followed).is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn whole_listings_of_many_directories_are_asked_for_once() {
    let (fake, volume) = leased().await;
    SMALL.for_each(|ino| fake.fill(ino, 3));
    LARGE.for_each(|ino| fake.fill(ino, LARGE_ENTRIES));
    for round in 0..3 {
        for ino in SMALL {
            assert_eq!(list(&volume, ino).await, 3);
        }
        for ino in LARGE {
            assert_eq!(list(&volume, ino).await, LARGE_ENTRIES);
        }
        let pages = if round == 0 { 200 + 3 * 3 } else { 0 };
        assert_eq!(asked(&fake), pages, "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_changes_is_listed_anew_and_nothing_else() {
    let (fake, volume) = leased().await;
    SMALL.for_each(|ino| fake.fill(ino, 3));
    LARGE.for_each(|ino| fake.fill(ino, LARGE_ENTRIES));
    for ino in SMALL.chain(LARGE) {
        list(&volume, ino).await;
    }
    for (number, changed, before, pages) in [(2, 150, 3, 1), (3, 301, LARGE_ENTRIES, 3)] {
        fake.fill(changed, before + 1);
        fake.recall(number, changed);
        followed(&fake, number).await;
        for ino in SMALL.chain(LARGE).filter(|ino| *ino != changed) {
            list(&volume, ino).await;
        }
        assert_eq!(asked(&fake), 0, "but {changed} all are as they were");
        assert_eq!(list(&volume, changed).await, before + 1);
        assert_eq!(asked(&fake), pages);
        list(&volume, changed).await;
        assert_eq!(asked(&fake), 0);
        fake.fill(changed, before);
    }
}

/// Another answer may have brought a lease on the directory meanwhile, from before the page was asked for.
#[tokio::test(start_paused = true)]
async fn a_page_that_comes_without_a_lease_is_not_kept() {
    let (fake, volume) = leased().await;
    fake.lease_no_rest();
    fake.fill(300, LARGE_ENTRIES);
    list(&volume, 300).await;
    fake.take_log();
    assert_eq!(list(&volume, 300).await, LARGE_ENTRIES);
    assert!(asked(&fake) >= 2, "the second page and the third");
}

#[tokio::test(start_paused = true)]
async fn what_this_mount_changes_is_listed_anew_and_nothing_else() {
    let (fake, volume) = leased().await;
    let root = Ino::ROOT.0;
    [root, 100].into_iter().for_each(|ino| fake.fill(ino, 3));
    for ino in [root, 100] {
        list(&volume, ino).await;
    }
    let file = create(&volume, "new").await;
    fake.fill(root, 4);
    fake.take_log();
    assert_eq!((list(&volume, 100).await, asked(&fake)), (3, 0));
    assert_eq!((list(&volume, root).await, asked(&fake)), (4, 1));
    volume.release(&file).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_mount_without_leases_asks_each_time_from_the_start_and_then_goes_on_from_memory() {
    let fake = Arc::new(Fake::default());
    let clock = Arc::new(Paused::default());
    let volume = fake.volume(VolumeOptions { clock, ..options() }).await;
    fake.fill(300, LARGE_ENTRIES);
    for _ in 0..2 {
        fake.take_log();
        assert_eq!(list(&volume, 300).await, LARGE_ENTRIES);
        assert_eq!(asked(&fake), 3);
    }
}

/// A lock that somebody else has is no change of which nobody knows whether it was made.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_refused_makes_nothing_untrue_that_is_known() {
    let (fake, volume) = leased().await;
    let ino = LARGE.start;
    fake.fill(ino, 3);
    list(&volume, ino).await;
    assert_eq!(asked(&fake), 1);
    for kind in [ErrorKind::WouldBlock, ErrorKind::Deadlock] {
        fake.fail("lock", kind);
        let (end, wait, flock) = (u64::MAX, false, true);
        let lock = LockKind::Exclusive;
        let lock = LockRequest { owner: 7, pid: 1, start: 0, end, kind: lock, flock, wait };
        assert_eq!(volume.set_lock(Ino(2), lock).await.unwrap_err().kind, kind);
        list(&volume, ino).await;
        assert_eq!(asked(&fake), 0, "{kind:?}");
    }
}
