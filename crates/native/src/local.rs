//! Files of this machine. Everything that may wait for a disk runs on a thread that may wait.

use crate::info::Info;
use bytes::Bytes;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strake_base::mount_table::{self, Mount};
use strake_types::{Error, ErrorKind, FILE_SYSTEM_TYPE, FileKind, Result, Timestamp};

/// Longest value, and longest list of names, of extended attributes that Linux knows.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// An error of the operating system in our words.
pub(crate) fn error(error: &io::Error) -> Error {
    use io::ErrorKind as Os;
    let kind = match error.kind() {
        Os::NotFound => ErrorKind::NotFound,
        Os::AlreadyExists => ErrorKind::Exists,
        Os::PermissionDenied => ErrorKind::AccessDenied,
        Os::NotADirectory => ErrorKind::NotDirectory,
        Os::IsADirectory => ErrorKind::IsDirectory,
        Os::DirectoryNotEmpty => ErrorKind::NotEmpty,
        Os::StorageFull => ErrorKind::NoSpace,
        Os::QuotaExceeded => ErrorKind::Quota,
        Os::ReadOnlyFilesystem => ErrorKind::ReadOnly,
        Os::InvalidInput | Os::InvalidFilename => ErrorKind::Invalid,
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
        ErrorKind::Io | ErrorKind::AccessDenied | ErrorKind::Unavailable => {
            Error::with(kind, error.to_string())
        }
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

pub(crate) async fn info(path: PathBuf, follow: bool) -> Result<Info> {
    blocking(move || {
        let metadata = if follow { fs::metadata(&path) } else { fs::symlink_metadata(&path) };
        Ok(info_of(&metadata?))
    })
    .await
}

/// True if a directory is another one or lies below it.
pub(crate) async fn is_within(inner: PathBuf, outer: PathBuf) -> Result<bool> {
    blocking(move || Ok(inner.canonicalize()?.starts_with(outer.canonicalize()?))).await
}

/// What is in a directory, each by itself: that one cannot be looked at (a mount of somebody else, or that nobody serves) says
/// nothing of the others.
pub(crate) async fn list(path: PathBuf) -> Result<Vec<(Bytes, Result<Info>)>> {
    blocking(move || {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&path)? {
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
pub(crate) async fn names(path: PathBuf, wanted: fn(&[u8]) -> bool) -> Result<Vec<Bytes>> {
    blocking(move || {
        let mut names = Vec::new();
        for entry in fs::read_dir(&path)? {
            let name = entry?.file_name().into_vec();
            if wanted(&name) {
                names.push(name.into());
            }
        }
        Ok(names)
    })
    .await
}

pub(crate) async fn make_directory(path: PathBuf, mode: u32) -> Result<()> {
    blocking(move || fs::DirBuilder::new().mode(mode).create(path)).await
}

pub(crate) async fn read_link(path: PathBuf) -> Result<Bytes> {
    blocking(move || Ok(fs::read_link(path)?.into_os_string().into_vec().into())).await
}

pub(crate) async fn make_link(path: PathBuf, target: Bytes) -> Result<()> {
    blocking(move || symlink(OsStr::from_bytes(&target), path)).await
}

pub(crate) async fn make_node(path: PathBuf, info: Info) -> Result<()> {
    let kind = match info.kind {
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        _ => return Err(ErrorKind::Invalid.into()),
    };
    blocking(move || {
        let mode = Mode::from_raw_mode(info.mode);
        Ok(rustix::fs::mknodat(CWD, &path, kind, mode, u64::from(info.rdev))?)
    })
    .await
}

pub(crate) async fn remove(path: PathBuf, directory: bool) -> Result<()> {
    blocking(move || if directory { fs::remove_dir(path) } else { fs::remove_file(path) }).await
}

pub(crate) async fn rename(from: PathBuf, to: PathBuf) -> Result<()> {
    blocking(move || fs::rename(from, to)).await
}

/// Gives a file a further name. A symbolic link is not followed.
pub(crate) async fn hard_link(file: PathBuf, name: PathBuf) -> Result<()> {
    blocking(move || fs::hard_link(file, name)).await
}

/// Returns when the names in a directory are on disk.
pub(crate) async fn sync_directory(path: PathBuf) -> Result<()> {
    blocking(move || fs::File::open(path)?.sync_all()).await
}

/// The directory that holds what a path leads to.
pub(crate) async fn directory_led_to(path: PathBuf) -> Result<PathBuf> {
    blocking(move || {
        let full = path.canonicalize()?;
        Ok(full.parent().unwrap_or(Path::new("/")).to_path_buf())
    })
    .await
}

/// A file whose attributes are looked at and set.
#[derive(Clone)]
pub(crate) struct Attributed {
    /// Its path.
    pub path: PathBuf,
    /// Whether a symbolic link means what it leads to.
    pub follow: bool,
    /// The file that the path is the number of, if it is one: it stays open as long as something is done by that.
    pub _open: Option<Arc<fs::File>>,
}

impl Attributed {
    fn path(&self) -> &Path {
        &self.path
    }

    fn flags(&self) -> AtFlags {
        if self.follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW }
    }

    /// Gives it an owner (if there is one to be set) and a group; false: that is not allowed.
    pub async fn set_owner(self, uid: Option<u32>, gid: u32) -> Result<bool> {
        let (uid, gid) = (uid.map(Uid::from_raw), Some(Gid::from_raw(gid)));
        blocking(move || match rustix::fs::chownat(CWD, self.path(), uid, gid, self.flags()) {
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
            let mode = fs::metadata(self.path())?.mode() & 0o7777 & !taken | given;
            Ok(rustix::fs::chmod(self.path(), Mode::from_raw_mode(mode))?)
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
                rustix::fs::chmod(self.path(), Mode::from_raw_mode(mode))?;
            }
            Ok(rustix::fs::utimensat(CWD, self.path(), &times, self.flags())?)
        })
        .await
    }

    /// Names of its extended attributes, each ended by a NUL; none where the file system knows none.
    pub async fn xattr_names(self) -> Result<Bytes> {
        blocking(move || {
            let query = match self.follow {
                true => rustix::fs::listxattr_query(self.path()),
                false => rustix::fs::llistxattr_query(self.path()),
            };
            match query {
                Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Bytes::new()),
                query => query?,
            };
            let mut names = vec![0; XATTR_BYTES_MAX];
            let len = match self.follow {
                true => rustix::fs::listxattr(self.path(), &mut names[..])?,
                false => rustix::fs::llistxattr(self.path(), &mut names[..])?,
            };
            names.truncate(len);
            Ok(names.into())
        })
        .await
    }

    /// The value of an extended attribute, if it is there.
    pub async fn xattr(self, name: Bytes) -> Result<Option<Bytes>> {
        blocking(move || {
            let mut value = vec![0; XATTR_BYTES_MAX];
            let len = match self.follow {
                true => rustix::fs::getxattr(self.path(), &name[..], &mut value[..]),
                false => rustix::fs::lgetxattr(self.path(), &name[..], &mut value[..]),
            };
            match len {
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
        blocking(move || match self.follow {
            true => Ok(rustix::fs::setxattr(self.path(), &name[..], &value, flags)?),
            false => Ok(rustix::fs::lsetxattr(self.path(), &name[..], &value, flags)?),
        })
        .await
    }

    /// Takes an extended attribute away.
    pub async fn remove_xattr(self, name: Bytes) -> Result<()> {
        let removed = move || match self.follow {
            true => rustix::fs::removexattr(self.path(), &name[..]),
            false => rustix::fs::lremovexattr(self.path(), &name[..]),
        };
        blocking(move || match removed() {
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            Err(error) => Err(error.into()),
        })
        .await
    }
}
