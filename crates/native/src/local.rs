//! Files of this machine. Everything that may wait for a disk runs on a thread that may wait.

use crate::info::Info;
use bytes::Bytes;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use strake_base::mount_table::{self, Mount};
use strake_types::{Error, ErrorKind, FILE_SYSTEM_TYPE, FileKind, Result, Timestamp};

/// Longest value, and longest list of names, of extended attributes that Linux knows.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// A path of this machine: as it was named, and from there on through directories that a copy has made or found. Whoever may write to
/// one of these can put a link to anywhere in the place of the next: no link is followed there.
#[derive(Clone, Default)]
pub struct LocalPath {
    named: PathBuf,
    /// The directories from there on.
    below: PathBuf,
    /// A name in the last of them; empty: that directory itself.
    name: Bytes,
}

/// Where a [`LocalPath`] has led. Whatever is put on the way later, this leads to the same directory as long as it lives.
pub(crate) struct Reached {
    path: PathBuf,
    /// The directory of which the path has the number.
    _through: Option<OwnedFd>,
}

impl LocalPath {
    /// A name in this directory.
    pub(crate) fn at(&self, name: &Bytes) -> Self {
        Self { name: name.clone(), ..self.clone() }
    }

    /// The directory of this name, to which no link leads.
    pub(crate) fn below(&self) -> Self {
        Self { below: self.below.join(self.last()), name: Bytes::new(), ..self.clone() }
    }

    /// All of it.
    pub(crate) fn path(&self) -> PathBuf {
        let mut path = self.named.clone();
        path.extend(&self.below);
        path.extend(self.last());
        path
    }

    /// Goes there, with two descriptors at most, however deep it is. Blocks.
    pub(crate) fn reach(&self) -> io::Result<Reached> {
        if self.below.as_os_str().is_empty() {
            return Ok(Reached { path: self.path(), _through: None });
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = rustix::fs::open(&self.named, flags, Mode::empty())?;
        for directory in &self.below {
            at = rustix::fs::openat(&at, directory, flags | OFlags::NOFOLLOW, Mode::empty())?;
        }
        let mut path = path_of(&at)?;
        path.extend(self.last());
        Ok(Reached { path, _through: Some(at) })
    }

    fn last(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.name))
    }
}

impl From<PathBuf> for LocalPath {
    fn from(named: PathBuf) -> Self {
        Self { named, below: PathBuf::new(), name: Bytes::new() }
    }
}

impl AsRef<Path> for Reached {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

/// Where the kernel shows what this process has open.
const OPEN_FILES: &str = "/proc/self/fd";

/// A path to what is open, as long as it is.
fn path_of(file: &impl AsRawFd) -> io::Result<PathBuf> {
    static ARE_SHOWN: LazyLock<bool> = LazyLock::new(|| Path::new(OPEN_FILES).exists());
    path_if(*ARE_SHOWN, file)
}

/// The same. Where the kernel shows nothing, what such a path leads to would count as missing.
fn path_if(are_shown: bool, file: &impl AsRawFd) -> io::Result<PathBuf> {
    match are_shown {
        true => Ok(format!("{OPEN_FILES}/{}", file.as_raw_fd()).into()),
        false => Err(io::Error::other("a copy needs /proc, which is not mounted here")),
    }
}

/// An error of the operating system in our words.
pub(crate) fn error(error: &io::Error) -> Error {
    use io::ErrorKind as Os;
    let kind = match error.kind() {
        Os::NotFound => ErrorKind::NotFound,
        Os::AlreadyExists => ErrorKind::Exists,
        Os::PermissionDenied => match Errno::from_io_error(error) {
            Some(Errno::PERM) => ErrorKind::NotPermitted,
            _ => ErrorKind::AccessDenied,
        },
        Os::NotADirectory => ErrorKind::NotDirectory,
        Os::IsADirectory => ErrorKind::IsDirectory,
        Os::DirectoryNotEmpty => ErrorKind::NotEmpty,
        Os::StorageFull => ErrorKind::NoSpace,
        Os::QuotaExceeded => ErrorKind::Quota,
        Os::ReadOnlyFilesystem => ErrorKind::ReadOnly,
        Os::InvalidInput => ErrorKind::Invalid,
        Os::InvalidFilename => ErrorKind::NameTooLong,
        Os::ResourceBusy => ErrorKind::Busy,
        Os::FileTooLarge => ErrorKind::FileTooBig,
        _ => match Errno::from_io_error(error) {
            Some(Errno::OPNOTSUPP) => ErrorKind::NotSupported,
            Some(Errno::TOOBIG) => ErrorKind::TooBig,
            Some(Errno::MFILE | Errno::NFILE) => ErrorKind::TooManyFiles,
            // A mount that nobody serves.
            Some(Errno::NOTCONN) => ErrorKind::Unavailable,
            // One file, of a mount that is served.
            Some(Errno::STALE) => ErrorKind::Stale,
            _ => ErrorKind::Io,
        },
    };
    match kind {
        ErrorKind::Io | ErrorKind::Unavailable => Error::with(kind, error.to_string()),
        kind => kind.into(),
    }
}

/// What this process takes from the mode of what it makes.
pub(crate) fn umask() -> u32 {
    // To ask the kernel itself is to change it, for all threads.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0o022)
}

/// Runs what may wait on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|e| error(&e)),
        Err(_) => Err(Error::with(ErrorKind::Io, "a local file operation panicked")),
    }
}

