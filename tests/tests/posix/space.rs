//! Room: statfs, occupied bytes, limits.

use crate::place;
use rustix::fs::{Mode, OFlags, XattrFlags, setxattr, statvfs};
use rustix::io::{Errno, pwrite};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use strake_tests::cluster::{Up, eventually};

#[test]
fn statfs_tells_the_truth_about_room() {
    let up = Up::start(&["--targets", "2"]);
    let path = up.mount().join("file");
    let before = statvfs(up.mount()).unwrap();
    assert_eq!(before.f_namemax, 255);
    assert!(before.f_blocks > 0 && before.f_bavail <= before.f_bfree);
    let file = File::create(&path).unwrap();
    let len = 64 << 20;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len).unwrap();
    std::io::copy(&mut std::io::repeat(1).take(len), &mut &file).unwrap();
    file.sync_all().unwrap();
    // Other users of the same disk change what is free: only a lower bound of the files holds.
    assert!(file.metadata().unwrap().blocks() * 512 >= len);
    let files = |v: &rustix::fs::StatVfs| v.f_files - v.f_ffree;
    eventually(Duration::from_secs(60), "a file more", || {
        files(&statvfs(up.mount()).unwrap()) > files(&before)
    });
}

#[test]
fn blocks_count_what_a_file_occupies() {
    let place = place("blocks");
    fs::write(place.at("file"), vec![1; 3 << 20]).unwrap();
    let stat = fs::metadata(place.at("file")).unwrap();
    assert!(stat.blocks() * 512 >= 3 << 20, "{} blocks", stat.blocks());
    assert!(stat.blksize() >= 4096);
}

/// What was written while a file lay in its inode, and moved out before it was sent, was not counted.
#[test]
fn blocks_count_what_was_written_in_pieces() {
    let place = place("pieces");
    let mut file = File::create(place.at("file")).unwrap();
    for bytes in [3_000, 4_000, 5_000, 100_000] {
        file.write_all(&vec![1; bytes]).unwrap();
    }
    file.sync_all().unwrap();
    let occupied = file.metadata().unwrap().blocks() * 512;
    assert!((112_000..112_000 + 4_096).contains(&occupied), "{occupied} bytes");
}

#[test]
fn offsets_beyond_the_longest_file_are_refused() {
    let place = place("limits");
    let flags = OFlags::CREATE | OFlags::RDWR;
    let file = rustix::fs::open(place.at("file"), flags, Mode::RWXU).unwrap();
    let refused = pwrite(&file, b"x", (1 << 62) + 1);
    assert!(matches!(refused, Err(Errno::FBIG | Errno::INVAL)), "{refused:?}");
    let refused = rustix::fs::ftruncate(&file, (1 << 62) + 1);
    assert!(matches!(refused, Err(Errno::FBIG | Errno::INVAL)), "{refused:?}");
    assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 0);
}

/// A file that was cut behind its last chunk could not be opened any more.
#[test]
fn a_file_of_small_chunks_is_as_long_as_they_have_numbers() {
    let place = place("numbers");
    let (name, value) = ("user.strake.layout.chunk_size", b"65536");
    fs::create_dir(place.at("d")).unwrap();
    setxattr(place.at("d"), name, value, XattrFlags::empty()).unwrap();
    let flags = OFlags::CREATE | OFlags::RDWR;
    let open = || rustix::fs::open(place.at("d/file"), flags, Mode::RWXU).unwrap();
    let (file, most) = (open(), 1 << 56);
    assert_eq!(rustix::fs::ftruncate(&file, most + 1), Err(Errno::FBIG));
    assert_eq!(pwrite(&file, b"x", most), Err(Errno::FBIG));
    drop(file);
    let file = open();
    assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 0);
    rustix::fs::ftruncate(&file, most).unwrap();
    assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 1 << 56);
}
