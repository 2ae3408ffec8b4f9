//! Caches that hold nothing, as before the first read.

use rustix::fs::Advice;
use std::fs::File;
use std::io;
use std::path::Path;

/// Where root asks the kernel to forget.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
/// Contents, names and attributes.
const EVERYTHING: &str = "3";

/// What is lost when only single files can be dropped.
pub const PARTLY: &str = "caches could be dropped only for the files read (posix_fadvise), not for names, attributes and what \
     servers on this machine hold: dropping everything needs root";

/// Writes what the file system of a directory holds back.
pub fn settle(directory: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(directory)?)?)
}

/// Makes the kernel of this machine forget everything that is on a disk already, after it has
/// written what the file system of a directory holds back. Needs root.
pub fn drop_all(directory: &Path) -> io::Result<()> {
    settle(directory)?;
    std::fs::write(DROP_CACHES, EVERYTHING)
}

/// Makes the kernel forget the contents of one file, but for pages that something holds at this
/// moment (its journal, its reclaim): for the kernel this is advice.
pub fn drop_file(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    Ok(rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IoSliceMut;
    use std::time::Duration;

    #[test]
    fn a_dropped_file_is_read_from_the_disk_again() {
        // A file system in memory has nothing to read from again: the build directory is on a disk.
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = directory.path().join("f");
        std::fs::write(&path, [1; 8192]).unwrap();
        let is_cached = || {
            let file = File::open(&path).unwrap();
            let mut buffer = [0; 8192];
            let slices = &mut [IoSliceMut::new(&mut buffer)];
            rustix::io::preadv2(&file, slices, 0, rustix::io::ReadWriteFlags::NOWAIT) == Ok(8192)
        };
        assert!(is_cached());
        let is_dropped = |_| {
            drop_file(&path).unwrap();
            let is_dropped = !is_cached();
            if !is_dropped {
                std::thread::sleep(Duration::from_millis(20));
            }
            is_dropped
        };
        assert!((0..500).any(is_dropped), "something held the pages for 10 s");
    }
}
