//! Names, nodes, links, renames, listings.

use crate::place;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, StatxFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use strake_tests::cluster::contents;

#[test]
fn create_makes_an_empty_file_and_exclusive_create_refuses_an_existing_one() {
    let place = place("create");
    let path = place.at("file");
    let file = fs::File::create_new(&path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);
    let again = fs::File::create_new(&path).unwrap_err();
    assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
    fs::write(&path, "words").unwrap();
    fs::File::create(&path).unwrap();
    assert_eq!(contents(&path), b"", "O_TRUNC");
}

#[test]
fn mkdir_and_rmdir_keep_link_counts() {
    let place = place("mkdir");
    assert_eq!(fs::metadata(&place.path).unwrap().nlink(), 2);
    fs::create_dir(place.at("a")).unwrap();
    fs::create_dir(place.at("b")).unwrap();
    assert_eq!(fs::metadata(&place.path).unwrap().nlink(), 4);
    let full = fs::create_dir(place.at("a")).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::AlreadyExists);
    fs::write(place.at("a/file"), "").unwrap();
    assert_eq!(rustix::fs::rmdir(place.at("a")), Err(Errno::NOTEMPTY));
    fs::remove_dir(place.at("b")).unwrap();
    assert_eq!(fs::metadata(&place.path).unwrap().nlink(), 3);
}

#[test]
fn mknod_makes_fifos_sockets_and_devices() {
    let place = place("mknod");
    let mode = Mode::from_raw_mode(0o600);
    let device = rustix::fs::makedev(1, 3);
    let kinds = [
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("null", FileType::CharacterDevice, device),
        ("disk", FileType::BlockDevice, rustix::fs::makedev(259, 70_000)),
    ];
    for (name, kind, device) in kinds {
        rustix::fs::mknodat(CWD, place.at(name), kind, mode, device).unwrap();
        let stat = rustix::fs::lstat(place.at(name)).unwrap();
        assert_eq!(FileType::from_raw_mode(stat.st_mode), kind, "{name}");
        assert_eq!(stat.st_rdev, device, "{name}");
    }
    assert!(fs::metadata(place.at("fifo")).unwrap().file_type().is_fifo());
}

#[test]
fn a_fifo_and_a_socket_connect_processes() {
    let place = place("fifo");
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(CWD, place.at("fifo"), FileType::Fifo, mode, 0).unwrap();
    let writer = std::thread::spawn({
        let path = place.at("fifo");
        move || fs::write(path, "through the pipe").unwrap()
    });
    assert_eq!(fs::read(place.at("fifo")).unwrap(), b"through the pipe");
    writer.join().unwrap();
    let listener = UnixListener::bind(place.at("s")).unwrap();
    UnixStream::connect(place.at("s")).unwrap();
    drop(listener);
}

#[test]
fn symlinks_hold_targets_of_4095_bytes_and_are_followed() {
    let place = place("symlink");
    fs::write(place.at("file"), "behind the link").unwrap();
    symlink("file", place.at("link")).unwrap();
    assert_eq!(contents(&place.at("link")), b"behind the link");
    assert_eq!(fs::symlink_metadata(place.at("link")).unwrap().len(), 4);
    let long = "x".repeat(4095);
    symlink(&long, place.at("long")).unwrap();
    assert_eq!(fs::read_link(place.at("long")).unwrap().as_os_str(), long.as_str());
    symlink("loop", place.at("loop")).unwrap();
    let looped = rustix::fs::open(place.at("loop"), OFlags::RDONLY, Mode::empty());
    assert_eq!(looped.unwrap_err(), Errno::LOOP);
}

#[test]
fn hard_links_share_contents_and_attributes() {
    let place = place("link");
    fs::write(place.at("a"), "one").unwrap();
    fs::hard_link(place.at("a"), place.at("b")).unwrap();
    let (a, b) = (fs::metadata(place.at("a")).unwrap(), fs::metadata(place.at("b")).unwrap());
    assert_eq!((a.ino(), a.nlink()), (b.ino(), 2));
    fs::write(place.at("b"), "two!").unwrap();
    assert_eq!(contents(&place.at("a")), b"two!");
    fs::remove_file(place.at("a")).unwrap();
    assert_eq!(fs::metadata(place.at("b")).unwrap().nlink(), 1);
    let directory = rustix::fs::link(&place.path, place.at("d"));
    assert_eq!(directory, Err(Errno::PERM));
}

#[test]
fn rename_replaces_in_one_step() {
    let place = place("rename");
    fs::write(place.at("old"), "old").unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The name is there at every moment, with one of the contents.
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                assert!(matches!(contents(&place.at("old")).as_slice(), b"old" | b"new"));
            }
        });
        for _ in 0..100 {
            fs::write(place.at("new"), "new").unwrap();
            fs::rename(place.at("new"), place.at("old")).unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(!place.at("new").exists());
}

#[test]
fn rename_noreplace_refuses_and_exchange_swaps() {
    let place = place("renameat2");
    fs::write(place.at("a"), "a").unwrap();
    fs::create_dir(place.at("b")).unwrap();
    let rename = |flags| rustix::fs::renameat_with(CWD, place.at("a"), CWD, place.at("b"), flags);
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename(RenameFlags::EXCHANGE).unwrap();
    assert!(place.at("a").is_dir());
    assert_eq!(contents(&place.at("b")), b"a");
    fs::remove_dir(place.at("a")).unwrap();
    assert_eq!(rename(RenameFlags::EXCHANGE), Err(Errno::NOENT));
    let back =
        rustix::fs::renameat_with(CWD, place.at("b"), CWD, place.at("a"), RenameFlags::NOREPLACE);
    back.unwrap();
}

