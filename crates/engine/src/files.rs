//! That no file more may be opened: the disk is well then.

use rustix::io::Errno;
use std::io;

/// What an error of the disk says, and what to do where it is not the disk's.
pub(crate) fn told(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE) => {
            format!("{error}; let its server open more files (LimitNOFILE, ulimit -n)")
        }
        _ => error.to_string(),
    }
}
