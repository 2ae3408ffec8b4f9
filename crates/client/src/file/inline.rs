//! Contents that lie inside the inode: held whole, written back in one message.

use bytes::{Bytes, BytesMut};

/// The contents of a small file as this mount sees them.
#[derive(Default)]
pub(crate) struct Inline {
    data: BytesMut,
    /// The range written and not yet sent.
    dirty: Option<(usize, usize)>,
}

impl Inline {
    /// Contents as the server sent them.
    pub(crate) fn new(data: &[u8]) -> Self {
        Self { data: BytesMut::from(data), dirty: None }
    }

    /// The contents.
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.data
    }

    /// True if something is unsent.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.is_some()
    }

    /// Writes; a gap before `offset` becomes zeros.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.data.len() < end {
            if self.data.capacity() < end {
                self.data.reserve(end.next_power_of_two() - self.data.len());
            }
            self.data.resize(end, 0);
        }
        self.data[offset..end].copy_from_slice(bytes);
        self.dirty = Some(match self.dirty {
            None => (offset, end),
            Some((from, to)) => (from.min(offset), to.max(end)),
        });
    }

    /// Takes the unsent range and its bytes.
    pub(crate) fn take_dirty(&mut self) -> Option<(u64, Bytes)> {
        let (from, to) = self.dirty.take()?;
        let to = to.min(self.data.len());
        (from < to).then(|| (from as u64, Bytes::copy_from_slice(&self.data[from..to])))
    }

    /// What was taken was not accepted: it is unsent again.
    pub(crate) fn put_back(&mut self, from: u64, len: usize) {
        let (from, to) = (from as usize, from as usize + len);
        self.dirty = Some(match self.dirty {
            None => (from, to),
            Some((a, b)) => (a.min(from), b.max(to)),
        });
    }

    /// Cuts or extends with zeros; nothing of it is unsent, the server does the same.
    pub(crate) fn set_len(&mut self, len: usize) {
        self.data.resize(len, 0);
        self.dirty =
            self.dirty.filter(|(from, _)| *from < len).map(|(from, to)| (from, to.min(len)));
    }
}
