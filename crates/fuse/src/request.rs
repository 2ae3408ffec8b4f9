//! What the kernel asks, as owned values: nothing here points into the buffer it was read to, except
//! the data of a large write, which takes the buffer along.

use crate::abi;
use crate::buffer::Buffer;
use bytes::Bytes;
use strake_types::Timestamp;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// One request of the kernel.
#[derive(Debug)]
pub struct Request {
    /// Its number, for the reply.
    pub unique: u64,
    /// Opcode, for metrics.
    pub opcode: u32,
    /// The inode it is about, as the kernel knows it (1 is the root of the mount).
    pub node: u64,
    /// File system user id of the caller.
    pub uid: u32,
    /// File system group id of the caller.
    pub gid: u32,
    /// The calling thread, in the name space of this process; 0 if it has no number there.
    pub pid: u32,
    /// What is asked.
    pub op: Op,
}

/// The operations of the protocol that Strake knows.
#[derive(Debug)]
#[allow(missing_docs, reason = "fields are named after the arguments of the system calls")]
pub enum Op {
    Lookup {
        name: Bytes,
    },
    Getattr {
        fh: Option<u64>,
    },
    Statx {
        fh: Option<u64>,
    },
    Setattr(Setattr),
    Readlink,
    Symlink {
        name: Bytes,
        target: Bytes,
    },
    Mknod {
        name: Bytes,
        mode: u32,
        umask: u32,
        rdev: u32,
    },
    Mkdir {
        name: Bytes,
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: Bytes,
    },
    Rmdir {
        name: Bytes,
    },
    Rename {
        name: Bytes,
        new_parent: u64,
        new_name: Bytes,
        flags: u32,
    },
    Link {
        node: u64,
        name: Bytes,
    },
    Open {
        flags: u32,
        kill_suidgid: bool,
    },
    Create {
        name: Bytes,
        flags: u32,
        mode: u32,
        umask: u32,
    },
    Tmpfile {
        flags: u32,
        mode: u32,
        umask: u32,
    },
    Read {
        fh: u64,
        offset: u64,
        size: u32,
        /// The kernel keeps what it gets, by whatever handle it asks.
        fills_pages: bool,
    },
    /// `sync`: the file was opened, or the write called, to return only when it is on disk. `append`: the file has O_APPEND
    /// now, however it was opened.
    /// `kill_suidgid`: the writer may not keep setuid and setgid on a file that he changes.
    Write {
        fh: u64,
        offset: u64,
        data: Bytes,
        append: bool,
        sync: bool,
        kill_suidgid: bool,
        /// The kernel writes pages back that were changed through a map (or kept back), by any handle that may write.
        from_pages: bool,
    },
    Flush {
        fh: u64,
        lock_owner: u64,
    },
    Release {
        fh: u64,
        /// An flock may have been taken by it.
        flocked: bool,
    },
    Fsync {
        fh: u64,
        datasync: bool,
    },
    Opendir,
    Readdir {
        offset: u64,
        size: u32,
        plus: bool,
    },
    Releasedir,
    Fsyncdir,
    Statfs,
    Syncfs,
    Setxattr {
        name: Bytes,
        value: Bytes,
        flags: u32,
        kill_sgid: bool,
    },
    Getxattr {
        name: Bytes,
        size: u32,
    },
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: Bytes,
    },
    Getlk(Lock),
    Setlk {
        lock: Lock,
        wait: bool,
    },
    Access,
    Ioctl,
    Fallocate {
        fh: u64,
        offset: u64,
        length: u64,
        mode: u32,
    },
    Lseek {
        fh: u64,
        offset: u64,
        whence: u32,
    },
    CopyFileRange(CopyRange),
    /// An operation of a newer kernel.
    Unknown,
}

/// Arguments of SETATTR; `None` leaves a field alone.
#[derive(Debug)]
#[allow(missing_docs, reason = "the fields of struct stat")]
pub struct Setattr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<NewTime>,
    pub mtime: Option<NewTime>,
    pub ctime: Option<Timestamp>,
    pub fh: Option<u64>,
    /// Take back setuid and setgid: the caller has no right to keep them.
    pub kill_suidgid: bool,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTime {
    /// The present.
    Now,
    /// This one.
    At(Timestamp),
}

/// A POSIX or flock lock, as GETLK and SETLK carry it.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the fields of struct flock")]
pub struct Lock {
    pub fh: u64,
    pub owner: u64,
    pub start: u64,
    /// Last byte, inclusive.
    pub end: u64,
    /// F_RDLCK, F_WRLCK or F_UNLCK.
    pub kind: u32,
    pub pid: u32,
    /// An flock and not a POSIX lock.
    pub flock: bool,
}

