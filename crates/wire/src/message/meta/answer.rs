//! What a metadata server answers.

use super::{Checked, Claimed, Loan, Lock, Nothing};
use crate::message::common::{Attributes, Template};
use prost::{Message, Oneof};

/// The answer of a metadata server.
#[derive(Clone, PartialEq, Message)]
pub struct MetaReply {
    /// Which answer.
    #[prost(
        oneof = "MetaAnswer",
        tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29"
    )]
    pub answer: Option<MetaAnswer>,
    /// Sessions are fenced up to this epoch of the map ([`crate::message::storage::StorageRequest::fenced`]).
    #[prost(uint64, tag = "1")]
    pub fenced: u64,
}

/// The answers of a metadata server.
#[derive(Clone, PartialEq, Oneof)]
#[allow(clippy::large_enum_variant, reason = "one lives per call, and a box would cost more")]
pub enum MetaAnswer {
    /// Done.
    #[prost(message, tag = "10")]
    Done(Nothing),
    /// A session.
    #[prost(message, tag = "11")]
    Session(Session),
    /// Attributes.
    #[prost(message, tag = "12")]
    Entry(Attributes),
    /// A new (or, without `exclusive`, an existing) file.
    #[prost(message, tag = "13")]
    Created(Created),
    /// Both ends of a rename.
    #[prost(message, tag = "14")]
    Renamed(Renamed),
    /// Raw bytes.
    #[prost(bytes = "bytes", tag = "15")]
    Bytes(bytes::Bytes),
    /// An open file.
    #[prost(message, tag = "16")]
    Opened(Opened),
    /// A page of a directory.
    #[prost(message, tag = "17")]
    Page(Page),
    /// A conflicting lock.
    #[prost(message, tag = "18")]
    Lock(Lock),
    /// Counts.
    #[prost(message, tag = "19")]
    VolumeStat(VolumeStat),
    /// A layout template.
    #[prost(message, tag = "20")]
    Template(Template),
    /// An inode that got or lost a name.
    #[prost(message, tag = "21")]
    Named(Named),
    /// Names and users of an inode.
    #[prost(message, tag = "22")]
    Description(Description),
    /// What a check has found.
    #[prost(message, tag = "23")]
    Checked(Checked),
    /// What is to be believed no longer.
    #[prost(message, tag = "24")]
    Recalled(Recalled),
    /// Lookup: there is no such name, and the caller has a lease on the directory. Without one that is the
    /// error [`strake_types::ErrorKind::NotFound`].
    #[prost(message, tag = "25")]
    Missing(Nothing),
    /// Clients.
    #[prost(message, tag = "26")]
    Clients(ClientList),
    /// What was borrowed.
    #[prost(message, tag = "27")]
    Loan(Loan),
    /// A range that is claimed, or for how long none is.
    #[prost(message, tag = "28")]
    Claimed(Claimed),
    /// How far changes were made that the client had answered.
    #[prost(message, tag = "29")]
    Made(Made),
}

/// See [`MetaAnswer::Clients`].
#[derive(Clone, PartialEq, Message)]
pub struct ClientList {
    /// By session.
    #[prost(message, repeated, tag = "1")]
    pub clients: Vec<Client>,
    /// What the metadata server itself has waited for longest, for whomever.
    #[prost(message, repeated, tag = "2")]
    pub waits: Vec<super::Wait>,
}

/// A client of a volume.
#[derive(Clone, PartialEq, Message)]
pub struct Client {
    /// Its session.
    #[prost(uint64, tag = "1")]
    pub session: u64,
    /// Who it is, for people.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Milliseconds since the metadata server heard of it last.
    #[prost(uint64, tag = "3")]
    pub silent_ms: u64,
    /// Files that it has open.
    #[prost(uint64, tag = "4")]
    pub open: u64,
    /// Files on which it holds locks.
    #[prost(uint64, tag = "5")]
    pub locked: u64,
    /// Inodes that are leased to it.
    #[prost(uint64, tag = "6")]
    pub leased: u64,
    /// It has not come back since the metadata server was started.
    #[prost(bool, tag = "7")]
    pub absent: bool,
    /// It is being fenced: what it held is about to be given back.
    #[prost(bool, tag = "8")]
    pub lost: bool,
    /// Which client that is ([`OpenSession::mount`](super::OpenSession::mount)); 0: it has not said so.
    #[prost(uint64, tag = "9")]
    pub mount: u64,
    /// What has waited longest there, when it was heard last.
    #[prost(message, repeated, tag = "10")]
    pub waits: Vec<super::Wait>,
    /// What had waited there shortly before that.
    #[prost(message, repeated, tag = "11")]
    pub waited: Vec<super::Wait>,
    /// Of which release it is, for people; empty: it has not come back yet, or does not say.
    #[prost(string, tag = "12")]
    pub release: String,
}

