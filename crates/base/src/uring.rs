//! Reads and writes of one file that are in flight together, by the kernel's `io_uring`.
//!
//! The ring owns the file and the buffers, and does not end before the kernel has given back
//! everything in flight: so no request can outlive what it points to.

use crate::aligned::AlignedBuffer;
use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Most requests in flight.
pub const DEPTH_MAX: u32 = 4096;
/// Most bytes of one buffer.
const LENGTH_MAX: usize = 1 << 30;

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the file into the buffer.
    Read,
    /// From the buffer into the file.
    Write,
}

/// A request that has ended well: all of its bytes have moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Its buffer, which is free again.
    pub slot: usize,
    /// Where in the file.
    pub offset: u64,
}

/// One file, and requests on it in flight.
pub struct Ring {
    ring: IoUring,
    file: File,
    slots: Vec<Slot>,
    /// Bytes of a request.
    length: usize,
    in_flight: usize,
}

struct Slot {
    buffer: AlignedBuffer,
    /// Offset and direction of the request that has the buffer now.
    request: Option<(u64, Direction)>,
    /// Where in the buffer the bytes of the request begin.
    first: usize,
    /// Bytes of the request that have moved already.
    moved: usize,
}

impl Ring {
    /// A ring with `depth` buffers of `length` bytes.
    pub fn new(file: File, depth: u32, length: usize) -> io::Result<Self> {
        Self::with_spare(file, depth, length, 0)
    }

