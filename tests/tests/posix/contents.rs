//! Contents: writing, appending, mapping, cutting, copying.

use crate::{Place, place};
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom, fallocate, fcntl_setfl, ftruncate, seek};
use rustix::io::{Errno, pread, pwrite};
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use strake_tests::cluster::{contents, eventually};
use strake_tests::made::pattern;
use strake_tests::system::Mapping;

/// Most that the kernel takes to write back what is stored into a map.
const MAPS_WAIT: Duration = Duration::from_secs(60);

fn read_write(place: &Place, name: &str) -> File {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true).open(place.at(name)).unwrap()
}

#[test]
fn small_and_large_files_read_back_as_written() {
    let place = place("read-back");
    for len in [0, 1, 4096, 8191, 8192, 8193, 65_537, 1 << 20, (5 << 20) + 17] {
        let path = place.at(&len.to_string());
        let data = pattern(len);
        fs::write(&path, &data).unwrap();
        assert!(contents(&path) == data, "{len} bytes");
        assert_eq!(fs::metadata(&path).unwrap().len(), len as u64);
    }
}

#[test]
fn a_small_file_that_grows_moves_out_and_keeps_its_contents() {
    let place = place("move-out");
    let mut file = read_write(&place, "file");
    let data = pattern(100_000);
    for part in data.chunks(1000) {
        file.write_all(part).unwrap();
    }
    drop(file);
    assert!(contents(&place.at("file")) == data);
    let mut again = File::options().append(true).open(place.at("file")).unwrap();
    again.write_all(b"tail").unwrap();
    drop(again);
    assert!(contents(&place.at("file")) == [data, b"tail".to_vec()].concat());
}

#[test]
fn a_program_that_runs_is_neither_written_nor_cut() {
    let place = place("runs");
    let path = place.at("sleep");
    // Copied by a process of its own: one that another test starts at this moment would hold ours open for writing.
    assert!(Command::new("cp").arg("/bin/sleep").arg(&path).status().unwrap().success());
    let len = fs::metadata(&path).unwrap().len();
    let mut program = Command::new(&path).arg("60").spawn().unwrap();
    let opened: Vec<_> = [OFlags::WRONLY, OFlags::RDWR, OFlags::RDONLY | OFlags::TRUNC]
        .into_iter()
        .map(|flags| rustix::fs::open(&path, flags, Mode::empty()).map(drop))
        .collect();
    let runs = program.try_wait().unwrap().is_none();
    program.kill().unwrap();
    program.wait().unwrap();
    assert!(runs && opened.iter().all(|how| *how == Err(Errno::TXTBSY)), "{opened:?}");
    assert_eq!(fs::metadata(&path).unwrap().len(), len);
}