/// See [`MetaAnswer::Recalled`].
#[derive(Clone, PartialEq, Message)]
pub struct Recalled {
    /// Number of the last of these recalls: [`Recalls::followed`](super::Recalls) when all are followed.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// Inodes of which nothing is leased any more, neither attributes nor names.
    #[prost(uint64, repeated, tag = "2")]
    pub inodes: Vec<u64>,
    /// Nothing at all is leased any more.
    #[prost(bool, tag = "3")]
    pub everything: bool,
    /// Files that somebody else has open now. What was written to them is to be told, from now on each write
    /// before it returns, and [`MetaOp::Told`](super::MetaOp::Told) says so. Not numbered: asked for again
    /// until it is said.
    #[prost(message, repeated, tag = "4")]
    pub shared: Vec<Ask>,
    /// Files that are to lie elsewhere. Where all is told that was written to one, the client may say that it rests
    /// ([`Told::rests`](super::Told::rests)). Asked for again for a moment; who is busy says nothing.
    #[prost(message, repeated, tag = "5")]
    pub rest: Vec<Ask>,
    /// Files of which a cut may stay undone on some targets for now. Who may write to one asks for that right anew
    /// ([`MetaOp::Open`](super::MetaOp::Open), which completes the cut) before he sends anything more: it would be cut, too. Said
    /// again as long as the cut is undone.
    #[prost(uint64, repeated, tag = "6")]
    pub cuts: Vec<u64>,
    /// Directories in which somebody else is now, with the numbers of the exclusive leases on them: when nothing is under way
    /// there any more, [`Told::exclusive`](super::Told::exclusive) says so. Asked for again until it is said.
    #[prost(message, repeated, tag = "7")]
    pub exclusive: Vec<Ask>,
}

/// See [`Recalled::shared`] and [`Recalled::rest`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Ask {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub ino: u64,
    /// Number of the question.
    #[prost(uint64, tag = "2")]
    pub number: u64,
    /// What was written so far is to be told once, and that is all: claims stay, and so does what was said of writes from now
    /// on.
    #[prost(bool, tag = "3")]
    pub keep: bool,
}

/// See [`MetaAnswer::Named`].
#[derive(Clone, PartialEq, Message)]
pub struct Named {
    /// The inode.
    #[prost(message, required, tag = "1")]
    pub attr: Attributes,
    /// The directory after it.
    #[prost(message, optional, tag = "2")]
    pub parent: Option<Attributes>,
}

/// See [`MetaAnswer::Session`].
#[derive(Clone, PartialEq, Message)]
pub struct Session {
    /// Its id.
    #[prost(uint64, tag = "1")]
    pub session: u64,
    /// Time within which RenewSession must arrive.
    #[prost(uint64, tag = "2")]
    pub lease_ms: u64,
    /// True if the session asked for goes on: its locks are still held.
    #[prost(bool, tag = "3")]
    pub resumed: bool,
    /// Files among those it may write to that others have open: each write is told before it is answered.
    #[prost(uint64, repeated, tag = "4")]
    pub shared: Vec<u64>,
    /// Ranges of files that others have open may be claimed ([`MetaOp::Claim`](super::MetaOp::Claim)): who writes to such a
    /// file asks first.
    #[prost(bool, tag = "5")]
    pub claims: bool,
    /// Attributes that somebody has set may come with what was written ([`Publish`](super::Publish),
    /// [`WriteInline`](super::WriteInline)).
    #[prost(bool, tag = "6")]
    pub with_writes: bool,
    /// The server knows [`MetaOp::Behind`](super::MetaOp::Behind), and has others wait for what the client has answered.
    #[prost(bool, tag = "7")]
    pub behind: bool,
}

/// See [`MetaAnswer::Created`].
#[derive(Clone, PartialEq, Message)]
pub struct Created {
    /// The inode.
    #[prost(message, required, tag = "1")]
    pub attr: Attributes,
    /// It is new.
    #[prost(bool, tag = "2")]
    pub created: bool,
    /// If opened.
    #[prost(message, optional, tag = "3")]
    pub opened: Option<Opened>,
    /// The directory after it.
    #[prost(message, optional, tag = "4")]
    pub parent: Option<Attributes>,
}

