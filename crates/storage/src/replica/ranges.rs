//! Who may touch which bytes now: changes wait for overlapping changes and reads before them, reads
//! for overlapping changes. First come, first served.

use crate::target::{check_parts, in_chunk};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use strake_engine::chunk::BLOCK_BYTES;
use strake_types::limits::CHUNK_BYTES_MAX;
use strake_types::{ChunkId, Error, ErrorKind, Ino, Result, VolumeId};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::StorageOp;
use tokio::sync::oneshot;

/// Bits of an offset within a chunk: chunks have at most 64 MiB.
const OFFSET_BITS: u32 = 26;

type File = (VolumeId, Ino);

/// Bytes of one file, each at its chunk's index << 26 | its offset in the chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    file: File,
    /// Ascending, both where they start and where they end.
    spans: Vec<Span>,
}

/// Bytes from `start` to before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u128,
    end: u128,
}

impl Span {
    fn of(start: u128, len: u64) -> Self {
        Self { start, end: start + u128::from(len) }
    }

    fn meets(self, other: Span) -> bool {
        self.start < other.end && other.start < self.end
    }
}

fn position(index: u64, offset: u64) -> u128 {
    (u128::from(index) << OFFSET_BITS) + u128::from(offset)
}

impl Area {
    /// A range of a chunk.
    pub fn of_range(range: &msg::Range) -> Self {
        let chunk = range.chunk;
        let spans = vec![Span::of(position(chunk.index, range.offset), range.len)];
        Self { file: (VolumeId(chunk.volume), Ino(chunk.ino)), spans }
    }

    /// A whole chunk.
    pub fn of_chunk(chunk: ChunkId) -> Self {
        let spans = vec![Span::of(position(chunk.index.0, 0), 1 << OFFSET_BITS)];
        Self { file: (chunk.volume, chunk.ino), spans }
    }

    /// A block of a chunk.
    pub fn of_block(chunk: ChunkId, block: u32) -> Self {
        let spans =
            vec![Span::of(position(chunk.index.0, u64::from(block) * BLOCK_BYTES), BLOCK_BYTES)];
        Self { file: (chunk.volume, chunk.ino), spans }
    }

    /// Everything of a file from a chunk on.
    pub fn of_file(volume: u32, ino: u64, from_index: u64) -> Self {
        let spans = vec![Span { start: position(from_index, 0), end: u128::MAX }];
        Self { file: (VolumeId(volume), Ino(ino)), spans }
    }

    /// What an operation reads or changes; `None`: nothing of a single file.
    pub fn of_op(op: &StorageOp, payload: u64) -> Option<Self> {
        if let Some(range) = range_of(op, payload) {
            return Some(Self::of_range(&range));
        }
        Some(match op {
            StorageOp::WriteMany(many) => {
                let starts = many.indices.iter().zip(&many.offsets);
                let starts = starts.map(|(&index, &offset)| position(index, offset));
                let spans = starts.zip(&many.lens).map(|(start, &len)| Span::of(start, len));
                let spans = ascending(spans.collect());
                Self { file: (VolumeId(many.volume), Ino(many.ino)), spans }
            }
            StorageOp::Truncate(cut) => {
                let first =
                    cut.from_index - u64::from(cut.last_chunk_len.is_some()).min(cut.from_index);
                Self::of_file(cut.volume, cut.ino, first)
            }
            StorageOp::Cut(cut) => Self::of_chunk(cut.chunk.into()),
            StorageOp::Lose(lost) => Self::of_chunk(lost.chunk.into()),
            StorageOp::Damage(range) => Self::of_range(range),
            StorageOp::Extents(chunk) => Self::of_chunk((*chunk).into()),
            StorageOp::Chunks(of) => Self::of_file(of.volume, of.ino, of.from),
            _ => return None,
        })
    }

    /// What an operation of a client makes zeros, or takes away; `None`: nothing.
    pub fn of_hole(op: &StorageOp) -> Option<Self> {
        match op {
            StorageOp::Punch(range) => Some(Self::of_range(range)),
            // Behind the end of a part, too: what was there is gone already, everywhere.
            StorageOp::Truncate(cut) => {
                let start = match (cut.last_chunk_len, cut.from_index.checked_sub(1)) {
                    (Some(len), Some(index)) => position(index, len),
                    _ => position(cut.from_index, 0),
                };
                let file = (VolumeId(cut.volume), Ino(cut.ino));
                Some(Self { file, spans: vec![Span { start, end: u128::MAX }] })
            }
            _ => None,
        }
    }

