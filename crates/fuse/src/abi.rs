//! The kernel's side of the protocol: opcodes, structures and constants of `linux/fuse.h`, ABI 7.40.
//!
//! Names are the kernel's without the `fuse_` prefix, so that the header can be read beside them.

#![allow(missing_docs, reason = "linux/fuse.h documents each field under the same name")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! opcodes {
    ($($name:ident = $code:literal $text:literal,)*) => {
        $(pub const $name: u32 = $code;)*
        /// Every opcode with the name its metrics carry.
        pub const OPCODES: &[(u32, &str)] = &[$(($code, $text)),*];
    };
}

opcodes! {
    LOOKUP = 1 "lookup", FORGET = 2 "forget", GETATTR = 3 "getattr", SETATTR = 4 "setattr",
    READLINK = 5 "readlink", SYMLINK = 6 "symlink", MKNOD = 8 "mknod", MKDIR = 9 "mkdir",
    UNLINK = 10 "unlink", RMDIR = 11 "rmdir", RENAME = 12 "rename", LINK = 13 "link",
    OPEN = 14 "open", READ = 15 "read", WRITE = 16 "write", STATFS = 17 "statfs",
    RELEASE = 18 "release", FSYNC = 20 "fsync", SETXATTR = 21 "setxattr",
    GETXATTR = 22 "getxattr", LISTXATTR = 23 "listxattr", REMOVEXATTR = 24 "removexattr",
    FLUSH = 25 "flush", OPENDIR = 27 "opendir", READDIR = 28 "readdir",
    RELEASEDIR = 29 "releasedir", FSYNCDIR = 30 "fsyncdir", GETLK = 31 "getlk",
    SETLK = 32 "setlk", SETLKW = 33 "setlkw", ACCESS = 34 "access", CREATE = 35 "create",
    INTERRUPT = 36 "interrupt", DESTROY = 38 "destroy", IOCTL = 39 "ioctl",
    BATCH_FORGET = 42 "batch_forget", FALLOCATE = 43 "fallocate",
    READDIRPLUS = 44 "readdirplus", RENAME2 = 45 "rename2", LSEEK = 46 "lseek",
    COPY_FILE_RANGE = 47 "copy_file_range", SYNCFS = 50 "syncfs", TMPFILE = 51 "tmpfile",
    STATX = 52 "statx", COPY_FILE_RANGE_64 = 53 "copy_file_range_64",
}

pub const FATTR_MODE: u32 = 1;
pub const FATTR_UID: u32 = 1 << 1;
pub const FATTR_GID: u32 = 1 << 2;
pub const FATTR_SIZE: u32 = 1 << 3;
pub const FATTR_ATIME: u32 = 1 << 4;
pub const FATTR_MTIME: u32 = 1 << 5;
pub const FATTR_FH: u32 = 1 << 6;
pub const FATTR_ATIME_NOW: u32 = 1 << 7;
pub const FATTR_MTIME_NOW: u32 = 1 << 8;
pub const FATTR_CTIME: u32 = 1 << 10;
pub const FATTR_KILL_SUIDGID: u32 = 1 << 11;

pub const FOPEN_DIRECT_IO: u32 = 1;
pub const FOPEN_KEEP_CACHE: u32 = 1 << 1;
pub const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

pub const NOTIFY_INVAL_INODE: i32 = 2;

pub const GETATTR_FH: u32 = 1;
/// Among the flags of an OPEN: the file is opened to be run (`__FMODE_EXEC`).
pub const OPEN_EXEC: u32 = 1 << 5;
pub const OPEN_KILL_SUIDGID: u32 = 1;
/// Among the flags of a READ: it is for a program, around the page cache; whoever fills pages names no owner of locks.
pub const READ_LOCKOWNER: u32 = 1 << 1;
pub const WRITE_CACHE: u32 = 1;
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
pub const FSYNC_FDATASYNC: u32 = 1;
pub const LK_FLOCK: u32 = 1;
pub const SETXATTR_ACL_KILL_SGID: u32 = 1;

macro_rules! incoming {
    ($($name:ident { $($field:ident: $kind:ty),* })*) => { $(
        #[repr(C)]
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        pub struct $name { $(pub $field: $kind),* }
    )* };
}

macro_rules! outgoing {
    ($($name:ident { $($field:ident: $kind:ty),* })*) => { $(
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        pub struct $name { $(pub $field: $kind),* }
    )* };
}

incoming! {
    InHeader { len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, padding: u32 }
    GetattrIn { flags: u32, dummy: u32, fh: u64 }
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64,
        atime: i64, mtime: i64, ctime: i64, atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32
    }
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn { mode: u32, umask: u32 }
    RenameIn { newdir: u64 }
    Rename2In { newdir: u64, flags: u32, padding: u32 }
    LinkIn { oldnodeid: u64 }
    OpenIn { flags: u32, open_flags: u32 }
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    ReadIn { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    WriteIn { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32 }
    SetxattrIn { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    GetxattrIn { size: u32, padding: u32 }
    FlushIn { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    LkIn { fh: u64, owner: u64, start: u64, end: u64, kind: u32, pid: u32, lk_flags: u32, padding: u32 }
    InterruptIn { unique: u64 }
    BatchForgetIn { count: u32, dummy: u32 }
    ForgetOne { nodeid: u64, nlookup: u64 }
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 }
    CopyFileRangeIn { fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64 }
    StatxIn { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
}

outgoing! {
    OutHeader { len: u32, error: i32, unique: u64 }
    FuseAttr {
        ino: u64, size: u64, blocks: u64, atime: i64, mtime: i64, ctime: i64,
        atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32
    }
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: FuseAttr
    }
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: FuseAttr }
    OpenOut { fh: u64, open_flags: u32, backing_id: u32 }
    WriteOut { size: u32, padding: u32 }
    GetxattrOut { size: u32, padding: u32 }
    LkOut { start: u64, end: u64, kind: u32, pid: u32 }
    LseekOut { offset: u64 }
    CopyFileRangeOut { bytes_copied: u64 }
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64,
        bsize: u32, namelen: u32, frsize: u32, padding: u32, spare: [u32; 6]
    }
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }
    InvalInodeOut { ino: u64, off: i64, len: i64 }
    SxTime { sec: i64, nsec: u32, reserved: i32 }
    StatxOut {
        attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2],
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16,
        ino: u64, size: u64, blocks: u64, attributes_mask: u64,
        atime: SxTime, btime: SxTime, ctime: SxTime, mtime: SxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::size_of;

    #[test]
    fn structures_have_the_kernels_sizes() {
        assert_eq!(size_of::<InHeader>(), 40);
        assert_eq!(size_of::<SetattrIn>(), 88);
        assert_eq!(size_of::<WriteIn>(), 40);
        assert_eq!(size_of::<LkIn>(), 48);
        assert_eq!(size_of::<OutHeader>(), 16);
        assert_eq!(size_of::<FuseAttr>(), 88);
        assert_eq!(size_of::<EntryOut>(), 128);
        assert_eq!(size_of::<AttrOut>(), 104);
        assert_eq!(size_of::<StatfsOut>(), 80);
        assert_eq!(size_of::<StatxOut>(), 288);
        assert_eq!(size_of::<InvalInodeOut>(), 24);
    }
}
