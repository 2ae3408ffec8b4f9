//! Copies from and to a mapping.

use super::transfer::{Record, Transfer, Trouble, close};
use super::{Direction, Pass};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use strake_base::aligned::{ALIGNMENT, AlignedBuffer};
use strake_base::mapped::Mapped;

/// A mapping of the pass's region.
pub struct Copies {
    file: File,
    mapping: Mapped,
    writes: bool,
    record: Record,
    start: u64,
}

impl Copies {
    pub fn new(pass: &Pass, file: File) -> io::Result<Self> {
        let too_long = |_| io::Error::from(io::ErrorKind::FileTooLarge);
        let length = usize::try_from(pass.end() - pass.start).map_err(too_long)?;
        let writes = pass.direction == Direction::Write;
        // Beyond its end a file cannot be written through a mapping, and reading there ends the
        // process: so its length comes first.
        if writes {
            make_room(&file, pass.start, pass.end())?;
        } else if file.metadata()?.len() < pass.end() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mapping = Mapped::new(&file, pass.start, length, writes)?;
        Ok(Self { file, mapping, writes, record: Record::new(pass)?, start: pass.start })
    }
}

/// Makes a file reach as far as `end`, with room for what is written from `start` on where the file
/// system can promise that: a page without room ends the process. Never cuts a file: another worker
/// may make it longer at the same time.
fn make_room(file: &File, start: u64, end: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), start, end - start) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => reach(file, end),
        made => Ok(made?),
    }
}

/// Makes a file reach as far as `end`, by zeros in the last page before that: they lie in the region of
/// this worker alone, which has written nothing there yet.
fn reach(file: &File, end: u64) -> io::Result<()> {
    if file.metadata()?.len() >= end {
        return Ok(());
    }
    // `O_DIRECT` takes whole pages. A region has them: see `Pass::refuse_nonsense`.
    let zeros = AlignedBuffer::new(ALIGNMENT);
    file.write_all_at(&zeros, end.saturating_sub(ALIGNMENT as u64))
}

impl Transfer for Copies {
    fn record(&mut self, offset: u64) -> Result<(), Trouble> {
        // The mapping is shorter than memory, and so is what lies in it.
        let at = (offset - self.start) as usize;
        if self.writes {
            self.mapping.write(at, self.record.filled(offset));
            return Ok(());
        }
        self.mapping.read(at, &mut self.record.buffer);
        self.record.check(offset)
    }

    fn sync(&mut self) -> Result<(), Trouble> {
        self.mapping.sync()?;
        Ok(self.file.sync_all()?)
    }

    fn close(self: Box<Self>) -> Result<(), Trouble> {
        drop(self.mapping);
        close(self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = ALIGNMENT as u64;

    /// A worker that had seen a short file gave it its own length, after another one had made it longer.
    #[test]
    fn making_room_for_one_worker_cuts_nothing_of_another() {
        let file = tempfile::tempfile().unwrap();
        let ways: [fn(&File, u64) -> io::Result<()>; 2] =
            [|file, end| make_room(file, 0, end), reach];
        for (round, make) in ways.iter().enumerate() {
            file.set_len(0).unwrap();
            make(&file, 2 * PAGE).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 2 * PAGE, "way {round}");
            file.write_all_at(b"theirs", 5 * PAGE - 6).unwrap();
            make(&file, 2 * PAGE).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 5 * PAGE, "way {round}");
            let mut found = [0; 6];
            file.read_exact_at(&mut found, 5 * PAGE - 6).unwrap();
            assert_eq!(&found, b"theirs");
        }
    }
}