/// Arguments of COPY_FILE_RANGE.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the arguments of the system call")]
pub struct CopyRange {
    pub from: u64,
    pub from_offset: u64,
    pub to: u64,
    pub to_offset: u64,
    pub len: u64,
    /// The answer may be more than 32 bits wide.
    pub wide: bool,
}

/// What was read from the device.
#[derive(Debug)]
pub enum Incoming {
    /// To be answered.
    Request(Request),
    /// The request with this number is no longer waited for patiently.
    Interrupt(u64),
    /// The kernel has no memory of these nodes any more. Nothing to answer.
    Forget(Vec<u64>),
    /// Nothing to be done and nothing to answer.
    Nothing,
    /// The kernel ends the connection.
    Destroy(u64),
    /// Not understood; the request with this number is refused.
    Malformed(u64),
}

/// Walks through the arguments of one request.
struct Arguments<'a> {
    rest: &'a [u8],
}

impl<'a> Arguments<'a> {
    fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Option<T> {
        let (value, rest) = T::read_from_prefix(self.rest).ok()?;
        self.rest = rest;
        Some(value)
    }

    /// A string up to its NUL.
    fn name(&mut self) -> Option<Bytes> {
        let end = self.rest.iter().position(|&b| b == 0)?;
        let name = Bytes::copy_from_slice(&self.rest[..end]);
        self.rest = &self.rest[end + 1..];
        Some(name)
    }
}

/// Understands what was read. A large write takes `buffer` and leaves `None`.
pub fn parse(buffer: &mut Option<Buffer>, len: usize) -> Incoming {
    let Some(bytes) = buffer.as_ref().map(|b| b.filled(len)) else { return Incoming::Nothing };
    let Ok((header, rest)) = abi::InHeader::read_from_prefix(bytes) else {
        return Incoming::Nothing;
    };
    let mut arguments = Arguments { rest };
    match header.opcode {
        abi::FORGET => return Incoming::Forget(vec![header.nodeid]),
        abi::BATCH_FORGET => return Incoming::Forget(forgotten(&mut arguments)),
        abi::DESTROY => return Incoming::Destroy(header.unique),
        abi::INTERRUPT => {
            let target = arguments.take::<abi::InterruptIn>();
            return target.map_or(Incoming::Nothing, |t| Incoming::Interrupt(t.unique));
        }
        _ => {}
    }
    let op = match header.opcode {
        abi::WRITE => write(buffer, len),
        opcode => operation(opcode, &mut arguments),
    };
    let Some(op) = op else { return Incoming::Malformed(header.unique) };
    Incoming::Request(Request {
        unique: header.unique,
        opcode: header.opcode,
        node: header.nodeid,
        uid: header.uid,
        gid: header.gid,
        pid: header.pid,
        op,
    })
}

/// The nodes of a BATCH_FORGET, as many as it says and has.
fn forgotten(arguments: &mut Arguments<'_>) -> Vec<u64> {
    let Some(batch) = arguments.take::<abi::BatchForgetIn>() else { return Vec::new() };
    let one = || arguments.take::<abi::ForgetOne>().map(|one| one.nodeid);
    std::iter::from_fn(one).take(batch.count as usize).collect()
}

/// A write that fills at least half of the buffer takes it; a smaller one is copied, so that a few
/// bytes that wait to be written do not hold a megabyte.
fn write(buffer: &mut Option<Buffer>, len: usize) -> Option<Op> {
    const HEADERS: usize = size_of::<abi::InHeader>() + size_of::<abi::WriteIn>();
    let bytes = buffer.as_ref()?.filled(len);
    let (args, data) =
        abi::WriteIn::read_from_prefix(bytes.get(size_of::<abi::InHeader>()..)?).ok()?;
    let size = args.size as usize;
    if data.len() < size {
        return None;
    }
    let whole = buffer.as_mut()?.space().len();
    let data = if size >= whole / 2 {
        buffer.take()?.into_part(HEADERS, HEADERS + size)
    } else {
        Bytes::copy_from_slice(&buffer.as_ref()?.filled(len)[HEADERS..HEADERS + size])
    };
    Some(Op::Write {
        fh: args.fh,
        offset: args.offset,
        data,
        append: args.flags & libc::O_APPEND as u32 != 0,
        sync: args.flags & libc::O_DSYNC as u32 != 0,
        kill_suidgid: args.write_flags & abi::WRITE_KILL_SUIDGID != 0,
        from_pages: args.write_flags & abi::WRITE_CACHE != 0,
    })
}

