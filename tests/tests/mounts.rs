//! Several mounts of one volume at once, each a process of its own, and their server another.

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::io::Write as _;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;
use strake_fuse::mount::abort_file;
use strake_tests::cluster::{
    Servers, command_lines, contents, counted, eventually, free_port, mount_at, mounts_at,
    read_write, run, signal, succeed, take_away,
};
use strake_tests::servers::Cluster;
use strake_tests::system::{LockOwner, RangeLock, lock};

/// Only something that never comes reaches it.
const WAIT: Duration = Duration::from_secs(60);

#[test]
fn a_second_mount_sees_what_a_closed_file_holds() {
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    // Small, moved out, large; each is changed in place, cut, and replaced.
    for len in [10, 8_000, 100_000, 3_000_000] {
        let name = format!("file-{len}");
        for round in 0..4_u8 {
            let len = len + usize::from(round) * 1000;
            fs::write(a.at(&name), vec![round + 1; len]).unwrap();
            assert!(contents(&b.at(&name)) == vec![round + 1; len], "{name}, round {round}");
            let file = read_write(&b.at(&name));
            file.write_all_at(&[9], len as u64 / 2).unwrap();
            drop(file);
            let seen = contents(&a.at(&name));
            assert_eq!((seen.len(), seen[len / 2], seen[0]), (len, 9, round + 1), "{name}");
            assert_eq!(fs::metadata(a.at(&name)).unwrap().len(), len as u64);
        }
        rustix::fs::ftruncate(read_write(&a.at(&name)), 5).unwrap();
        assert_eq!(contents(&b.at(&name)).len(), 5, "{name}");
    }
}

#[test]
fn an_fsync_shows_to_a_later_open_of_another_mount() {
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    let file = read_write(&a.at("log"));
    for len in [100_u64, 10_000, 2_000_000] {
        file.write_all_at(&vec![3; len as usize], 0).unwrap();
        file.sync_all().unwrap();
        assert!(contents(&b.at("log")) == vec![3; len as usize], "{len}");
    }
}

/// Nobody syncs or closes: by handles that were open before, and by new ones; by who opened first, and by who came later.
#[test]
fn what_one_mount_writes_others_read_at_once() {
    let servers = Servers::start();
    let mounts = [servers.mount("a", ""), servers.mount("b", ""), servers.mount("c", "")];
    let open = |nth: usize| read_write(&mounts[nth % 3].at("file"));
    let handles: Vec<File> = (0..3).map(open).collect();
    let mut expected = Vec::new();
    for (round, len) in (1_u8..).zip([10, 5_000, 9_000, 300_000, 2_000_000, 100]) {
        for (nth, writer) in handles.iter().enumerate() {
            let (mark, at) = (round * 10 + nth as u8, nth * len);
            writer.write_all_at(&vec![mark; len], at as u64).unwrap();
            expected.resize(expected.len().max(at + len), 0);
            expected[at..at + len].fill(mark);
            for (other, reader) in handles.iter().enumerate() {
                let mut seen = vec![0; expected.len() + 1];
                let count = read_up_to(reader, &mut seen);
                assert!(seen[..count] == expected, "round {round}: {nth} wrote, {other} read");
            }
            assert!(contents(&mounts[(nth + 1) % 3].at("file")) == expected, "round {round}");
        }
    }
    // Cut by who opens it anew: what the others had written is gone, and comes back in nobody's write.
    handles[0].write_all_at(&[7; 20_000], 0).unwrap();
    let cut = File::create(mounts[1].at("file")).unwrap();
    assert_eq!(handles[2].metadata().unwrap().len(), 0);
    cut.write_all_at(&[8; 10], 5).unwrap();
    let mut seen = [1; 100];
    assert_eq!(read_up_to(&handles[0], &mut seen), 15);
    assert_eq!(seen[..15], [0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8]);
}

