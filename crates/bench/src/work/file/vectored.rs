//! `preadv` and `pwritev`.

use super::transfer::{Transfer, Trouble, close, compare, length};
use super::{Direction, Pass};
use crate::content::Content;
use rustix::io::{preadv, pwritev};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use strake_base::aligned::AlignedBuffer;

/// Records in one call: iozone's `PVECMAX`.
const VECTOR_RECORDS: u64 = 16;
/// Most bytes of one call, unless one record has more.
const VECTOR_BYTES: u64 = 64 << 20;

/// Records of a size in one call.
pub fn records_at_once(record: u64) -> u64 {
    (VECTOR_BYTES / record.max(1)).clamp(1, VECTOR_RECORDS)
}

/// Collects records that follow each other, and moves them with one call.
pub struct Vectored {
    file: File,
    writes: bool,
    content: Content,
    buffers: Vec<AlignedBuffer>,
    /// Where the records that wait begin, and how many they are.
    waiting: (u64, usize),
}

impl Vectored {
    pub fn new(pass: &Pass, file: File) -> io::Result<Self> {
        let length = length(pass)?;
        let count = records_at_once(pass.record);
        let mut buffers: Vec<_> = (0..count).map(|_| AlignedBuffer::new(length)).collect();
        buffers.iter_mut().for_each(|buffer| pass.content.prepare(buffer));
        let writes = pass.direction == Direction::Write;
        Ok(Self { file, writes, content: pass.content, buffers, waiting: (0, 0) })
    }

    /// Bytes of a record.
    fn record_length(&self) -> u64 {
        self.buffers.first().map_or(0, |buffer| buffer.len() as u64)
    }

    /// Moves the records that wait. A call may move less than asked for: then another follows.
    fn move_waiting(&mut self) -> Result<(), Trouble> {
        let (start, count) = std::mem::take(&mut self.waiting);
        let record = self.record_length();
        if self.writes {
            for (at, buffer) in self.buffers[..count].iter_mut().enumerate() {
                self.content.fill(buffer, start + at as u64 * record);
            }
            return Ok(self.write_all(start, count)?);
        }
        self.read_all(start, count)?;
        for (at, buffer) in self.buffers[..count].iter().enumerate() {
            compare(&self.content, buffer, start + at as u64 * record)?;
        }
        Ok(())
    }

    fn write_all(&self, start: u64, count: usize) -> io::Result<()> {
        let mut slices: Vec<_> = self.buffers[..count].iter().map(|b| IoSlice::new(b)).collect();
        let (mut slices, mut offset) = (&mut slices[..], start);
        while !slices.is_empty() {
            let moved = match pwritev(&self.file, slices, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Err(rustix::io::Errno::INTR) => continue,
                moved => moved?,
            };
            IoSlice::advance_slices(&mut slices, moved);
            offset += moved as u64;
        }
        Ok(())
    }

    fn read_all(&mut self, start: u64, count: usize) -> io::Result<()> {
        let buffers = self.buffers[..count].iter_mut();
        let mut slices: Vec<_> = buffers.map(|buffer| IoSliceMut::new(buffer)).collect();
        let (mut slices, mut offset) = (&mut slices[..], start);
        while !slices.is_empty() {
            let moved = match preadv(&self.file, slices, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(rustix::io::Errno::INTR) => continue,
                moved => moved?,
            };
            IoSliceMut::advance_slices(&mut slices, moved);
            offset += moved as u64;
        }
        Ok(())
    }
}

impl Transfer for Vectored {
    fn record(&mut self, offset: u64) -> Result<(), Trouble> {
        let (start, count) = self.waiting;
        let follows = offset == start + count as u64 * self.record_length();
        if count > 0 && !follows {
            self.move_waiting()?;
        }
        if self.waiting.1 == 0 {
            self.waiting.0 = offset;
        }
        self.waiting.1 += 1;
        if self.waiting.1 == self.buffers.len() {
            self.move_waiting()?;
        }
        Ok(())
    }

    fn complete(&mut self) -> Result<(), Trouble> {
        self.move_waiting()
    }

    fn sync(&mut self) -> Result<(), Trouble> {
        Ok(self.file.sync_all()?)
    }

    fn close(self: Box<Self>) -> Result<(), Trouble> {
        close(self.file)
    }
}
