//! POSIX on a mount: what the kernel, the door, the client and the servers do together. The suites
//! test each system call far more closely; these are the promises that no suite knows of, and the
//! first things to look at when one fails.

use rustix::fs::{AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use strake_fuse::MountOptions;
use strake_tests::cluster::eventually;
use strake_tests::mounted::Mounted;

/// Most that something takes.
const WAIT: Duration = Duration::from_secs(60);

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed).collect()
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn files_of_every_length_read_back_as_written() {
    let mount = Mounted::new();
    for len in [0, 1, 4096, 8192, 8193, 65_536, 65_537, 1 << 20, 5_000_001] {
        let (path, data) = (mount.path(&format!("file{len}")), pattern(len, 1));
        fs::write(&path, &data).unwrap();
        assert_eq!(fs::read(&path).unwrap(), data, "{len}");
        assert_eq!(fs::metadata(&path).unwrap().len(), len as u64);
    }
}

#[test]
fn appends_and_truncations_in_both_directions() {
    let mount = Mounted::new();
    let path = mount.path("file");
    let mut log = OpenOptions::new().append(true).create(true).open(&path).unwrap();
    for part in 0..50u8 {
        log.write_all(&[part; 3000]).unwrap();
    }
    drop(log);
    let expected: Vec<u8> = (0..50u8).flat_map(|part| [part; 3000]).collect();
    assert_eq!(fs::read(&path).unwrap(), expected);
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    file.set_len(100_001).unwrap();
    assert_eq!(fs::read(&path).unwrap(), expected[..100_001]);
    file.set_len(200_000).unwrap();
    let grown = fs::read(&path).unwrap();
    assert_eq!(grown[..100_001], expected[..100_001]);
    assert!(grown[100_001..].iter().all(|&byte| byte == 0));
    OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);
}

#[test]
fn holes_are_found_made_and_read_as_zeros() {
    let mount = Mounted::new();
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).open(mount.path("f")).unwrap();
    file.write_all_at(b"end", 16 << 40).unwrap();
    assert_eq!(file.metadata().unwrap().len(), (16 << 40) + 3);
    let data = || rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap();
    assert!(data() <= 16 << 40, "no data is skipped");
    // While the kernel is busy all may be data (S-048).
    eventually(WAIT, "the hole is found", || data() > 15 << 40);
    file.set_len(0).unwrap();
    file.write_all_at(&pattern(1 << 20, 2), 0).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 100_000, 300_000).unwrap();
    let mut bytes = vec![0; 1 << 20];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes[..100_000], pattern(1 << 20, 2)[..100_000]);
    assert!(bytes[100_000..400_000].iter().all(|&byte| byte == 0));
    assert_eq!(bytes[400_000..], pattern(1 << 20, 2)[400_000..]);
    let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap();
    assert!((100_000..400_000).contains(&hole) || hole == 1 << 20, "{hole}");
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 4 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 4 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 4 << 20);
}

/// Of a log that stays open `cp` made zeros, and said nothing.
#[test]
fn what_the_kernel_keeps_back_is_no_hole() {
    let mut mount = Mounted::new();
    let alone = mount.mount(&MountOptions { writeback: true, ..MountOptions::default() });
    let mut file = File::create(alone.join("file")).unwrap();
    file.write_all(&pattern(1 << 20, 3)).unwrap();
    let other = File::open(alone.join("file")).unwrap();
    assert_eq!(rustix::fs::seek(&other, rustix::fs::SeekFrom::Data(0)), Ok(0));
    assert_eq!(rustix::fs::seek(&other, rustix::fs::SeekFrom::Hole(0)), Ok(1 << 20));
}

/// What fcntl sets and clears was ignored: what counted was how the file had been opened.
#[test]
fn appends_of_two_mounts_that_fcntl_asks_for_follow_each_other() {
    let mut mount = Mounted::new();
    let other = mount.mount(&MountOptions::default());
    let open = |root: &Path| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.open(root.join("log")).unwrap()
    };
    // The first one goes through the page cache.
    let mut files = [open(mount.root()), open(&other)];
    files.iter().for_each(|file| rustix::fs::fcntl_setfl(file, OFlags::APPEND).unwrap());
    let mut expected = Vec::new();
    for round in 0..30u8 {
        for (nth, file) in files.iter_mut().enumerate() {
            let part = [1 + round * 2 + nth as u8; 100];
            file.write_all(&part).unwrap();
            expected.extend(part);
        }
    }
    for root in [mount.root(), &other] {
        assert_eq!(fs::read(root.join("log")).unwrap(), expected);
    }
}