/// With and without the kernel's pages, inside the inode and outside, grown and cut.
#[test]
fn an_open_file_shows_what_another_mount_has_synced() {
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    let file = read_write(&a.at("log"));
    let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap();
    let held = [
        File::open(b.at("log")).unwrap(),
        File::options().read(true).custom_flags(direct).open(b.at("log")).unwrap(),
    ];
    for (round, len) in (1_u8..).zip([100, 100, 10_000, 2_000_000, 2_000_000, 300_000]) {
        file.write_all_at(&vec![round; len], 0).unwrap();
        file.set_len(len as u64).unwrap();
        file.sync_all().unwrap();
        for reader in &held {
            let mut seen = vec![0; 4 << 20];
            let count = read_up_to(reader, &mut seen);
            assert!(seen[..count] == vec![round; len], "round {round}: {count} bytes of {len}");
        }
    }
}

fn read_up_to(file: &File, buffer: &mut [u8]) -> usize {
    let mut done = 0;
    loop {
        match file.read_at(&mut buffer[done..], done as u64).unwrap() {
            0 => return done,
            count => done += count,
        }
    }
}

#[test]
fn a_second_mount_sees_length_and_time_of_a_file_that_stays_open() {
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    for (name, len) in [("small", 100_u64), ("large", 2_000_000)] {
        let file = read_write(&a.at(name));
        file.write_all_at(&vec![3; len as usize], 0).unwrap();
        let own = file.metadata().unwrap();
        let time = |stat: &fs::Metadata| (stat.len(), stat.mtime(), stat.mtime_nsec());
        assert_eq!(own.len(), len);
        eventually(WAIT, name, || fs::metadata(b.at(name)).is_ok_and(|s| time(&s) == time(&own)));
        assert_eq!(time(&file.metadata().unwrap()), time(&own));
    }
}

#[test]
fn a_second_mount_sees_names_and_attributes() {
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    fs::write(a.at("file"), "x").unwrap();
    eventually(WAIT, "the name", || b.at("file").exists());
    rustix::fs::chmod(a.at("file"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    eventually(WAIT, "the mode", || fs::metadata(b.at("file")).unwrap().mode() & 0o777 == 0o600);
    fs::write(a.at("file"), "longer").unwrap();
    eventually(WAIT, "the length", || fs::metadata(b.at("file")).unwrap().len() == 6);
    fs::rename(a.at("file"), a.at("new")).unwrap();
    eventually(WAIT, "the rename", || b.at("new").exists() && !b.at("file").exists());
    fs::create_dir(b.at("d")).unwrap();
    fs::write(b.at("d/inside"), "").unwrap();
    eventually(WAIT, "the listing", || {
        fs::read_dir(a.at("d")).is_ok_and(|entries| entries.count() == 1)
    });
    fs::remove_file(a.at("new")).unwrap();
    eventually(WAIT, "the removal", || !b.at("new").exists());
}

#[test]
fn of_two_mounts_that_create_one_name_exclusively_one_succeeds() {
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    for nth in 0..50 {
        let name = format!("lock-{nth}");
        let create = |path| match File::create_new(path) {
            Ok(_) => 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::AlreadyExists);
                0
            }
        };
        let winners = std::thread::scope(|scope| {
            let other = scope.spawn(|| create(b.at(&name)));
            create(a.at(&name)) + other.join().unwrap()
        });
        assert_eq!(winners, 1, "{name}");
    }
}

#[test]
fn two_mounts_write_disjoint_ranges_of_one_file() {
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    const BLOCK: usize = 64 << 10;
    const BLOCKS: u64 = 64;
    fs::write(a.at("shared"), vec![0; BLOCK * BLOCKS as usize]).unwrap();
    std::thread::scope(|scope| {
        for (mount, own) in [(&a, 0), (&b, 1)] {
            scope.spawn(move || {
                let file = read_write(&mount.at("shared"));
                for block in (own..BLOCKS).step_by(2) {
                    file.write_all_at(&[block as u8 + 1; BLOCK], block * BLOCK as u64).unwrap();
                }
                file.sync_all().unwrap();
            });
        }
    });
    for mount in [&a, &b] {
        let back = contents(&mount.at("shared"));
        for (block, bytes) in back.chunks(BLOCK).enumerate() {
            assert!(bytes.iter().all(|&byte| byte == block as u8 + 1), "block {block}");
        }
    }
}

