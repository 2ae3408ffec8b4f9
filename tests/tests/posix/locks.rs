//! Locks within one mount. `mounts.rs` has those between two.

use crate::{Place, place};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io::ErrorKind;
use std::sync::mpsc::channel;
use strake_tests::system::{LockOwner, RangeLock, lock};

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