/// True if what lies on this device lies in a mount of a volume.
pub(crate) async fn is_in_mount(device: u64) -> Result<bool> {
    let is_it = move |mount: &Mount| mount.device == device && mount.kind == FILE_SYSTEM_TYPE;
    blocking(move || Ok(mount_table::read()?.iter().any(is_it))).await
}

pub(crate) fn info_of(metadata: &fs::Metadata) -> Info {
    let kind = metadata.file_type();
    let kind = match () {
        () if kind.is_dir() => FileKind::Directory,
        () if kind.is_symlink() => FileKind::Symlink,
        () if kind.is_fifo() => FileKind::Fifo,
        () if kind.is_socket() => FileKind::Socket,
        () if kind.is_char_device() => FileKind::CharDevice,
        () if kind.is_block_device() => FileKind::BlockDevice,
        () => FileKind::File,
    };
    Info {
        kind,
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        nlink: u32::try_from(metadata.nlink()).unwrap_or(u32::MAX),
        // Both sides keep the kernel's own 32-bit form of a device number.
        rdev: u32::try_from(metadata.rdev()).unwrap_or_default(),
        length: metadata.len(),
        occupied: metadata.blocks() * 512,
        atime: Timestamp { seconds: metadata.atime(), nanos: metadata.atime_nsec() as u32 },
        mtime: Timestamp { seconds: metadata.mtime(), nanos: metadata.mtime_nsec() as u32 },
        ctime: Timestamp { seconds: metadata.ctime(), nanos: metadata.ctime_nsec() as u32 },
        ino: metadata.ino(),
        device: metadata.dev(),
        no_xattrs: false,
    }
}

pub(crate) async fn info(path: LocalPath, follow: bool) -> Result<Info> {
    blocking(move || {
        let at = path.reach()?;
        let metadata = if follow { fs::metadata(at) } else { fs::symlink_metadata(at) };
        Ok(info_of(&metadata?))
    })
    .await
}

/// True if a directory is another one or lies below it.
pub(crate) async fn is_within(inner: LocalPath, outer: LocalPath) -> Result<bool> {
    let full = |path: LocalPath| fs::canonicalize(path.reach()?);
    blocking(move || Ok(full(inner)?.starts_with(full(outer)?))).await
}

/// What is in a directory, each by itself: that one cannot be looked at (a mount of somebody else, or that nobody serves) says
/// nothing of the others.
pub(crate) async fn list(path: LocalPath) -> Result<Vec<(Bytes, Result<Info>)>> {
    blocking(move || {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path.reach()?)? {
            let entry = entry?;
            let info = match entry.metadata() {
                Ok(metadata) => Ok(info_of(&metadata)),
                // Removed since the directory was read.
                Err(gone) if gone.kind() == io::ErrorKind::NotFound => continue,
                Err(failed) => Err(error(&failed)),
            };
            entries.push((entry.file_name().into_vec().into(), info));
        }
        Ok(entries)
    })
    .await
}

/// The names in a directory that are `wanted`.
pub(crate) async fn names(path: LocalPath, wanted: fn(&[u8]) -> bool) -> Result<Vec<Bytes>> {
    blocking(move || {
        let mut names = Vec::new();
        for entry in fs::read_dir(path.reach()?)? {
            let name = entry?.file_name().into_vec();
            if wanted(&name) {
                names.push(name.into());
            }
        }
        Ok(names)
    })
    .await
}

