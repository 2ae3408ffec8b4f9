//! A process that has the kernel read parts of files before programs ask for them.
//!
//! The kernel does that for whoever opens a file and calls `posix_fadvise(POSIX_FADV_WILLNEED)`: it asks the mount for
//! what it has not, as for any reader, and keeps it. A process that answers such requests itself must not be the one that calls:
//! killed in that moment, it would wait for itself, and its mount for ever with it. So the mount starts another one, which has
//! nothing of its connection to the kernel, and writes to it which parts are wanted; see `door::prefetch`.
//!
//! On its input come lines of an inode's number on the mount, and the first byte of a part and the one after its last. On its output goes
//! 0, or the error's number, first for the mount itself and then for each line.

use rustix::fs::{Advice, AtFlags, CWD, StatxFlags, fadvise, statx};
use std::ffi::OsStr;
use std::io::{self, BufRead, Write};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use strake_base::file_handle::FileHandle;

/// A program that is called by this name, with a mount point, does what [`serve`] does.
pub const NAME: &str = "strake-prefetch";

/// How the kernel names an inode of a FUSE mount to those that have no path (`fuse_encode_fh`,
/// FILEID_INO64_GEN): the halves of its number, and its generation, of which there is one here.
const HANDLE_TYPE: i32 = 0x81;
const ROOT: u64 = 1;
const PAGE_BYTES: usize = 4096;
/// So much the kernel asks for at least when it is told of more.
const STEP_BYTES: u64 = 128 << 10;

fn handle(node: u64) -> FileHandle {
    let words = [(node >> 32) as u32, node as u32, 0];
    FileHandle::new(HANDLE_TYPE, words.map(u32::to_ne_bytes).as_flattened())
}

/// The mount for which this process works.
struct Mount<'a> {
    point: &'a OsStr,
    /// Number of its file system: what is mounted over it is another one.
    device: (u32, u32),
    /// How much of a file the kernel asks for at most when it is told of more.
    step: u64,
}

/// Does what lines of `input` say with files of the mount at `mountpoint`, until there are no more.
pub fn serve(mountpoint: &OsStr, input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let mut answer = |outcome: io::Result<()>| {
        let number = |error: io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        writeln!(output, "{}", outcome.err().map_or(0, number))?;
        output.flush()
    };
    let mount = match Mount::look_at(mountpoint) {
        Ok(mount) => mount,
        Err(error) => return answer(Err(error)),
    };
    answer(Ok(()))?;
    for line in input.lines() {
        let wanted = parse(&line?).ok_or(io::ErrorKind::InvalidInput);
        answer(wanted.map_err(Into::into).and_then(|(node, range)| mount.fetch(node, range)))?;
    }
    Ok(())
}

fn parse(line: &str) -> Option<(NonZeroU64, Range<u64>)> {
    let mut numbers = line.split(' ').map(|word| word.parse().ok());
    let (node, start, end) = (numbers.next()??, numbers.next()??, numbers.next()??);
    (start < end).then_some((NonZeroU64::new(node)?, start..end))
}

/// Of the file system in which we are; the mount is not asked.
fn device() -> io::Result<(u32, u32)> {
    let stat = statx(CWD, ".", AtFlags::STATX_DONT_SYNC, StatxFlags::empty())?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor))
}

impl<'a> Mount<'a> {
    /// An error if the kernel names its inodes in another way.
    fn look_at(point: &'a OsStr) -> io::Result<Self> {
        if FileHandle::of(point)? != handle(ROOT) {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let device = within(point, device)??;
        let set = format!("/sys/class/bdi/{}:{}/read_ahead_kb", device.0, device.1);
        let set = std::fs::read_to_string(set).ok().and_then(|kib| kib.trim().parse::<u64>().ok());
        let step = set.map_or(STEP_BYTES, |kib| kib << 10).max(STEP_BYTES);
        Ok(Self { point, device, step })
    }

    /// Returns when the part is there, or cannot be had.
    fn fetch(&self, node: NonZeroU64, range: Range<u64>) -> io::Result<()> {
        let open = || match device()? == self.device {
            true => handle(node.get()).open(),
            false => Err(io::Error::from_raw_os_error(libc::ESTALE)),
        };
        let file = within(self.point, open)??;
        // Nothing beyond it.
        fadvise(&file, 0, None, Advice::Random)?;
        for start in range.clone().step_by(self.step as usize) {
            let len = NonZeroU64::new(self.step.min(range.end - start));
            fadvise(&file, start, len, Advice::WillNeed)?;
        }
        // That has only asked for it.
        let mut pages = range.step_by(PAGE_BYTES);
        pages.try_for_each(|page| file.read_exact_at(&mut [0], page))
    }
}

/// Does something in a directory, which we keep busy no longer than that takes.
fn within<T>(directory: &OsStr, work: impl FnOnce() -> T) -> io::Result<T> {
    std::env::set_current_dir(directory)?;
    let done = work();
    std::env::set_current_dir("/")?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_line_of_a_mount_is_refused() {
        let node = NonZeroU64::new(7).unwrap();
        assert_eq!(parse("7 0 4096"), Some((node, 0..4096)));
        for bad in [
            "",
            "7",
            "7 0",
            "0 0 1",
            "7 5 5",
            "7 -1 5",
            "7  5 6",
            "x 0 1",
            "7 0 99999999999999999999",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn another_file_system_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let mut output = Vec::new();
        serve(directory.path().as_os_str(), &b"garbage\n"[..], &mut output).unwrap();
        assert_eq!(String::from_utf8(output).unwrap(), format!("{}\n", libc::EOPNOTSUPP));
    }
}
