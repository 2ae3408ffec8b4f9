//! Contents that lie inside the inode: held whole, written back in one message.

use crate::kept::EXTENT_BYTES;
use crate::room::{Room, join};
use bytes::{Bytes, BytesMut};

/// The contents of a small file as this mount sees them.
#[derive(Default)]
pub(crate) struct Inline {
    data: BytesMut,
    /// The range written and not yet accepted by the server.
    dirty: Option<(usize, usize)>,
    /// The room that it takes while something is unsent.
    room: Option<Room>,
    /// Number of writes so far.
    writes: u64,
}

/// What is unsent, as of one moment.
pub(crate) struct Unsent {
    pub(crate) offset: u64,
    pub(crate) data: Bytes,
    writes: u64,
}

impl Inline {
    /// Contents as the server sent them.
    pub(crate) fn new(data: &[u8]) -> Self {
        Self { data: BytesMut::from(data), ..Self::default() }
    }

    /// The contents.
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.data
    }

    /// True if something is unsent.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.is_some()
    }

    /// Writes; a gap before `offset` becomes zeros. Of the room, what it lacks is kept.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8], room: Option<Room>) {
        let end = offset + bytes.len();
        if self.data.len() < end {
            if self.data.capacity() < end {
                self.data.reserve(end.next_power_of_two() - self.data.len());
            }
            self.data.resize(end, 0);
        }
        self.data[offset..end].copy_from_slice(bytes);
        self.writes += 1;
        self.dirty = Some(match self.dirty {
            None => (offset, end),
            Some((from, to)) => (from.min(offset), to.max(end)),
        });
        self.add_room(room);
    }

    fn add_room(&mut self, room: Option<Room>) {
        let held = self.room.as_ref().map_or(0, Room::bytes);
        let lacks = self.data.len().max(EXTENT_BYTES).saturating_sub(held);
        let Some(mut room) = room.filter(|_| lacks > 0) else { return };
        self.room = join(self.room.take(), Some(room.split(lacks)));
    }

    /// Its contents are unsent elsewhere from now on.
    pub(crate) fn take_room(&mut self) -> Option<Room> {
        self.room.take()
    }

    /// The unsent range and its bytes.
    pub(crate) fn unsent(&self) -> Option<Unsent> {
        let (from, to) = self.dirty?;
        let to = to.min(self.data.len());
        let data = Bytes::copy_from_slice(&self.data[from..to]);
        Some(Unsent { offset: from as u64, data, writes: self.writes })
    }

    /// The server has accepted it. What was written meanwhile stays unsent.
    pub(crate) fn accepted(&mut self, sent: &Unsent) {
        if self.writes == sent.writes {
            self.forget_unsent();
        }
    }

    /// Gives up what is unsent, and its room.
    pub(crate) fn forget_unsent(&mut self) {
        (self.dirty, self.room) = (None, None);
    }

    /// Cuts or extends with zeros; nothing of it is unsent, the server does the same.
    pub(crate) fn set_len(&mut self, len: usize) {
        self.data.resize(len, 0);
        self.dirty =
            self.dirty.filter(|(from, _)| *from < len).map(|(from, to)| (from, to.min(len)));
        if self.dirty.is_none() {
            self.room = None;
        }
    }
}
