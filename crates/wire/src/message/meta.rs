//! Requests to a metadata server: names and attributes of one volume.

mod answer;
mod behind;
mod check;
mod claims;
mod loans;
mod written;

use super::common::{AttrChange, Cred, Template};
use prost::{Message, Oneof};
use strake_types::Ino;

pub use behind::{Behind, ChangeBehind, NameChange};
pub use check::{Check, CheckPart, Checked, Problem};
pub use claims::{Claim, Claimed, Look, Told};
pub use loans::{Borrow, GiveBack, Loan};
pub use written::{Publish, WriteInline};

pub use answer::{
    Ask, Client, ClientList, Created, Description, DirEntry, Holder, Made, MetaAnswer, MetaReply,
    Named, Opened, Page, Recalled, Renamed, Session, VolumeStat,
};

/// One operation on a volume.
#[derive(Clone, PartialEq, Message)]
pub struct MetaRequest {
    /// The volume.
    #[prost(uint32, tag = "1")]
    pub volume: u32,
    /// The client's session; 0 for [`MetaOp::OpenSession`].
    #[prost(uint64, tag = "2")]
    pub session: u64,
    /// Number of a mutation or an open within its session; 0: not to be remembered (in-process callers, reads).
    #[prost(uint64, tag = "3")]
    pub seq: u64,
    /// Every mutation up to this number has been answered and may be forgotten.
    #[prost(uint64, tag = "4")]
    pub answered: u64,
    /// Who asks.
    #[prost(message, required, tag = "5")]
    pub cred: Cred,
    /// The client keeps what is leased to it ([`MetaOp::Recalls`]); 0: it does not. The number grows when it
    /// does not know the end of a change: should that be carried out later, under the smaller number, what was
    /// leased under the greater one is recalled.
    #[prost(uint64, tag = "6")]
    pub leases: u64,
    /// Which incarnation of its session the client asks in ([`OpenSession::incarnation`]).
    #[prost(uint64, tag = "7")]
    pub incarnation: u64,
    /// What the client has closed, before the operation: what that may take the last name of. As in
    /// [`MetaOp::RenewSession`], and counted once with that.
    #[prost(message, optional, tag = "8")]
    pub closed: Option<RenewSession>,
    /// Mutations above `answered` that the client has given up, the newest of them: they are over, too. Mostly none.
    #[prost(uint64, repeated, tag = "9")]
    pub given_up: Vec<u64>,
    /// What to do.
    #[prost(
        oneof = "MetaOp",
        tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47"
    )]
    pub op: Option<MetaOp>,
}

