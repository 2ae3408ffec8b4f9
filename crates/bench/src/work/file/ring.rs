//! Many records in flight, by `io_uring`.

use super::transfer::{Transfer, Trouble, close, compare, length};
use super::{Direction, Pass};
use crate::content::Content;
use std::fs::File;
use std::io;
use strake_base::uring::{self, Ring};

/// A ring with as many buffers as records may be in flight. What is not checked is cut from them, as from
/// a [`crate::content::Pool`]: each has a share of it.
pub struct Flight {
    ring: Ring,
    direction: uring::Direction,
    content: Content,
    /// Bytes of a record.
    length: usize,
    /// Before which places of a buffer records are cut; 0: always at its beginning.
    cuts: usize,
    /// Where the next record of each buffer is cut.
    next: Vec<usize>,
}

impl Flight {
    pub fn new(pass: &Pass, file: File, depth: u32) -> io::Result<Self> {
        let (length, cuts) = (length(pass)?, pass.share_of_pool(depth) as usize);
        let mut ring = Ring::with_spare(file, depth, length, cuts)?;
        let all = (length + cuts) as u64;
        for slot in 0..depth {
            if let Some(buffer) = ring.buffer(slot as usize) {
                pass.content.prepare(buffer, u64::from(slot) * all);
            }
        }
        let next = vec![0; depth as usize];
        let direction = match pass.direction {
            Direction::Write => uring::Direction::Write,
            _ => uring::Direction::Read,
        };
        Ok(Self { ring, direction, content: pass.content, length, cuts, next })
    }

    /// Waits for a record, and looks at what was read; its buffer, unless nothing is in flight.
    fn land(&mut self) -> Result<Option<usize>, Trouble> {
        let Some(ended) = self.ring.wait()? else { return Ok(None) };
        if self.direction == uring::Direction::Read
            && let Some(buffer) = self.ring.buffer(ended.slot)
        {
            compare(&self.content, buffer, ended.offset)?;
        }
        Ok(Some(ended.slot))
    }
}

impl Transfer for Flight {
    fn record(&mut self, offset: u64) -> Result<(), Trouble> {
        let slot = match self.ring.free() {
            Some(slot) => Some(slot),
            None => self.land()?,
        };
        let Some(slot) = slot else { return Ok(()) };
        let mut first = 0;
        if self.direction == uring::Direction::Write
            && let Some(buffer) = self.ring.buffer(slot)
        {
            first = self.next[slot];
            self.next[slot] = (first + self.length).checked_rem(self.cuts).unwrap_or(0);
            self.content.fill(&mut buffer[first..first + self.length], offset);
        }
        Ok(self.ring.begin_from(slot, first, self.direction, offset)?)
    }

    fn complete(&mut self) -> Result<(), Trouble> {
        while self.land()?.is_some() {}
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Trouble> {
        Ok(self.ring.file().sync_all()?)
    }

    fn close(self: Box<Self>) -> Result<(), Trouble> {
        close(self.ring.finish()?)
    }
}
