//! Moving one record at a time.

use super::{Direction, Pass};
use crate::content::{Content, Pool};
use std::fs::File;
use std::io;
use strake_base::aligned::AlignedBuffer;

/// Why a record did not move.
#[derive(Debug)]
pub enum Trouble {
    /// The operating system says so.
    Io(io::Error),
    /// It was read, but the byte at this offset is another one than was written.
    Differs(u64),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble::Io(error)
    }
}

/// One way to move records between memory and an open file.
pub trait Transfer: Send {
    /// Moves the record at an offset, or begins to.
    fn record(&mut self, offset: u64) -> Result<(), Trouble>;
    /// Returns when everything that was begun has moved.
    fn complete(&mut self) -> Result<(), Trouble> {
        Ok(())
    }
    /// Returns when everything written is on disk.
    fn sync(&mut self) -> Result<(), Trouble>;
    /// Closes the file.
    fn close(self: Box<Self>) -> Result<(), Trouble>;
}

/// A buffer for what moves at once, and what belongs into it.
pub struct Record {
    /// Of what is read, and of what is written where no pool has it.
    pub buffer: AlignedBuffer,
    content: Content,
    pool: Option<Pool>,
}

impl Record {
    /// A buffer for the records of a pass.
    pub fn new(pass: &Pass) -> io::Result<Record> {
        Ok(Self::of_length(pass, length(pass)?))
    }

    /// A buffer for so many bytes of a pass, which may be several records.
    pub fn of_length(pass: &Pass, length: usize) -> Record {
        let mut buffer = AlignedBuffer::new(length);
        let writes = pass.direction == Direction::Write;
        let pool = writes.then(|| Pool::new(&pass.content, length, pass.region())).flatten();
        if pool.is_none() {
            // Its pages are there before the timing, and hold nothing that anybody expects to read.
            pass.content.prepare(&mut buffer, 0);
        }
        Record { buffer, content: pass.content, pool }
    }

    /// The bytes to write at an offset.
    pub fn filled(&mut self, offset: u64) -> &[u8] {
        self.filled_to(offset, self.buffer.len())
    }

    /// The first `length` of them.
    pub fn filled_to(&mut self, offset: u64, length: usize) -> &[u8] {
        if let Some(pool) = &mut self.pool {
            return pool.record(&self.content, offset, length);
        }
        let bytes = &mut self.buffer[..length];
        self.content.fill(bytes, offset);
        bytes
    }

    /// Compares the buffer with what was written at an offset.
    pub fn check(&self, offset: u64) -> Result<(), Trouble> {
        self.check_to(offset, self.buffer.len())
    }

    /// Compares the first `length` bytes of the buffer.
    pub fn check_to(&self, offset: u64, length: usize) -> Result<(), Trouble> {
        compare(&self.content, &self.buffer[..length], offset)
    }
}

/// Bytes of a record of a pass, in memory.
pub fn length(pass: &Pass) -> io::Result<usize> {
    usize::try_from(pass.record).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Compares bytes with what was written at an offset.
pub fn compare(content: &Content, bytes: &[u8], offset: u64) -> Result<(), Trouble> {
    match content.difference(bytes, offset) {
        Some(at) => Err(Trouble::Differs(at)),
        None => Ok(()),
    }
}

/// Closes a file, and says what the file system says to that.
pub fn close(file: File) -> Result<(), Trouble> {
    Ok(strake_base::descriptor::close(file)?)
}