/// The operations of a metadata server.
#[derive(Clone, PartialEq, Oneof)]
pub enum MetaOp {
    /// A client begins.
    #[prost(message, tag = "10")]
    OpenSession(OpenSession),
    /// A client is alive, and which files it holds open no more. Answer: Done.
    #[prost(message, tag = "11")]
    RenewSession(RenewSession),
    /// A client ends: its locks and open files are released. Answer: Done.
    #[prost(message, tag = "12")]
    CloseSession(Nothing),
    /// A name in a directory. `.` and `..` work. Answer: Entry.
    #[prost(message, tag = "13")]
    Lookup(Name),
    /// Attributes of an inode. Answer: Entry.
    #[prost(message, tag = "14")]
    GetAttr(Look),
    /// Changes attributes. A shorter length frees contents. Answer: Entry.
    #[prost(message, tag = "15")]
    SetAttr(SetAttr),
    /// A new file of any kind. Answer: Created.
    #[prost(message, tag = "16")]
    Create(Create),
    /// A further name for a file. Answer: Named.
    #[prost(message, tag = "17")]
    Link(Link),
    /// Removes a name. Answer: Named, the inode after it (nlink 0: gone, or an open orphan).
    #[prost(message, tag = "18")]
    Unlink(Unlink),
    /// Moves a name. Answer: Renamed.
    #[prost(message, tag = "19")]
    Rename(Rename),
    /// Target of a symbolic link. Answer: Bytes.
    #[prost(message, tag = "20")]
    ReadLink(Inode),
    /// Opens a regular file. Answer: Opened.
    #[prost(message, tag = "21")]
    Open(Open),
    /// A page of a directory. Answer: Page.
    #[prost(message, tag = "22")]
    ReadDir(ReadDir),
    /// What a client has written to chunks: length and times. Answer: Entry.
    #[prost(message, tag = "23")]
    Publish(Publish),
    /// Writes into the contents inside the inode; [`strake_types::ErrorKind::FileTooBig`] if they do
    /// not fit or have moved out (then: MoveOut). Answer: Entry.
    #[prost(message, tag = "24")]
    WriteInline(WriteInline),
    /// Moves contents from the inode to chunks. Done already: no change. Answer: Entry.
    #[prost(message, tag = "25")]
    MoveOut(Inode),
    /// An extended attribute. Answer: Bytes.
    #[prost(message, tag = "26")]
    GetXattr(Xattr),
    /// Names of the extended attributes, each ended by a NUL. Answer: Bytes.
    #[prost(message, tag = "27")]
    ListXattr(Inode),
    /// Sets an extended attribute. Answer: Done.
    #[prost(message, tag = "28")]
    SetXattr(Xattr),
    /// Removes an extended attribute. Answer: Done.
    #[prost(message, tag = "29")]
    RemoveXattr(Xattr),
    /// Takes, changes or releases a lock. WouldBlock where it is held by another and the wait is over. Answer: Done.
    #[prost(message, tag = "30")]
    SetLock(Lock),
    /// The first lock that conflicts. Answer: Lock, or Done if none.
    #[prost(message, tag = "31")]
    GetLock(Lock),
    /// Makes an inode (and its directory entry) durable; ino 0: everything. [`strake_types::ErrorKind::Stale`] if the inode is not there. Answer: Done.
    #[prost(message, tag = "32")]
    Sync(Inode),
    /// Counts of the volume. Answer: VolumeStat.
    #[prost(message, tag = "33")]
    VolumeStat(Nothing),
    /// The layout template set on a directory itself. Answer: Template.
    #[prost(message, tag = "34")]
    GetTemplate(Inode),
    /// Sets the layout of a directory (for what is created below it later) or of a file that has no contents yet. Answer: Done.
    #[prost(message, tag = "35")]
    SetTemplate(SetTemplate),
    /// The contents of an inline file. Answer: Opened, without registering an open.
    #[prost(message, tag = "36")]
    ReadInline(Inode),
    /// Where an inode has its names and who has it open, for administrators: only root may ask, and the user who runs the server. Answer: Description.
    #[prost(message, tag = "37")]
    Describe(Inode),
    /// Looks through a page of a part of the volume for what does not fit: only root may ask. Answer: Checked.
    #[prost(message, tag = "38")]
    Check(Check),
    /// What the client is to believe no longer; the answer waits a while until there is something. Keeps the leases of the session alive. Answer: Recalled.
    #[prost(message, tag = "39")]
    Recalls(Recalls),
    /// The clients of the volume, for administrators: only root may ask. Answer: Clients.
    #[prost(message, tag = "40")]
    ListClients(Nothing),
    /// Ends a client's session as if nothing had been heard of it for long: only root may ask. Answer: Done,
    /// at once; the client is gone when it is in the list no more.
    #[prost(message, tag = "41")]
    EvictClient(ClientRef),
    /// Waits until nobody else holds back what he has written to a file that the caller has open
    /// ([`Opened::unsettled`]); [`strake_types::ErrorKind::HeldBack`] if that takes long: to be asked again.
    /// Answer: Opened, without registering an open.
    #[prost(message, tag = "42")]
    Settle(Inode),
    /// What the client has written to a file is told, and from now on it tells each write before that returns, unless it was
    /// asked to tell once only ([`Recalled::shared`]). Answer: Done.
    #[prost(message, tag = "43")]
    Told(Told),
    /// The server of another share of the volume is about to change inodes of this one: nobody else does, reads them from
    /// memory or is leased them until they are given back. Answer: Loan.
    #[prost(message, tag = "44")]
    Borrow(Borrow),
    /// A loan is over. Answer: Done.
    #[prost(message, tag = "45")]
    GiveBack(GiveBack),
    /// A range of a file that the caller has open for writing, as others have: what it writes there it need not tell until
    /// it is asked to ([`Recalled::shared`]), with which all its claims on the file are over. Granted as long as nobody reads
    /// the file or writes there as well; else all claims on it are called back, and for a while all write through.
    /// [`strake_types::ErrorKind::HeldBack`] if that takes long. Answer: Claimed.
    #[prost(message, tag = "46")]
    Claim(Claim),
    /// Changes of names that the client has answered, by its exclusive leases on the directories
    /// ([`Attributes::exclusive`](super::common::Attributes::exclusive)): made in their order, up to the first that is refused,
    /// [`strake_types::ErrorKind::Stale`] if it has those leases no more. Answer: Made.
    #[prost(message, tag = "47")]
    Behind(Behind),
}

