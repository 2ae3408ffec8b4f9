//! Moving one record at a time.

use super::Pass;
use crate::content::Content;
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

/// A buffer for one record, and what belongs into it.
pub struct Record {
    /// The buffer.
    pub buffer: AlignedBuffer,
    content: Content,
}

impl Record {
    /// A buffer for the records of a pass.
    pub fn new(pass: &Pass) -> io::Result<Record> {
        let mut buffer = AlignedBuffer::new(length(pass)?);
        pass.content.prepare(&mut buffer);
        Ok(Record { buffer, content: pass.content })
    }

    /// The bytes to write at an offset.
    pub fn filled(&mut self, offset: u64) -> &[u8] {
        self.content.fill(&mut self.buffer, offset);
        &self.buffer
    }

    /// Compares the buffer with what was written at an offset.
    pub fn check(&self, offset: u64) -> Result<(), Trouble> {
        compare(&self.content, &self.buffer, offset)
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
