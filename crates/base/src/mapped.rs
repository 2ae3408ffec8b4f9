//! A range of a file in memory, as `mmap` gives it.
//!
//! Bytes are copied in and out and never lent: another process may change the file at any moment,
//! and Rust's references forbid that. Who cuts the file shorter than the range ends this process
//! (`SIGBUS`), as with every mapping.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// A shared mapping of a range of a file.
pub struct Mapped {
    start: NonNull<u8>,
    length: usize,
}

impl Mapped {
    /// Maps `length` bytes from `offset`, a multiple of the page size, of a file open for reading
    /// and, if `writable`, for writing.
    pub fn new(file: &File, offset: u64, length: usize, writable: bool) -> io::Result<Self> {
        let wrong = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let offset = libc::off_t::try_from(offset).map_err(wrong)?;
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        let (shared, fd) = (libc::MAP_SHARED, file.as_raw_fd());
        // SAFETY: a new mapping at a place the kernel chooses touches no memory of ours.
        #[allow(unsafe_code)]
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), length, protection, shared, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::Unsupported)?;
        Ok(Self { start, length })
    }

    /// Copies bytes out, from `at` on.
    ///
    /// # Panics
    /// If they reach beyond the mapping.
    pub fn read(&self, at: usize, buffer: &mut [u8]) {
        assert!(at <= self.length && buffer.len() <= self.length - at, "inside the mapping");
        // SAFETY: both ranges are inside what they belong to, and a mapping is no memory that Rust
        // knows, so they do not overlap.
        #[allow(unsafe_code)]
        unsafe {
            let from = self.start.as_ptr().add(at);
            std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), buffer.len());
        }
    }

    /// Copies bytes in, from `at` on.
    ///
    /// # Panics
    /// If they reach beyond the mapping.
    pub fn write(&mut self, at: usize, buffer: &[u8]) {
        assert!(at <= self.length && buffer.len() <= self.length - at, "inside the mapping");
        // SAFETY: as in `read`; nobody else in this process writes through this value.
        #[allow(unsafe_code)]
        unsafe {
            let to = self.start.as_ptr().add(at);
            std::ptr::copy_nonoverlapping(buffer.as_ptr(), to, buffer.len());
        }
    }

    /// Returns when everything written is on disk.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is the mapping, which lives as long as this value.
        #[allow(unsafe_code)]
        let done = unsafe { libc::msync(self.start.as_ptr().cast(), self.length, libc::MS_SYNC) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nobody has a pointer into the mapping but this value, and it ends here. There is
        // nothing to do about a failure, which only a wrong range can cause.
        #[allow(unsafe_code)]
        let _unmapped = unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

// SAFETY: the mapping belongs to the process and not to the thread that made it.
#[allow(unsafe_code)]
unsafe impl Send for Mapped {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_to_a_mapping_is_in_the_file() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let mut mapped = Mapped::new(&file, 4096, 4096, true).unwrap();
        mapped.write(10, b"hello");
        mapped.sync().unwrap();
        let mut found = [0; 5];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 4106).unwrap();
        assert_eq!(&found, b"hello");
        mapped.read(10, &mut found);
        assert_eq!(&found, b"hello");
    }

    #[test]
    #[should_panic(expected = "inside the mapping")]
    fn bytes_beyond_the_mapping_are_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        Mapped::new(&file, 0, 4096, false).unwrap().read(4090, &mut [0; 10]);
    }

    #[test]
    fn an_offset_inside_a_page_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        assert!(Mapped::new(&file, 100, 4096, false).is_err());
    }
}
