//! What the kernel is told, and how it is laid out.

use crate::abi;
use crate::errno::Errno;
use bytes::Bytes;
use std::io::IoSlice;
use std::time::Duration;
use strake_types::{Attr, FileKind, Ino};
use zerocopy::IntoBytes;

/// Most parts that one system call takes.
const PARTS_MAX: usize = 1000;
/// Block size that `stat` shows: what a program should read and write at once.
const BLOCK_BYTES: u32 = 1 << 20;

/// The answer to one request.
#[derive(Debug)]
pub enum Reply {
    /// Done.
    Empty,
    /// A name that is not there, which the kernel may remember for this long.
    NoEntry(Duration),
    /// A name and its inode.
    Entry(Shown),
    /// Attributes.
    Attr(Shown),
    /// Attributes with the time of creation.
    Statx(Shown),
    /// An open file.
    Open(Opened),
    /// A new file, opened.
    Created(Shown, Opened),
    /// A page of a directory.
    Listing(Listing),
    /// Bytes.
    Data(Vec<Bytes>),
    /// Bytes taken.
    Written(u32),
    /// Bytes copied.
    Copied(u64),
    /// Counts of the file system.
    Statfs(abi::StatfsOut),
    /// Length of an extended attribute or of their list.
    Size(u32),
    /// A lock in the way, or F_UNLCK.
    Lock(abi::LkOut),
    /// A position.
    Offset(u64),
}

impl Reply {
    /// True if inodes are shown.
    pub fn shows(&self) -> bool {
        use Reply::{Attr, Created, Entry, Listing, Statx};
        matches!(self, Entry(_) | Attr(_) | Statx(_) | Created(..) | Listing(_))
    }

    /// Changes how each inode is shown.
    pub fn each_shown(&mut self, each: impl FnMut(&mut Shown)) {
        match self {
            Reply::Entry(shown) | Reply::Attr(shown) | Reply::Statx(shown) => {
                Some(shown).into_iter().for_each(each)
            }
            Reply::Created(shown, _) => Some(shown).into_iter().for_each(each),
            Reply::Listing(listing) => {
                listing.entries.iter_mut().filter_map(|entry| entry.shown.as_mut()).for_each(each);
            }
            _ => {}
        }
    }
}

/// An inode as the mount shows it.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Attributes; `ino` is as the kernel knows it.
    pub attr: Attr,
    /// How long the kernel may believe them.
    pub valid: Duration,
    /// How long it may believe a name that leads to them.
    pub name_valid: Duration,
    /// The name, in a directory as the volume knows it; `None`: none is shown.
    pub name: Option<(Ino, Bytes)>,
    /// The inode as the volume knows it.
    pub real: Ino,
}

/// An open file.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// Its handle.
    pub fh: u64,
    /// `FOPEN_*`.
    pub flags: u32,
}

/// The type bits of a mode.
pub fn type_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::File => libc::S_IFREG,
        FileKind::Directory => libc::S_IFDIR,
        FileKind::Symlink => libc::S_IFLNK,
        FileKind::Fifo => libc::S_IFIFO,
        FileKind::Socket => libc::S_IFSOCK,
        FileKind::CharDevice => libc::S_IFCHR,
        FileKind::BlockDevice => libc::S_IFBLK,
    }
}