#[test]
fn locks_exclude_between_two_mounts() {
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    let (file_a, file_b) = (read_write(&a.at("file")), read_write(&b.at("file")));
    flock(&file_a, FlockOperation::LockExclusive).unwrap();
    let shared = FlockOperation::NonBlockingLockShared;
    assert_eq!(flock(&file_b, shared), Err(Errno::WOULDBLOCK));
    let owner = LockOwner::OpenFile;
    lock(&file_b, owner, RangeLock::Exclusive, (0, 10), false).unwrap();
    let refused = lock(&file_a, owner, RangeLock::Shared, (5, 1), false).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    let waiter = std::thread::spawn(move || {
        flock(&file_b, FlockOperation::LockExclusive).unwrap();
    });
    drop(file_a);
    waiter.join().unwrap();
    // A mount that is killed gives its locks back when its session is over; one that leaves, at once.
    let file_a = read_write(&a.at("file"));
    lock(&file_a, owner, RangeLock::Exclusive, (0, 0), true).unwrap();
}

#[test]
fn locks_survive_a_restart_of_the_server() {
    let mut servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    let (file_a, file_b) = (read_write(&a.at("file")), read_write(&b.at("file")));
    flock(&file_a, FlockOperation::LockExclusive).unwrap();
    let owner = LockOwner::OpenFile;
    lock(&file_a, owner, RangeLock::Exclusive, (100, 100), false).unwrap();
    servers.kill();
    servers.start_again();
    let exclusive = FlockOperation::NonBlockingLockExclusive;
    assert_eq!(flock(&file_b, exclusive), Err(Errno::WOULDBLOCK));
    let refused = lock(&file_b, owner, RangeLock::Shared, (150, 1), false).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    lock(&file_b, owner, RangeLock::Shared, (0, 100), false).unwrap();
    drop(file_a);
    eventually(WAIT, "the lock is free", || flock(&file_b, exclusive).is_ok());
}

/// Reads of contents that the targets of a server have been asked for so far.
fn reads_of_targets(metrics: &str) -> u64 {
    counted(metrics, |line| {
        line.starts_with("strake_storage_ops_total{") && line.contains("op=\"read\"")
    })
}

/// What a file holds, and how many reads of targets that took.
fn seen(metrics: &str, path: &Path) -> (Vec<u8>, u64) {
    let before = reads_of_targets(metrics);
    let bytes = contents(path);
    (bytes, reads_of_targets(metrics) - before)
}

