//! That no file more may be opened: the disk is well then.

use rustix::io::Errno;
use std::io;

/// What an error of the disk says, and what to do where it is not the disk's.
pub(crate) fn told(error: &io::Error) -> String {
    let next = match Errno::from_io_error(error) {
        Some(Errno::MFILE) => "let its server open more files (LimitNOFILE, ulimit -n)",
        Some(Errno::NFILE) => "let its machine open more files (sysctl fs.file-max)",
        _ => return error.to_string(),
    };
    format!("{error}; {next}")
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
}