pub(crate) async fn make_directory(path: LocalPath, mode: u32) -> Result<()> {
    blocking(move || fs::DirBuilder::new().mode(mode).create(path.reach()?)).await
}

pub(crate) async fn read_link(path: LocalPath) -> Result<Bytes> {
    blocking(move || Ok(fs::read_link(path.reach()?)?.into_os_string().into_vec().into())).await
}

pub(crate) async fn make_link(path: LocalPath, target: Bytes) -> Result<()> {
    blocking(move || symlink(OsStr::from_bytes(&target), path.reach()?)).await
}

pub(crate) async fn make_node(path: LocalPath, info: Info) -> Result<()> {
    let kind = match info.kind {
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        _ => return Err(ErrorKind::Invalid.into()),
    };
    blocking(move || {
        let mode = Mode::from_raw_mode(info.mode);
        let at = path.reach()?;
        Ok(rustix::fs::mknodat(CWD, &at.path, kind, mode, u64::from(info.rdev))?)
    })
    .await
}

pub(crate) async fn remove(path: LocalPath, directory: bool) -> Result<()> {
    blocking(move || {
        let at = path.reach()?;
        if directory { fs::remove_dir(at) } else { fs::remove_file(at) }
    })
    .await
}

pub(crate) async fn rename(from: LocalPath, to: LocalPath) -> Result<()> {
    blocking(move || fs::rename(from.reach()?, to.reach()?)).await
}

/// Gives a file a further name. A symbolic link is not followed.
pub(crate) async fn hard_link(file: LocalPath, name: LocalPath) -> Result<()> {
    blocking(move || fs::hard_link(file.reach()?, name.reach()?)).await
}

/// Returns when the names in a directory are on disk.
pub(crate) async fn sync_directory(path: LocalPath) -> Result<()> {
    blocking(move || fs::File::open(path.reach()?)?.sync_all()).await
}

/// The directory that holds what a path leads to.
pub(crate) async fn directory_led_to(path: LocalPath) -> Result<PathBuf> {
    blocking(move || {
        let full = fs::canonicalize(path.reach()?)?;
        Ok(full.parent().unwrap_or(Path::new("/")).to_path_buf())
    })
    .await
}

/// Types of file systems, as `statfs` tells them, that number a file anew when the kernel has forgotten it: FAT, exFAT, those in user
/// space, and shares of Windows (SMB, CIFS, SMB2).
const NUMBERED_ANEW: [u32; 6] =
    [0x4d44, 0x2011_bab0, 0x6573_5546, 0x517b, 0xff53_4d42, 0xfe53_4d42];

/// True if a file system of this type gives a file one number for good.
fn keeps_numbers(file_system: u32) -> bool {
    !NUMBERED_ANEW.contains(&file_system)
}

/// A file whose attributes are looked at and set, whatever its name stands for by now.
#[derive(Clone)]
pub(crate) struct Attributed(Arc<fs::File>);

impl Attributed {
    /// Of a file that is open.
    pub fn of(file: Arc<fs::File>) -> Self {
        Self(file)
    }

    /// Opens a file for nothing but its attributes, and says what it is; with `follow` what a link leads to.
    pub async fn open(path: LocalPath, follow: bool) -> Result<(Self, Info)> {
        let flags = if follow { OFlags::PATH } else { OFlags::PATH | OFlags::NOFOLLOW };
        blocking(move || {
            let mut options = fs::OpenOptions::new();
            let file = options.read(true).custom_flags(flags.bits() as i32).open(path.reach()?)?;
            let info = info_of(&file.metadata()?);
            Ok((Self::of(Arc::new(file)), info))
        })
        .await
    }

    /// A path to it: what is open for its attributes alone is changed by no call that takes its number.
    fn path(&self) -> io::Result<PathBuf> {
        path_of(&self.0)
    }

    /// True if it has the same number as long as it is there.
    pub async fn keeps_number(self) -> Result<bool> {
        blocking(move || Ok(keeps_numbers(rustix::fs::fstatfs(&self.0)?.f_type as u32))).await
    }

