//! Errors in POSIX vocabulary.
//!
//! A kind says what went wrong in the words an application would see; [`ErrorKind::advice`] says
//! what the caller inside Strake should do about it. Numbers (errno, nfsstat) live in the doors.

use std::borrow::Cow;
use std::fmt;

/// The result of every operation on the file system.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// What went wrong. The number is the kind's name on the wire and never changes meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum ErrorKind { $($(#[$doc])* $name = $code,)* }

        impl ErrorKind {
            /// Every kind, for tests and tables.
            pub const ALL: &'static [ErrorKind] = &[$(ErrorKind::$name),*];

            /// The kind with this number; unknown numbers (from a newer peer) are [`ErrorKind::Io`].
            pub fn from_code(code: u32) -> Self {
                match code { $($code => ErrorKind::$name,)* _ => ErrorKind::Io }
            }

            /// The words an administrator reads.
            pub fn text(self) -> &'static str {
                match self { $(ErrorKind::$name => $text,)* }
            }
        }
    };
}

kinds! {
    /// ENOENT.
    NotFound = 1, "no such file or directory";
    /// EEXIST.
    Exists = 2, "file exists";
    /// ENOTDIR.
    NotDirectory = 3, "not a directory";
    /// EISDIR.
    IsDirectory = 4, "is a directory";
    /// ENOTEMPTY.
    NotEmpty = 5, "directory not empty";
    /// EACCES: the mode bits or the ACL refuse it.
    AccessDenied = 6, "permission denied";
    /// EPERM: only the owner or root may do it, whatever the mode.
    NotPermitted = 7, "operation not permitted";
    /// EINVAL.
    Invalid = 8, "invalid argument";
    /// ENAMETOOLONG.
    NameTooLong = 9, "file name too long";
    /// ENOSPC.
    NoSpace = 10, "no space left";
    /// EFBIG.
    FileTooBig = 11, "file too large";
    /// EMLINK.
    TooManyLinks = 12, "too many links";
    /// ELOOP.
    SymlinkLoop = 13, "too many levels of symbolic links";
    /// EROFS.
    ReadOnly = 14, "read-only file system";
    /// EXDEV.
    CrossDevice = 15, "invalid cross-device link";
    /// ESTALE: the inode is gone.
    Stale = 16, "stale file handle";
    /// EIO: data could not be read or written.
    Io = 17, "input/output error";
    /// EBUSY.
    Busy = 18, "resource busy";
    /// EAGAIN: a non-blocking lock is held by another.
    WouldBlock = 19, "resource temporarily unavailable";
    /// EDEADLK.
    Deadlock = 20, "resource deadlock avoided";
    /// ENODATA: the extended attribute is not there.
    NoAttribute = 21, "no such attribute";
    /// ERANGE: the buffer given is too small.
    Range = 22, "result too large";
    /// EOPNOTSUPP.
    NotSupported = 23, "operation not supported";
    /// EDQUOT.
    Quota = 24, "quota exceeded";
    /// ENXIO: seek beyond the end.
    NoSuchAddress = 25, "no such device or address";
    /// E2BIG.
    TooBig = 26, "argument too large";
    /// ETIMEDOUT: a bounded wait ended.
    TimedOut = 27, "timed out";
    /// EINTR: the caller's process was interrupted.
    Interrupted = 28, "interrupted";
    /// ETXTBSY.
    TextBusy = 29, "text file busy";
    /// ENFILE.
    TooManyFiles = 30, "too many open files";
    /// A server cannot be reached now; trying again within the caller's time limit is right.
    Unavailable = 40, "server unavailable";
    /// The caller's cluster map is older than the server's: fetch the map, then try again.
    StaleMap = 41, "cluster map is out of date";
    /// The session is unknown or has expired: open a new one, then try again.
    NoSession = 42, "session expired";
    /// The capability is missing, forged or expired: open the file again, then try again.
    BadCapability = 43, "capability refused";
    /// Stored or received bytes do not match their checksum.
    Corrupt = 44, "checksum mismatch";
    /// Optimistic transaction lost against another: run it again.
    Conflict = 45, "transaction conflict";
    /// The target takes no more writes: its disk has failed, or its directory is gone.
    Poisoned = 46, "target takes no writes any more";
    /// The peer speaks another version, or belongs to another cluster.
    WrongPeer = 47, "wrong peer";
    /// The message cannot be understood.
    Malformed = 48, "malformed message";
    /// This copy may not answer now (it is not in sync, its lease is over, a write is under way):
    /// ask another member of the group, or the same one later.
    NotCurrent = 49, "this copy is not current";
    /// Another client holds back what it has written to the file: it is being asked for that.
    HeldBack = 50, "another client is still to tell what it has changed";
    /// A server of the cluster, but one without a manager: ask one that has one.
    NoManager = 51, "no manager there";
    /// Another process has the number of this server by now: this one ends.
    Overtaken = 52, "another process has its number";
    /// The bytes of a write are not those that were sent: send them again.
    Garbled = 53, "damaged on its way";
}

