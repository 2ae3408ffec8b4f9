//! A directory of the machine's own file system.

use super::probe::RealProbe;
use super::{Disk, DiskFile, Place, Probe, mounting};
use crate::descriptor;
use crate::random::mixed;
use rustix::fs::{Advice, AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, StatxFlags};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long a lock of somebody else is waited for: it may outlive his process by a moment.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Of reads from this size on the kernel reads nothing ahead.
const LARGE_BYTES: usize = 128 << 10;

/// A directory of the machine's own file system.
pub struct RealDisk {
    path: PathBuf,
    /// Kept open so that names are resolved in this directory even if it is moved, and to sync it.
    directory: File,
    /// Directories have a count of links there, which is 0 once they are removed: a file system may count nothing.
    counts_links: bool,
    /// See [`Disk::boot_id`] and [`Disk::knows_unmounts`].
    boot: OnceLock<(String, bool)>,
}

impl RealDisk {
    /// The directory at `path`, which must exist.
    pub fn new(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let directory = File::open(&path)?;
        let metadata = directory.metadata()?;
        if !metadata.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let counts_links = metadata.nlink() > 0;
        Ok(Self { path, directory, counts_links, boot: OnceLock::new() })
    }

    fn boot(&self) -> io::Result<&(String, bool)> {
        // Once: each part of a store is to have the same answer.
        if let Some(boot) = self.boot.get() {
            return Ok(boot);
        }
        let device = self.directory.metadata()?.dev();
        let mounting = mounting::number(Path::new("/sys"), device)?;
        let boot = mounting::boot_of(crate::process::boot_id()?, mounting);
        Ok(self.boot.get_or_init(|| (boot, mounting.is_some())))
    }
}

impl Disk for RealDisk {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let mut flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        if create {
            flags |= OFlags::CREATE;
        }
        let file = rustix::fs::openat(&self.directory, name, flags, Mode::from_raw_mode(0o600))?;
        Ok(Arc::new(RealFile::new(file.into())))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(&self.path)?;
        entries.map(|e| Ok(e?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.directory, name, AtFlags::empty())?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.directory, from, &self.directory, to)?)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        // A new open file: locks of one open file never exclude each other.
        let file = File::open(&self.path)?;
        descriptor::lock_within(&file, LOCK_WAIT)?;
        Ok(Box::new(Lock(file)))
    }

    fn space(&self) -> io::Result<(u64, u64)> {
        let stat = rustix::fs::fstatvfs(&self.directory)?;
        Ok((stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize))
    }

    fn boot_id(&self) -> io::Result<String> {
        Ok(self.boot()?.0.clone())
    }

    fn knows_unmounts(&self) -> io::Result<bool> {
        Ok(self.boot()?.1)
    }

    fn birth(&self, name: &str) -> io::Result<u64> {
        // Not the device: its number may be another one after the host has started anew. A file system
        // that knows no time of birth answers zeros.
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let stat = rustix::fs::statx(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW, wanted)?;
        let born = stat.stx_btime;
        Ok([born.tv_sec.cast_unsigned(), u64::from(born.tv_nsec)]
            .iter()
            .fold(mixed(stat.stx_ino), |all, part| mixed(all ^ part)))
    }

    fn place(&self) -> io::Result<Place> {
        // First what may take long.
        let found = std::fs::metadata(&self.path);
        let own = self.directory.metadata()?;
        match found {
            _ if self.counts_links && own.nlink() == 0 => Ok(Place::Removed),
            Ok(found) if (found.dev(), found.ino()) == (own.dev(), own.ino()) => Ok(Place::Same),
            Err(error) if !leads_nowhere(&error) => Err(error),
            _ => Ok(Place::Elsewhere),
        }
    }

    fn path(&self) -> String {
        self.path.display().to_string()
    }

    fn probe(&self, name: &str) -> io::Result<Option<Box<dyn Probe>>> {
        let probe = RealProbe::open(&self.directory, name)?;
        Ok(probe.map(|probe| Box::new(probe) as Box<dyn Probe>))
    }
}

/// True if there is nothing behind a path. Other errors say nothing of that.
fn leads_nowhere(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// A lock on a directory.
///
/// It is given back by hand: closing the file is not enough while a child that was forked, and has
/// not yet begun its own program, has the file open too.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        if let Err(error) = rustix::fs::flock(&self.0, FlockOperation::Unlock) {
            tracing::warn!(%error, "a lock is given back only when its file is closed");
        }
    }
}