fn operation(opcode: u32, a: &mut Arguments<'_>) -> Option<Op> {
    Some(match opcode {
        abi::LOOKUP => Op::Lookup { name: a.name()? },
        abi::READLINK => Op::Readlink,
        abi::SYMLINK => Op::Symlink { name: a.name()?, target: a.name()? },
        abi::MKNOD => {
            let v: abi::MknodIn = a.take()?;
            Op::Mknod { name: a.name()?, mode: v.mode, umask: v.umask, rdev: v.rdev }
        }
        abi::MKDIR => {
            let v: abi::MkdirIn = a.take()?;
            Op::Mkdir { name: a.name()?, mode: v.mode, umask: v.umask }
        }
        abi::UNLINK => Op::Unlink { name: a.name()? },
        abi::RMDIR => Op::Rmdir { name: a.name()? },
        abi::RENAME => {
            let v: abi::RenameIn = a.take()?;
            Op::Rename { name: a.name()?, new_parent: v.newdir, new_name: a.name()?, flags: 0 }
        }
        abi::RENAME2 => {
            let v: abi::Rename2In = a.take()?;
            let (name, new_name) = (a.name()?, a.name()?);
            Op::Rename { name, new_parent: v.newdir, new_name, flags: v.flags }
        }
        abi::LINK => {
            let v: abi::LinkIn = a.take()?;
            Op::Link { node: v.oldnodeid, name: a.name()? }
        }
        abi::OPENDIR => Op::Opendir,
        abi::RELEASEDIR => Op::Releasedir,
        abi::FSYNCDIR => Op::Fsyncdir,
        abi::READDIR | abi::READDIRPLUS => {
            let v: abi::ReadIn = a.take()?;
            Op::Readdir { offset: v.offset, size: v.size, plus: opcode == abi::READDIRPLUS }
        }
        abi::STATFS => Op::Statfs,
        abi::SYNCFS => Op::Syncfs,
        abi::ACCESS => Op::Access,
        abi::IOCTL => Op::Ioctl,
        _ => return attributes(opcode, a),
    })
}

fn attributes(opcode: u32, a: &mut Arguments<'_>) -> Option<Op> {
    Some(match opcode {
        abi::GETATTR => {
            let v: abi::GetattrIn = a.take()?;
            Op::Getattr { fh: (v.flags & abi::GETATTR_FH != 0).then_some(v.fh) }
        }
        abi::STATX => {
            let v: abi::StatxIn = a.take()?;
            Op::Statx { fh: (v.getattr_flags & abi::GETATTR_FH != 0).then_some(v.fh) }
        }
        abi::SETATTR => Op::Setattr(setattr(&a.take()?)),
        abi::SETXATTR => {
            let v: abi::SetxattrIn = a.take()?;
            let name = a.name()?;
            let value = Bytes::copy_from_slice(a.rest.get(..v.size as usize)?);
            let kill_sgid = v.setxattr_flags & abi::SETXATTR_ACL_KILL_SGID != 0;
            Op::Setxattr { name, value, flags: v.flags, kill_sgid }
        }
        abi::GETXATTR => {
            let v: abi::GetxattrIn = a.take()?;
            Op::Getxattr { name: a.name()?, size: v.size }
        }
        abi::LISTXATTR => Op::Listxattr { size: a.take::<abi::GetxattrIn>()?.size },
        abi::REMOVEXATTR => Op::Removexattr { name: a.name()? },
        _ => return contents(opcode, a),
    })
}

fn setattr(v: &abi::SetattrIn) -> Setattr {
    let has = |bit: u32| v.valid & bit != 0;
    let time = |bit: u32, now: u32, seconds: i64, nanos: u32| match has(bit) {
        false => None,
        true if has(now) => Some(NewTime::Now),
        true => Some(NewTime::At(Timestamp { seconds, nanos })),
    };
    Setattr {
        mode: has(abi::FATTR_MODE).then_some(v.mode),
        uid: has(abi::FATTR_UID).then_some(v.uid),
        gid: has(abi::FATTR_GID).then_some(v.gid),
        size: has(abi::FATTR_SIZE).then_some(v.size),
        atime: time(abi::FATTR_ATIME, abi::FATTR_ATIME_NOW, v.atime, v.atimensec),
        mtime: time(abi::FATTR_MTIME, abi::FATTR_MTIME_NOW, v.mtime, v.mtimensec),
        ctime: has(abi::FATTR_CTIME).then_some(Timestamp { seconds: v.ctime, nanos: v.ctimensec }),
        fh: has(abi::FATTR_FH).then_some(v.fh),
        kill_suidgid: has(abi::FATTR_KILL_SUIDGID),
    }
}

