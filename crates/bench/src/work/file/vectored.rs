//! `preadv` and `pwritev`.

use super::transfer::{Record, Transfer, Trouble, close, length};
use super::{Direction, Pass};
use rustix::io::{preadv, pwritev};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};

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
    /// Those of one call, one after the other.
    records: Record,
    /// Bytes of one of them.
    length: usize,
    /// Where the records that wait begin, and how many they are.
    waiting: (u64, usize),
}

impl Vectored {
    pub fn new(pass: &Pass, file: File) -> io::Result<Self> {
        let length = length(pass)?;
        let all = length.checked_mul(records_at_once(pass.record) as usize);
        let records = Record::of_length(pass, all.ok_or(io::ErrorKind::InvalidInput)?);
        let writes = pass.direction == Direction::Write;
        Ok(Self { file, writes, records, length, waiting: (0, 0) })
    }

    /// Moves the records that wait. A call may move less than asked for: then another follows.
    fn move_waiting(&mut self) -> Result<(), Trouble> {
        let (start, count) = std::mem::take(&mut self.waiting);
        let bytes = count * self.length;
        if self.writes {
            let records = self.records.filled_to(start, bytes).chunks(self.length);
            return Ok(write_all(&self.file, records.map(IoSlice::new).collect(), start)?);
        }
        let records = self.records.buffer[..bytes].chunks_mut(self.length);
        read_all(&self.file, records.map(IoSliceMut::new).collect(), start)?;
        self.records.check_to(start, bytes)
    }
}

fn write_all(file: &File, mut slices: Vec<IoSlice<'_>>, start: u64) -> io::Result<()> {
    let (mut slices, mut offset) = (&mut slices[..], start);
    while !slices.is_empty() {
        let moved = match pwritev(file, slices, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Err(rustix::io::Errno::INTR) => continue,
            moved => moved?,
        };
        IoSlice::advance_slices(&mut slices, moved);
        offset += moved as u64;
    }
    Ok(())
}

fn read_all(file: &File, mut slices: Vec<IoSliceMut<'_>>, start: u64) -> io::Result<()> {
    let (mut slices, mut offset) = (&mut slices[..], start);
    while !slices.is_empty() {
        let moved = match preadv(file, slices, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(rustix::io::Errno::INTR) => continue,
            moved => moved?,
        };
        IoSliceMut::advance_slices(&mut slices, moved);
        offset += moved as u64;
    }
    Ok(())
}

impl Transfer for Vectored {
    fn record(&mut self, offset: u64) -> Result<(), Trouble> {
        let (start, count) = self.waiting;
        let follows = offset == start + (count * self.length) as u64;
        if count > 0 && !follows {
            self.move_waiting()?;
        }
        if self.waiting.1 == 0 {
            self.waiting.0 = offset;
        }
        self.waiting.1 += 1;
        if self.waiting.1 * self.length == self.records.buffer.len() {
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