#[test]
fn what_a_mount_has_written_it_reads_without_asking_the_servers() {
    let (servers, metrics) = Servers::start_counted();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    const LEN: usize = 10 << 20;
    let bytes = |seed: usize| (0..LEN).map(|at| (at / 4096 + seed) as u8).collect::<Vec<u8>>();
    // By large and by small writes; the name comes last, as programs do it.
    for (name, block) in [("large", 1 << 20), ("small", 5000)] {
        // What the mount tells the servers every second may come in between, and end the memory.
        eventually(WAIT, name, || {
            let mut file = File::create(a.at("temporary")).unwrap();
            bytes(1).chunks(block).for_each(|part| file.write_all(part).unwrap());
            drop(file);
            fs::rename(a.at("temporary"), a.at(name)).unwrap();
            let (ours, reads) = seen(&metrics, &a.at(name));
            assert!(ours == bytes(1), "{name}: {} bytes", ours.len());
            reads == 0
        });
    }
    // Another mount reads from the servers.
    let (theirs, reads) = seen(&metrics, &b.at("large"));
    assert!(theirs == bytes(1) && reads > 0, "{reads}");
    // It writes between our write and our read, and so that neither length nor time tell.
    for disguised in [false, true] {
        fs::write(a.at("both"), bytes(2)).unwrap();
        let time = fs::metadata(a.at("both")).unwrap().modified().unwrap();
        // The kernel has pages of it, too.
        assert!(contents(&a.at("both")) == bytes(2));
        let file = File::options().write(true).open(b.at("both")).unwrap();
        file.write_all_at(&[9; 4096], 1 << 20).unwrap();
        if disguised {
            file.set_modified(time).unwrap();
        }
        drop(file);
        let mut expected = bytes(2);
        expected[1 << 20..(1 << 20) + 4096].fill(9);
        let (ours, reads) = seen(&metrics, &a.at("both"));
        assert!(ours == expected, "{disguised}");
        assert!(reads > 0, "{disguised}");
    }
}

#[test]
fn with_o_direct_a_mount_reads_what_another_has_just_written() {
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    fs::write(a.at("shared"), vec![1; 1 << 20]).unwrap();
    let direct = |path: &Path| {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
        File::options().read(true).write(true).custom_flags(flags).open(path).unwrap()
    };
    let (ours, theirs) = (direct(&a.at("shared")), direct(&b.at("shared")));
    let mut seen = vec![0; 4096];
    for round in 2..6_u8 {
        ours.write_all_at(&[round; 4096], 0).unwrap();
        ours.sync_all().unwrap();
        theirs.write_all_at(&[round + 100; 4096], 0).unwrap();
        theirs.sync_all().unwrap();
        ours.read_exact_at(&mut seen, 0).unwrap();
        assert_eq!(seen, [round + 100; 4096]);
    }
}

/// What `ls -l` asks for beside names and attributes.
fn has_acl(path: &Path) -> Result<usize, Errno> {
    let mut value = [0; 256];
    rustix::fs::getxattr(path, "system.posix_acl_access", &mut value)
}

#[test]
fn a_mount_without_extended_attributes_asks_for_none() {
    let metrics = format!("127.0.0.1:{}", free_port());
    let servers = Servers::start();
    let (a, b) =
        (servers.mount("a", ""), servers.mount("b", &format!("noxattr,metrics={metrics}")));
    let set = |path: &Path| {
        rustix::fs::setxattr(path, "user.colour", b"red", rustix::fs::XattrFlags::empty())
    };
    for nth in 0..50 {
        fs::write(a.at(&format!("f{nth}")), "text").unwrap();
    }
    set(&a.at("f0")).unwrap();
    let mut value = [0; 16];
    for nth in 0..50 {
        let file = b.at(&format!("f{nth}"));
        assert_eq!(has_acl(&file), Err(Errno::NODATA));
        assert_eq!(rustix::fs::getxattr(&file, "user.colour", &mut value), Err(Errno::OPNOTSUPP));
        assert_eq!(fs::read(&file).unwrap(), b"text");
    }
    let asked =
        counted(&metrics, |line| line.starts_with("strake_fuse_ops_total{op=\"getxattr\"}"));
    assert_eq!(asked, 1, "the first answer says that there are none");
    assert_eq!(set(&b.at("f1")), Err(Errno::OPNOTSUPP));
    assert_eq!(rustix::fs::listxattr(b.at("f0"), &mut value), Err(Errno::OPNOTSUPP));
    assert_eq!(rustix::fs::getxattr(a.at("f0"), "user.colour", &mut value), Ok(3));
}

/// The process that watches over a mount; of several, the one that began first.
fn watch_of(path: &Path) -> Option<u32> {
    let end = format!("\0{}\0", path.display());
    let watches = command_lines().filter(|(_, line)| {
        let line = String::from_utf8_lossy(line);
        line.contains("\0strake-mount-watch\0") && line.ends_with(&end)
    });
    watches.map(|(pid, _)| pid).min()
}

