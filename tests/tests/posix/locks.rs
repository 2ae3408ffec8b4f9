//! Locks within one mount. `mounts.rs` has those between two.

use crate::{Place, place};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io::ErrorKind;
use std::sync::mpsc::channel;
use std::time::Duration;
use strake_tests::system::{LockOwner, RangeLock, interrupt, lock, lock_holder};

fn two(place: &Place) -> (File, File) {
    let open = || {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).open(place.at("file")).unwrap()
    };
    (open(), open())
}

#[test]
fn flock_excludes_others_and_ends_with_the_handle() {
    let place = place("flock");
    let (a, b) = two(&place);
    flock(&a, FlockOperation::LockShared).unwrap();
    flock(&b, FlockOperation::LockShared).unwrap();
    let exclusive = FlockOperation::NonBlockingLockExclusive;
    assert_eq!(flock(&a, exclusive), Err(Errno::WOULDBLOCK));
    flock(&b, FlockOperation::Unlock).unwrap();
    flock(&a, exclusive).unwrap();
    assert_eq!(flock(&b, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK));
    drop(a);
    flock(&b, FlockOperation::LockExclusive).unwrap();
}

#[test]
fn range_locks_conflict_only_where_they_overlap() {
    let place = place("ranges");
    let (a, b) = two(&place);
    let owner = LockOwner::OpenFile;
    lock(&a, owner, RangeLock::Exclusive, (0, 100), false).unwrap();
    lock(&b, owner, RangeLock::Exclusive, (100, 100), false).unwrap();
    let refused = lock(&b, owner, RangeLock::Shared, (50, 10), false).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    lock(&a, owner, RangeLock::Unlock, (40, 60), false).unwrap();
    lock(&b, owner, RangeLock::Shared, (50, 10), false).unwrap();
    let to_the_end = lock(&a, owner, RangeLock::Shared, (0, 0), false).unwrap_err();
    assert_eq!(to_the_end.kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_waiting_lock_is_granted_when_the_holder_lets_go() {
    let place = place("waiting");
    let (a, b) = two(&place);
    let owner = LockOwner::OpenFile;
    lock(&a, owner, RangeLock::Exclusive, (0, 0), false).unwrap();
    let (started, waits) = channel();
    let waiter = std::thread::spawn(move || {
        started.send(()).unwrap();
        lock(&b, owner, RangeLock::Exclusive, (0, 0), true).unwrap();
    });
    waits.recv().unwrap();
    lock(&a, owner, RangeLock::Unlock, (0, 0), false).unwrap();
    waiter.join().unwrap();
}

#[test]
fn a_wait_for_a_lock_goes_on_after_a_signal_with_sa_restart() {
    let place = place("restarted");
    let (a, b) = two(&place);
    flock(&a, FlockOperation::LockExclusive).unwrap();
    let waiter = std::thread::spawn(move || flock(&b, FlockOperation::LockExclusive));
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(200));
        interrupt(&waiter).unwrap();
    }
    flock(&a, FlockOperation::Unlock).unwrap();
    waiter.join().unwrap().unwrap();
}

/// The kernel does not tell a mount which kind of lock it is, only who owns it: the open file, or the process.
#[test]
fn a_lock_of_an_open_file_keeps_its_own_process_out_and_ends_with_its_last_descriptor() {
    let place = place("open-file");
    let (a, b) = two(&place);
    let owner = LockOwner::OpenFile;
    lock(&a, owner, RangeLock::Exclusive, (0, 10), false).unwrap();
    let is_held = || {
        [LockOwner::OpenFile, LockOwner::Process].iter().all(|&other| {
            let locked = lock(&b, other, RangeLock::Shared, (5, 1), false);
            locked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        })
    };
    assert!(is_held(), "two opens of one process");
    assert_eq!(lock_holder(&a, owner).unwrap(), None, "it is in nobody's own way");
    assert_eq!(lock_holder(&b, owner).unwrap(), Some(-1));
    let process = std::process::id() as i32;
    assert_eq!(lock_holder(&b, LockOwner::Process).unwrap(), Some(process));
    drop(File::open(place.at("file")).unwrap());
    assert!(is_held(), "another open was closed");
    let twin = a.try_clone().unwrap();
    drop(a);
    assert!(is_held(), "it has another descriptor");
    drop(twin);
    // The kernel does not wait for the end of the last close.
    lock(&b, owner, RangeLock::Exclusive, (0, 10), true).unwrap();
}

#[test]
fn a_lock_of_a_process_is_in_the_way_of_none_of_its_opens_and_ends_with_any_close() {
    let place = place("process");
    let (a, b) = two(&place);
    lock(&a, LockOwner::Process, RangeLock::Exclusive, (0, 10), false).unwrap();
    lock(&b, LockOwner::Process, RangeLock::Exclusive, (5, 1), false).unwrap();
    let other = LockOwner::OpenFile;
    let refused = lock(&b, other, RangeLock::Shared, (5, 1), false).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    drop(File::open(place.at("file")).unwrap());
    lock(&b, other, RangeLock::Shared, (5, 1), false).unwrap();
}