#[test]
fn appends_of_two_handles_do_not_overwrite_each_other() {
    let place = place("append");
    let open = || File::options().append(true).create(true).open(place.at("log")).unwrap();
    let (mut a, mut b) = (open(), open());
    for n in 0..500 {
        a.write_all(format!("a{n:04}\n").as_bytes()).unwrap();
        b.write_all(format!("b{n:04}\n").as_bytes()).unwrap();
    }
    let text = String::from_utf8(contents(&place.at("log"))).unwrap();
    let expected: Vec<_> =
        (0..500).flat_map(|n| [format!("a{n:04}"), format!("b{n:04}")]).collect();
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

/// What counted was how the file had been opened.
#[test]
fn fcntl_says_from_now_on_whether_writes_append() {
    let place = place("append-fcntl");
    let mut file = File::options().append(true).create(true).open(place.at("log")).unwrap();
    file.write_all(b"aaaa").unwrap();
    fcntl_setfl(&file, OFlags::empty()).unwrap();
    file.write_all_at(b"b", 0).unwrap();
    assert_eq!(contents(&place.at("log")), b"baaa");
    fcntl_setfl(&file, OFlags::APPEND).unwrap();
    file.write_all_at(b"c", 0).unwrap();
    assert_eq!(contents(&place.at("log")), b"baaac");
}

#[test]
fn direct_io_goes_around_the_page_cache_and_sees_the_same_bytes() {
    let place = place("direct");
    let data = pattern(1 << 20);
    fs::write(place.at("file"), &data).unwrap();
    let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file =
        File::options().read(true).write(true).custom_flags(flags).open(place.at("file")).unwrap();
    // Any address and length will do; applications align them all the same.
    let mut block = vec![0; 4096 * 3];
    let start = block.as_ptr().align_offset(4096);
    let aligned = &mut block[start..start + 4096];
    file.read_exact_at(aligned, 8192).unwrap();
    assert!(*aligned == data[8192..12_288]);
    aligned.fill(9);
    file.write_all_at(aligned, 4096).unwrap();
    let back = contents(&place.at("file"));
    assert!(back[4096..8192].iter().all(|&b| b == 9));
    assert!(back[8192..] == data[8192..]);
}

#[test]
fn a_shared_map_writes_to_the_file_and_a_private_one_does_not() {
    let place = place("mmap");
    let data = pattern(300_000);
    fs::write(place.at("file"), &data).unwrap();
    let file = File::options().read(true).write(true).open(place.at("file")).unwrap();
    let mut private = Mapping::new(&file, data.len(), false).unwrap();
    assert!(*private.bytes() == data[..]);
    private.bytes()[0] = 0;
    assert!(contents(&place.at("file")) == data, "a private map stays private");
    let mut shared = Mapping::new(&file, data.len(), true).unwrap();
    shared.bytes()[100_000..100_004].copy_from_slice(b"maps");
    shared.sync().unwrap();
    drop((shared, private, file));
    assert_eq!(&contents(&place.at("file"))[100_000..100_004], b"maps");
}

#[test]
fn a_map_sees_what_others_of_the_same_mount_write() {
    let place = place("mmap-coherent");
    let file = read_write(&place, "file");
    file.write_all_at(&pattern(8192), 0).unwrap();
    let mut map = Mapping::new(&file, 8192, true).unwrap();
    assert_eq!(map.bytes()[5000], pattern(8192)[5000]);
    file.write_all_at(b"written", 5000).unwrap();
    assert_eq!(&map.bytes()[5000..5007], b"written");
    map.bytes()[6000] = 0;
    let mut byte = [1];
    file.read_exact_at(&mut byte, 6000).unwrap();
    assert_eq!(byte, [0]);
}

/// The kernel writes pages back through any handle that may write: through one that appends they were appended.
#[test]
fn what_is_stored_into_a_map_stays_in_its_place_where_handles_append() {
    let place = place("mmap-append");
    fs::write(place.at("file"), pattern(20_000)).unwrap();
    let file = File::options().read(true).append(true).open(place.at("file")).unwrap();
    let mut map = Mapping::new(&file, 20_000, true).unwrap();
    map.bytes()[5000..5006].copy_from_slice(b"stored");
    map.sync().unwrap();
    (&file).write_all(b"appended").unwrap();
    map.bytes()[19_990] = 1;
    drop((map, file));
    let mut expected = pattern(20_000);
    expected[5000..5006].copy_from_slice(b"stored");
    expected[19_990] = 1;
    expected.extend_from_slice(b"appended");
    assert!(contents(&place.at("file")) == expected);
}

#[test]
fn truncate_cuts_and_extends_with_zeros() {
    let place = place("truncate");
    for len in [5000_u64, 3 << 20] {
        let file = read_write(&place, "file");
        let data = pattern(len as usize);
        file.write_all_at(&data, 0).unwrap();
        ftruncate(&file, len / 2 + 1).unwrap();
        ftruncate(&file, len).unwrap();
        let back = contents(&place.at("file"));
        let kept = (len / 2 + 1) as usize;
        assert!(back[..kept] == data[..kept]);
        assert!(back[kept..].iter().all(|&b| b == 0), "what was cut off does not come back");
        ftruncate(&file, 0).unwrap();
        assert_eq!(contents(&place.at("file")), b"");
    }
}

#[test]
fn a_read_beside_a_write_sees_old_or_new_bytes_and_after_it_the_new_ones() {
    let place = place("beside");
    let file = read_write(&place, "file");
    const LEN: usize = 1_500_000;
    file.write_all_at(&vec![1; LEN], 0).unwrap();
    let (begun, done) = (AtomicU8::new(1), AtomicU8::new(1));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let file = File::open(place.at("file")).unwrap();
                let mut bytes = vec![0; LEN];
                while done.load(Ordering::SeqCst) < 100 {
                    let oldest = done.load(Ordering::SeqCst);
                    file.read_exact_at(&mut bytes, 0).unwrap();
                    let newest = begun.load(Ordering::SeqCst);
                    let wrong = bytes.iter().find(|byte| !(oldest..=newest).contains(byte));
                    assert_eq!(wrong, None, "the writes {oldest} to {newest} were under way");
                }
            });
        }
        for round in 2..=100 {
            begun.store(round, Ordering::SeqCst);
            file.write_all_at(&vec![round; LEN], 0).unwrap();
            done.store(round, Ordering::SeqCst);
        }
    });
}

