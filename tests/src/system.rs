//! What applications ask of the kernel and no safe library offers: shared memory, byte-range
//! locks, and signals for one thread. A test that does not do what applications do proves nothing.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;
use strake_base::clock::{Clock, WakingClock};

/// A file mapped into memory.
pub struct Mapping {
    start: *mut libc::c_void,
    len: usize,
}

impl Mapping {
    /// Maps the first `len` bytes for reading and writing.
    pub fn new(file: &File, len: usize, shared: bool) -> io::Result<Self> {
        let flags = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses, of a descriptor that is open.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, flags, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start, len })
    }

    /// The bytes. Others may change them meanwhile: tests look only when nobody does.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `start` is the mapping of `len` bytes made in `new`, unmapped only by drop.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), self.len) }
    }

    /// Writes changes back to the file.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the mapping made in `new`.
        match unsafe { libc::msync(self.start, self.len, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, of which no slice outlives this value.
        unsafe { libc::munmap(self.start, self.len) };
    }
}

/// A byte-range lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeLock {
    /// Many may hold it.
    Shared,
    /// One may hold it.
    Exclusive,
    /// None.
    Unlock,
}

/// Whose lock it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOwner {
    /// This process's (POSIX).
    Process,
    /// This open file's.
    OpenFile,
}

/// Takes or releases a lock on a range; `len` 0 reaches to the end. Without `wait` a lock held by
/// another is [`io::ErrorKind::WouldBlock`].
pub fn lock(
    file: &File,
    owner: LockOwner,
    kind: RangeLock,
    (start, len): (i64, i64),
    wait: bool,
) -> io::Result<()> {
    let kind = match kind {
        RangeLock::Shared => libc::F_RDLCK,
        RangeLock::Exclusive => libc::F_WRLCK,
        RangeLock::Unlock => libc::F_UNLCK,
    };
    let command = match (owner, wait) {
        (LockOwner::Process, false) => libc::F_SETLK,
        (LockOwner::Process, true) => libc::F_SETLKW,
        (LockOwner::OpenFile, false) => libc::F_OFD_SETLK,
        (LockOwner::OpenFile, true) => libc::F_OFD_SETLKW,
    };
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: len,
        l_pid: 0,
    };
    // SAFETY: an open descriptor and a lock description that outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The process that is said to hold a lock in the way of one of the whole file; `None`: there is none in its way.
pub fn lock_holder(file: &File, owner: LockOwner) -> io::Result<Option<i32>> {
    let command = match owner {
        LockOwner::Process => libc::F_GETLK,
        LockOwner::OpenFile => libc::F_OFD_GETLK,
    };
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: an open descriptor and a lock description that outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok((lock.l_type != libc::F_UNLCK as libc::c_short).then_some(lock.l_pid)),
    }
}

/// Interrupts a thread by a signal whose handler does nothing, and after which calls go on by themselves (`SA_RESTART`).
pub fn interrupt<T>(thread: &JoinHandle<T>) -> io::Result<()> {
    extern "C" fn handler(_signal: libc::c_int) {}
    // SAFETY: all zeros are a valid action, whose mask is empty.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: an action that outlives the call, with a handler that is there as long as the program.
    if unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a thread that nobody has joined.
    match unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGUSR1) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Nanoseconds of the clock that all processes of this machine share and nobody sets.
pub fn now_ns() -> u64 {
    WakingClock.monotonic().as_nanos() as u64
}
