//! Files by the names that file systems give them for themselves (`name_to_handle_at(2)`), instead of by paths.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;

/// Longest name of a file (`MAX_HANDLE_SZ`).
const NAME_BYTES_MAX: usize = 128;

/// What a file system calls one of its files: of a kind that only it understands.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FileHandle {
    bytes: u32,
    kind: i32,
    name: [u8; NAME_BYTES_MAX],
}

impl PartialEq for FileHandle {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, self.name()) == (other.kind, other.name())
    }
}

impl FileHandle {
    /// A handle of this kind with this name, of which 128 bytes count.
    pub fn new(kind: i32, name: &[u8]) -> Self {
        let mut handle = Self { bytes: 0, kind, name: [0; NAME_BYTES_MAX] };
        for (to, from) in handle.name.iter_mut().zip(name) {
            *to = *from;
            handle.bytes += 1;
        }
        handle
    }

    /// The name.
    pub fn name(&self) -> &[u8] {
        &self.name[..(self.bytes as usize).min(NAME_BYTES_MAX)]
    }

    /// What the file system at this path calls what is there.
    pub fn of(path: &OsStr) -> io::Result<Self> {
        let path = CString::new(path.as_bytes())?;
        let mut mount = 0;
        let mut found = Self::new(0, &[0; NAME_BYTES_MAX]);
        // SAFETY: a path that ends in 0, a handle with the room that it says it has, and a number to write to.
        #[allow(unsafe_code)]
        let named = unsafe {
            let handle = (&raw mut found).cast();
            libc::name_to_handle_at(libc::AT_FDCWD, path.as_ptr(), handle, &raw mut mount, 0)
        };
        if named < 0 { Err(io::Error::last_os_error()) } else { Ok(found) }
    }

    /// Opens for reading what the file system of the working directory calls by this name. Needs CAP_DAC_READ_SEARCH.
    pub fn open(mut self) -> io::Result<File> {
        // SAFETY: a handle that is as long as it says.
        #[allow(unsafe_code)]
        let fd = unsafe {
            let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
            libc::open_by_handle_at(libc::AT_FDCWD, (&raw mut self).cast(), flags)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was opened just now, and nobody else knows of it.
        #[allow(unsafe_code)]
        let file = unsafe { File::from_raw_fd(fd) };
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_as_long_as_it_is_given_and_as_there_is_room_for() {
        let handle = FileHandle::new(7, &[1, 2, 3]);
        assert_eq!(handle.name(), [1, 2, 3]);
        assert!(
            handle == FileHandle::new(7, &[1, 2, 3]) && handle != FileHandle::new(8, &[1, 2, 3])
        );
        assert_eq!(FileHandle::new(7, &[1; 200]).name().len(), NAME_BYTES_MAX);
    }

    #[test]
    fn what_has_no_name_is_an_error() {
        assert!(FileHandle::of(OsStr::new("/proc/self/no such file")).is_err());
        assert!(FileHandle::of(OsStr::new("a\0b")).is_err());
        assert!(FileHandle::new(-1, &[]).open().is_err());
    }
}