/// The server forgets what is no file with its last name; whoever had it open was told ESTALE by fstat.
#[test]
fn a_fifo_that_was_removed_is_stated_while_it_is_open() {
    let mut mount = Mounted::new();
    let other = mount.mount(&MountOptions::default());
    for remover in [mount.root(), &other] {
        let (path, mode) = (mount.path("fifo"), Mode::from_raw_mode(0o600));
        rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let fifo = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let inode = fifo.metadata().unwrap().ino();
        fs::remove_file(remover.join("fifo")).unwrap();
        for _ in 0..3 {
            let gone = fifo.metadata().unwrap();
            assert_eq!((gone.ino(), gone.nlink()), (inode, 0));
            assert_eq!(gone.mode() & libc::S_IFMT, libc::S_IFIFO);
        }
        assert_eq!(errno(fs::metadata(&path)), Some(libc::ENOENT));
    }
}

#[test]
fn renames_replace_refuse_and_exchange() {
    let mount = Mounted::new();
    let (a, b) = (mount.path("a"), mount.path("b"));
    fs::write(&a, "a").unwrap();
    fs::write(&b, "b").unwrap();
    let rename = |flags| rustix::fs::renameat_with(CWD, &a, CWD, &b, flags);
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!((fs::read(&a).unwrap(), fs::read(&b).unwrap()), (b"b".to_vec(), b"a".to_vec()));
    let open = File::open(&b).unwrap();
    fs::rename(&a, &b).unwrap();
    assert_eq!(fs::read(&b).unwrap(), b"b");
    assert_eq!(errno(fs::metadata(&a)), Some(libc::ENOENT));
    let mut old = String::new();
    (&open).read_to_string(&mut old).unwrap();
    assert_eq!(old, "a");
    fs::create_dir_all(mount.path("d/e/f")).unwrap();
    assert_eq!(errno(fs::rename(mount.path("d"), mount.path("d/e/f/d"))), Some(libc::EINVAL));
}

#[test]
fn hard_links_share_and_an_unlinked_open_file_lives_on() {
    let mount = Mounted::new();
    let (a, b) = (mount.path("a"), mount.path("b"));
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&a).unwrap();
    file.write_all(&pattern(300_000, 3)).unwrap();
    fs::hard_link(&a, &b).unwrap();
    assert_eq!(fs::metadata(&a).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(&a).unwrap().ino(), fs::metadata(&b).unwrap().ino());
    fs::remove_file(&a).unwrap();
    fs::remove_file(&b).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.seek(SeekFrom::Start(300_000)).unwrap();
    file.write_all(b"still here").unwrap();
    file.rewind().unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, [pattern(300_000, 3), b"still here".to_vec()].concat());
    assert_eq!(fs::read_dir(mount.root()).unwrap().count(), 0);
}

#[test]
fn a_directory_of_ten_thousand_is_listed_once_each_while_it_is_emptied() {
    let mount = Mounted::new();
    let dir = mount.path("many");
    fs::create_dir(&dir).unwrap();
    let names: BTreeSet<_> = (0..10_000).map(|n| format!("entry-{n:05}")).collect();
    names.iter().for_each(|name| drop(File::create(dir.join(name)).unwrap()));
    let listed =
        || fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let all: Vec<_> = listed().collect();
    assert_eq!(all.len(), names.len());
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), names);
    // As `rm -r` does it: reading and removing in turns.
    let removed = listed().map(|name| fs::remove_file(dir.join(name)).unwrap()).count();
    assert_eq!(removed, names.len());
    assert_eq!(listed().count(), 0);
    fs::remove_dir(&dir).unwrap();
}

#[test]
fn a_reader_with_cached_pages_sees_what_is_written_around_the_cache() {
    let mount = Mounted::new();
    let path = mount.path("file");
    fs::write(&path, pattern(200_000, 4)).unwrap();
    let reader = File::open(&path).unwrap();
    let both = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut bytes = vec![0; 200_000];
    for round in 5..15 {
        reader.read_exact_at(&mut bytes, 0).unwrap();
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        writer.write_all_at(&pattern(200_000, round), 0).unwrap();
        reader.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, pattern(200_000, round));
        both.write_all_at(b"through the cache", 70_000).unwrap();
        reader.read_exact_at(&mut bytes[..17], 70_000).unwrap();
        assert_eq!(&bytes[..17], b"through the cache");
    }
}

#[test]
fn direct_io_and_syncs() {
    let mount = Mounted::new();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).custom_flags(libc::O_DIRECT | libc::O_DSYNC);
    let file = options.open(mount.path("file")).unwrap();
    file.write_all_at(&pattern(65_536, 6), 4096).unwrap();
    let mut bytes = vec![0; 65_536];
    file.read_exact_at(&mut bytes, 4096).unwrap();
    assert_eq!(bytes, pattern(65_536, 6));
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    File::open(mount.root()).unwrap().sync_all().unwrap();
}

