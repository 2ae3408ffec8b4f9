//! Operations by path and by handle, and their outcomes.

use std::collections::BTreeMap;
use strake_types::{ErrorKind, FileKind, Timestamp};

/// A path below the root: its components. Empty is the root.
pub type Path = Vec<String>;

/// Number of a handle: what a test keeps in place of a file descriptor.
pub type Slot = usize;

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Every write goes to the end.
    pub append: bool,
    /// Cut to nothing.
    pub truncate: bool,
    /// Make it if it is missing, with this mode.
    pub create: Option<u32>,
    /// With `create`: it must be missing.
    pub exclusive: bool,
}

/// Bytes to write: as many as `len`, told apart by `seed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filler {
    /// Chooses the bytes. Never zeros, so that what was written differs from holes.
    pub seed: u8,
    /// How many.
    pub len: u32,
}

impl Filler {
    /// The bytes.
    pub fn bytes(self) -> Vec<u8> {
        (0..self.len).map(|at| (at.wrapping_mul(31) as u8 ^ self.seed) | 1).collect()
    }
}

/// What `fallocate` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    /// Reserves; the file grows to cover the range.
    Allocate,
    /// Reserves; the length stays.
    KeepSize,
    /// Frees; the length stays.
    Punch,
    /// Zeroes; the file grows to cover the range.
    Zero,
    /// Zeroes what there is; the length stays.
    ZeroKeepSize,
}

/// How `rename` treats its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces it.
    Replace,
    /// It must be missing.
    NoReplace,
    /// The two change places.
    Exchange,
}

/// An operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Opens a regular file and keeps the handle in a slot, closing what was there.
    Open(Slot, Path, OpenFlags),
    /// Closes a slot.
    Close(Slot),
    /// Reads a range through a handle.
    Read(Slot, u64, u32),
    /// Writes bytes through a handle.
    Write(Slot, u64, Filler),
    /// Sets the length through a handle.
    SetLength(Slot, u64),
    /// `fallocate`.
    Fallocate(Slot, Fallocate, u64, u64),
    /// `copy_file_range` from one handle to another.
    CopyRange(Slot, u64, Slot, u64, u64),
    /// `fsync`.
    Sync(Slot),
    /// `fstat`.
    StatHandle(Slot),
    /// Sets the length by path.
    Truncate(Path, u64),
    /// The whole contents by path.
    ReadAll(Path),
    /// `mkdir`.
    MakeDirectory(Path, u32),
    /// `mkfifo`.
    MakeFifo(Path, u32),
    /// `symlink`, with a target that leads nowhere.
    MakeSymlink(Path, String),
    /// `readlink`.
    ReadLink(Path),
    /// `link`: the first gets the second as a further name.
    Link(Path, Path),
    /// `unlink`.
    Unlink(Path),
    /// `rmdir`.
    RemoveDirectory(Path),
    /// `renameat2`.
    Rename(Path, Path, RenameMode),
    /// `lstat`.
    Stat(Path),
    /// True if both lead to one inode.
    SameFile(Path, Path),
    /// Every entry of a directory.
    List(Path),
    /// `chmod`.
    SetMode(Path, u32),
    /// `lchown`.
    SetOwner(Path, u32, u32),
    /// `utimensat`: access and modification time.
    SetTimes(Path, Timestamp, Timestamp),
    /// `setxattr`; true: must create, false: must replace.
    SetXattr(Path, String, Vec<u8>, Option<bool>),
    /// `getxattr`.
    GetXattr(Path, String),
    /// `listxattr`, the `user.` ones.
    ListXattr(Path),
    /// `removexattr`.
    RemoveXattr(Path, String),
}

/// What `stat` shows, as far as the model knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Hard links.
    pub nlink: u32,
    /// Length; 0 for a directory, whose length POSIX leaves open.
    pub length: u64,
    /// Modification time, where it was set and nothing was written since.
    pub mtime: Option<Timestamp>,
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It could not even be tried: no such handle, or not opened for this.
    Skipped,
    /// Done; nothing to show.
    Done,
    /// Bytes.
    Bytes(Vec<u8>),
    /// A number of bytes.
    Count(u64),
    /// Yes or no.
    Truth(bool),
    /// Attributes.
    Stat(Stat),
    /// Entries of a directory, by name.
    Entries(BTreeMap<String, FileKind>),
    /// Names of extended attributes, sorted.
    Names(Vec<String>),
    /// It failed.
    Failed(ErrorKind),
}

impl Outcome {
    /// True if what was seen is what the model expects: a time that the model does not know is not
    /// compared.
    pub fn agrees_with(&self, seen: &Outcome) -> bool {
        match (self, seen) {
            (Outcome::Stat(expected), Outcome::Stat(seen)) if expected.mtime.is_none() => {
                *expected == Stat { mtime: None, ..seen.clone() }
            }
            _ => self == seen,
        }
    }
}
