//! Any directory of this machine as a subject, through the system calls that applications make.

use super::Subject;
use rustix::fs::{
    self, AtFlags, CWD, Dir, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec,
    Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use rustix::thread;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use strake_model::op::{Fallocate, RenameMode, Slot};
use strake_model::{Op, OpenFlags, Outcome, Stat};
use strake_types::{Credentials, ErrorKind, FileKind, Timestamp};

/// What an xattr or its list may need here.
const XATTR_BYTES: usize = 8192;

type Done = Result<Outcome, Errno>;

/// A directory below which everything happens.
pub struct Directory {
    root: PathBuf,
    open: BTreeMap<Slot, OwnedFd>,
}

impl Directory {
    /// A subject on an empty directory with mode 0755, owned by root.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), open: BTreeMap::new() }
    }

    fn at(&self, path: &[String]) -> PathBuf {
        path.iter().fold(self.root.clone(), |at, name| at.join(name))
    }

    fn handle(&self, slot: Slot) -> Result<&OwnedFd, Errno> {
        self.open.get(&slot).ok_or(Errno::BADF)
    }

    fn carry_out(&mut self, op: &Op) -> Done {
        match op {
            Op::Open(slot, path, flags) => {
                self.open.remove(slot);
                let file = fs::open(self.at(path), open_flags(*flags), mode(flags.create))?;
                self.open.insert(*slot, file);
                Ok(Outcome::Done)
            }
            Op::Close(slot) => {
                Ok(self.open.remove(slot).map_or(Outcome::Skipped, |_| Outcome::Done))
            }
            Op::Read(..) | Op::Write(..) | Op::SetLength(..) | Op::Fallocate(..) => {
                self.on_handle(op)
            }
            Op::CopyRange(..) | Op::Sync(_) | Op::StatHandle(_) => self.on_handle(op),
            Op::MakeDirectory(..) | Op::MakeFifo(..) | Op::MakeSymlink(..) | Op::Link(..) => {
                self.make(op)
            }
            Op::Unlink(_) | Op::RemoveDirectory(_) | Op::Rename(..) => self.take_out(op),
            Op::Truncate(..) | Op::SetMode(..) | Op::SetOwner(..) | Op::SetTimes(..) => {
                self.change(op)
            }
            Op::SetXattr(..) | Op::GetXattr(..) | Op::ListXattr(_) | Op::RemoveXattr(..) => {
                self.xattr(op)
            }
            Op::ReadAll(path) => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
                let file = fs::open(self.at(path), flags, Mode::empty())?;
                let len = fs::fstat(&file)?.st_size as usize;
                // One more than there should be, so that a longer file is seen.
                read_at(&file, 0, len + 1).map(Outcome::Bytes)
            }
            Op::ReadLink(path) => {
                Ok(Outcome::Bytes(fs::readlink(self.at(path), Vec::new())?.into_bytes()))
            }
            Op::Stat(path) => Ok(Outcome::Stat(stat(&fs::lstat(self.at(path))?))),
            Op::SameFile(a, b) => {
                let (a, b) = (fs::lstat(self.at(a))?, fs::lstat(self.at(b))?);
                Ok(Outcome::Truth(a.st_ino == b.st_ino))
            }
            Op::List(path) => list(&self.at(path)),
        }
    }

    fn on_handle(&self, op: &Op) -> Done {
        match op {
            Op::Read(slot, offset, len) => {
                read_at(self.handle(*slot)?, *offset, *len as usize).map(Outcome::Bytes)
            }
            Op::Write(slot, offset, data) => {
                let (file, bytes) = (self.handle(*slot)?, data.bytes());
                let mut done = 0;
                while done < bytes.len() {
                    done += rustix::io::pwrite(file, &bytes[done..], offset + done as u64)?;
                }
                Ok(Outcome::Count(done as u64))
            }
            Op::SetLength(slot, length) => {
                fs::ftruncate(self.handle(*slot)?, *length).map(|()| Outcome::Done)
            }
            Op::Fallocate(slot, mode, offset, len) => {
                let flags = match mode {
                    Fallocate::Allocate => FallocateFlags::empty(),
                    Fallocate::KeepSize => FallocateFlags::KEEP_SIZE,
                    Fallocate::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    Fallocate::Zero => FallocateFlags::ZERO_RANGE,
                    Fallocate::ZeroKeepSize => {
                        FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE
                    }
                };
                fs::fallocate(self.handle(*slot)?, flags, *offset, *len).map(|()| Outcome::Done)
            }
            Op::CopyRange(from, from_offset, to, to_offset, len) => {
                let (from, to) = (self.handle(*from)?, self.handle(*to)?);
                copy_range(from, *from_offset, to, *to_offset, *len)
            }
            Op::Sync(slot) => fs::fsync(self.handle(*slot)?).map(|()| Outcome::Done),
            Op::StatHandle(slot) => Ok(Outcome::Stat(stat(&fs::fstat(self.handle(*slot)?)?))),
            _ => Ok(Outcome::Skipped),
        }
    }

    fn make(&self, op: &Op) -> Done {
        match op {
            Op::MakeDirectory(path, bits) => fs::mkdir(self.at(path), Mode::from_raw_mode(*bits)),
            Op::MakeFifo(path, bits) => {
                fs::mknodat(CWD, self.at(path), FileType::Fifo, Mode::from_raw_mode(*bits), 0)
            }
            Op::MakeSymlink(path, target) => fs::symlink(target, self.at(path)),
            Op::Link(from, to) => fs::link(self.at(from), self.at(to)),
            _ => return Ok(Outcome::Skipped),
        }
        .map(|()| Outcome::Done)
    }

    fn take_out(&self, op: &Op) -> Done {
        match op {
            Op::Unlink(path) => fs::unlink(self.at(path)),
            Op::RemoveDirectory(path) => fs::rmdir(self.at(path)),
            Op::Rename(from, to, mode) => {
                let flags = match mode {
                    RenameMode::Replace => RenameFlags::empty(),
                    RenameMode::NoReplace => RenameFlags::NOREPLACE,
                    RenameMode::Exchange => RenameFlags::EXCHANGE,
                };
                fs::renameat_with(CWD, self.at(from), CWD, self.at(to), flags)
            }
            _ => return Ok(Outcome::Skipped),
        }
        .map(|()| Outcome::Done)
    }

    fn change(&self, op: &Op) -> Done {
        match op {
            Op::Truncate(path, length) => {
                // rustix has no truncate by path; the system call is the same as open and ftruncate
                // but for errors on directories and pipes, which are looked at first.
                return truncate(&self.at(path), *length);
            }
            Op::SetMode(path, bits) => fs::chmod(self.at(path), Mode::from_raw_mode(*bits)),
            Op::SetOwner(path, uid, gid) => {
                let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
                fs::chownat(CWD, self.at(path), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            }
            Op::SetTimes(path, atime, mtime) => {
                let spec =
                    |t: &Timestamp| Timespec { tv_sec: t.seconds, tv_nsec: i64::from(t.nanos) };
                let times = Timestamps { last_access: spec(atime), last_modification: spec(mtime) };
                fs::utimensat(CWD, self.at(path), &times, AtFlags::empty())
            }
            _ => return Ok(Outcome::Skipped),
        }
        .map(|()| Outcome::Done)
    }

    fn xattr(&self, op: &Op) -> Done {
        let mut buffer = vec![0; XATTR_BYTES];
        match op {
            Op::SetXattr(path, name, value, must) => {
                let flags = match must {
                    None => XattrFlags::empty(),
                    Some(true) => XattrFlags::CREATE,
                    Some(false) => XattrFlags::REPLACE,
                };
                fs::setxattr(self.at(path), name.as_str(), value, flags)?;
            }
            Op::RemoveXattr(path, name) => fs::removexattr(self.at(path), name.as_str())?,
            Op::GetXattr(path, name) => {
                let len = fs::getxattr(self.at(path), name.as_str(), &mut buffer[..])?;
                return Ok(Outcome::Bytes(buffer[..len].to_vec()));
            }
            Op::ListXattr(path) => {
                let len = fs::listxattr(self.at(path), &mut buffer[..])?;
                let names = buffer[..len].split(|&b| b == 0).map(String::from_utf8_lossy);
                let mut names: Vec<_> =
                    names.filter(|n| n.starts_with("user.")).map(|n| n.into_owned()).collect();
                names.sort();
                return Ok(Outcome::Names(names));
            }
            _ => return Ok(Outcome::Skipped),
        }
        Ok(Outcome::Done)
    }
}

