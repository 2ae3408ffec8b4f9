//! Closing a file and hearing about it.

use std::fs::File;
use std::io;
use std::os::fd::IntoRawFd;

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

    #[test]
    fn a_closed_file_is_gone() {
        let file = tempfile::tempfile().unwrap();
        let weak = file.try_clone().unwrap();
        close(file).unwrap();
        assert!(weak.metadata().is_ok(), "another handle of the same file stays open");
    }
}