/// What the caller inside Strake should do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Tell the application; trying again changes nothing.
    GiveUp,
    /// Try again, with backoff, within the time limit.
    Retry,
    /// Fetch the cluster map, then try again.
    RefreshMap,
    /// Open a new session or capability, then try again.
    Renew,
}

impl ErrorKind {
    /// What to do about it.
    pub fn advice(self) -> Advice {
        match self {
            ErrorKind::Unavailable
            | ErrorKind::Conflict
            | ErrorKind::HeldBack
            | ErrorKind::Garbled => Advice::Retry,
            ErrorKind::StaleMap | ErrorKind::NotCurrent => Advice::RefreshMap,
            ErrorKind::NoSession | ErrorKind::BadCapability => Advice::Renew,
            _ => Advice::GiveUp,
        }
    }

    /// Whether the file or directory is not there any more: by its name, or by its number.
    pub fn is_gone(self) -> bool {
        matches!(self, ErrorKind::NotFound | ErrorKind::Stale)
    }
}

/// A failed operation: the kind, and (where it helps) the object and the next command to try.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    /// What went wrong.
    pub kind: ErrorKind,
    /// The object and the cause in words; empty where the kind says it all.
    pub detail: Cow<'static, str>,
}

impl ErrorKind {
    /// True if a detail says the cause itself: what is wrong with something, or has failed, is a sentence of its own.
    fn is_said_by_detail(self) -> bool {
        matches!(self, ErrorKind::Invalid | ErrorKind::Io | ErrorKind::Poisoned | ErrorKind::Stale)
    }
}

impl Error {
    /// An error whose kind says it all. Costs no allocation.
    pub const fn new(kind: ErrorKind) -> Self {
        Self { kind, detail: Cow::Borrowed("") }
    }

    /// An error with its object and cause in words.
    pub fn with(kind: ErrorKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, detail: detail.into() }
    }

    /// The same with what it is about before its cause.
    #[must_use]
    pub fn about(self, what: impl fmt::Display) -> Self {
        let detail = match (self.detail.as_ref(), self.kind) {
            ("", kind) if kind.is_said_by_detail() => format!("{what}: {}", self.kind.text()),
            ("", _) => what.to_string(),
            (cause, _) => format!("{what}: {cause}"),
        };
        Self::with(self.kind, detail)
    }

    /// What the caller should do about it.
    pub fn advice(&self) -> Advice {
        self.kind.advice()
    }

    /// Whether the same question may be answered in another way later.
    pub fn is_passing(&self) -> bool {
        self.advice() != Advice::GiveUp
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self::new(kind)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.detail.as_ref(), self.kind) {
            ("", kind) => f.write_str(kind.text()),
            (detail, kind) if kind.is_said_by_detail() => f.write_str(detail),
            (detail, kind) => write!(f, "{detail}: {}", kind.text()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({:?})", self.kind, self.detail)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    /// `strake cp` of what was invalid said its path, and no word of why.
    #[test]
    fn an_error_says_its_cause_whatever_it_is_about() {
        for (error, told) in [
            (Error::new(ErrorKind::Invalid), "/a: invalid argument"),
            (Error::new(ErrorKind::NotFound), "/a: no such file or directory"),
            (Error::with(ErrorKind::Invalid, "give a number"), "/a: give a number"),
            (Error::new(ErrorKind::Io), "/a: input/output error"),
            // As if a disk was dying, whatever it was.
            (Error::with(ErrorKind::Io, "h1 is away"), "/a: h1 is away"),
            (Error::with(ErrorKind::Poisoned, "t1 takes no writes"), "/a: t1 takes no writes"),
            (Error::new(ErrorKind::Stale), "/a: stale file handle"),
            // `strake cp` said that of a source that had become shorter, too.
            (Error::with(ErrorKind::Stale, "it became shorter"), "/a: it became shorter"),
        ] {
            assert_eq!(error.about("/a").to_string(), told);
        }
    }
}