impl Subject for Directory {
    fn apply(&mut self, cred: &Credentials, op: &Op) -> Outcome {
        let outcome = as_user(cred, || self.carry_out(op));
        outcome.unwrap_or_else(|errno| Outcome::Failed(kind_of(errno)))
    }

    fn remount(&mut self) {
        self.open.clear();
    }
}

/// Runs something with this thread's effective ids changed, and changes them back.
pub fn as_user<T>(cred: &Credentials, run: impl FnOnce() -> T) -> T {
    let root = (Uid::ROOT, Gid::ROOT);
    if cred.uid == 0 {
        return run();
    }
    let groups: Vec<_> = cred.groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
    thread::set_thread_groups(&groups).expect("tests run as root");
    thread::set_thread_res_gid(root.1, Gid::from_raw(cred.gid), root.1).expect("tests run as root");
    thread::set_thread_res_uid(root.0, Uid::from_raw(cred.uid), root.0).expect("tests run as root");
    let value = run();
    thread::set_thread_res_uid(root.0, root.0, root.0).expect("the saved id allows it");
    thread::set_thread_res_gid(root.1, root.1, root.1).expect("root again");
    thread::set_thread_groups(&[]).expect("root again");
    value
}

fn open_flags(flags: OpenFlags) -> OFlags {
    let mut all = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    all |= match (flags.read, flags.write) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    };
    let given = [
        (flags.append, OFlags::APPEND),
        (flags.truncate, OFlags::TRUNC),
        (flags.create.is_some(), OFlags::CREATE),
        (flags.exclusive, OFlags::EXCL),
    ];
    given.iter().filter(|(on, _)| *on).fold(all, |all, (_, flag)| all | *flag)
}

