//! One open `/dev/fuse`: requests are read from it, answers and recalls are written to it.

use crate::abi;
use crate::errno::Errno;
use crate::reply::{Reply, encode};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno as OsError;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use zerocopy::{Immutable, IntoBytes};

/// `FUSE_DEV_IOC_CLONE` of linux/fuse.h: `_IOR(229, 0, uint32_t)`.
const CLONE_IOCTL: libc::c_ulong = 0x8004_e500;

/// What a look at the device found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A request of so many bytes.
    Request(usize),
    /// Nothing at the moment.
    Nothing,
    /// The file system is unmounted or the connection was aborted.
    End,
}

/// A connection's device. Each request must be answered on the device it was read from.
pub struct Device {
    fd: OwnedFd,
}

impl Device {
    /// A further handle on the device that `fd` is.
    pub fn from_session(fd: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self { fd: fd.try_clone_to_owned()? })
    }

    /// A device of its own on the same connection, with its own list of requests under way, so that
    /// several threads do not share a lock in the kernel.
    pub fn clone_connection(&self) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open("/dev/fuse", flags, Mode::empty())?;
        let mut from = self.fd.as_raw_fd();
        // SAFETY: the ioctl reads one u32 from the address given, which is alive during the call;
        // both descriptors are open.
        #[allow(unsafe_code, reason = "neither rustix nor std knows this ioctl")]
        let result = unsafe { libc::ioctl(fd.as_raw_fd(), CLONE_IOCTL, &raw mut from) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { fd })
    }

    /// Looks for a request.
    pub fn try_read(&self, space: &mut [u8]) -> io::Result<Found> {
        loop {
            match rustix::io::read(self.fd.as_fd(), &mut *space) {
                Ok(len) => return Ok(Found::Request(len)),
                // ENOENT: the request was interrupted before anybody read it.
                Err(OsError::NOENT | OsError::INTR) => {}
                Err(OsError::AGAIN) => return Ok(Found::Nothing),
                Err(OsError::NODEV | OsError::CONNABORTED) => return Ok(Found::End),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until there is something to read.
    pub fn wait(&self) -> io::Result<()> {
        let mut device = [PollFd::new(&self.fd, PollFlags::IN)];
        match rustix::event::poll(&mut device, None) {
            Ok(_) | Err(OsError::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Tells the kernel something that it has not asked for; false if it does not know the inode, which is fine.
    pub(crate) fn notify(&self, code: i32, body: &(impl IntoBytes + Immutable)) -> bool {
        let len = (size_of::<abi::OutHeader>() + body.as_bytes().len()) as u32;
        let head = abi::OutHeader { len, error: code, unique: 0 };
        let parts = [IoSlice::new(head.as_bytes()), IoSlice::new(body.as_bytes())];
        match rustix::io::writev(self.fd.as_fd(), &parts) {
            Ok(_) | Err(OsError::NODEV | OsError::CONNABORTED) => true,
            Err(OsError::NOENT) => false,
            Err(error) => {
                tracing::error!(code, %error, "the kernel refused to be told");
                true
            }
        }
    }

    /// Answers a request. Failure means that nobody waits for the answer any more (the request was
    /// aborted), or that the answer is malformed, which is a bug and is logged.
    pub fn answer(&self, unique: u64, answer: &Result<Reply, Errno>) {
        let sent = encode(unique, answer, |parts| rustix::io::writev(self.fd.as_fd(), parts));
        match sent {
            Ok(_) | Err(OsError::NOENT | OsError::NODEV | OsError::CONNABORTED) => {}
            Err(error) => {
                tracing::error!(unique, %error, "the kernel refused an answer");
                if answer.is_ok() {
                    self.answer(unique, &Err(Errno::EIO));
                }
            }
        }
    }
}
