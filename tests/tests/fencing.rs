//! Clients that are lost while they hold what others need, over real processes: what they had not written is
//! never written, and they learn of it.

use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;
use strake_tests::cluster::{contents, eventually, read_write, signal};
use strake_tests::servers::{Cluster, WAIT};

const BYTES: usize = 200_000;

/// The number of the client whose mount point ends so.
fn client(cluster: &Cluster, mount: &str) -> Option<String> {
    let list = cluster.json(&["client", "list"]);
    let named = |row: &&serde_json::Value| row["name"].as_str().unwrap().contains(mount);
    list.as_array()
        .unwrap()
        .iter()
        .find(named)
        .map(|row| row["client"].as_str().unwrap().to_owned())
}

fn is_io_error(result: std::io::Result<()>) -> bool {
    result.is_err_and(|error| error.raw_os_error() == Some(libc::EIO))
}

/// Opens files in the background: that takes until nobody holds anything back of them.
fn open_later(paths: Vec<PathBuf>) -> JoinHandle<Vec<File>> {
    std::thread::spawn(move || paths.iter().map(|path| read_write(path)).collect())
}

#[test]
fn what_an_evicted_mount_had_not_written_is_never_written_and_told_once() {
    let cluster = Cluster::with_copies(2, 2);
    let (mut a, b) = (cluster.mount("mount-a"), cluster.mount("mount-b"));
    let names = ["large", "small"];
    for name in names {
        fs::write(b.at(name), "before").unwrap();
    }
    let number = client(&cluster, "mount-a").expect("a mount is a client");
    // Now: a process that has files of a stopped mount open cannot start another.
    let mut evict = cluster.prepare_verb(&["client", "evict", &number]);
    let files = names.map(|name| read_write(&a.at(name)));
    files.iter().for_each(|file| flock(file, FlockOperation::LockExclusive).unwrap());
    let pid = a.process().pid();
    // Of a length at which the mount waits for more before it sends it.
    files[0].write_all_at(&vec![1; BYTES], 0).unwrap();
    files[1].write_all_at(b"lost", 0).unwrap();
    signal(pid, "STOP");
    let others = open_later(names.map(|name| b.at(name)).to_vec());
    std::thread::sleep(Duration::from_millis(300));
    assert!(!others.is_finished(), "what is held back is waited for");
    evict.go();
    eventually(WAIT, "it is evicted", || evict.log().contains("2 locked files given back"));
    let others = others.join().unwrap();
    for file in &others {
        flock(file, FlockOperation::NonBlockingLockExclusive).unwrap();
    }
    // It may have been about to tell just then.
    let lost = names.map(|name| contents(&b.at(name)) == b"before");
    for file in &others {
        file.write_all_at(b"others", 0).unwrap();
        file.set_len(6).unwrap();
        file.sync_all().unwrap();
    }
    signal(pid, "CONT");
    for (file, lost) in files.iter().zip(lost) {
        let told = file.sync_all();
        assert!(!lost || is_io_error(told), "what was lost is told");
        file.sync_all().expect("once");
    }
    std::thread::sleep(Duration::from_millis(1_500));
    for name in names {
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
    let pid = a.process().pid();
    file.write_all_at(&vec![1; BYTES], 0).unwrap();
    signal(pid, "STOP");
    let other = read_write(&b.at("file"));
    let free = || flock(&other, FlockOperation::NonBlockingLockExclusive).is_ok();
    eventually(WAIT, "the lock comes free", free);
    let lost = contents(&b.at("file")) == b"before";
    other.write_all_at(b"others", 0).unwrap();
    other.set_len(6).unwrap();
    other.sync_all().unwrap();
    signal(pid, "CONT");
    let told = file.sync_all();
    assert!(!lost || is_io_error(told));
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
    assert!(code != Some(0) && said.contains("strake volume list"), "{said}");
    assert_eq!(cluster.succeed(&["client", "list"]).trim(), "no clients");
}