fn mode(bits: Option<u32>) -> Mode {
    Mode::from_raw_mode(bits.unwrap_or(0))
}

fn read_at(file: impl AsFd, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; len];
    let mut done = 0;
    while done < len {
        match rustix::io::pread(&file, &mut buffer[done..], offset + done as u64)? {
            0 => break,
            n => done += n,
        }
    }
    buffer.truncate(done);
    Ok(buffer)
}

fn copy_range(from: &OwnedFd, mut at: u64, to: &OwnedFd, mut to_at: u64, len: u64) -> Done {
    // A copy within one file may make it longer: only what was there at first is meant.
    let len = len.min((fs::fstat(from)?.st_size as u64).saturating_sub(at));
    let mut done = 0;
    while done < len {
        let left = (len - done) as usize;
        match fs::copy_file_range(from, Some(&mut at), to, Some(&mut to_at), left)? {
            0 => break,
            n => done += n as u64,
        }
    }
    Ok(Outcome::Count(done))
}

fn truncate(path: &Path, length: u64) -> Done {
    match FileType::from_raw_mode(fs::stat(path)?.st_mode) {
        FileType::Directory => return Err(Errno::ISDIR),
        FileType::RegularFile => {}
        _ => return Err(Errno::INVAL),
    }
    let file = fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    fs::ftruncate(file, length).map(|()| Outcome::Done)
}

fn list(path: &Path) -> Done {
    let directory = fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    let mut entries = BTreeMap::new();
    for entry in Dir::new(directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_string_lossy().into_owned();
        if name != "." && name != ".." {
            let kind = kind(entry.file_type());
            assert!(entries.insert(name.clone(), kind).is_none(), "{name} is listed twice");
        }
    }
    Ok(Outcome::Entries(entries))
}

fn kind(file_type: FileType) -> FileKind {
    match file_type {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        _ => FileKind::File,
    }
}

fn stat(raw: &fs::Stat) -> Stat {
    let kind = kind(FileType::from_raw_mode(raw.st_mode));
    let is_directory = kind == FileKind::Directory;
    Stat {
        kind,
        mode: raw.st_mode & 0o7777,
        uid: raw.st_uid,
        gid: raw.st_gid,
        nlink: raw.st_nlink as u32,
        length: if is_directory { 0 } else { raw.st_size as u64 },
        mtime: Some(Timestamp { seconds: raw.st_mtime, nanos: raw.st_mtime_nsec as u32 }),
    }
}

/// The kind that an application's errno stands for. Written down a second time on purpose: the
/// doors' own table is under test.
pub fn kind_of(errno: Errno) -> ErrorKind {
    match errno {
        Errno::NOENT => ErrorKind::NotFound,
        Errno::EXIST => ErrorKind::Exists,
        Errno::NOTDIR => ErrorKind::NotDirectory,
        Errno::ISDIR => ErrorKind::IsDirectory,
        Errno::NOTEMPTY => ErrorKind::NotEmpty,
        Errno::ACCESS => ErrorKind::AccessDenied,
        Errno::PERM => ErrorKind::NotPermitted,
        Errno::INVAL => ErrorKind::Invalid,
        Errno::NAMETOOLONG => ErrorKind::NameTooLong,
        Errno::NOSPC => ErrorKind::NoSpace,
        Errno::FBIG => ErrorKind::FileTooBig,
        Errno::MLINK => ErrorKind::TooManyLinks,
        Errno::LOOP => ErrorKind::SymlinkLoop,
        Errno::ROFS => ErrorKind::ReadOnly,
        Errno::STALE => ErrorKind::Stale,
        Errno::BUSY => ErrorKind::Busy,
        Errno::NODATA => ErrorKind::NoAttribute,
        Errno::OPNOTSUPP => ErrorKind::NotSupported,
        Errno::TIMEDOUT => ErrorKind::TimedOut,
        other => panic!("an application would not expect {other:?} ({other})"),
    }
}
