//! A disk that is full or broken.

use super::power;
use super::workload::{self, run};
use crate::kv::embedded::{Directory, Store};
use crate::kv::fjall::{FjallKv, Lsm};
use crate::kv::{Alone, Kv, KvError};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_base::disk::sim::{SimDisk, SimFault};

const DISK_BYTES: u64 = 64 << 20;

/// The journal on a simulated disk, the tables in a real directory.
fn open(disk: &SimDisk, directory: &Path) -> FjallKv {
    let locked = Directory { disk: disk.process(), failures: 0, lock: Box::new(()) };
    let store = directory.join("tables");
    FjallKv::open_in(locked, directory, 1 << 20, || Lsm::open(&store)).unwrap()
}

async fn commits(kv: &dyn Kv, numbers: std::ops::RangeInclusive<u64>) {
    for n in numbers {
        workload::commit(kv, 0, n).await.unwrap();
    }
}

/// Commits until the store calls itself full; returns how many.
async fn commit_until_full(kv: &dyn Kv) -> u64 {
    let mut n = 0;
    while kv.check_room().is_ok() {
        n += 1;
        workload::commit(kv, 0, n).await.unwrap();
    }
    n
}

/// Opens the store again, which must have so many commits.
fn check_again(disk: &SimDisk, directory: &Path, acked: u64) {
    assert_eq!(run(workload::verify(&open(disk, directory), 1)).unwrap(), [acked]);
}

#[test]
fn on_a_full_disk_the_reserve_takes_commits_for_a_while_and_is_whole_when_there_is_room() {
    let (disk, directory) = (SimDisk::new(1, 640 << 10), tempfile::tempdir().unwrap());
    let kv = open(&disk, directory.path());
    let acked = run(async {
        let before = commit_until_full(&kv).await;
        let mut n = before;
        while workload::commit(&kv, 0, n + 1).await.is_ok() {
            n += 1;
        }
        assert!(n >= before + 10, "{before} commits, then {n}");
        let refused = kv.check_room().unwrap_err().to_string();
        assert!(refused.contains("delete files"), "{refused}");
        disk.set_capacity(DISK_BYTES);
        kv.check_room().unwrap();
        commits(&kv, n + 1..=n + 20).await;
        n + 20
    });
    drop(kv);
    check_again(&disk, directory.path(), acked);
}

/// Who asks whether it is full waits for no disk; so it was told for ever, where nobody wrote any more.
#[test]
fn a_full_disk_is_told_until_there_is_room_also_where_nobody_asks_for_any() {
    let (disk, directory) = (SimDisk::new(1, 640 << 10), tempfile::tempdir().unwrap());
    let kv = open(&disk, directory.path());
    run(commit_until_full(&kv));
    assert!(kv.full().unwrap().to_string().contains("delete files"));
    disk.set_capacity(DISK_BYTES);
    let mut waited = 0;
    while kv.full().is_some() {
        assert!(waited < 6_000, "nobody sees that there is room");
        std::thread::sleep(std::time::Duration::from_millis(10));
        waited += 1;
    }
}

#[test]
fn a_store_opens_on_a_full_disk() {
    let (disk, directory) = (SimDisk::new(1, 640 << 10), tempfile::tempdir().unwrap());
    let acked = run(commit_until_full(&open(&disk, directory.path())));
    check_again(&disk, directory.path(), acked);
}

/// All that was kept back was used up by tries, and nothing could be deleted any more.
#[test]
fn a_checkpoint_that_does_not_fit_leaves_what_is_kept_back_to_deletions() {
    let (disk, platter) = (SimDisk::new(7, DISK_BYTES), power::Platter::default());
    let kv = power::open(&disk, &platter, false).unwrap();
    let kept = disk.occupied("reserve");
    platter.1.store(true, Ordering::SeqCst);
    let acked = run(async {
        let mut n = 0;
        while workload::commit(&kv, 0, n + 1).await.is_ok() {
            n += 1;
            assert!(n < 100_000, "no checkpoint is waited for");
        }
        let mut waited = 0;
        while disk.occupied("reserve") != kept {
            assert!(waited < 6_000, "what was lent is not given back");
            std::thread::sleep(std::time::Duration::from_millis(10));
            waited += 1;
        }
        let refused = kv.check_room().unwrap_err().to_string();
        assert!(refused.contains("delete files"), "{refused}");
        platter.1.store(false, Ordering::SeqCst);
        disk.set_capacity(2 * DISK_BYTES);
        let mut waited = 0;
        while workload::commit(&kv, 0, n + 1).await.is_err() {
            assert!(waited < 6_000, "nobody sees that there is room");
            std::thread::sleep(std::time::Duration::from_millis(10));
            waited += 1;
        }
        kv.check_room().unwrap();
        n + 1
    });
    drop(kv);
    let kv = power::open(&disk, &platter, false).unwrap();
    assert_eq!(run(workload::verify(&kv, 1)).unwrap(), [acked]);
}