    /// Gives it an owner (if there is one to be set) and a group; false: that is not allowed.
    pub async fn set_owner(self, uid: Option<u32>, gid: u32) -> Result<bool> {
        let (uid, gid) = (uid.map(Uid::from_raw), Some(Gid::from_raw(gid)));
        blocking(move || match rustix::fs::chownat(CWD, self.path()?, uid, gid, AtFlags::empty()) {
            Ok(()) => Ok(true),
            // The other: a user who is unknown where this process runs.
            Err(Errno::PERM | Errno::INVAL) => Ok(false),
            Err(error) => Err(error.into()),
        })
        .await
    }

    /// Gives rights to its mode, and takes others away.
    pub async fn change_rights(self, given: u32, taken: u32) -> Result<()> {
        blocking(move || {
            let mode = fs::metadata(self.path()?)?.mode() & 0o7777 & !taken | given;
            Ok(rustix::fs::chmod(self.path()?, Mode::from_raw_mode(mode))?)
        })
        .await
    }

    /// Mode first, if there is one to be set (a symbolic link has none), then times.
    pub async fn set_mode_and_times(
        self,
        mode: Option<u32>,
        atime: Timestamp,
        mtime: Timestamp,
    ) -> Result<()> {
        let time = |t: Timestamp| Timespec { tv_sec: t.seconds, tv_nsec: i64::from(t.nanos) };
        let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
        blocking(move || {
            if let Some(mode) = mode {
                rustix::fs::chmod(self.path()?, Mode::from_raw_mode(mode))?;
            }
            Ok(rustix::fs::utimensat(CWD, self.path()?, &times, AtFlags::empty())?)
        })
        .await
    }

    /// Names of its extended attributes, each ended by a NUL; none where the file system knows none.
    pub async fn xattr_names(self) -> Result<Bytes> {
        blocking(move || {
            match rustix::fs::listxattr_query(self.path()?) {
                Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Bytes::new()),
                query => query?,
            };
            let mut names = vec![0; XATTR_BYTES_MAX];
            let len = rustix::fs::listxattr(self.path()?, &mut names[..])?;
            names.truncate(len);
            Ok(names.into())
        })
        .await
    }

    /// The value of an extended attribute, if it is there.
    pub async fn xattr(self, name: Bytes) -> Result<Option<Bytes>> {
        blocking(move || {
            let mut value = vec![0; XATTR_BYTES_MAX];
            match rustix::fs::getxattr(self.path()?, &name[..], &mut value[..]) {
                Err(Errno::NODATA) => Ok(None),
                len => {
                    value.truncate(len?);
                    Ok(Some(value.into()))
                }
            }
        })
        .await
    }

    /// Sets an extended attribute.
    pub async fn set_xattr(self, name: Bytes, value: Bytes) -> Result<()> {
        let flags = XattrFlags::empty();
        blocking(move || Ok(rustix::fs::setxattr(self.path()?, &name[..], &value, flags)?)).await
    }

    /// Takes an extended attribute away.
    pub async fn remove_xattr(self, name: Bytes) -> Result<()> {
        blocking(move || match rustix::fs::removexattr(self.path()?, &name[..]) {
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            Err(error) => Err(error.into()),
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "Permission denied (os error 13): permission denied".
    #[test]
    fn what_this_machine_refuses_is_told_once() {
        for (refusal, told) in [
            (Errno::ACCESS, "permission denied"),
            (Errno::PERM, "operation not permitted"),
            (Errno::NAMETOOLONG, "file name too long"),
        ] {
            assert_eq!(error(&refusal.into()).to_string(), told);
        }
    }

    /// Each directory that the kernel had forgotten while it was filled counted as another one, and got no attributes.
    #[test]
    fn file_systems_that_number_files_anew_are_known_by_their_type() {
        let (vfat, sshfs, cifs) = (0x4d44, 0x6573_5546, 0xff53_4d42);
        assert!(![vfat, sshfs, cifs].into_iter().any(keeps_numbers));
        let (ext4, xfs, tmpfs, nfs) = (0xef53, 0x5846_5342, 0x0102_1994, 0x6969);
        assert!([ext4, xfs, tmpfs, nfs].into_iter().all(keeps_numbers));
    }

    /// What had been made there counted as missing.
    #[test]
    fn a_copy_without_proc_says_what_it_lacks() {
        let file = tempfile::tempfile().unwrap();
        let said = error(&path_if(false, &file).unwrap_err());
        assert_eq!(said.kind, ErrorKind::Io);
        assert!(said.detail.contains("/proc"), "{said}");
        assert!(path_of(&file).unwrap().exists());
    }
}
