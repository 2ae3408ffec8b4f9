//! Many records in flight, by `io_uring`.

use super::transfer::{Transfer, Trouble, close, compare, length};
use super::{Direction, Pass};
use crate::content::Content;
use std::fs::File;
use std::io;
use strake_base::uring::{self, Ring};

/// A ring with as many buffers as records may be in flight.
pub struct Flight {
    ring: Ring,
    direction: uring::Direction,
    content: Content,
}

impl Flight {
    pub fn new(pass: &Pass, file: File, depth: u32) -> io::Result<Self> {
        let mut ring = Ring::new(file, depth, length(pass)?)?;
        for slot in 0..depth as usize {
            if let Some(buffer) = ring.buffer(slot) {
                pass.content.prepare(buffer);
            }
        }
        let direction = match pass.direction {
            Direction::Write => uring::Direction::Write,
            _ => uring::Direction::Read,
        };
        Ok(Self { ring, direction, content: pass.content })
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
        if self.direction == uring::Direction::Write
            && let Some(buffer) = self.ring.buffer(slot)
        {
            self.content.fill(buffer, offset);
        }
        Ok(self.ring.begin(slot, self.direction, offset)?)
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
