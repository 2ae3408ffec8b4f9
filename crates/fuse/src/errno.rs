//! The one place where errors get numbers.

use strake_types::{Error, ErrorKind};

/// A number the kernel understands, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// The operation is not one this door knows; the kernel does not ask again.
    pub const ENOSYS: Errno = Errno(libc::ENOSYS);
    /// A number or a combination that makes no sense.
    pub const EINVAL: Errno = Errno(libc::EINVAL);
    /// The handle is not open.
    pub const EBADF: Errno = Errno(libc::EBADF);
    /// The waiting process got a signal.
    pub const EINTR: Errno = Errno(libc::EINTR);
    /// Something broke.
    pub const EIO: Errno = Errno(libc::EIO);
    /// No such ioctl.
    pub const ENOTTY: Errno = Errno(libc::ENOTTY);
    /// The caller's buffer is too small.
    pub const ERANGE: Errno = Errno(libc::ERANGE);
    /// The file system does not know such a thing.
    pub const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);
}

/// What an application sees. Kinds that speak to callers inside Strake arrive here only when every
/// retry has ended, and are then plain I/O errors.
const TABLE: &[(ErrorKind, i32)] = &[
    (ErrorKind::NotFound, libc::ENOENT),
    (ErrorKind::Exists, libc::EEXIST),
    (ErrorKind::NotDirectory, libc::ENOTDIR),
    (ErrorKind::IsDirectory, libc::EISDIR),
    (ErrorKind::NotEmpty, libc::ENOTEMPTY),
    (ErrorKind::AccessDenied, libc::EACCES),
    (ErrorKind::NotPermitted, libc::EPERM),
    (ErrorKind::Invalid, libc::EINVAL),
    (ErrorKind::NameTooLong, libc::ENAMETOOLONG),
    (ErrorKind::NoSpace, libc::ENOSPC),
    (ErrorKind::FileTooBig, libc::EFBIG),
    (ErrorKind::TooManyLinks, libc::EMLINK),
    (ErrorKind::SymlinkLoop, libc::ELOOP),
    (ErrorKind::ReadOnly, libc::EROFS),
    (ErrorKind::CrossDevice, libc::EXDEV),
    (ErrorKind::Stale, libc::ESTALE),
    (ErrorKind::Io, libc::EIO),
    (ErrorKind::Busy, libc::EBUSY),
    (ErrorKind::WouldBlock, libc::EAGAIN),
    (ErrorKind::Deadlock, libc::EDEADLK),
    (ErrorKind::NoAttribute, libc::ENODATA),
    (ErrorKind::Range, libc::ERANGE),
    (ErrorKind::NotSupported, libc::EOPNOTSUPP),
    (ErrorKind::Quota, libc::EDQUOT),
    (ErrorKind::NoSuchAddress, libc::ENXIO),
    (ErrorKind::TooBig, libc::E2BIG),
    (ErrorKind::TimedOut, libc::ETIMEDOUT),
    (ErrorKind::Interrupted, libc::EINTR),
    (ErrorKind::TextBusy, libc::ETXTBSY),
    (ErrorKind::TooManyFiles, libc::ENFILE),
];

/// The number of a kind.
pub fn errno_of(kind: ErrorKind) -> Errno {
    let found = TABLE.iter().find(|(known, _)| *known == kind);
    Errno(found.map_or(libc::EIO, |(_, number)| *number))
}

/// The kind of a number; a number that no kind stands for is [`ErrorKind::Io`].
pub fn kind_of(number: i32) -> ErrorKind {
    let found = TABLE.iter().find(|(_, known)| *known == number);
    found.map_or(ErrorKind::Io, |(kind, _)| *kind)
}

impl From<ErrorKind> for Errno {
    fn from(kind: ErrorKind) -> Self {
        errno_of(kind)
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        let errno = errno_of(error.kind);
        if errno == Errno::EIO {
            tracing::warn!(%error, "an operation of the mount failed");
        }
        errno
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posix_kinds_go_both_ways_and_inner_kinds_are_io_errors() {
        for &kind in ErrorKind::ALL {
            let number = errno_of(kind).0;
            if (kind as u32) < ErrorKind::Unavailable as u32 {
                assert_eq!(kind_of(number), kind, "{kind:?}");
            } else {
                assert_eq!(number, libc::EIO, "{kind:?}");
            }
        }
    }

    #[test]
    fn an_unknown_number_is_an_io_error() {
        assert_eq!(kind_of(9999), ErrorKind::Io);
    }
}
