//! Buffers that requests are read into, and that large writes leave the door in without a copy.
//!
//! The kernel puts 80 bytes of headers before the data of a WRITE. A request is therefore read to
//! 80 bytes before a page boundary, so that the data begins on one and may go to disk as it lies.

use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;

const PAGE_BYTES: usize = 4096;
/// Length of the headers before the data of a WRITE.
const WRITE_HEADER_BYTES: usize = 80;
/// Free buffers kept; more are given back to the allocator.
const FREE_BUFFERS_MAX: usize = 16;

/// Free buffers of one mount.
pub struct BufferPool {
    data_bytes: usize,
    free: Mutex<Vec<Vec<u8>>>,
}

/// One buffer, going back to its pool when dropped.
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    pool: Arc<BufferPool>,
}

/// A part of a buffer; keeps the whole of it alive.
struct Part {
    buffer: Buffer,
    from: usize,
    to: usize,
}

impl BufferPool {
    /// A pool of buffers for requests with up to `data_bytes` of data.
    pub fn new(data_bytes: usize) -> Arc<Self> {
        Arc::new(Self { data_bytes, free: Mutex::new(Vec::new()) })
    }

    /// A free buffer, or a new one.
    pub fn take(self: &Arc<Self>) -> Buffer {
        // One page before the data for the headers, one after it for the kernel's minimum, one for
        // the alignment of the allocation itself.
        let bytes =
            self.free.lock().pop().unwrap_or_else(|| vec![0; self.data_bytes + 3 * PAGE_BYTES]);
        let to_page = bytes.as_ptr().align_offset(PAGE_BYTES);
        Buffer { bytes, start: to_page + PAGE_BYTES - WRITE_HEADER_BYTES, pool: self.clone() }
    }
}

impl Buffer {
    /// Where the next request is read to.
    pub fn space(&mut self) -> &mut [u8] {
        let end = self.start + WRITE_HEADER_BYTES + self.pool.data_bytes;
        &mut self.bytes[self.start..end]
    }

    /// The first `len` bytes read.
    pub fn filled(&self, len: usize) -> &[u8] {
        &self.bytes[self.start..self.start + len]
    }

    /// Bytes `from..to` of what was read, without a copy.
    pub fn into_part(self, from: usize, to: usize) -> Bytes {
        let (from, to) = (self.start + from, self.start + to);
        Bytes::from_owner(Part { buffer: self, from, to })
    }
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.buffer.bytes[self.from..self.to]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut free = self.pool.free.lock();
        if free.len() < FREE_BUFFERS_MAX {
            free.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_a_write_lies_on_a_page() {
        let pool = BufferPool::new(1 << 16);
        let mut buffer = pool.take();
        buffer.space()[80..84].copy_from_slice(b"data");
        assert_eq!(buffer.space().len(), (1 << 16) + 80);
        let part = buffer.into_part(80, 84);
        assert_eq!(part.as_ptr() as usize % 4096, 0);
        assert_eq!(&part[..], b"data");
    }

    #[test]
    fn a_buffer_returns_when_the_last_part_is_gone() {
        let pool = BufferPool::new(4096);
        let part = pool.take().into_part(0, 10);
        let other = part.slice(2..5);
        drop(part);
        assert_eq!(pool.free.lock().len(), 0);
        drop(other);
        assert_eq!(pool.free.lock().len(), 1);
    }
}
