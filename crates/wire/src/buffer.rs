//! Buffers for received payloads, used again and again.
//!
//! Fresh memory costs a page fault every 4 KiB, about as much as copying the bytes. A payload is
//! therefore received into a buffer that comes back to its pool when the last reference to the
//! bytes is dropped, wherever in the program that is.

use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// Smaller payloads come from the allocator, which keeps such sizes at hand itself.
const POOLED_BYTES_MIN: usize = 64 << 10;
/// Largest buffer kept.
const POOLED_BYTES_MAX: usize = 8 << 20;
/// Sizes of buffers: powers of two between the two above.
const CLASSES: usize = (POOLED_BYTES_MAX / POOLED_BYTES_MIN).ilog2() as usize + 1;

/// Buffers waiting to be used again.
pub struct BufferPool {
    state: Mutex<State>,
    idle_bytes_max: usize,
}

#[derive(Default)]
struct State {
    /// Empty buffers by size class.
    idle: [Vec<Vec<u8>>; CLASSES],
    /// Their capacities together.
    idle_bytes: usize,
}

/// A buffer being filled. Its contents grow from nothing; memory is never zeroed first.
pub struct PooledBuffer {
    bytes: Vec<u8>,
    /// Where it goes back to: the pool and the size class.
    home: Option<(Weak<BufferPool>, usize)>,
}

impl BufferPool {
    /// A pool that keeps at most this many bytes while nobody uses them.
    pub fn new(idle_bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), idle_bytes_max })
    }

    /// An empty buffer with room for `len` bytes.
    pub fn take(self: &Arc<Self>, len: usize) -> PooledBuffer {
        let Some(class) = class_of(len) else {
            return PooledBuffer { bytes: Vec::with_capacity(len), home: None };
        };
        let mut state = self.state.lock();
        let reused = state.idle[class].pop();
        state.idle_bytes -= reused.as_ref().map_or(0, Vec::capacity);
        drop(state);
        let bytes = reused.unwrap_or_else(|| Vec::with_capacity(POOLED_BYTES_MIN << class));
        PooledBuffer { bytes, home: Some((Arc::downgrade(self), class)) }
    }

    fn give_back(&self, class: usize, mut bytes: Vec<u8>) {
        let mut state = self.state.lock();
        if state.idle_bytes + bytes.capacity() <= self.idle_bytes_max {
            bytes.clear();
            state.idle_bytes += bytes.capacity();
            state.idle[class].push(bytes);
        }
    }
}

/// The size class for a length; none if a buffer of that class would be a quarter empty or more.
fn class_of(len: usize) -> Option<usize> {
    if !(POOLED_BYTES_MIN / 4 * 3..=POOLED_BYTES_MAX).contains(&len) {
        return None;
    }
    let capacity = len.next_power_of_two();
    let class = (capacity / POOLED_BYTES_MIN).ilog2() as usize;
    (len > capacity / 4 * 3).then_some(class)
}

impl PooledBuffer {
    /// The vector to append to, within the length asked for.
    pub fn vec(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The filled buffer as shared bytes, without a copy.
    pub fn freeze(mut self) -> Bytes {
        match self.home {
            Some(_) => Bytes::from_owner(self),
            None => Bytes::from(std::mem::take(&mut self.bytes)),
        }
    }
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let Some((home, class)) = self.home.take() else { return };
        if let Some(pool) = home.upgrade() {
            pool.give_back(class, std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_payload_gives_its_buffer_back() {
        let pool = BufferPool::new(4 << 20);
        let mut buffer = pool.take(1 << 20);
        buffer.vec().resize(1 << 20, 1);
        let at = buffer.as_ref().as_ptr();
        let bytes = buffer.freeze();
        let part = bytes.slice(5..9);
        drop(bytes);
        assert_eq!(pool.state.lock().idle_bytes, 0);
        drop(part);
        let mut again = pool.take(1 << 20);
        again.vec().push(2);
        assert_eq!(again.as_ref().as_ptr(), at);
        assert_eq!(again.as_ref(), [2]);
    }

    #[test]
    fn a_pool_keeps_no_more_than_its_limit_and_no_odd_sizes() {
        let pool = BufferPool::new(3 << 20);
        let many: Vec<_> = (0..5).map(|_| pool.take(1 << 20)).collect();
        drop(many);
        assert_eq!(pool.state.lock().idle_bytes, 3 << 20);
        for odd in [0, 1, 100, (64 << 10) + 1, (1 << 20) + 4096, (8 << 20) + 1] {
            assert!(pool.take(odd).home.is_none(), "{odd}");
        }
        for pooled in [60 << 10, 64 << 10, 1 << 20, 8 << 20, (1 << 20) - 4096] {
            let mut buffer = pool.take(pooled);
            assert!(buffer.home.is_some() && buffer.vec().capacity() >= pooled, "{pooled}");
        }
    }
}
