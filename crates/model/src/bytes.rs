//! The contents of a file: pages that were written, zeros between them.

use std::collections::BTreeMap;

/// Granularity of what is kept. Of no consequence for what is read.
const PAGE_BYTES: u64 = 4096;

/// Sparse contents with a length.
#[derive(Clone, Debug, Default)]
pub struct SparseBytes {
    pages: BTreeMap<u64, Vec<u8>>,
    length: u64,
}

impl SparseBytes {
    /// Length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The bytes of a range; short where the contents end.
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = offset.saturating_add(len).min(self.length);
        let mut out = Vec::new();
        let mut at = offset;
        while at < end {
            let (page, from, to) = span(at, end);
            match self.pages.get(&page) {
                Some(bytes) => out.extend_from_slice(&bytes[from..to]),
                None => out.resize(out.len() + to - from, 0),
            }
            at += (to - from) as u64;
        }
        out
    }

    /// Writes at an offset; a gap before it reads as zeros.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        let mut at = offset;
        while at < end {
            let (page, from, to) = span(at, end);
            let bytes = self.pages.entry(page).or_insert_with(|| vec![0; PAGE_BYTES as usize]);
            let taken = (at - offset) as usize;
            bytes[from..to].copy_from_slice(&data[taken..taken + to - from]);
            at += (to - from) as u64;
        }
        if !data.is_empty() {
            self.length = self.length.max(end);
        }
    }

    /// Makes a range zeros; the length stays.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.length);
        let mut at = offset;
        while at < end {
            let (page, from, to) = span(at, end);
            if let Some(bytes) = self.pages.get_mut(&page) {
                bytes[from..to].fill(0);
            }
            at += (to - from) as u64;
        }
    }

    /// Sets the length. What is cut off is zeros when the file grows again.
    pub fn set_length(&mut self, length: u64) {
        if length < self.length {
            self.zero(length, self.length - length);
            self.pages.split_off(&length.div_ceil(PAGE_BYTES));
        }
        self.length = length;
    }
}

/// The page of an offset, and the part of it before `end`.
fn span(at: u64, end: u64) -> (u64, usize, usize) {
    let page = at / PAGE_BYTES;
    let from = at % PAGE_BYTES;
    let to = PAGE_BYTES.min(end - page * PAGE_BYTES);
    (page, from as usize, to as usize)
}