    /// Of an area in one piece where it begins, by chunk and byte of it, and how long it is; without a length it has everything
    /// of the file from there on.
    pub fn piece(&self) -> Option<(msg::Chunk, u64, Option<u64>)> {
        let span = self.spans.first()?;
        let index = (span.start >> OFFSET_BITS) as u64;
        let chunk = msg::Chunk { volume: self.file.0.0, ino: self.file.1.0, index };
        let offset = (span.start & ((1 << OFFSET_BITS) - 1)) as u64;
        let len = (span.end != u128::MAX).then_some((span.end - span.start) as u64);
        Some((chunk, offset, len))
    }

    /// The area that [`Area::piece`] tells of.
    pub fn of_piece(chunk: msg::Chunk, offset: u64, len: Option<u64>) -> Self {
        let start = position(chunk.index, offset);
        let end = len.map_or(u128::MAX, |len| start + u128::from(len));
        Self { file: (VolumeId(chunk.volume), Ino(chunk.ino)), spans: vec![Span { start, end }] }
    }

    /// As [`Area::of_op`], of an operation that must be about a file, within where chunks may have
    /// bytes.
    pub fn checked(op: &StorageOp, payload: u64) -> Result<Self> {
        if let Some(range) = range_of(op, payload) {
            in_chunk(range)?;
        }
        match op {
            StorageOp::WriteMany(many) => check_parts(many)?,
            StorageOp::Truncate(cut) => check_cut(cut)?,
            _ => {}
        }
        let nothing = || Error::with(ErrorKind::Malformed, "an operation on no file");
        Self::of_op(op, payload).ok_or_else(nothing)
    }

    /// The whole blocks that it touches.
    pub fn in_blocks(&self) -> Self {
        let mask = u128::from(BLOCK_BYTES) - 1;
        let whole = |span: &Span| match span.end {
            u128::MAX => Span { start: span.start & !mask, ..*span },
            end => Span { start: span.start & !mask, end: (end + mask) & !mask },
        };
        Self { file: self.file, spans: self.spans.iter().map(whole).collect() }
    }

    /// True if both have a byte in common.
    pub fn overlaps(&self, other: &Area) -> bool {
        self.file == other.file && any_meet(&self.spans, &other.spans)
    }

    /// True if it has all bytes of another one.
    pub fn covers(&self, other: &Area) -> bool {
        let has = |part: &Span| {
            self.spans.iter().any(|span| span.start <= part.start && part.end <= span.end)
        };
        self.file == other.file && other.spans.iter().all(has)
    }

    /// The chunks it touches, where they can be counted.
    pub fn chunks(&self) -> Option<Vec<ChunkId>> {
        let (volume, ino) = self.file;
        let mut chunks = Vec::new();
        for span in self.spans.iter().filter(|span| span.start < span.end) {
            if span.end == u128::MAX {
                return None;
            }
            let indices = (span.start >> OFFSET_BITS)..=((span.end - 1) >> OFFSET_BITS);
            chunks.extend(indices.map(|i| ChunkId { volume, ino, index: (i as u64).into() }));
        }
        chunks.sort_unstable();
        chunks.dedup();
        Some(chunks)
    }

    /// What it touches of a chunk: ranges of its bytes, ascending.
    pub fn within(&self, chunk: ChunkId) -> Vec<Range<u64>> {
        if self.file != (chunk.volume, chunk.ino) {
            return Vec::new();
        }
        let whole = Span::of(position(chunk.index.0, 0), CHUNK_BYTES_MAX);
        let offset = |at: u128| (at.clamp(whole.start, whole.end) - whole.start) as u64;
        let first = self.spans.partition_point(|span| span.end <= whole.start);
        let met = self.spans[first..].iter().take_while(|span| span.start < whole.end);
        met.map(|span| offset(span.start)..offset(span.end)).collect()
    }

    /// The file.
    pub fn file(&self) -> (VolumeId, Ino) {
        self.file
    }
}

