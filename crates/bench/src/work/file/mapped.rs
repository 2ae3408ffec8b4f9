//! Copies from and to a mapping.

use super::transfer::{Record, Transfer, Trouble, close};
use super::{Direction, Pass};
use std::fs::File;
use std::io;
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
        match file.metadata()?.len() < pass.end() {
            true if writes => file.set_len(pass.end())?,
            true => return Err(io::ErrorKind::UnexpectedEof.into()),
            false => {}
        }
        let mapping = Mapped::new(&file, pass.start, length, writes)?;
        Ok(Self { file, mapping, writes, record: Record::new(pass)?, start: pass.start })
    }
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
