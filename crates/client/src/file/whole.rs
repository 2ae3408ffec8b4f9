//! Parts of files that are read here and there, and are worth to have as a whole ([`super::dense`] says when).

use super::dense::{PART_BYTES, SMALL_BYTES_MAX};
use super::open::OpenFile;
use crate::api::ReadData;
use crate::volume::Volume;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use strake_types::{Error, ErrorKind, Result};

impl Volume {
    /// Takes note of a small read that servers have answered after this time.
    pub(super) fn note_small_read(&self, file: &OpenFile, read: Range<u64>, took: Duration) {
        let part = read.start / PART_BYTES;
        if read.end - read.start > SMALL_BYTES_MAX {
            return;
        }
        if file.state.paid.lock().note(part, took, self.part_cost.mean()) {
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

    /// To have a part that was worth it has taken this time.
    pub fn note_part(&self, range: &Range<u64>, took: Duration) {
        if range.end - range.start == PART_BYTES {
            self.part_cost.note(took);
        }
    }

    /// As [`Volume::read_telling`], for who fetches such a part: nothing follows from it. Fails once the handle is
    /// released.
    pub async fn read_part(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        (offset, len): (u64, u32),
        unleased: impl FnOnce(),
    ) -> Result<ReadData> {
        let range = offset..offset.saturating_add(u64::from(len));
        match file.is_released() {
            true => Err(Error::with(ErrorKind::Stale, "the file was closed meanwhile")),
            false => self.read_range(file, range, false, unleased).await,
        }
    }
}