/// One who holds or waits for an area.
struct Entry {
    id: u64,
    area: Area,
    exclusive: bool,
    /// Waits for this; `None`: holds.
    go: Option<oneshot::Sender<()>>,
}

#[derive(Default)]
struct Inner {
    next: u64,
    files: HashMap<File, Vec<Entry>>,
}

/// The areas in use.
#[derive(Clone, Default)]
pub(crate) struct Ranges {
    inner: Arc<Mutex<Inner>>,
}

/// An area in use, or waited for; free again when it is dropped.
pub(crate) struct Held {
    ranges: Ranges,
    file: File,
    id: u64,
}

impl Ranges {
    /// Waits until nobody who came before holds or wants an overlapping area the other way.
    pub async fn take(&self, area: Area, exclusive: bool) -> Held {
        let (held, wait) = {
            let mut inner = self.inner.lock();
            inner.next += 1;
            let (id, file) = (inner.next, area.file);
            let entries = inner.files.entry(file).or_default();
            let blocked = entries.iter().any(|e| e.blocks(&area, exclusive));
            let (go, wait) = oneshot::channel();
            entries.push(Entry { id, area, exclusive, go: blocked.then_some(go) });
            (Held { ranges: self.clone(), file, id }, blocked.then_some(wait))
        };
        if let Some(wait) = wait {
            // The sender is dropped only with the entry, which `held` keeps.
            let _granted = wait.await;
        }
        held
    }
}

impl Entry {
    fn blocks(&self, area: &Area, exclusive: bool) -> bool {
        (self.exclusive || exclusive) && self.area.overlaps(area)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut inner = self.ranges.inner.lock();
        let Some(entries) = inner.files.get_mut(&self.file) else { return };
        let Some(own) = entries.iter().position(|entry| entry.id == self.id) else { return };
        let freed = entries.remove(own);
        for at in own..entries.len() {
            let (before, rest) = entries.split_at_mut(at);
            let entry = &mut rest[0];
            // What waits for others, or for nobody, this changes nothing for.
            if entry.go.is_none() || !freed.blocks(&entry.area, entry.exclusive) {
                continue;
            }
            let free = !before.iter().any(|e| e.blocks(&entry.area, entry.exclusive));
            if let Some(go) = entry.go.take_if(|_| free) {
                // Whoever no longer waits drops its own entry.
                let _gone = go.send(());
            }
        }
        if entries.is_empty() {
            inner.files.remove(&self.file);
        }
    }
}

/// Spans in the order in which they start; those that have bytes in common become one.
fn ascending(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable_by_key(|span| span.start);
    spans.dedup_by(|next, span| {
        let joined = next.start < span.end;
        span.end = if joined { span.end.max(next.end) } else { span.end };
        joined
    });
    spans
}

/// True if a span of one list has a byte in common with one of the other. Both ascend, so that each span is
/// looked at once: requests may have thousands, and others wait meanwhile.
fn any_meet(mut ours: &[Span], mut theirs: &[Span]) -> bool {
    while let (Some((a, our_rest)), Some((b, their_rest))) =
        (ours.split_first(), theirs.split_first())
    {
        if a.meets(*b) {
            return true;
        }
        // What ends first meets nothing of what comes after the other.
        match a.end <= b.end {
            true => ours = our_rest,
            false => theirs = their_rest,
        }
    }
    false
}

/// Where the last chunk is cut must be where a chunk may have bytes: it is found out after others are deleted.
fn check_cut(cut: &msg::Truncate) -> Result<()> {
    let (Some(offset), Some(index)) = (cut.last_chunk_len, cut.from_index.checked_sub(1)) else {
        return Ok(());
    };
    let chunk = msg::Chunk { volume: cut.volume, ino: cut.ino, index };
    in_chunk(msg::Range { chunk, offset, len: 0 }).map(drop)
}

/// The range of an operation that is about one.
fn range_of(op: &StorageOp, payload: u64) -> Option<msg::Range> {
    Some(match op {
        StorageOp::Read(r) => msg::Range { chunk: r.chunk, offset: r.offset, len: r.len },
        StorageOp::Write(w) => msg::Range { chunk: w.chunk, offset: w.offset, len: payload },
        StorageOp::Punch(range) | StorageOp::Allocate(range) => *range,
        _ => return None,
    })
}