    /// The same with so many bytes more in each buffer, of which any `length` can be moved.
    pub fn with_spare(file: File, depth: u32, length: usize, spare: usize) -> io::Result<Self> {
        let is_sane = |length| length <= LENGTH_MAX;
        if depth == 0 || depth > DEPTH_MAX || length == 0 || !is_sane(length) || !is_sane(spare) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let buffer = || AlignedBuffer::new(length + spare);
        let slot = || Slot { buffer: buffer(), request: None, first: 0, moved: 0 };
        let slots = (0..depth).map(|_| slot()).collect();
        Ok(Self { ring: IoUring::new(depth)?, file, slots, length, in_flight: 0 })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// A buffer that no request has.
    pub fn free(&self) -> Option<usize> {
        self.slots.iter().position(|slot| slot.request.is_none())
    }

    /// The bytes of a buffer, unless a request has it.
    pub fn buffer(&mut self, slot: usize) -> Option<&mut [u8]> {
        let slot = &mut self.slots[slot];
        slot.request.is_none().then_some(&mut slot.buffer)
    }

    /// Begins to move a buffer's bytes.
    ///
    /// # Panics
    /// If the buffer is in a request already.
    pub fn begin(&mut self, slot: usize, direction: Direction, offset: u64) -> io::Result<()> {
        self.begin_from(slot, 0, direction, offset)
    }

    /// The same with those bytes of the buffer that begin at `first`.
    ///
    /// # Panics
    /// If the buffer is in a request already, or has too few bytes from there on.
    pub fn begin_from(
        &mut self,
        slot: usize,
        first: usize,
        direction: Direction,
        offset: u64,
    ) -> io::Result<()> {
        let at = &mut self.slots[slot];
        assert!(at.request.is_none(), "a buffer is in one request at a time");
        assert!(first <= at.buffer.len() - self.length, "inside the buffer");
        (at.first, at.moved) = (first, 0);
        self.push(slot, direction, offset)
    }

    /// Waits until a request has ended; `None` if none is in flight.
    pub fn wait(&mut self) -> io::Result<Option<Ended>> {
        while self.in_flight > 0 {
            let Some((slot, result)) = self.completion()? else { continue };
            let Some((offset, direction)) = self.slots[slot].request.take() else { continue };
            self.in_flight -= 1;
            let moved = usize::try_from(result)
                .map_err(|_| io::Error::from_raw_os_error(result.saturating_neg()))?;
            self.slots[slot].moved += moved;
            if self.slots[slot].moved == self.length {
                return Ok(Some(Ended { slot, offset }));
            }
            if moved == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.push(slot, direction, offset)?;
        }
        Ok(None)
    }

    /// Ends the ring: waits for what is in flight, and gives the file back.
    pub fn finish(mut self) -> io::Result<File> {
        let ended = self.drain();
        // The ring itself is dropped with a second handle, which nothing is written through.
        let file = self.file.try_clone();
        ended.and(file)
    }

    /// Hands a request for what is left of a slot's bytes to the kernel.
    fn push(&mut self, slot: usize, direction: Direction, offset: u64) -> io::Result<()> {
        let at = &mut self.slots[slot];
        let fd = types::Fd(self.file.as_raw_fd());
        let (from, to) = (at.first + at.moved, at.first + self.length);
        let rest = &mut at.buffer[from..to];
        let (pointer, length) = (rest.as_mut_ptr(), rest.len() as u32);
        let from = offset + at.moved as u64;
        let entry = match direction {
            Direction::Read => opcode::Read::new(fd, pointer, length).offset(from).build(),
            Direction::Write => opcode::Write::new(fd, pointer, length).offset(from).build(),
        };
        at.request = Some((offset, direction));
        // SAFETY: descriptor and buffer belong to `self`. The buffer is not lent while `request` is
        // set, its bytes never move, and `drop` waits for the kernel before either goes away.
        #[allow(unsafe_code)]
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(slot as u64)) };
        if pushed.is_err() {
            self.slots[slot].request = None;
            return Err(io::Error::other("the ring has fewer places than buffers"));
        }
        self.in_flight += 1;
        self.ring.submit()?;
        Ok(())
    }

    /// The next answer of the kernel: which slot, and what the system call would have returned.
    fn completion(&mut self) -> io::Result<Option<(usize, i32)>> {
        if self.ring.completion().is_empty() {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(None),
                other => other?,
            };
        }
        let next = self.ring.completion().next();
        Ok(next.map(|entry| (entry.user_data() as usize, entry.result())))
    }

    /// Waits for everything in flight; the first error, if any.
    fn drain(&mut self) -> io::Result<()> {
        let mut ended = Ok(());
        while self.in_flight > 0 {
            let before = self.in_flight;
            let waited = self.wait().map(|_| ());
            if waited.is_err() && self.in_flight == before {
                // The kernel does not say what became of the requests: their buffers must stay.
                std::mem::forget(std::mem::take(&mut self.slots));
                self.in_flight = 0;
            }
            ended = ended.and(waited);
        }
        ended
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.in_flight > 0 {
            // Whoever drops a ring early has an error to tell that matters more than these.
            let _ended = self.drain();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn many_requests_move_every_byte_to_its_place() {
        let mut ring = Ring::new(tempfile::tempfile().unwrap(), 4, 1000).unwrap();
        for at in 0..20u64 {
            let slot = match ring.free() {
                Some(slot) => slot,
                None => ring.wait().unwrap().unwrap().slot,
            };
            ring.buffer(slot).unwrap().fill(at as u8);
            ring.begin(slot, Direction::Write, at * 1000).unwrap();
            assert!(ring.buffer(slot).is_none(), "a buffer in flight is not lent");
        }
        let file = ring.finish().unwrap();
        let mut found = vec![0; 20_000];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found.chunks(1000).enumerate().all(|(at, c)| c.iter().all(|b| *b == at as u8)));

        let mut ring = Ring::new(file, 2, 1000).unwrap();
        ring.begin(1, Direction::Read, 7000).unwrap();
        assert_eq!(ring.wait().unwrap(), Some(Ended { slot: 1, offset: 7000 }));
        assert_eq!(ring.buffer(1).unwrap(), [7; 1000]);
        assert_eq!(ring.wait().unwrap(), None);
    }

    #[test]
    fn any_bytes_of_a_longer_buffer_move() {
        let mut ring = Ring::with_spare(tempfile::tempfile().unwrap(), 1, 1000, 24).unwrap();
        for (at, byte) in (0..).zip(ring.buffer(0).unwrap()) {
            *byte = (at / 8) as u8;
        }
        ring.begin_from(0, 24, Direction::Write, 0).unwrap();
        assert_eq!(ring.wait().unwrap(), Some(Ended { slot: 0, offset: 0 }));
        let mut found = vec![0; 1001];
        assert_eq!(ring.finish().unwrap().read_at(&mut found, 0).unwrap(), 1000);
        assert_eq!((found[0], found[999]), (3, 127));
    }

    #[test]
    fn a_file_that_ends_inside_a_request_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1500).unwrap();
        let mut ring = Ring::new(file, 1, 1000).unwrap();
        ring.begin(0, Direction::Read, 1000).unwrap();
        assert_eq!(ring.wait().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        ring.begin(0, Direction::Read, 0).unwrap();
        drop(ring);
    }

    #[test]
    fn no_buffers_and_no_bytes_are_refused() {
        assert!(Ring::new(tempfile::tempfile().unwrap(), 0, 10).is_err());
        assert!(Ring::new(tempfile::tempfile().unwrap(), 10, 0).is_err());
    }
}