/// Where deletions had got it again, the next start did not.
#[test]
fn a_store_with_little_room_opens_with_what_is_kept_back() {
    let (disk, directory) = (SimDisk::new(8, 2 << 20), tempfile::tempdir().unwrap());
    drop(open(&disk, directory.path()));
    let kept = disk.occupied("reserve");
    assert!(kept > 0);
    let locked = Directory { disk: disk.process(), failures: 0, lock: Box::new(()) };
    let opened = FjallKv::open_in(locked, directory.path(), 1 << 20, || {
        assert!(disk.occupied("reserve") <= kept / 8);
        Lsm::open(&directory.path().join("tables"))
    });
    opened.unwrap().check_room().unwrap();
    assert_eq!(disk.occupied("reserve"), kept);
}

#[test]
fn a_disk_that_stays_full_loses_nothing_that_was_acknowledged() {
    let (disk, directory) = (SimDisk::new(2, 256 << 10), tempfile::tempdir().unwrap());
    let kv = open(&disk, directory.path());
    let acked = run(async {
        let mut n = 0;
        while workload::commit(&kv, 0, n + 1).await.is_ok() {
            n += 1;
            assert!(n < 100_000, "the disk is never full");
        }
        for _ in 0..5 {
            let error = workload::commit(&kv, 0, n + 1).await.unwrap_err();
            assert!(matches!(error, KvError::Full { .. }), "{error}");
        }
        disk.set_capacity(DISK_BYTES);
        commits(&kv, n + 1..=n + 10).await;
        n + 10
    });
    drop(kv);
    disk.kill();
    check_again(&disk, directory.path(), acked);
}

#[test]
fn a_write_error_stops_all_writes_until_a_restart() {
    let (disk, directory) = (SimDisk::new(3, DISK_BYTES), tempfile::tempdir().unwrap());
    let kv = open(&disk, directory.path());
    run(async {
        commits(&kv, 1..=20).await;
        disk.fault_after(0, SimFault::Io);
        for _ in 0..3 {
            let error = workload::commit(&kv, 0, 21).await.unwrap_err();
            assert!(matches!(error, KvError::Poisoned { .. }), "{error}");
        }
        assert!(matches!(kv.sync().await, Err(KvError::Poisoned { .. })));
        assert_eq!(workload::verify(&kv, 1).await.unwrap(), [20], "reads go on");
    });
    drop(kv);
    disk.kill();
    let kv = open(&disk, directory.path());
    let heads = run(workload::verify(&kv, 1)).unwrap();
    assert!(heads == [20] || heads == [21], "{heads:?}");
}

#[test]
fn a_failed_flush_is_reported_and_stops_all_writes() {
    let (disk, directory) = (SimDisk::new(4, DISK_BYTES), tempfile::tempdir().unwrap());
    let kv = open(&disk, directory.path());
    run(async {
        commits(&kv, 1..=20).await;
        kv.sync().await.unwrap();
        commits(&kv, 21..=30).await;
        disk.set_syncs_fail(true);
        let error = kv.sync().await.unwrap_err();
        assert!(matches!(error, KvError::Poisoned { .. }), "{error}");
        disk.set_syncs_fail(false);
        assert!(matches!(kv.sync().await, Err(KvError::Poisoned { .. })));
        let error = workload::commit(&kv, 0, 31).await.unwrap_err();
        assert!(matches!(error, KvError::Poisoned { .. }), "{error}");
    });
    drop(kv);
    disk.power_loss();
    let kv = open(&disk, directory.path());
    let heads = run(workload::verify(&kv, 1)).unwrap();
    assert!((20..=30).contains(&heads[0]), "{heads:?}");
}

/// A bad sector under 24 bytes that are for diagnosis alone stopped all volumes.
#[test]
fn a_mark_that_the_disk_neither_writes_nor_reads_stops_no_writes_and_no_start() {
    let (disk, directory) = (SimDisk::new(10, DISK_BYTES), tempfile::tempdir().unwrap());
    let kv = open(&disk, directory.path());
    run(async {
        commits(&kv, 1..=10).await;
        kv.sync().await.unwrap();
        disk.spoil("synced", 0);
        commits(&kv, 11..=20).await;
        kv.sync().await.unwrap();
        commits(&kv, 21..=30).await;
        kv.sync().await.unwrap();
    });
    drop(kv);
    let kv = open(&disk, directory.path());
    run(async {
        commits(&kv, 31..=40).await;
        kv.sync().await.unwrap();
    });
    drop(kv);
    check_again(&disk, directory.path(), 40);
}

