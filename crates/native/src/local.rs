//! Files of this machine. Everything that may wait for a disk runs on a thread that may wait.

use crate::info::Info;
use bytes::Bytes;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use strake_types::{Error, ErrorKind, FileKind, Result, Timestamp};

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
        _ => ErrorKind::Io,
    };
    match kind {
        ErrorKind::Io | ErrorKind::AccessDenied => Error::with(kind, error.to_string()),
        kind => kind.into(),
    }
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
        ino: metadata.ino(),
    }
}

pub(crate) async fn info(path: PathBuf, follow: bool) -> Result<Info> {
    blocking(move || {
        let metadata = if follow { fs::metadata(&path) } else { fs::symlink_metadata(&path) };
        Ok(info_of(&metadata?))
    })
    .await
}

/// True if two paths lead to the same file.
pub(crate) async fn is_same(one: PathBuf, other: PathBuf) -> Result<bool> {
    blocking(move || {
        let identity = |path: &PathBuf| fs::metadata(path).map(|m| (m.dev(), m.ino()));
        match (identity(&one), identity(&other)) {
            (Ok(one), Ok(other)) => Ok(one == other),
            // A link that leads nowhere.
            _ => Ok(false),
        }
    })
    .await
}

/// True if a directory is another one or lies below it.
pub(crate) async fn is_within(inner: PathBuf, outer: PathBuf) -> Result<bool> {
    blocking(move || Ok(inner.canonicalize()?.starts_with(outer.canonicalize()?))).await
}

pub(crate) async fn list(path: PathBuf) -> Result<Vec<(Bytes, Info)>> {
    blocking(move || {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            match entry.metadata() {
                Ok(metadata) => {
                    entries.push((entry.file_name().into_vec().into(), info_of(&metadata)));
                }
                // Removed since the directory was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
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

/// Owner first (it takes setuid away), then mode, then times. A symbolic link has no mode.
pub(crate) async fn take_after(path: PathBuf, info: Info) -> Result<()> {
    blocking(move || take_after_now(&path, &info)).await
}

fn take_after_now(path: &Path, info: &Info) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(info.uid), Gid::from_raw(info.gid));
    match rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(()) | Err(rustix::io::Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    if info.kind != FileKind::Symlink {
        rustix::fs::chmod(path, Mode::from_raw_mode(info.mode))?;
    }
    set_times(path, info.atime, info.mtime)
}

pub(crate) async fn take_times(path: PathBuf, atime: Timestamp, mtime: Timestamp) -> Result<()> {
    blocking(move || set_times(&path, atime, mtime)).await
}

fn set_times(path: &Path, atime: Timestamp, mtime: Timestamp) -> io::Result<()> {
    let time = |t: Timestamp| Timespec { tv_sec: t.seconds, tv_nsec: i64::from(t.nanos) };
    let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
    Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}