fn fuse_attr(attr: &Attr) -> abi::FuseAttr {
    abi::FuseAttr {
        ino: attr.ino.0,
        size: attr.length,
        blocks: attr.occupied.div_ceil(512),
        atime: attr.atime.seconds,
        mtime: attr.mtime.seconds,
        ctime: attr.ctime.seconds,
        atimensec: attr.atime.nanos,
        mtimensec: attr.mtime.nanos,
        ctimensec: attr.ctime.nanos,
        mode: type_bits(attr.kind) | attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

fn entry_out(shown: &Shown) -> abi::EntryOut {
    abi::EntryOut {
        nodeid: shown.attr.ino.0,
        generation: 0,
        entry_valid: shown.name_valid.as_secs(),
        attr_valid: shown.valid.as_secs(),
        entry_valid_nsec: shown.name_valid.subsec_nanos(),
        attr_valid_nsec: shown.valid.subsec_nanos(),
        attr: fuse_attr(&shown.attr),
    }
}

fn statx_out(shown: &Shown) -> abi::StatxOut {
    let attr = &shown.attr;
    let time =
        |t: strake_types::Timestamp| abi::SxTime { sec: t.seconds, nsec: t.nanos, reserved: 0 };
    let (major, minor) = (libc::major(attr.rdev.into()), libc::minor(attr.rdev.into()));
    abi::StatxOut {
        attr_valid: shown.valid.as_secs(),
        attr_valid_nsec: shown.valid.subsec_nanos(),
        mask: libc::STATX_BASIC_STATS | libc::STATX_BTIME,
        blksize: BLOCK_BYTES,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        mode: (type_bits(attr.kind) | attr.mode) as u16,
        ino: attr.ino.0,
        size: attr.length,
        blocks: attr.occupied.div_ceil(512),
        atime: time(attr.atime),
        btime: time(attr.btime),
        ctime: time(attr.ctime),
        mtime: time(attr.mtime),
        rdev_major: major,
        rdev_minor: minor,
        ..abi::StatxOut::default()
    }
}

fn open_out(opened: Opened) -> abi::OpenOut {
    abi::OpenOut { fh: opened.fh, open_flags: opened.flags, backing_id: 0 }
}

/// Lays an answer out and hands its parts to `send`, headers first.
pub fn encode<T>(
    unique: u64,
    answer: &Result<Reply, Errno>,
    send: impl FnOnce(&[IoSlice<'_>]) -> T,
) -> T {
    let mut head = Vec::with_capacity(320);
    head.extend_from_slice(abi::OutHeader { unique, ..Default::default() }.as_bytes());
    let mut data: &[Bytes] = &[];
    let mut error = 0;
    match answer {
        Err(errno) => error = -errno.0,
        Ok(Reply::Empty) => {}
        Ok(Reply::NoEntry(valid)) => {
            let out = abi::EntryOut {
                entry_valid: valid.as_secs(),
                entry_valid_nsec: valid.subsec_nanos(),
                ..Default::default()
            };
            head.extend_from_slice(out.as_bytes());
        }
        Ok(Reply::Entry(shown)) => head.extend_from_slice(entry_out(shown).as_bytes()),
        Ok(Reply::Attr(shown)) => {
            let out = abi::AttrOut {
                attr_valid: shown.valid.as_secs(),
                attr_valid_nsec: shown.valid.subsec_nanos(),
                dummy: 0,
                attr: fuse_attr(&shown.attr),
            };
            head.extend_from_slice(out.as_bytes());
        }
        Ok(Reply::Statx(shown)) => head.extend_from_slice(statx_out(shown).as_bytes()),
        Ok(Reply::Open(opened)) => head.extend_from_slice(open_out(*opened).as_bytes()),
        Ok(Reply::Created(shown, opened)) => {
            head.extend_from_slice(entry_out(shown).as_bytes());
            head.extend_from_slice(open_out(*opened).as_bytes());
        }
        Ok(Reply::Listing(listing)) => listing.write_to(&mut head),
        Ok(Reply::Data(parts)) => data = parts,
        Ok(Reply::Written(size)) => {
            head.extend_from_slice(abi::WriteOut { size: *size, padding: 0 }.as_bytes());
        }
        Ok(Reply::Copied(bytes_copied)) => {
            let out = abi::CopyFileRangeOut { bytes_copied: *bytes_copied };
            head.extend_from_slice(out.as_bytes());
        }
        Ok(Reply::Statfs(out)) => head.extend_from_slice(out.as_bytes()),
        Ok(Reply::Size(size)) => {
            head.extend_from_slice(abi::GetxattrOut { size: *size, padding: 0 }.as_bytes());
        }
        Ok(Reply::Lock(out)) => head.extend_from_slice(out.as_bytes()),
        Ok(Reply::Offset(offset)) => {
            head.extend_from_slice(abi::LseekOut { offset: *offset }.as_bytes());
        }
    }
    send_parts(&mut head, error, data, send)
}

fn send_parts<T>(
    head: &mut [u8],
    error: i32,
    data: &[Bytes],
    send: impl FnOnce(&[IoSlice<'_>]) -> T,
) -> T {
    let len = head.len() + data.iter().map(Bytes::len).sum::<usize>();
    head[..4].copy_from_slice(&(len as u32).to_ne_bytes());
    head[4..8].copy_from_slice(&error.to_ne_bytes());
    if data.len() > PARTS_MAX {
        let whole = data.concat();
        return send(&[IoSlice::new(head), IoSlice::new(&whole)]);
    }
    match data {
        [] => send(&[IoSlice::new(head)]),
        [one] => send(&[IoSlice::new(head), IoSlice::new(one)]),
        many => {
            let parts = std::iter::once(&head[..]).chain(many.iter().map(|part| &part[..]));
            send(&parts.map(IoSlice::new).collect::<Vec<_>>())
        }
    }
}

/// A page of a directory; full when the kernel's buffer is.
#[derive(Debug)]
pub struct Listing {
    entries: Vec<Listed>,
    /// Each entry is one of READDIRPLUS.
    plus: bool,
    bytes: usize,
    bytes_max: usize,
}

/// An entry of a page.
#[derive(Debug)]
pub struct Listed {
    /// Its name.
    pub name: Bytes,
    /// Its inode as the kernel knows it.
    pub node: u64,
    /// What it is.
    pub kind: FileKind,
    /// The position after it.
    pub cookie: u64,
    /// What READDIRPLUS shows; `None`: the kernel is not to remember the inode.
    pub shown: Option<Shown>,
}

impl Listing {
    /// An empty page for a buffer of `bytes_max`.
    pub fn new(bytes_max: u32, plus: bool) -> Self {
        Self { entries: Vec::new(), plus, bytes: 0, bytes_max: bytes_max as usize }
    }

    /// Adds an entry. False, and no change, if it does not fit.
    pub fn push(&mut self, entry: Listed) -> bool {
        let plus = if self.plus { size_of::<abi::EntryOut>() } else { 0 };
        let bytes = self.bytes + plus + padded(&entry.name);
        let fits = bytes <= self.bytes_max;
        if fits {
            self.bytes = bytes;
            self.entries.push(entry);
        }
        fits
    }

    fn write_to(&self, bytes: &mut Vec<u8>) {
        bytes.reserve(self.bytes);
        for entry in &self.entries {
            if self.plus {
                let out = entry.shown.as_ref().map(entry_out).unwrap_or_default();
                bytes.extend_from_slice(out.as_bytes());
            }
            let dirent = abi::Dirent {
                ino: entry.node,
                off: entry.cookie,
                namelen: entry.name.len() as u32,
                kind: type_bits(entry.kind) >> 12,
            };
            let end = bytes.len() + padded(&entry.name);
            bytes.extend_from_slice(dirent.as_bytes());
            bytes.extend_from_slice(&entry.name);
            bytes.resize(end, 0);
        }
    }
}

/// What an entry with a name takes.
fn padded(name: &[u8]) -> usize {
    (size_of::<abi::Dirent>() + name.len()).next_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(answer: Result<Reply, Errno>) -> Vec<u8> {
        encode(5, &answer, |parts| parts.iter().flat_map(|p| p.to_vec()).collect())
    }

    #[test]
    fn an_error_is_a_negative_number_in_the_header() {
        let bytes = sent(Err(Errno::EINTR));
        assert_eq!(bytes.len(), 16);
        assert_eq!(bytes[..4], 16u32.to_ne_bytes());
        assert_eq!(bytes[4..8], (-libc::EINTR).to_ne_bytes());
        assert_eq!(bytes[8..], 5u64.to_ne_bytes());
    }

    #[test]
    fn data_in_any_number_of_parts_arrives_whole() {
        for parts in [0usize, 1, 3, PARTS_MAX + 1] {
            let bytes = sent(Ok(Reply::Data(vec![Bytes::from_static(b"ab"); parts])));
            assert_eq!(bytes.len(), 16 + 2 * parts);
            assert_eq!(bytes[..4], (bytes.len() as u32).to_ne_bytes());
            assert_eq!(bytes[16..], b"ab".repeat(parts));
        }
    }

    #[test]
    fn a_listing_never_outgrows_its_buffer_and_is_padded() {
        let entry = |name: &'static str, node| {
            let (kind, name) = (FileKind::File, Bytes::from_static(name.as_bytes()));
            Listed { name, node, kind, cookie: node, shown: None }
        };
        for (plus, entry_bytes) in [(false, 32), (true, 32 + size_of::<abi::EntryOut>())] {
            let bytes_max = 2 * entry_bytes;
            let mut listing = Listing::new(bytes_max as u32, plus);
            assert!(listing.push(entry("a", 1)));
            assert!(listing.push(entry("12345678", 2)));
            assert!(!listing.push(entry("c", 3)));
            let bytes = sent(Ok(Reply::Listing(listing)));
            assert_eq!(bytes.len(), 16 + bytes_max);
            assert_eq!(bytes[..4], (bytes.len() as u32).to_ne_bytes());
            assert!(bytes.ends_with(b"12345678"));
        }
    }
}