#[test]
fn a_second_mount_sees_a_file_as_soon_as_it_is_closed() {
    let mut mount = Mounted::new();
    let other = mount.mount(&MountOptions::default());
    for (round, len) in [100usize, 200_000, 50, 300_000].into_iter().enumerate() {
        fs::write(mount.path("file"), pattern(len, round as u8)).unwrap();
        assert_eq!(fs::read(other.join("file")).unwrap(), pattern(len, round as u8));
    }
}

#[test]
fn locks_hold_between_mounts_and_end_with_their_file() {
    let mut mount = Mounted::new();
    let other = mount.mount(&MountOptions::default());
    fs::write(mount.path("file"), "").unwrap();
    let open =
        |root: &Path| OpenOptions::new().read(true).write(true).open(root.join("file")).unwrap();
    let (ours, theirs) = (open(mount.root()), open(&other));
    let nonblocking = FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(&ours, nonblocking).unwrap();
    assert_eq!(rustix::fs::flock(&theirs, nonblocking), Err(rustix::io::Errno::AGAIN));
    // A POSIX lock is of another kind and of the same process on both mounts' sessions.
    rustix::fs::fcntl_lock(&theirs, nonblocking).unwrap();
    assert_eq!(rustix::fs::fcntl_lock(&ours, nonblocking), Err(rustix::io::Errno::AGAIN));
    drop(theirs);
    rustix::fs::fcntl_lock(&ours, nonblocking).unwrap();
    drop(ours);
    let theirs = open(&other);
    // RELEASE reaches the server a moment after close() has returned.
    rustix::fs::flock(&theirs, FlockOperation::LockExclusive).unwrap();
}

/// The kernel asks for locks of regular files only. Should it ask for these one day, they hold between mounts.
#[test]
fn a_flock_of_a_directory_holds_within_one_mount() {
    let mut mount = Mounted::new();
    let other = mount.mount(&MountOptions::default());
    fs::create_dir(mount.path("d")).unwrap();
    let open = |root: &Path| File::open(root.join("d")).unwrap();
    let (ours, again, theirs) = (open(mount.root()), open(mount.root()), open(&other));
    let nonblocking = FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(&ours, nonblocking).unwrap();
    assert_eq!(rustix::fs::flock(&again, nonblocking), Err(rustix::io::Errno::AGAIN));
    assert_eq!(rustix::fs::flock(&theirs, nonblocking), Ok(()), "S-118 says so");
}

/// fuser 0.18 made the kernel stop sending INTERRUPT, and a process that waited for a lock could not
/// be killed before the lock was free.
#[test]
fn a_process_that_waits_for_a_lock_can_be_killed() {
    let mount = Mounted::new();
    let path = mount.path("file");
    let held = File::create(&path).unwrap();
    rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
    let mut command = Command::new("flock");
    let mut waiting =
        command.arg("-x").arg(&path).arg("true").stdin(Stdio::null()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(waiting.try_wait().unwrap().is_none());
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    // And what it waited for is not granted to the dead.
    rustix::fs::flock(&held, FlockOperation::Unlock).unwrap();
    rustix::fs::flock(File::open(&path).unwrap(), FlockOperation::LockExclusive).unwrap();
}

#[test]
fn extended_attributes_and_special_files() {
    let mount = Mounted::new();
    let path = mount.path("file");
    fs::write(&path, "x").unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&path, "user.colour", b"blue", flags).unwrap();
    let mut value = [0u8; 16];
    let len = rustix::fs::getxattr(&path, "user.colour", &mut value).unwrap();
    assert_eq!(&value[..len], b"blue");
    assert_eq!(
        rustix::fs::getxattr(&path, "user.none", &mut value),
        Err(rustix::io::Errno::NODATA)
    );
    let mut list = [0u8; 256];
    let len = rustix::fs::listxattr(&path, &mut list).unwrap();
    assert_eq!(&list[..len], b"user.colour\0");
    rustix::fs::removexattr(&path, "user.colour").unwrap();
    std::os::unix::fs::symlink("some/where", mount.path("link")).unwrap();
    assert_eq!(fs::read_link(mount.path("link")).unwrap(), Path::new("some/where"));
    let fifo = mount.path("fifo");
    let mode = Mode::from_raw_mode(0o640);
    rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert_eq!(fs::metadata(&fifo).unwrap().permissions().mode() & libc::S_IFMT, libc::S_IFIFO);
}

