//! Caches that hold nothing, as before the first read.

use crate::error::{Error, Result};
use crate::watch::Watch;
use crate::work::Job;
use rustix::fs::Advice;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use strake_types::FILE_SYSTEM_TYPE;

/// Where root asks the kernel to forget.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
/// Contents, names and attributes.
const EVERYTHING: &str = "3";

/// What is lost when only single files can be dropped.
pub const PARTLY: &str = "caches could be dropped only for the files read (posix_fadvise), not for names, attributes, what a \
     mount keeps itself and what servers on this machine hold: dropping everything needs root";

/// The same where nothing names the files: before tests of names.
pub const NOT_AT_ALL: &str = "caches could not be emptied before tests of names, attributes and small files: that needs root";
/// File systems over a network, as the kernel names them.
const NETWORKED: &[&str] =
    &["nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "9p", "afs", "pvfs2", "beegfs", "gpfs"];

/// Sentences on what is still known on file systems of a kind, before these jobs, when the kernels of all clients have
/// forgotten everything; `has_servers_here`: the kernel of this machine is that of their servers, too.
pub fn not_emptied(kind: &str, jobs: &[Job], has_servers_here: bool) -> Vec<String> {
    let mut notes = Vec::new();
    // A program that plays the file system may ask whom it likes.
    let asks = NETWORKED.contains(&kind) || kind == "fuse" || kind.starts_with("fuse.");
    if asks && !has_servers_here {
        notes.push(format!(
            "{kind}: caches of servers on other machines, where it has any, were not emptied"
        ));
    }
    // A mount goes on believing what is leased to it: that the kernel is short of memory costs no messages.
    if kind == FILE_SYSTEM_TYPE && jobs.iter().any(|job| matches!(job, Job::Names(_))) {
        notes.push(format!(
            "{kind}: what a mount itself knows of names and attributes was not emptied, and it answers \
             from that: only a mount made anew, or another one, asks the servers"
        ));
    }
    notes
}

/// Writes what the file system of a directory holds back, and what the servers of one do that lies elsewhere on this
/// machine.
pub fn settle(directory: &Path, watch: &Watch) -> Result<()> {
    let written = File::open(directory).and_then(|file| Ok(rustix::fs::syncfs(file)?));
    written.map_err(|e| Error::io("writing what is held back in", directory, &e))?;
    // Where this stands still, it need not be for the directory.
    watch.doing("writing what this machine holds back");
    rustix::fs::sync();
    Ok(())
}

/// Makes the kernel of this machine forget everything, or where that is not allowed what it has of these files; a sentence
/// on what could not be done.
pub fn drop_for(directory: &Path, files: &[PathBuf], watch: &Watch) -> Result<Option<String>> {
    for path in files {
        drop_file(path).map_err(|e| Error::io("dropping from the cache", path, &e))?;
    }
    // A file system in user space does not hear of this: its files were synced above.
    settle(directory, watch)?;
    match std::fs::write(DROP_CACHES, EVERYTHING) {
        Ok(()) => Ok(None),
        Err(error) => match lost(&error, files) {
            Some(lost) => Ok(Some(lost.to_owned())),
            None => Err(Error::io("emptying caches by", Path::new(DROP_CACHES), &error)),
        },
    }
}

/// What is lost where the kernel does not take the word to forget everything; `None` where that is not
/// for lack of rights.
fn lost(error: &io::Error, files: &[PathBuf]) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            Some(if files.is_empty() { NOT_AT_ALL } else { PARTLY })
        }
        _ => None,
    }
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
    use crate::meta;
    use crate::plan::Before;
    use std::io::IoSliceMut;
    use std::time::Duration;

    /// Whatever failed was taken for a lack of rights, a lost write as well.
    #[test]
    fn only_a_lack_of_rights_is_no_error_and_the_note_names_what_was_dropped() {
        let lost = |number, files: &[PathBuf]| lost(&io::Error::from_raw_os_error(number), files);
        for number in [libc::EACCES, libc::EPERM, libc::EROFS] {
            assert_eq!(lost(number, &["f".into()]), Some(PARTLY));
            assert_eq!(lost(number, &[]), Some(NOT_AT_ALL));
        }
        assert_eq!(lost(libc::EIO, &["f".into()]), None);
        let directory = tempfile::tempdir().unwrap();
        let gone = drop_for(&directory.path().join("gone"), &[], &Watch::default()).unwrap_err();
        assert!(gone.cause.contains("writing what is held back in"), "{gone}");
    }

    /// Of a testbed they were told of, too, whose servers are all on this machine.
    #[test]
    fn servers_on_other_machines_are_told_of_and_disks_are_not() {
        for kind in ["nfs4", "fuse.strake", "fuse.glusterfs", "ceph"] {
            let notes = not_emptied(kind, &[], false);
            assert!(notes.len() == 1 && notes[0].starts_with(kind), "{notes:?}");
            assert!(not_emptied(kind, &[], true).is_empty(), "{kind}");
        }
        for kind in ["ext4", "xfs", "tmpfs", "fuseblk", ""] {
            assert!(not_emptied(kind, &[], false).is_empty(), "{kind}");
        }
    }

    /// Every `stat` of a "cold" test was answered by the mount, and the report said nothing of it.
    #[test]
    fn what_a_mount_of_strake_knows_of_names_is_told_of_before_tests_of_names() {
        let options = meta::Options { cold: true, ..meta::Options::default() };
        let cell = &meta::plan(&options).unwrap().cells[0];
        let cold = cell.steps.iter().filter(|step| step.before == Before::Cool);
        let cold: Vec<_> = cold.collect();
        assert_eq!(cold.len(), 3, "stat, read and list");
        let is_told = |kind: &str, jobs: &[Job]| {
            not_emptied(kind, jobs, true).iter().any(|note| note.contains("names and attributes"))
        };
        for step in cold {
            assert!(is_told("fuse.strake", &step.jobs), "{step:?}");
            assert!(!is_told("fuse.glusterfs", &step.jobs) && !is_told("ext4", &step.jobs));
        }
    }

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