fn contents(opcode: u32, a: &mut Arguments<'_>) -> Option<Op> {
    Some(match opcode {
        abi::OPEN => {
            let v: abi::OpenIn = a.take()?;
            let kill_suidgid = v.open_flags & abi::OPEN_KILL_SUIDGID != 0;
            Op::Open { flags: v.flags, kill_suidgid }
        }
        abi::CREATE => {
            let v: abi::CreateIn = a.take()?;
            let name = a.name()?;
            Op::Create { name, flags: v.flags, mode: v.mode, umask: v.umask }
        }
        abi::TMPFILE => {
            let v: abi::CreateIn = a.take()?;
            Op::Tmpfile { flags: v.flags, mode: v.mode, umask: v.umask }
        }
        abi::READ => {
            let v: abi::ReadIn = a.take()?;
            let fills_pages = v.read_flags & abi::READ_LOCKOWNER == 0;
            Op::Read { fh: v.fh, offset: v.offset, size: v.size, fills_pages }
        }
        abi::FLUSH => {
            let v: abi::FlushIn = a.take()?;
            Op::Flush { fh: v.fh, lock_owner: v.lock_owner }
        }
        abi::RELEASE => {
            let v: abi::ReleaseIn = a.take()?;
            Op::Release { fh: v.fh, flocked: v.release_flags & abi::RELEASE_FLOCK_UNLOCK != 0 }
        }
        abi::FSYNC => {
            let v: abi::FsyncIn = a.take()?;
            Op::Fsync { fh: v.fh, datasync: v.fsync_flags & abi::FSYNC_FDATASYNC != 0 }
        }
        abi::GETLK => Op::Getlk(lock(&a.take()?)),
        abi::SETLK | abi::SETLKW => {
            Op::Setlk { lock: lock(&a.take()?), wait: opcode == abi::SETLKW }
        }
        abi::FALLOCATE => {
            let v: abi::FallocateIn = a.take()?;
            Op::Fallocate { fh: v.fh, offset: v.offset, length: v.length, mode: v.mode }
        }
        abi::LSEEK => {
            let v: abi::LseekIn = a.take()?;
            Op::Lseek { fh: v.fh, offset: v.offset, whence: v.whence }
        }
        abi::COPY_FILE_RANGE | abi::COPY_FILE_RANGE_64 => {
            let v: abi::CopyFileRangeIn = a.take()?;
            Op::CopyFileRange(CopyRange {
                from: v.fh_in,
                from_offset: v.off_in,
                to: v.fh_out,
                to_offset: v.off_out,
                len: v.len,
                wide: opcode == abi::COPY_FILE_RANGE_64,
            })
        }
        _ => Op::Unknown,
    })
}

