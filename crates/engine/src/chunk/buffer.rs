//! Buffers for large reads, used again and again.
//!
//! A fresh megabyte costs the kernel 256 page faults, more than copying the data into it; so large
//! buffers come back here when the last [`Bytes`] of them is dropped.

use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;

/// Length of the buffers that are kept: the default chunk, and an unaligned block at each end.
const KEPT_BYTES: usize = (1 << 20) + 8192;
/// Shorter reads do with ordinary memory.
const KEPT_BYTES_MIN: usize = 64 << 10;
/// Most buffers kept while nobody uses them.
const KEPT_MAX: usize = 16;

/// Buffers that nobody uses now.
#[derive(Clone, Default)]
pub(super) struct Buffers {
    free: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// A buffer in use. Its contents are undefined at first.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    len: usize,
    home: Option<Buffers>,
}

impl Buffers {
    pub(super) fn take(&self, len: usize) -> Buffer {
        if !(KEPT_BYTES_MIN..=KEPT_BYTES).contains(&len) {
            return Buffer { bytes: vec![0; len], len, home: None };
        }
        let bytes = self.free.lock().pop().unwrap_or_else(|| vec![0; KEPT_BYTES]);
        Buffer { bytes, len, home: Some(self.clone()) }
    }
}

impl Buffer {
    pub(super) fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    pub(super) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            let mut free = home.free.lock();
            if free.len() < KEPT_MAX {
                free.push(std::mem::take(&mut self.bytes));
            }
        }
    }
}