#[test]
fn a_sparse_file_of_16_tib_reads_zeros_and_occupies_little() {
    let place = place("sparse");
    let file = read_write(&place, "file");
    let end = 16_u64 << 40;
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(b"end", end - 3).unwrap();
    assert_eq!(file.metadata().unwrap().len(), end);
    let mut middle = vec![1; 1 << 20];
    file.read_exact_at(&mut middle, 7 << 40).unwrap();
    assert!(middle.iter().all(|&b| b == 0));
    let mut tail = [0; 10];
    assert_eq!(pread(&file, &mut tail, end - 3), Ok(3));
    assert_eq!(&tail[..3], b"end");
    file.sync_all().unwrap();
    assert!(file.metadata().unwrap().blocks() * 512 < 1 << 30);
    ftruncate(&file, 5).unwrap();
    assert_eq!(contents(&place.at("file")), b"begin");
}

#[test]
fn fallocate_reserves_punches_and_zeroes() {
    let place = place("fallocate");
    let data = pattern(400_000);
    let fresh = || {
        let file = read_write(&place, "file");
        file.write_all_at(&data, 0).unwrap();
        file
    };
    let file = fresh();
    fallocate(&file, FallocateFlags::empty(), 300_000, 200_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 500_000);
    assert!(contents(&place.at("file"))[..400_000] == data);
    let file = fresh();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 300_000, 200_000).unwrap();
    assert!(contents(&place.at("file")) == data);
    let ranges = [
        (FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 400_000),
        (FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, 400_000),
        (FallocateFlags::ZERO_RANGE, 500_001),
    ];
    for (mode, len) in ranges {
        let file = fresh();
        fallocate(&file, mode, 70_001, 430_000).unwrap();
        let back = contents(&place.at("file"));
        assert_eq!(back.len(), len, "{mode:?}");
        assert!(back[..70_001] == data[..70_001], "{mode:?}");
        assert!(back[70_001..].iter().all(|&b| b == 0), "{mode:?}");
    }
    assert_eq!(fallocate(&file, FallocateFlags::empty(), 0, 0), Err(Errno::INVAL));
    for mode in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        assert_eq!(fallocate(&file, mode, 0, 4096), Err(Errno::OPNOTSUPP), "{mode:?}");
    }
}

/// Only data counted: a punch of what was reserved alone was not made.
#[test]
fn room_that_is_reserved_counts_once_and_a_punch_gives_it_back() {
    let place = place("reserved");
    let file = read_write(&place, "file");
    let mib = |file: &File| file.metadata().unwrap().blocks() >> 11;
    for _ in 0..2 {
        fallocate(&file, FallocateFlags::empty(), 0, 5 << 20).unwrap();
        assert_eq!(mib(&file), 5);
    }
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 1 << 20, 2 << 20).unwrap();
    assert_eq!(mib(&file), 3);
    fallocate(&file, punch, 0, 5 << 20).unwrap();
    assert_eq!(mib(&file), 0);
    // What is reserved behind the end takes nothing of the rest along when it goes.
    ftruncate(&file, 0).unwrap();
    file.write_all_at(&pattern(2 << 20), 0).unwrap();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 1 << 20, 3 << 20).unwrap();
    fallocate(&file, punch, 2 << 20, 2 << 20).unwrap();
    assert_eq!(mib(&file), 2);
}