#[test]
fn the_mount_of_a_killed_process_is_taken_away() {
    let servers = Servers::start();
    let mut mount = servers.mount("a", "");
    fs::write(mount.at("file"), "x").unwrap();
    let path = mount.path().canonicalize().unwrap();
    assert_eq!(mounts_at(&path), 1);
    mount.process().kill();
    eventually(WAIT, "the mount is gone", || mounts_at(&path) == 0);
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "the bare directory is there again");
}

#[test]
fn a_mount_made_anew_where_a_process_was_killed_stays() {
    let servers = Servers::start();
    let mut mount = servers.mount("a", "");
    fs::write(mount.at("file"), "x").unwrap();
    let path = mount.path().canonicalize().unwrap();
    let watch = watch_of(&path).expect("somebody watches");
    // Whoever mounts anew is quicker than the old watch.
    signal(watch, "STOP");
    mount.process().kill();
    take_away(&path);
    let anew = mount_at(servers.address(), &path, "");
    signal(watch, "CONT");
    eventually(WAIT, "the old watch has ended", || watch_of(&path) != Some(watch));
    assert_eq!(mounts_at(&path), 1);
    assert_eq!(fs::read(anew.at("file")).unwrap(), b"x");
}

/// Nobody could see which servers and mounts still were of a release that was to go.
#[test]
fn servers_and_mounts_are_listed_with_their_release() {
    let servers = Servers::start();
    let _mount = servers.mount("a", "");
    let version = succeed(["--version"]);
    let release = version.trim().strip_prefix("strake ").unwrap();
    for of in ["server", "client"] {
        eventually(WAIT, "all of them have said it", || {
            let list = succeed([of, "list", "--json", "--cluster", servers.address()]);
            let list: Vec<serde_json::Value> = serde_json::from_str(&list).unwrap();
            !list.is_empty() && list.iter().all(|row| row["release"] == release)
        });
    }
    let status = run(["status", "--cluster", servers.address()]).stdout;
    let status = String::from_utf8_lossy(&status);
    assert!(status.contains("ROLES") && !status.contains("releases"), "there is one: {status}");
}

/// Aborts a connection in the end, so that a failed test ends as well.
struct AbortedAtLast(File);

impl Drop for AbortedAtLast {
    fn drop(&mut self) {
        // It may be gone.
        let _aborted = self.0.write_all(b"1");
    }
}

/// The thread by which the kernel drops pages waits for one that is being read, whatever signal comes, and it is this process
/// that would answer: what was left of it kept its connection open, and all programs of the mount waited for ever.
#[test]
fn programs_of_a_mount_that_is_killed_while_a_recall_waits_for_a_page_get_an_error() {
    let cluster = Cluster::start(1);
    let (mut a, b) = (cluster.mount("a"), cluster.mount("b"));
    fs::write(b.at("file"), vec![1; 8 << 20]).unwrap();
    let file = File::open(a.at("file")).unwrap();
    file.metadata().unwrap();
    let path = a.path().canonicalize().unwrap();
    let _last = AbortedAtLast(abort_file(&path).unwrap());
    cluster.signal(0, "STOP");
    let reader = std::thread::spawn(move || file.read_exact_at(&mut [0; 4096], 5 << 20));
    // It waits for the server, and then the recall for its page.
    std::thread::sleep(Duration::from_millis(500));
    fs::set_permissions(b.at("file"), Permissions::from_mode(0o600)).unwrap();
    signal(a.process().pid(), "KILL");
    cluster.signal(0, "CONT");
    // The mount is first looked at when it is half a minute old.
    eventually(2 * WAIT, "the reader has an answer", || reader.is_finished());
    assert!(reader.join().unwrap().is_err());
    eventually(WAIT, "the mount is gone", || mounts_at(&path) == 0);
}