#[test]
fn a_directory_cannot_be_moved_below_itself() {
    let place = place("loop");
    fs::create_dir_all(place.at("a/b/c")).unwrap();
    assert_eq!(rustix::fs::rename(place.at("a"), place.at("a/b/c/d")), Err(Errno::INVAL));
    fs::create_dir(place.at("x")).unwrap();
    fs::rename(place.at("a/b"), place.at("x/b")).unwrap();
    assert_eq!(
        fs::metadata(place.at("x/b/..")).unwrap().ino(),
        fs::metadata(place.at("x")).unwrap().ino()
    );
}

#[test]
fn an_unlinked_file_is_read_written_and_stated_while_it_is_open() {
    let place = place("unlink");
    for len in [100, 3_000_000] {
        let mut options = fs::File::options();
        let file = options.create_new(true).read(true).write(true).open(place.at("file")).unwrap();
        let data = vec![7; len];
        assert_eq!(rustix::io::pwrite(&file, &data, 0), Ok(len));
        fs::remove_file(place.at("file")).unwrap();
        assert!(!place.at("file").exists());
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        rustix::io::pwrite(&file, b"more", len as u64).unwrap();
        let mut back = vec![0; len + 10];
        let mut done = 0;
        while done < len + 4 {
            done += rustix::io::pread(&file, &mut back[done..], done as u64).unwrap();
        }
        assert_eq!(&back[..len], &data[..]);
        assert_eq!(&back[len..len + 4], b"more");
    }
}

#[test]
fn a_removed_directory_stays_usable_for_those_in_it() {
    let place = place("rmdir");
    fs::create_dir(place.at("d")).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let directory = rustix::fs::open(place.at("d"), flags, Mode::empty()).unwrap();
    fs::remove_dir(place.at("d")).unwrap();
    assert_eq!(rustix::fs::fstat(&directory).unwrap().st_nlink, 0);
    // Past what the kernel remembers.
    let how = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let asked = rustix::fs::statx(&directory, "", how, StatxFlags::NLINK).unwrap();
    assert_eq!(asked.stx_nlink, 0);
    let inside = rustix::fs::openat(&directory, "f", OFlags::CREATE | OFlags::RDWR, Mode::RWXU);
    assert_eq!(inside.unwrap_err(), Errno::NOENT);
}

#[test]
fn names_have_up_to_255_bytes_of_anything() {
    let place = place("long-names");
    let longest = "é".repeat(127) + "x";
    assert_eq!(longest.len(), 255);
    fs::write(place.at(&longest), "long").unwrap();
    assert_eq!(contents(&place.at(&longest)), b"long");
    let too_long = rustix::fs::mkdir(place.at(&"n".repeat(256)), Mode::RWXU);
    assert_eq!(too_long, Err(Errno::NAMETOOLONG));
    let odd = place.path.join(std::ffi::OsStr::new("a\nb \u{7f}*"));
    fs::write(&odd, "").unwrap();
    let bytes: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff\xfe not UTF-8");
    fs::write(place.path.join(bytes), "").unwrap();
    assert_eq!(fs::read_dir(&place.path).unwrap().count(), 3);
}

#[test]
fn paths_have_up_to_4096_bytes() {
    let place = place("long-paths");
    let base = place.path.as_os_str().len();
    let mut path = place.path.clone();
    while path.as_os_str().len() + 202 < 4095 {
        path.push("d".repeat(200));
        fs::create_dir(&path).unwrap();
    }
    path.push("f".repeat(4095 - path.as_os_str().len() - 1));
    assert_eq!(path.as_os_str().len(), 4095);
    fs::write(&path, "deep").unwrap();
    assert_eq!(contents(&path), b"deep");
    assert!(base < 4095);
    // Relative to an open directory there is no end.
    path.pop();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let deep = rustix::fs::open(&path, flags, Mode::empty()).unwrap();
    rustix::fs::mkdirat(&deep, "still-deeper", Mode::RWXU).unwrap();
    rustix::fs::statat(&deep, "still-deeper", AtFlags::empty()).unwrap();
}

#[test]
fn inode_numbers_have_64_bits_and_never_repeat() {
    let place = place("inodes");
    let mut seen = BTreeSet::new();
    for round in 0..3 {
        for n in 0..50 {
            let path = place.at(&format!("{round}-{n}"));
            fs::create_dir(&path).unwrap();
            assert!(seen.insert(fs::metadata(&path).unwrap().ino()), "an inode number came back");
            fs::remove_dir(&path).unwrap();
        }
    }
    assert!(seen.iter().any(|&ino| ino > u64::from(u32::MAX)));
}

#[test]
fn statx_gives_the_time_of_birth() {
    let place = place("statx");
    fs::write(place.at("file"), "x").unwrap();
    let flags = AtFlags::empty();
    let stat = |mask| rustix::fs::statx(CWD, place.at("file"), flags, mask).unwrap();
    let wanted = StatxFlags::BTIME | StatxFlags::BASIC_STATS;
    let first = stat(wanted);
    assert_eq!(first.stx_size, 1);
    if first.stx_mask & StatxFlags::BTIME.bits() != 0 {
        fs::write(place.at("file"), "changed").unwrap();
        assert_eq!(stat(wanted).stx_btime.tv_sec, first.stx_btime.tv_sec);
        assert_eq!(stat(wanted).stx_btime.tv_nsec, first.stx_btime.tv_nsec);
    }
}