fn lock(v: &abi::LkIn) -> Lock {
    Lock {
        fh: v.fh,
        owner: v.owner,
        start: v.start,
        end: v.end,
        kind: v.kind,
        pid: v.pid,
        flock: v.lk_flags & abi::LK_FLOCK != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::BufferPool;
    use zerocopy::IntoBytes;

    fn header(opcode: u32) -> abi::InHeader {
        abi::InHeader { len: 0, opcode, unique: 7, nodeid: 1, uid: 2, gid: 3, pid: 4, padding: 0 }
    }

    fn parsed(opcode: u32, body: &[u8]) -> (Incoming, bool) {
        let pool = BufferPool::new(1 << 16);
        let mut buffer = pool.take();
        let bytes = [header(opcode).as_bytes(), body].concat();
        buffer.space()[..bytes.len()].copy_from_slice(&bytes);
        let mut slot = Some(buffer);
        let incoming = parse(&mut slot, bytes.len());
        (incoming, slot.is_some())
    }

    #[test]
    fn what_the_kernel_forgets_is_named() {
        let nodes = |opcode, body: &[u8]| match parsed(opcode, body).0 {
            Incoming::Forget(nodes) => nodes,
            other => panic!("{other:?}"),
        };
        assert_eq!(nodes(abi::FORGET, &[0; 8]), [1]);
        let batch = |count: u32| {
            let ones = [(5, 1), (6, 2)].map(|(nodeid, nlookup)| abi::ForgetOne { nodeid, nlookup });
            [abi::BatchForgetIn { count, dummy: 0 }.as_bytes(), ones.as_bytes()].concat()
        };
        assert_eq!(nodes(abi::BATCH_FORGET, &batch(2)), [5, 6]);
        assert_eq!(nodes(abi::BATCH_FORGET, &batch(1)), [5]);
        assert_eq!(nodes(abi::BATCH_FORGET, &batch(u32::MAX)), [5, 6]);
        assert!(nodes(abi::BATCH_FORGET, &[]).is_empty());
    }

    fn write_of(size: usize, flags: i32) -> Vec<u8> {
        let args = abi::WriteIn {
            fh: 9,
            offset: 5,
            size: size as u32,
            write_flags: 0,
            lock_owner: 0,
            flags: flags as u32,
            padding: 0,
        };
        [args.as_bytes(), &vec![3; size]].concat()
    }

    #[test]
    fn a_large_write_takes_the_buffer_and_a_small_one_leaves_it() {
        for (size, stays) in [(1 << 16, false), (100, true)] {
            let (incoming, kept) = parsed(abi::WRITE, &write_of(size, libc::O_DSYNC));
            assert_eq!(kept, stays);
            let Incoming::Request(Request { op: Op::Write { data, sync, append, .. }, .. }) =
                incoming
            else {
                panic!("not a write")
            };
            assert_eq!(&data[..], vec![3; size]);
            assert!(sync && !append);
        }
    }

    #[test]
    fn each_write_says_whether_the_file_has_o_append() {
        for flags in [0, libc::O_APPEND] {
            let (incoming, _) = parsed(abi::WRITE, &write_of(100, flags));
            let Incoming::Request(Request { op: Op::Write { append, sync, .. }, .. }) = incoming
            else {
                panic!("not a write")
            };
            assert_eq!((append, sync), (flags != 0, false));
        }
    }

    #[test]
    fn each_read_says_whether_it_fills_pages() {
        for (read_flags, fills) in [(0, true), (abi::READ_LOCKOWNER, false)] {
            let (fh, offset, size, lock_owner) = (9, 5, 100, 0);
            let args =
                abi::ReadIn { fh, offset, size, read_flags, lock_owner, flags: 0, padding: 0 };
            let (incoming, _) = parsed(abi::READ, args.as_bytes());
            let Incoming::Request(Request { op: Op::Read { fills_pages, .. }, .. }) = incoming
            else {
                panic!("not a read")
            };
            assert_eq!(fills_pages, fills);
        }
    }

    #[test]
    fn a_write_shorter_than_it_says_is_refused() {
        let body = write_of(100, 0);
        let (incoming, _) = parsed(abi::WRITE, &body[..body.len() - 1]);
        assert!(matches!(incoming, Incoming::Malformed(7)));
    }

    #[test]
    fn names_end_at_their_nul_and_missing_ones_are_refused() {
        let (incoming, _) = parsed(abi::SYMLINK, b"name\0target\0");
        let Incoming::Request(Request { op: Op::Symlink { name, target }, .. }) = incoming else {
            panic!("not a symlink")
        };
        assert_eq!((&name[..], &target[..]), (&b"name"[..], &b"target"[..]));
        assert!(matches!(parsed(abi::SYMLINK, b"name\0target").0, Incoming::Malformed(7)));
        assert!(matches!(parsed(abi::RENAME2, b"1234").0, Incoming::Malformed(7)));
    }

    #[test]
    fn flock_and_posix_locks_are_told_apart() {
        let mut args = abi::LkIn {
            fh: 1,
            owner: 2,
            start: 0,
            end: u64::MAX,
            kind: 1,
            pid: 3,
            lk_flags: abi::LK_FLOCK,
            padding: 0,
        };
        for flock in [true, false] {
            let (incoming, _) = parsed(abi::SETLKW, args.as_bytes());
            let Incoming::Request(Request { op: Op::Setlk { lock, wait: true }, .. }) = incoming
            else {
                panic!("not a lock")
            };
            assert_eq!(lock.flock, flock);
            args.lk_flags = 0;
        }
    }

    #[test]
    fn an_operation_of_a_newer_kernel_is_unknown_and_not_malformed() {
        let (incoming, _) = parsed(4711, b"");
        assert!(matches!(incoming, Incoming::Request(Request { op: Op::Unknown, .. })));
    }
}