/// Who tells people of the store said that nothing was wrong with it, until its server was restarted.
#[test]
fn a_store_that_has_stopped_says_so_for_good_to_who_only_tells_of_it() {
    let (disk, directory) = (SimDisk::new(9, DISK_BYTES), tempfile::tempdir().unwrap());
    let kv = open(&disk, directory.path());
    run(commits(&kv, 1..=3));
    assert!(kv.full().is_none());
    disk.set_syncs_fail(true);
    run(kv.sync()).unwrap_err();
    disk.set_syncs_fail(false);
    let told = kv.full().unwrap();
    assert!(matches!(told, KvError::Poisoned { .. }), "{told}");
    let whole = Alone(Arc::new(kv));
    let told = crate::kv::Store::full(&whole).unwrap();
    assert!(matches!(told, KvError::Poisoned { .. }), "no part of it is open: {told}");
}

/// Its disk may hang, and the stop waited for it.
#[test]
fn a_store_that_has_stopped_asks_nothing_more_of_its_disk_when_it_is_closed() {
    let (disk, directory) = (SimDisk::new(11, DISK_BYTES), tempfile::tempdir().unwrap());
    let kv = open(&disk, directory.path());
    run(commits(&kv, 1..=3));
    disk.set_syncs_fail(true);
    run(kv.sync()).unwrap_err();
    let before = disk.operations();
    drop(kv);
    assert_eq!(disk.operations(), before);
}

#[test]
fn a_commit_that_nobody_syncs_survives_power_loss_moments_later() {
    let (disk, directory) = (SimDisk::new(6, DISK_BYTES), tempfile::tempdir().unwrap());
    let kv = open(&disk, directory.path());
    let before = disk.operations();
    run(commits(&kv, 1..=1));
    // Its record, then a flush of the journal and the note of that.
    let mut waited = 0;
    while disk.operations() < before + 3 {
        assert!(waited < 3_000, "nothing is synced in the background");
        std::thread::sleep(std::time::Duration::from_millis(10));
        waited += 1;
    }
    disk.power_loss();
    drop(kv);
    let kv = open(&disk, directory.path());
    assert_eq!(run(workload::verify(&kv, 1)).unwrap(), [1]);
}

#[test]
fn a_transaction_that_cannot_be_stored_is_refused_and_harms_nothing() {
    let (disk, directory) = (SimDisk::new(5, DISK_BYTES), tempfile::tempdir().unwrap());
    let kv = open(&disk, directory.path());
    run(async {
        commits(&kv, 1..=3).await;
        let mut transaction = crate::kv::Transaction::begin(&kv).await.unwrap();
        transaction.put(vec![b'k'; 70_000], "value");
        assert!(matches!(transaction.commit(&kv).await, Err(KvError::Io { .. })));
        commits(&kv, 4..=5).await;
        assert_eq!(workload::verify(&kv, 1).await.unwrap(), [5]);
    });
}

/// The kernel shows as written what a failed sync has not written: a process that believed it lost later commits with the
/// next loss of power.
#[test]
fn after_a_disk_has_failed_the_next_process_reads_what_it_has() {
    let (disk, directory) = (SimDisk::new(1, DISK_BYTES), tempfile::tempdir().unwrap());
    let kv = open(&disk, directory.path());
    run(commits(&kv, 1..=3));
    disk.set_syncs_fail(true);
    run(kv.sync()).unwrap_err();
    drop(kv);
    assert!(disk.process().list().unwrap().contains(&"failed".to_owned()));

    let kv = FjallKv::open(&directory.path().join("real")).unwrap();
    run(commits(&kv, 1..=3));
    drop(kv);
    let note = directory.path().join("real/failed");
    std::fs::write(&note, "").unwrap();
    let kv = FjallKv::open(&directory.path().join("real")).unwrap();
    assert_eq!(run(workload::verify(&kv, 1)).unwrap(), [3]);
    assert!(!note.exists());
}

/// An export, say, had opened the store first and took the mark away: the metadata server counted no loss, and gave versions that it had
/// told before to something else.
#[test]
fn whoever_opens_a_store_whose_disk_has_failed_all_later_ones_know_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let boot = || FjallKv::open(directory.path()).unwrap().boot().unwrap();
    let fail = || std::fs::write(directory.path().join("failed"), "").unwrap();
    let before = boot();
    fail();
    let other = boot();
    assert_ne!(other, before);
    assert_eq!(boot(), other, "it counts once");
    fail();
    let again = boot();
    assert!(again != other && again != before);
    assert_eq!(boot(), again);
    let names =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let notes: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with("failed")).collect();
    assert_eq!(notes, ["failed-2"]);
}