impl MetaOp {
    /// The inode in whose share it is carried out; `None`: it is about a whole share.
    pub fn place(&self) -> Option<Ino> {
        use MetaOp::*;
        Some(Ino(match self {
            Lookup(at) => at.parent,
            Create(create) => create.at.parent,
            Link(link) => link.to.parent,
            Unlink(unlink) => unlink.at.parent,
            Rename(rename) => rename.from.parent,
            GetAttr(look) => look.ino,
            ReadLink(inode) | MoveOut(inode) | ListXattr(inode) | GetTemplate(inode)
            | ReadInline(inode) | Describe(inode) | Settle(inode) => inode.ino,
            SetAttr(set) => set.ino,
            Open(open) => open.ino,
            ReadDir(read) => read.ino,
            Publish(publish) => publish.ino,
            WriteInline(write) => write.ino,
            GetXattr(xattr) | SetXattr(xattr) | RemoveXattr(xattr) => xattr.ino,
            SetLock(lock) | GetLock(lock) => lock.ino,
            SetTemplate(set) => set.ino,
            Told(told) => told.ino,
            Claim(claim) => claim.ino,
            Sync(inode) if inode.ino != 0 => inode.ino,
            OpenSession(_) | RenewSession(_) | CloseSession(_) | Sync(_) | VolumeStat(_)
            | Check(_) | Recalls(_) | ListClients(_) | EvictClient(_) | Borrow(_) | GiveBack(_)
            | Behind(_) => {
                return None;
            }
        }))
    }

    /// True for what may have to wait for other clients: it is answered when they have done something. What they do (they tell
    /// what they have written, or unlock) must not have to wait behind it, also where each of two clients waits for the other.
    pub fn waits_for_others(&self) -> bool {
        match self {
            MetaOp::SetLock(lock) => lock.wait_ms > 0,
            MetaOp::GetAttr(look) => look.to_read || look.told,
            MetaOp::Settle(_) | MetaOp::Claim(_) => true,
            _ => false,
        }
    }

    /// True for what only servers say: a client that could would stop others.
    pub fn is_between_servers(&self) -> bool {
        matches!(self, MetaOp::Borrow(_) | MetaOp::GiveBack(_))
    }
}

/// An operation without arguments.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Nothing {}

/// Names an inode.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Inode {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub ino: u64,
}

/// Names a directory entry.
#[derive(Clone, PartialEq, Message)]
pub struct Name {
    /// The directory.
    #[prost(uint64, tag = "1")]
    pub parent: u64,
    /// The name: 1 to 255 bytes without `/` and NUL.
    #[prost(bytes = "bytes", tag = "2")]
    pub name: bytes::Bytes,
}

/// See [`MetaOp::OpenSession`].
#[derive(Clone, PartialEq, Message)]
pub struct OpenSession {
    /// Who the client is, for people: host, process, mount point.
    #[prost(string, tag = "1")]
    pub client: String,
    /// An earlier session to go on with (after a break or a restart of the server); 0 for none.
    #[prost(uint64, tag = "2")]
    pub resume: u64,
    /// Files that the client holds open, with repeats dropped.
    #[prost(uint64, repeated, tag = "3")]
    pub open: Vec<u64>,
    /// A number that grows each time the client begins to open its session, from one on that it has drawn. Opens are counted
    /// anew in each incarnation: what was opened and closed in an earlier one is in `open`, or over. What is asked for again
    /// has the number of then, and begins no second session. 0: not said.
    #[prost(uint64, tag = "4")]
    pub incarnation: u64,
    /// Those of the open files that it may write to.
    #[prost(uint64, repeated, tag = "5")]
    pub writable: Vec<u64>,
    /// Which client that is: its sessions with all shares of a volume have the same number, and those of others another
    /// one. 0: not said.
    #[prost(uint64, tag = "6")]
    pub mount: u64,
    /// It asks before it reads what others may have claimed ([`Look::to_read`]), and before it writes there
    /// ([`MetaOp::Claim`]).
    #[prost(bool, tag = "7")]
    pub claims: bool,
    /// It reads a file by where it lies only as long as that is leased to it, or has just been asked for; and rests when it is
    /// asked to ([`Recalled::rest`]): a file may lie elsewhere from one moment to the next although it has it open.
    #[prost(bool, tag = "8")]
    pub moves: bool,
    /// Of which release it is, for people; empty: one that does not say.
    #[prost(string, tag = "9")]
    pub release: String,
    /// It gives exclusive leases back when it is asked to ([`Recalled::exclusive`]), and so may be given some.
    #[prost(bool, tag = "10")]
    pub behind: bool,
}