#[test]
fn seek_finds_data_and_holes() {
    let place = place("seek");
    let mut file = read_write(&place, "file");
    let chunk = 1_u64 << 20;
    ftruncate(&file, 20 * chunk).unwrap();
    file.write_all_at(&pattern(chunk as usize), 10 * chunk).unwrap();
    let seek = |from| rustix::fs::seek(&file, from);
    let data = seek(SeekFrom::Data(0)).unwrap();
    assert!(data <= 10 * chunk, "no data is skipped");
    let hole = seek(SeekFrom::Hole(10 * chunk)).unwrap();
    assert!((11 * chunk..=20 * chunk).contains(&hole));
    assert_eq!(seek(SeekFrom::Data(20 * chunk)), Err(Errno::NXIO));
    // While the kernel is busy all may be data (S-048).
    eventually(MAPS_WAIT, "holes are known", || {
        let at = [SeekFrom::Data(0), SeekFrom::Hole(10 * chunk)].map(|from| seek(from).unwrap());
        at[0] > 0 && at[1] < 20 * chunk
    });
    assert_eq!(file.seek(std::io::SeekFrom::End(0)).unwrap(), 20 * chunk);
    let mut nothing = Vec::new();
    assert_eq!(file.read_to_end(&mut nothing).unwrap(), 0);
}

#[test]
fn copy_file_range_copies_within_and_between_files() {
    let place = place("copy");
    let data = pattern(5 << 20);
    fs::write(place.at("from"), &data).unwrap();
    let from = File::open(place.at("from")).unwrap();
    let to = read_write(&place, "to");
    let (mut at, mut to_at) = (12_345, 54_321);
    let mut left = (4 << 20) + 7;
    while left > 0 {
        let n = rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut to_at), left);
        left -= n.unwrap();
    }
    let back = contents(&place.at("to"));
    let len = (4 << 20) + 7;
    assert_eq!(back.len(), 54_321 + len);
    assert!(back[..54_321].iter().all(|&b| b == 0));
    assert!(back[54_321..] == data[12_345..12_345 + len]);
    let (mut a, mut b) = (0, 100);
    let overlap = rustix::fs::copy_file_range(&to, Some(&mut a), &to, Some(&mut b), 1000);
    assert_eq!(overlap, Err(Errno::INVAL));
}

#[test]
fn o_tmpfile_makes_a_file_without_a_name_or_says_that_it_cannot() {
    let place = place("tmpfile");
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    match rustix::fs::open(&place.path, flags, Mode::RWXU) {
        Ok(file) => {
            assert_eq!(pwrite(&file, b"nameless", 0), Ok(8));
            assert_eq!(rustix::fs::fstat(&file).unwrap().st_nlink, 0);
            assert_eq!(fs::read_dir(&place.path).unwrap().count(), 0);
            let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
            let follow = rustix::fs::AtFlags::SYMLINK_FOLLOW;
            let cwd = rustix::fs::CWD;
            rustix::fs::linkat(cwd, link.as_str(), cwd, place.at("named"), follow).unwrap();
            drop(file);
            assert_eq!(contents(&place.at("named")), b"nameless");
        }
        Err(errno) => assert_eq!(errno, Errno::OPNOTSUPP),
    }
}

#[test]
fn fsync_fdatasync_and_syncfs_succeed_on_files_and_directories() {
    let place = place("sync");
    let file = read_write(&place, "file");
    file.write_all_at(&pattern(3 << 20), 0).unwrap();
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    rustix::fs::syncfs(&file).unwrap();
    File::open(&place.path).unwrap().sync_all().unwrap();
}