/// An open file of a [`RealDisk`].
struct RealFile {
    file: File,
    /// The same for large reads, of which the kernel reads nothing ahead; none, if it cannot be opened again.
    exact: OnceLock<Option<File>>,
}

impl RealFile {
    fn new(file: File) -> Self {
        Self { file, exact: OnceLock::new() }
    }

    /// Through which so many bytes are read. Who asks for many at once asks for the next by itself, a client perhaps
    /// another server: what the kernel would read ahead is then read in vain.
    fn reader(&self, len: usize) -> &File {
        let exact = || {
            let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let file = File::open(path).ok()?;
            rustix::fs::fadvise(&file, 0, None, Advice::Random).ok()?;
            Some(file)
        };
        match len >= LARGE_BYTES {
            true => self.exact.get_or_init(exact).as_ref().unwrap_or(&self.file),
            false => &self.file,
        }
    }
}

impl DiskFile for RealFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.reader(buf.len()).read_exact_at(buf, offset)
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<bool> {
        let slices = &mut [io::IoSliceMut::new(buf)];
        let wanted = slices[0].len();
        let file = self.reader(wanted);
        match rustix::io::preadv2(file, slices, offset, rustix::io::ReadWriteFlags::NOWAIT) {
            Ok(read) => Ok(read == wanted),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::OPNOTSUPP) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn reread(&self) -> io::Result<()> {
        // The first one tells of errors that nobody has heard of yet: those of the past.
        self.sync().or_else(|_past| self.sync())?;
        Ok(rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed)?)
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        let (Ok(offset), Ok(len)) = (offset.try_into(), len.try_into()) else { return };
        let flags = libc::SYNC_FILE_RANGE_WRITE;
        // SAFETY: the call takes a descriptor that `self.file` keeps open, and no memory.
        #[allow(unsafe_code)]
        let _hint = unsafe { libc::sync_file_range(self.file.as_raw_fd(), offset, len, flags) };
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset, len)?)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, flags, offset, len)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_moved_covered_or_removed_is_not_where_it_was() {
        let parent = tempfile::tempdir().unwrap();
        let (path, aside) = (parent.path().join("target"), parent.path().join("aside"));
        std::fs::create_dir(&path).unwrap();
        let disk = RealDisk::new(&path).unwrap();
        disk.open("file", true).unwrap();
        assert_eq!(disk.place().unwrap(), Place::Same);
        std::fs::rename(&path, &aside).unwrap();
        assert_eq!(disk.place().unwrap(), Place::Elsewhere, "nothing is there");
        std::fs::create_dir(&path).unwrap();
        assert_eq!(disk.place().unwrap(), Place::Elsewhere, "another one is there");
        std::fs::remove_dir(&path).unwrap();
        std::fs::rename(&aside, &path).unwrap();
        assert_eq!(disk.place().unwrap(), Place::Same, "it was put back");
        std::fs::remove_dir_all(&path).unwrap();
        assert_eq!(disk.place().unwrap(), Place::Removed);
        std::fs::create_dir(&path).unwrap();
        assert_eq!(disk.place().unwrap(), Place::Removed, "another one in its place");
    }

    #[test]
    fn large_reads_give_the_same_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let disk = RealDisk::new(directory.path()).unwrap();
        let file = disk.open("file", true).unwrap();
        let data: Vec<u8> = (0..3 * LARGE_BYTES).map(|n| (n / 7) as u8).collect();
        file.write_all_at(&data, 0).unwrap();
        // What was just written is in memory.
        for len in [1, LARGE_BYTES - 1, LARGE_BYTES, 2 * LARGE_BYTES] {
            let mut read = vec![0; len];
            assert!(file.read_cached_at(&mut read, 77).unwrap(), "{len} bytes");
            assert!(read == data[77..77 + len], "{len} bytes");
            file.read_exact_at(&mut read, 78).unwrap();
            assert!(read == data[78..78 + len], "{len} bytes");
        }
        assert!(
            !file.read_cached_at(&mut vec![0; LARGE_BYTES], 3 * LARGE_BYTES as u64 - 9).unwrap()
        );
        // It is the open file that is read, whatever its name leads to by now.
        disk.rename("file", "other").unwrap();
        disk.open("file", true).unwrap();
        let again = disk.open("other", false).unwrap();
        disk.remove("other").unwrap();
        let mut read = vec![0; LARGE_BYTES];
        assert!(again.read_cached_at(&mut read, 0).unwrap() && read == data[..LARGE_BYTES]);
    }
}
