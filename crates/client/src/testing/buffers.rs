//! Buffers of doors.

use super::pattern;
use bytes::Bytes;
use std::sync::Arc;

/// A buffer as a door has it, and what counts it: once more than by this as long as somebody has some of it.
pub(crate) fn buffer(len: usize) -> (Bytes, Arc<()>) {
    struct Buffer {
        bytes: Bytes,
        _held: Arc<()>,
    }
    impl AsRef<[u8]> for Buffer {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }
    let held = Arc::new(());
    let buffer = Buffer { bytes: pattern(7, len), _held: Arc::clone(&held) };
    (Bytes::from_owner(buffer), held)
}