/// See [`MetaOp::RenewSession`].
#[derive(Clone, PartialEq, Message)]
pub struct RenewSession {
    /// Files closed since the last report; each takes back one Open or Created-with-open.
    #[prost(uint64, repeated, tag = "1")]
    pub closed: Vec<u64>,
    /// Number of this report within its session, ascending: what is sent twice counts once. 0: none.
    #[prost(uint64, tag = "2")]
    pub number: u64,
    /// The incarnation of the session in which they were opened: in another one they count for nothing.
    #[prost(uint64, tag = "3")]
    pub incarnation: u64,
}

/// See [`MetaOp::EvictClient`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct ClientRef {
    /// Its session.
    #[prost(uint64, tag = "1")]
    pub session: u64,
}

/// See [`MetaOp::Recalls`].
#[derive(Clone, PartialEq, Message)]
pub struct Recalls {
    /// Number of the last recall that the client has followed; 0: none.
    #[prost(uint64, tag = "1")]
    pub followed: u64,
    /// What has waited longest there, for people.
    #[prost(message, repeated, tag = "2")]
    pub waits: Vec<Wait>,
    /// Number of the last recall of everything after which the client has forgotten everything; 0: there was none. Its
    /// kernel may still believe what it was told before, until the client says that it has followed.
    #[prost(uint64, tag = "3")]
    pub forgotten: u64,
    /// What has waited there lately and does not any more, for people: the metadata server may be what was waited for.
    #[prost(message, repeated, tag = "4")]
    pub waited: Vec<Wait>,
    /// Numbers of exclusive leases that the client has no more, with nothing under way there.
    #[prost(uint64, repeated, tag = "5")]
    pub given_back: Vec<u64>,
    /// Changes that the client has answered are under way since before it took up its session.
    #[prost(bool, tag = "6")]
    pub behind: bool,
}

/// An operation of a client that waits, or has waited.
#[derive(Clone, PartialEq, Message)]
pub struct Wait {
    /// For what, and why.
    #[prost(string, tag = "1")]
    pub what: String,
    /// A file that it is about; 0: none.
    #[prost(uint64, tag = "2")]
    pub ino: u64,
    /// For how long, in milliseconds.
    #[prost(uint64, tag = "3")]
    pub waited_ms: u64,
    /// For how long at most.
    #[prost(uint64, tag = "4")]
    pub limit_ms: u64,
    /// Of one that does not wait any more: for how long not, in milliseconds.
    #[prost(uint64, tag = "5")]
    pub ended_ms: u64,
}

/// See [`MetaOp::SetAttr`].
#[derive(Clone, PartialEq, Message)]
pub struct SetAttr {
    /// The inode.
    #[prost(uint64, tag = "1")]
    pub ino: u64,
    /// What changes.
    #[prost(message, required, tag = "2")]
    pub change: AttrChange,
    /// The caller holds the file open for writing: a new length needs no permission.
    #[prost(bool, tag = "3")]
    pub writable_handle: bool,
}

/// See [`MetaOp::Create`].
#[derive(Clone, PartialEq, Message)]
pub struct Create {
    /// Where. An empty name makes a file without a name (O_TMPFILE) on that directory's file system.
    #[prost(message, required, tag = "1")]
    pub at: Name,
    /// [`strake_types::FileKind`] as its number.
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    /// Permission bits before the umask.
    #[prost(uint32, tag = "3")]
    pub mode: u32,
    /// The caller's umask; a default ACL of the directory takes its place.
    #[prost(uint32, tag = "4")]
    pub umask: u32,
    /// Device number of a device node.
    #[prost(uint32, tag = "5")]
    pub rdev: u32,
    /// Target of a symbolic link.
    #[prost(bytes = "bytes", tag = "6")]
    pub target: bytes::Bytes,
    /// Regular files: also open it, as [`MetaOp::Open`] would.
    #[prost(message, optional, tag = "7")]
    pub open: Option<OpenMode>,
    /// Fail if the name exists. Without it an existing regular file is opened.
    #[prost(bool, tag = "8")]
    pub exclusive: bool,
    /// Layout for this file, over what it inherits.
    #[prost(message, optional, tag = "9")]
    pub template: Option<Template>,
}

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct OpenMode {
    /// For reading.
    #[prost(bool, tag = "1")]
    pub read: bool,
    /// For writing.
    #[prost(bool, tag = "2")]
    pub write: bool,
    /// Cut to length 0.
    #[prost(bool, tag = "3")]
    pub truncate: bool,
}