/// See [`MetaAnswer::Opened`].
#[derive(Clone, PartialEq, Message)]
pub struct Opened {
    /// The inode as it is now.
    #[prost(message, required, tag = "1")]
    pub attr: Attributes,
    /// Contents, where they lie inside the inode.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub inline: Option<bytes::Bytes>,
    /// Right to the chunks.
    #[prost(bytes = "bytes", tag = "3")]
    pub capability: bytes::Bytes,
    /// Others have it open: each write is to be told before it returns.
    #[prost(bool, tag = "4")]
    pub shared: bool,
    /// Others may hold back what they have written: [`MetaOp::Settle`](super::MetaOp::Settle) before this is
    /// believed.
    #[prost(bool, tag = "5")]
    pub unsettled: bool,
    /// Others have it open and may write to it: who keeps what he reads of it would have it taken back all the time.
    #[prost(bool, tag = "6")]
    pub others_write: bool,
}

/// See [`MetaAnswer::Renamed`].
#[derive(Clone, PartialEq, Message)]
pub struct Renamed {
    /// What was moved.
    #[prost(message, required, tag = "1")]
    pub moved: Attributes,
    /// What was replaced (nlink already lowered) or exchanged.
    #[prost(message, optional, tag = "2")]
    pub other: Option<Attributes>,
    /// The directory of the old name, after it.
    #[prost(message, optional, tag = "3")]
    pub parent: Option<Attributes>,
    /// The directory of the new name, after it, if it is another.
    #[prost(message, optional, tag = "4")]
    pub new_parent: Option<Attributes>,
}

/// See [`MetaAnswer::Page`].
#[derive(Clone, PartialEq, Message)]
pub struct Page {
    /// Entries, in cookie order, without `.` and `..`.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<DirEntry>,
    /// No entry follows.
    #[prost(bool, tag = "2")]
    pub end: bool,
    /// The directory's parent, for `..`.
    #[prost(uint64, tag = "3")]
    pub parent: u64,
    /// The caller has a lease on the directory.
    #[prost(bool, tag = "4")]
    pub leased: bool,
}

/// A directory entry.
#[derive(Clone, PartialEq, Message)]
pub struct DirEntry {
    /// Name.
    #[prost(bytes = "bytes", tag = "1")]
    pub name: bytes::Bytes,
    /// Inode.
    #[prost(uint64, tag = "2")]
    pub ino: u64,
    /// [`strake_types::FileKind`] as its number.
    #[prost(uint32, tag = "3")]
    pub kind: u32,
    /// Where to go on after it; greater than 0 and less than 2^63.
    #[prost(uint64, tag = "4")]
    pub cookie: u64,
    /// Attributes, if asked for.
    #[prost(message, optional, tag = "5")]
    pub attr: Option<Attributes>,
}

/// See [`MetaAnswer::VolumeStat`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct VolumeStat {
    /// Inodes in use.
    #[prost(uint64, tag = "1")]
    pub inodes: u64,
    /// Bytes of contents.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// Inodes that may still be made.
    #[prost(uint64, tag = "3")]
    pub inodes_free: u64,
    /// Open sessions.
    #[prost(uint64, tag = "4")]
    pub sessions: u64,
}

/// See [`MetaOp::Describe`](super::MetaOp::Describe).
#[derive(Clone, PartialEq, Message)]
pub struct Description {
    /// Its paths from the volume's root, without the first `/`; not all where there are very many.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub paths: Vec<bytes::Bytes>,
    /// Who has it open or holds a lock on it.
    #[prost(message, repeated, tag = "2")]
    pub holders: Vec<Holder>,
}

/// A session that has a file open, or holds locks on it.
#[derive(Clone, PartialEq, Message)]
pub struct Holder {
    /// The session.
    #[prost(uint64, tag = "1")]
    pub session: u64,
    /// Who the client is, for people.
    #[prost(string, tag = "2")]
    pub client: String,
    /// How often it has the file open.
    #[prost(uint32, tag = "3")]
    pub opens: u32,
    /// How many locks it holds: POSIX locks and flocks.
    #[prost(uint32, tag = "4")]
    pub locks: u32,
    /// It has not come back since the metadata server was started.
    #[prost(bool, tag = "5")]
    pub absent: bool,
}

/// See [`MetaAnswer::Made`].
#[derive(Clone, PartialEq, Message)]
pub struct Made {
    /// What was made, from the first on: the inode, what was replaced, and the directories after it.
    #[prost(message, repeated, tag = "1")]
    pub changes: Vec<Renamed>,
    /// Why the next one is not, nor those after it: an [`strake_types::ErrorKind`] as its number; 0: it was not come to yet.
    #[prost(uint32, tag = "2")]
    pub refused: u32,
    /// The same in words.
    #[prost(string, tag = "3")]
    pub why: String,
}
