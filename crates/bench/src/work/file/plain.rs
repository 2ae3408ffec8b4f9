//! `read` and `write`, with and without a position of their own.

use super::transfer::{Record, Transfer, Trouble, close, compare};
use super::{Direction, Pass};
use crate::content::Content;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// Of this many records that are sought, one is written back: bonnie++'s share.
const WRITTEN_OF: u64 = 10;

/// `read` and `write` at the file's own position.
pub struct Plain {
    file: File,
    direction: Direction,
    record: Record,
    /// What records hold that are read to be changed.
    before: Content,
    /// Where the file's position is.
    position: u64,
    visited: u64,
}

impl Plain {
    pub fn new(pass: &Pass, file: File) -> io::Result<Self> {
        let generation = pass.content.generation.wrapping_sub(1);
        let before = Content { generation, ..pass.content };
        let (direction, record) = (pass.direction, Record::new(pass)?);
        Ok(Self { file, direction, record, before, position: 0, visited: 0 })
    }

    fn go_to(&mut self, offset: u64) -> io::Result<()> {
        if self.position != offset {
            self.file.seek(SeekFrom::Start(offset))?;
            self.position = offset;
        }
        Ok(())
    }

    fn read(&mut self, offset: u64) -> io::Result<()> {
        self.go_to(offset)?;
        self.file.read_exact(&mut self.record.buffer)?;
        self.position += self.record.buffer.len() as u64;
        Ok(())
    }

    /// Writes what was read, as it is now.
    fn write_back(&mut self, offset: u64) -> io::Result<()> {
        self.go_to(offset)?;
        self.file.write_all(&self.record.buffer)?;
        self.position += self.record.buffer.len() as u64;
        Ok(())
    }
}

impl Transfer for Plain {
    fn record(&mut self, offset: u64) -> Result<(), Trouble> {
        self.visited += 1;
        match self.direction {
            Direction::Write => {
                self.go_to(offset)?;
                let bytes = self.record.filled(offset);
                self.file.write_all(bytes)?;
                self.position += bytes.len() as u64;
            }
            Direction::Read => {
                self.read(offset)?;
                self.record.check(offset)?;
            }
            Direction::Change => {
                self.read(offset)?;
                compare(&self.before, &self.record.buffer, offset)?;
                self.record.filled(offset);
                self.write_back(offset)?;
            }
            Direction::Seek => {
                self.read(offset)?;
                self.record.check(offset)?;
                if self.visited.is_multiple_of(WRITTEN_OF) {
                    self.write_back(offset)?;
                }
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Trouble> {
        Ok(self.file.sync_all()?)
    }

    fn close(self: Box<Self>) -> Result<(), Trouble> {
        close(self.file)
    }
}

/// `pread` and `pwrite`.
pub struct Positioned {
    file: File,
    writes: bool,
    record: Record,
}

impl Positioned {
    pub fn new(pass: &Pass, file: File) -> io::Result<Self> {
        Ok(Self { file, writes: pass.direction == Direction::Write, record: Record::new(pass)? })
    }
}

impl Transfer for Positioned {
    fn record(&mut self, offset: u64) -> Result<(), Trouble> {
        if self.writes {
            self.file.write_all_at(self.record.filled(offset), offset)?;
            return Ok(());
        }
        self.file.read_exact_at(&mut self.record.buffer, offset)?;
        self.record.check(offset)
    }

    fn sync(&mut self) -> Result<(), Trouble> {
        Ok(self.file.sync_all()?)
    }

    fn close(self: Box<Self>) -> Result<(), Trouble> {
        close(self.file)
    }
}
