//! What a client tells of what it has written to a file.

use crate::message::common::{AttrChange, Time};
use prost::Message;

/// See [`super::MetaOp::Publish`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Publish {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub ino: u64,
    /// The length is at least this.
    #[prost(uint64, tag = "2")]
    pub length_min: u64,
    /// When it was written.
    #[prost(message, optional, tag = "3")]
    pub mtime: Option<Time>,
    /// Answer only when this is on disk.
    #[prost(bool, tag = "4")]
    pub sync: bool,
    /// Bytes written since the last publish, for the file's and volume's occupied bytes.
    #[prost(sint64, tag = "5")]
    pub occupied_delta: i64,
    /// Also take back setuid and setgid, as a write by an ordinary user does, and `security.capability`. With nothing else it
    /// comes before a write, and changes no time of contents.
    #[prost(bool, tag = "6")]
    pub drop_setid: bool,
    /// When it was changed last, if that is not when it was written: then `mtime` is one that somebody has set.
    #[prost(message, optional, tag = "7")]
    pub ctime: Option<Time>,
    /// When it was last read, if somebody has set that.
    #[prost(message, optional, tag = "8")]
    pub atime: Option<Time>,
}

/// See [`super::MetaOp::WriteInline`].
#[derive(Clone, PartialEq, Message)]
pub struct WriteInline {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub ino: u64,
    /// First byte written; a gap before it is zeros.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// The bytes.
    #[prost(bytes = "bytes", tag = "3")]
    pub data: bytes::Bytes,
    /// When it was written.
    #[prost(message, optional, tag = "4")]
    pub mtime: Option<Time>,
    /// Answer only when this is on disk.
    #[prost(bool, tag = "5")]
    pub sync: bool,
    /// As in [`Publish`].
    #[prost(bool, tag = "6")]
    pub drop_setid: bool,
    /// The writer closes the file with this: takes back one open.
    #[prost(bool, tag = "7")]
    pub close: bool,
    /// The incarnation of the session in which it was opened: in another one `close` counts for nothing.
    #[prost(uint64, tag = "8")]
    pub incarnation: u64,
    /// As in [`Publish`].
    #[prost(message, optional, tag = "9")]
    pub ctime: Option<Time>,
    /// As in [`Publish`].
    #[prost(message, optional, tag = "10")]
    pub atime: Option<Time>,
    /// Mode and owner that it gets after the write, as by [`SetAttr`](super::SetAttr): nothing else is changed.
    #[prost(message, optional, boxed, tag = "11")]
    pub change: Option<Box<AttrChange>>,
}
