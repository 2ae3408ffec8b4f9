//! The contents of a simulated file, and changes to them that may be lost or torn.

use crate::random::SplitMix64;
use std::collections::BTreeMap;

/// Unit of space.
pub(super) const PAGE: u64 = 4096;
/// What a disk writes atomically.
const SECTOR: u64 = 512;

/// Pages by number. `None`: space is reserved, the bytes are zeros.
#[derive(Clone, Default)]
pub(super) struct Content {
    pages: BTreeMap<u64, Option<Box<[u8; PAGE as usize]>>>,
    pub(super) len: u64,
}

/// A change that is not durable yet.
#[derive(Clone)]
pub(super) enum Change {
    Write { offset: u64, data: Vec<u8> },
    SetLen(u64),
    Allocate { offset: u64, len: u64 },
    Punch { offset: u64, len: u64 },
}

impl Content {
    /// Pages that occupy space.
    pub(super) fn occupied_pages(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Pages that were written to.
    pub(super) fn written_pages(&self) -> impl Iterator<Item = u64> {
        self.pages.iter().filter(|(_, bytes)| bytes.is_some()).map(|(page, _)| *page)
    }

    /// Pages that a range needs and that do not occupy space yet.
    pub(super) fn missing_pages(&self, offset: u64, len: u64) -> u64 {
        let range = offset / PAGE..(offset + len).div_ceil(PAGE);
        let all = range.end.saturating_sub(range.start);
        all - self.pages.range(range).count() as u64
    }

    pub(super) fn read(&self, buf: &mut [u8], offset: u64) {
        buf.fill(0);
        for (at, page, within) in spans(offset, buf.len() as u64) {
            if let Some(Some(bytes)) = self.pages.get(&page) {
                let count = within.len();
                buf[at..at + count].copy_from_slice(&bytes[within]);
            }
        }
    }

    pub(super) fn write(&mut self, data: &[u8], offset: u64) {
        for (at, page, within) in spans(offset, data.len() as u64) {
            let count = within.len();
            let bytes = self.pages.entry(page).or_default();
            let bytes = bytes.get_or_insert_with(|| Box::new([0; PAGE as usize]));
            bytes[within].copy_from_slice(&data[at..at + count]);
        }
        self.len = self.len.max(offset + data.len() as u64);
    }

    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { offset, data } => self.write(data, *offset),
            Change::SetLen(len) => {
                if *len < self.len {
                    self.zero(*len, self.len - *len, false);
                    self.pages.split_off(&len.div_ceil(PAGE));
                }
                self.len = *len;
            }
            Change::Allocate { offset, len } => {
                for page in offset / PAGE..(offset + len).div_ceil(PAGE) {
                    self.pages.entry(page).or_default();
                }
                self.len = self.len.max(offset + len);
            }
            Change::Punch { offset, len } => self.zero(*offset, *len, true),
        }
    }

    /// Applies what a power loss leaves of a change: all, nothing, or for a write some of its
    /// sectors or pages.
    pub(super) fn apply_torn(
        &mut self,
        change: &Change,
        random: &mut SplitMix64,
        keep_percent: u64,
    ) {
        let keep = random.percent(keep_percent);
        let Change::Write { offset, data } = change else {
            if keep {
                self.apply(change);
            }
            return;
        };
        if random.percent(50) {
            if keep {
                self.write(data, *offset);
            }
            return;
        }
        let unit = if random.percent(50) { SECTOR } else { PAGE };
        let mut at = 0;
        while at < data.len() as u64 {
            let position = offset + at;
            let end = ((position / unit + 1) * unit - offset).min(data.len() as u64);
            if random.percent(keep_percent) {
                self.write(&data[at as usize..end as usize], position);
            }
            at = end;
        }
    }

    pub(super) fn flip_bit(&mut self, offset: u64, bit: u8) {
        if let Some(Some(bytes)) = self.pages.get_mut(&(offset / PAGE)) {
            bytes[(offset % PAGE) as usize] ^= 1 << (bit & 7);
        }
    }

    fn zero(&mut self, offset: u64, len: u64, free: bool) {
        for (_, page, within) in spans(offset, len) {
            if free && within.len() == PAGE as usize {
                self.pages.remove(&page);
            } else if let Some(Some(bytes)) = self.pages.get_mut(&page) {
                bytes[within].fill(0);
            }
        }
    }
}

/// Cuts a byte range at page boundaries: (start within the range, page, range within the page).
fn spans(offset: u64, len: u64) -> impl Iterator<Item = (usize, u64, std::ops::Range<usize>)> {
    let end = offset + len;
    let pages = if len == 0 { 0..0 } else { offset / PAGE..end.div_ceil(PAGE) };
    pages.map(move |page| {
        let start = offset.max(page * PAGE);
        let stop = end.min((page + 1) * PAGE);
        let within = (start - page * PAGE) as usize..(stop - page * PAGE) as usize;
        ((start - offset) as usize, page, within)
    })
}