/// See [`MetaOp::Link`].
#[derive(Clone, PartialEq, Message)]
pub struct Link {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub ino: u64,
    /// Its further name.
    #[prost(message, required, tag = "2")]
    pub to: Name,
}

/// See [`MetaOp::Unlink`].
#[derive(Clone, PartialEq, Message)]
pub struct Unlink {
    /// The name.
    #[prost(message, required, tag = "1")]
    pub at: Name,
    /// It must be an (empty) directory; otherwise it must not be one.
    #[prost(bool, tag = "2")]
    pub directory: bool,
}

/// See [`MetaOp::Rename`].
#[derive(Clone, PartialEq, Message)]
pub struct Rename {
    /// The old name.
    #[prost(message, required, tag = "1")]
    pub from: Name,
    /// The new name.
    #[prost(message, required, tag = "2")]
    pub to: Name,
    /// RENAME_NOREPLACE.
    #[prost(bool, tag = "3")]
    pub no_replace: bool,
    /// RENAME_EXCHANGE.
    #[prost(bool, tag = "4")]
    pub exchange: bool,
}

/// See [`MetaOp::Open`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Open {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub ino: u64,
    /// How.
    #[prost(message, required, tag = "2")]
    pub mode: OpenMode,
}

/// See [`MetaOp::ReadDir`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct ReadDir {
    /// The directory.
    #[prost(uint64, tag = "1")]
    pub ino: u64,
    /// Cookie of the last entry seen; 0 at the start. Cookies stay true while others create and remove.
    #[prost(uint64, tag = "2")]
    pub after: u64,
    /// Most entries wanted.
    #[prost(uint32, tag = "3")]
    pub limit: u32,
    /// With attributes.
    #[prost(bool, tag = "4")]
    pub plus: bool,
}

/// An extended attribute. Also `system.posix_acl_access`, `system.posix_acl_default` and
/// `user.strake.layout.*`, which the server interprets.
#[derive(Clone, PartialEq, Message)]
pub struct Xattr {
    /// The inode.
    #[prost(uint64, tag = "1")]
    pub ino: u64,
    /// Name with its prefix.
    #[prost(bytes = "bytes", tag = "2")]
    pub name: bytes::Bytes,
    /// Value to set.
    #[prost(bytes = "bytes", tag = "3")]
    pub value: bytes::Bytes,
    /// XATTR_CREATE.
    #[prost(bool, tag = "4")]
    pub must_create: bool,
    /// XATTR_REPLACE.
    #[prost(bool, tag = "5")]
    pub must_replace: bool,
    /// With an ACL setgid is taken back: the caller may not keep it, says the kernel that has checked his rights.
    #[prost(bool, tag = "6")]
    pub drop_setgid: bool,
}

/// A byte-range (POSIX) or whole-file (flock) lock.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Lock {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub ino: u64,
    /// Owner within the session.
    #[prost(uint64, tag = "2")]
    pub owner: u64,
    /// Process shown to others.
    #[prost(uint32, tag = "3")]
    pub pid: u32,
    /// First byte.
    #[prost(uint64, tag = "4")]
    pub start: u64,
    /// Last byte, inclusive; u64::MAX is the end of the file however long.
    #[prost(uint64, tag = "5")]
    pub end: u64,
    /// 0 unlock, 1 shared, 2 exclusive.
    #[prost(uint32, tag = "6")]
    pub kind: u32,
    /// A flock, which conflicts with flocks only.
    #[prost(bool, tag = "7")]
    pub flock: bool,
    /// How long the server may let the caller wait, at most 1,000 ms; then ask again. 0: what its owner waited for before is
    /// over.
    #[prost(uint32, tag = "8")]
    pub wait_ms: u32,
}

/// See [`MetaOp::SetTemplate`].
#[derive(Clone, PartialEq, Message)]
pub struct SetTemplate {
    /// The directory or file.
    #[prost(uint64, tag = "1")]
    pub ino: u64,
    /// The template; empty removes it.
    #[prost(message, required, tag = "2")]
    pub template: Template,
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_types::limits::{BODY_BYTES_MAX, OPEN_FILES_MAX};

    #[test]
    fn a_session_names_as_many_files_as_may_be_open() {
        let open = vec![u64::MAX >> 1; OPEN_FILES_MAX];
        let writable = open.clone();
        let session = OpenSession { open, writable, ..OpenSession::default() };
        let request =
            MetaRequest { op: Some(MetaOp::OpenSession(session)), ..MetaRequest::default() };
        assert!(request.encoded_len() < BODY_BYTES_MAX);
    }
}