#[test]
fn a_file_without_a_name_gets_one_and_files_know_when_they_were_made() {
    let mount = Mounted::new();
    let mode = Mode::from_raw_mode(0o600);
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let fd = rustix::fs::open(mount.root(), flags, mode).unwrap();
    let mut file = File::from(fd);
    file.write_all(b"nameless").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    let name = mount.path("named");
    rustix::fs::linkat(file.as_fd(), "", CWD, &name, AtFlags::EMPTY_PATH).unwrap();
    assert_eq!(fs::read(&name).unwrap(), b"nameless");
    assert!(fs::metadata(&name).unwrap().created().is_ok());
}

#[test]
fn ranges_are_copied_between_files() {
    let mount = Mounted::new();
    let data = pattern(900_000, 7);
    fs::write(mount.path("from"), &data).unwrap();
    let copied = fs::copy(mount.path("from"), mount.path("to")).unwrap();
    assert_eq!(copied, data.len() as u64);
    assert_eq!(fs::read(mount.path("to")).unwrap(), data);
}

/// Copying within one file took the file's lock twice, and the whole mount stood still.
#[test]
fn a_range_is_copied_within_one_file() {
    let mount = Mounted::new();
    let path = mount.path("file");
    for len in [6_000, 2 << 20] {
        let data = pattern(len, 8);
        fs::write(&path, &data).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let (mut from, mut to) = (0, len as u64);
        let copied = rustix::fs::copy_file_range(&file, Some(&mut from), &file, Some(&mut to), len);
        assert_eq!(copied, Ok(len));
        assert_eq!(fs::read(&path).unwrap(), [&data[..], &data].concat());
    }
}

/// The time of change was that of the moment when the metadata server heard of a write: later than
/// the time of modification, and later still after the file was closed.
#[test]
fn a_write_changes_both_times_alike_and_once() {
    let mount = Mounted::new();
    for len in [100, 200_000] {
        let path = mount.path(&format!("file{len}"));
        let mut file = File::create(&path).unwrap();
        file.write_all(&pattern(len, 9)).unwrap();
        let times = |meta: fs::Metadata| {
            ((meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec()))
        };
        let (modified, changed) = times(file.metadata().unwrap());
        assert_eq!(modified, changed);
        file.sync_all().unwrap();
        assert_eq!(times(file.metadata().unwrap()), (modified, changed));
        drop(file);
        assert_eq!(times(fs::metadata(&path).unwrap()), (modified, changed));
    }
}

#[test]
fn a_sub_directory_and_another_owner_can_be_mounted() {
    let mut mount = Mounted::new();
    fs::create_dir_all(mount.path("a/b")).unwrap();
    fs::write(mount.path("a/b/file"), "deep").unwrap();
    let options = MountOptions {
        subdirectory: "/a/b".into(),
        uid: Some(1234),
        gid: Some(99),
        ..MountOptions::default()
    };
    let other = mount.mount(&options);
    assert_eq!(fs::read(other.join("file")).unwrap(), b"deep");
    let (root, file) = (fs::metadata(&other).unwrap(), fs::metadata(other.join("file")).unwrap());
    assert_eq!((root.ino(), root.uid(), file.uid(), file.gid()), (1, 1234, 1234, 99));
    fs::write(other.join("new"), "theirs").unwrap();
    assert_eq!(fs::metadata(mount.path("a/b/new")).unwrap().uid(), 1234);
}

#[test]
fn a_read_only_mount_refuses_every_change() {
    let mut mount = Mounted::new();
    fs::write(mount.path("file"), "x").unwrap();
    let other = mount.mount(&MountOptions { read_only: true, ..MountOptions::default() });
    assert_eq!(fs::read(other.join("file")).unwrap(), b"x");
    assert_eq!(errno(fs::write(other.join("file"), "y")), Some(libc::EROFS));
    assert_eq!(errno(fs::remove_file(other.join("file"))), Some(libc::EROFS));
    assert_eq!(errno(fs::create_dir(other.join("d"))), Some(libc::EROFS));
}

#[test]
fn statfs_tells_of_room() {
    let mount = Mounted::new();
    let before = rustix::fs::statvfs(mount.root()).unwrap();
    assert!(before.f_blocks > 0 && before.f_bavail <= before.f_blocks && before.f_namemax == 255);
}

#[test]
fn names_and_paths_at_their_limits() {
    let mount = Mounted::new();
    let longest = "n".repeat(255);
    fs::write(mount.path(&longest), "x").unwrap();
    assert_eq!(fs::read_dir(mount.root()).unwrap().next().unwrap().unwrap().file_name(), *longest);
    assert_eq!(errno(fs::write(mount.path(&"n".repeat(256)), "x")), Some(libc::ENAMETOOLONG));
    let target = "t".repeat(4095);
    std::os::unix::fs::symlink(&target, mount.path("link")).unwrap();
    assert_eq!(fs::read_link(mount.path("link")).unwrap(), Path::new(&target));
}