#[test]
fn times_have_nanoseconds_and_follow_changes() {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
    let place = place("times");
    fs::write(place.at("file"), "x").unwrap();
    let spec = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    for (atime, mtime) in [((1, 123_456_789), (2, 987_654_321)), ((-5, 1), (1 << 33, 999_999_999))]
    {
        let times = Timestamps {
            last_access: spec(atime.0, atime.1),
            last_modification: spec(mtime.0, mtime.1),
        };
        utimensat(CWD, place.at("file"), &times, AtFlags::empty()).unwrap();
        let stat = fs::metadata(place.at("file")).unwrap();
        assert_eq!((stat.atime(), stat.atime_nsec()), atime);
        assert_eq!((stat.mtime(), stat.mtime_nsec()), mtime);
    }
    let before = fs::metadata(place.at("file")).unwrap();
    fs::write(place.at("file"), "y").unwrap();
    let after = fs::metadata(place.at("file")).unwrap();
    assert_ne!(before.mtime(), after.mtime());
    assert!((after.ctime(), after.ctime_nsec()) > (before.ctime(), before.ctime_nsec()));
    let parent = fs::metadata(&place.path).unwrap();
    fs::write(place.at("another"), "").unwrap();
    let changed = fs::metadata(&place.path).unwrap();
    assert!((changed.mtime(), changed.mtime_nsec()) > (parent.mtime(), parent.mtime_nsec()));
}

#[test]
fn reading_does_not_change_atime() {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
    let place = place("atime");
    fs::write(place.at("file"), "x").unwrap();
    let old = Timespec { tv_sec: 1_000_000, tv_nsec: 5 };
    let times = Timestamps { last_access: old, last_modification: old };
    utimensat(CWD, place.at("file"), &times, AtFlags::empty()).unwrap();
    assert_eq!(contents(&place.at("file")), b"x");
    let stat = fs::metadata(place.at("file")).unwrap();
    assert_eq!((stat.atime(), stat.atime_nsec()), (1_000_000, 5));
}

#[test]
fn ioctls_of_other_file_systems_are_refused() {
    let place = place("ioctl");
    let file = read_write(&place, "file");
    let refused = rustix::fs::ioctl_getflags(&file).unwrap_err();
    assert!(matches!(refused, Errno::NOTTY | Errno::OPNOTSUPP | Errno::NOSYS), "{refused:?}");
}

/// The kernel asks where data is before it has written what it has: copies of such files got zeros.
#[test]
fn what_is_stored_into_a_map_is_no_hole() {
    let place = place("map-no-hole");
    let path = place.at("file");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    let mut map = Mapping::new(&file, 1 << 20, true).unwrap();
    let other = File::open(&path).unwrap();
    map.bytes()[512 << 10] = 1;
    let data = seek(&other, SeekFrom::Data(0)).unwrap();
    assert!(data <= 512 << 10, "{data}");
    map.bytes()[100_000] = 1;
    let hole = seek(&other, SeekFrom::Hole(100_000)).unwrap();
    assert!(hole > 100_000, "{hole}");
    file.write_all_at(b"end", 1 << 40).unwrap();
    map.bytes()[300_000] = 1;
    let data = || seek(&other, SeekFrom::Data(2 << 20)).unwrap();
    assert!(data() <= 1 << 40, "no data is skipped");
    eventually(MAPS_WAIT, "the hole far away is found", || data() > 1 << 39);
}

/// Where more was stored than is written out at a time, all behind it was data.
#[test]
fn a_hole_behind_what_is_stored_into_a_map_is_found() {
    const PAGE: usize = 4096;
    // So much is written out at a time.
    const FAR: usize = 1 << 20;
    let place = place("map-hole");
    // Of the map it is two pages: a busy kernel takes long for many, and then all may be data (S-048).
    eventually(MAPS_WAIT, "the hole is found", || {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(place.at("file")).unwrap();
        file.set_len(16 << 20).unwrap();
        file.write_all_at(&pattern(FAR - PAGE), PAGE as u64).unwrap();
        let mut map = Mapping::new(&file, FAR + PAGE, true).unwrap();
        [0, FAR].into_iter().for_each(|at| map.bytes()[at] = 1);
        let hole = seek(&file, SeekFrom::Hole(0)).unwrap();
        assert!(hole >= (FAR + PAGE) as u64, "{hole}");
        hole < 16 << 20
    });
}
