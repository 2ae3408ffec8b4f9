//! Having a part of a file as a whole that is read here and there ([`super::dense`] says when).

use super::dense::{PART_BYTES, SMALL_BYTES_MAX};
use super::open::OpenFile;
use crate::api::ReadData;
use crate::memory::Room;
use crate::volume::Volume;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use strake_types::Result;

/// A part of a file, in memory that is counted until it is dropped.
pub struct WholePart {
    /// Its bytes.
    pub data: ReadData,
    /// They are leased: who keeps them is told when they change.
    pub leased: bool,
    _room: Room,
}

impl Volume {
    /// Takes note of a small read that servers have answered after this time.
    pub(super) fn note_small_read(&self, file: &OpenFile, read: Range<u64>, took: Duration) {
        let part = read.start / PART_BYTES;
        if read.end - read.start > SMALL_BYTES_MAX {
            return;
        }
        if file.state.paid.lock().note(part, took, self.dense_cost.mean()) {
            *file.worth.lock() = Some(part);
        }
    }

    /// The part of a file that it is worth to have as a whole now, by what was read through this handle: a range of
    /// bytes. Told once.
    pub fn take_worth_having(&self, file: &OpenFile) -> Option<Range<u64>> {
        let start = file.worth.lock().take()? * PART_BYTES;
        let end = file.state.core().length.min(start + PART_BYTES);
        (start < end).then_some(start..end)
    }

    /// Fetches a part of a file. `None` if there is no room for it.
    pub async fn read_part(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        range: Range<u64>,
    ) -> Result<Option<WholePart>> {
        let len = range.end - range.start;
        let Some(room) = self.memory().try_ahead(len as usize) else { return Ok(None) };
        let began = self.now();
        let mut leased = true;
        let told = || leased = false;
        let data = self.read_range(file, range, false, told).await?;
        if len == PART_BYTES {
            self.dense_cost.note(self.now().saturating_sub(began));
        }
        Ok(Some(WholePart { data, leased, _room: room }))
    }
}
