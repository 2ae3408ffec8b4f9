//! Caches that hold nothing, as before the first read.

use crate::error::{Error, Result};
use rustix::fs::Advice;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Where root asks the kernel to forget.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
/// Contents, names and attributes.
const EVERYTHING: &str = "3";

/// What is lost when only single files can be dropped.
pub const PARTLY: &str = "caches could be dropped only for the files read (posix_fadvise), not for names, attributes, what a \
     mount keeps itself and what servers on this machine hold: dropping everything needs root";

/// Writes what the file system of a directory holds back, and what the servers of one do that lies elsewhere on this
/// machine.
pub fn settle(directory: &Path) -> io::Result<()> {
    rustix::fs::syncfs(File::open(directory)?)?;
    rustix::fs::sync();
    Ok(())
}

/// Makes the kernel of this machine forget everything, or where that is not allowed what it has of these files; a sentence
/// on what could not be done.
pub fn drop_for(directory: &Path, files: &[PathBuf]) -> Result<Option<String>> {
    for path in files {
        drop_file(path).map_err(|e| Error::io("dropping from the cache", path, &e))?;
    }
    Ok(drop_all(directory).err().map(|_not_root| PARTLY.to_owned()))
}

/// Makes the kernel of this machine forget everything that is on a disk already, after everything that it holds
/// back was written. A file system in user space does not hear of that: its files are synced before. Needs root.
fn drop_all(directory: &Path) -> io::Result<()> {
    settle(directory)?;
    std::fs::write(DROP_CACHES, EVERYTHING)
}

/// Makes the kernel forget the contents of one file, but for pages that something holds at this
/// moment (its journal, its reclaim): for the kernel this is advice.
fn drop_file(path: &Path) -> io::Result<()> {
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
