//! What the standard library leaves out about open files: closing one and hearing about it, keeping them from other programs,
//! waiting for a lock for a while, and how many there may be.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io;
use std::os::fd::IntoRawFd;
use std::time::{Duration, Instant};

/// Between two looks whether a lock is free.
const LOCK_LOOK: Duration = Duration::from_millis(5);

/// How many files, connections and the like this process may have open at once.
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// What an error says, and what to do where no file more may be opened: no disk and no network is to blame then.
pub fn told(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => format!(
            "{error}; let its server open more files (LimitNOFILE= of a systemd unit, ulimit -n): it may have {} files and \
             connections open",
            limit()
        ),
        Some(Errno::NFILE) => {
            format!("{error}; let its machine open more files (sysctl fs.file-max)")
        }
        _ => error.to_string(),
    }
}

/// Makes that as many as the system lets it have, where shells give 1,024.
pub fn raise_limit() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}

/// None of the files that this process has open by now, but the standard three, are open in programs that it starts: neither its own,
/// nor those that it got from who started it. (Before Linux 5.11 that fails.)
pub fn keep_from_programs() -> io::Result<()> {
    // SAFETY: it takes no pointer, and closes nothing that is in use here.
    #[allow(unsafe_code)]
    let marked =
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if marked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Locks a file or directory for this open file alone (`flock`). Blocks for at most `wait`, then
/// [`io::ErrorKind::WouldBlock`].
pub fn lock_within(file: &File, wait: Duration) -> io::Result<()> {
    let end = Instant::now() + wait;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(LOCK_LOOK),
            outcome => return Ok(outcome?),
        }
    }
}

/// Closes a file. A file system that sends what it holds back only now (NFS, FUSE) says here what
/// went wrong, which dropping the value would not tell.
pub fn close(file: File) -> io::Result<()> {
    let fd = file.into_raw_fd();
    // SAFETY: the descriptor was owned by `file`, which has given it up: nobody closes it again.
    #[allow(unsafe_code)]
    let closed = unsafe { libc::close(fd) };
    if closed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More for its server would be of no use.
    #[test]
    fn where_the_system_may_open_no_file_more_it_is_to_have_more() {
        let told = |errno: Errno| told(&errno.into());
        assert!(told(Errno::MFILE).contains("; let its server open more files (LimitNOFILE"));
        assert!(told(Errno::NFILE).contains("; let its machine open more files (sysctl"));
        assert!(!told(Errno::IO).contains("more files"));
    }

    #[test]
    fn a_closed_file_is_gone() {
        let file = tempfile::tempfile().unwrap();
        let weak = file.try_clone().unwrap();
        close(file).unwrap();
        assert!(weak.metadata().is_ok(), "another handle of the same file stays open");
    }

    #[test]
    fn a_lock_is_waited_for_and_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let open = || File::open(directory.path()).unwrap();
        let held = open();
        lock_within(&held, Duration::ZERO).unwrap();
        let refused = lock_within(&open(), Duration::from_millis(20)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        let waiting = open();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| lock_within(&waiting, Duration::from_secs(60)));
            drop(held);
            waits.join().unwrap().unwrap();
        });
    }
}
