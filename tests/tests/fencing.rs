//! Clients that are lost while they hold what others need, over real processes: what they had not written is
//! never written, and they learn of it.

use rustix::fs::{FlockOperation, flock};
use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use strake_tests::cluster::{contents, eventually, read_write, signal};
use strake_tests::servers::{Cluster, WAIT};

const BYTES: usize = 200_000;

/// The number of the client whose mount point ends so.
fn client(cluster: &Cluster, mount: &str) -> Option<u64> {
    let list = cluster.json(&["client", "list"]);
    let named = |row: &&serde_json::Value| row["name"].as_str().unwrap().contains(mount);
    list.as_array().unwrap().iter().find(named).map(|row| row["client"].as_u64().unwrap())
}

fn is_io_error(result: std::io::Result<()>) -> bool {
    result.is_err_and(|error| error.raw_os_error() == Some(libc::EIO))
}

#[test]
fn what_an_evicted_mount_had_not_written_is_never_written_and_told_once() {
    let cluster = Cluster::with_copies(2, 2);
    let (mut a, b) = (cluster.mount("mount-a"), cluster.mount("mount-b"));
    for name in ["large", "small"] {
        fs::write(b.at(name), "before").unwrap();
    }
    let number = client(&cluster, "mount-a").expect("a mount is a client");
    // Now: a process that has files of a stopped mount open cannot start another.
    let mut evict = cluster.prepare_verb(&["client", "evict", &number.to_string()]);
    let files = ["large", "small"].map(|name| read_write(&a.at(name)));
    files.iter().for_each(|file| flock(file, FlockOperation::LockExclusive).unwrap());
    // Of a length at which the mount waits for more before it sends it.
    files[0].write_all_at(&vec![1; BYTES], 0).unwrap();
    files[1].write_all_at(b"lost", 0).unwrap();
    let pid = a.process().pid();
    signal(pid, "STOP");
    let others = ["large", "small"].map(|name| read_write(&b.at(name)));
    assert!(flock(&others[0], FlockOperation::NonBlockingLockExclusive).is_err());
    evict.go();
    eventually(WAIT, "it is evicted", || evict.log().contains("2 locked files given back"));
    for file in &others {
        flock(file, FlockOperation::NonBlockingLockExclusive).unwrap();
        file.write_all_at(b"others", 0).unwrap();
        file.sync_all().unwrap();
    }
    signal(pid, "CONT");
    for file in &files {
        assert!(is_io_error(file.sync_all()), "what was lost is told");
        file.sync_all().expect("once");
    }
    std::thread::sleep(Duration::from_millis(1_500));
    for name in ["large", "small"] {
        assert_eq!(contents(&b.at(name)), b"others");
        assert_eq!(contents(&a.at(name)), b"others", "the mount itself sees what is there");
    }
    // It goes on as a new client.
    let next = client(&cluster, "mount-a").expect("it is back");
    assert_ne!(next, number);
    fs::write(a.at("after"), vec![7; BYTES]).unwrap();
    assert_eq!(contents(&b.at("after")), vec![7; BYTES]);
}

/// The other way to be lost: nothing is heard of it for the time of a lease.
#[test]
fn a_mount_that_hangs_for_too_long_is_fenced_by_itself() {
    let cluster = Cluster::start(1);
    let (mut a, b) = (cluster.mount("mount-a"), cluster.mount("mount-b"));
    fs::write(b.at("file"), "before").unwrap();
    let file = read_write(&a.at("file"));
    flock(&file, FlockOperation::LockExclusive).unwrap();
    file.write_all_at(&vec![1; BYTES], 0).unwrap();
    let pid = a.process().pid();
    signal(pid, "STOP");
    let other = read_write(&b.at("file"));
    let free = || flock(&other, FlockOperation::NonBlockingLockExclusive).is_ok();
    assert!(!free());
    eventually(WAIT, "the lock comes free", free);
    other.write_all_at(b"others", 0).unwrap();
    other.sync_all().unwrap();
    signal(pid, "CONT");
    assert!(is_io_error(file.sync_all()));
    assert_eq!(contents(&b.at("file")), b"others");
    drop(file);
    assert_eq!(contents(&a.at("file")), b"others");
}

#[test]
fn a_client_that_does_not_exist_is_not_evicted() {
    let cluster = Cluster::start(1);
    let (code, said) = cluster.run(&["client", "evict", "4711"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no client 4711") && said.contains("strake client list"), "{said}");
    let (code, said) = cluster.run(&["client", "list", "nowhere"]);
    assert!(code != Some(0) && said.contains("there is: main"), "{said}");
    assert_eq!(cluster.succeed(&["client", "list"]).trim(), "no clients");
}
