//! The store's records: edits in the intent log, leaves in the table, heads of logs.
//!
//! An [`Edit`] says what some blocks of a chunk have become. The same runs of blocks make up the
//! records of the log and the values of the table. Byte tables: docs/FORMATS.md.

use super::leaf::{Block, Leaf};
use super::{BLOCK_BYTES, LEAF_BLOCKS, SEGMENT_BLOCKS, crc};
use strake_types::limits::CHUNK_BYTES_MAX;
use strake_types::{ChunkId, ChunkIndex, Ino, VolumeId};

/// Version of the records below.
const VERSION: u8 = 1;
/// Version of a log: with marks and a salt. In version 1 the salt is zeros, and there are no marks.
const LOG_VERSION: u8 = 2;
/// Blocks of the largest chunk.
const CHUNK_BLOCKS_MAX: u64 = CHUNK_BYTES_MAX / BLOCK_BYTES;
/// Places have 48 bits.
const PLACE_MAX: u64 = 1 << 48;
const RUN_BYTES: usize = 11;
/// Length of an encoded key of the table.
pub(super) const KEY_BYTES: usize = 21;
/// Length of the head of a log.
pub(super) const LOG_HEAD_BYTES: usize = 64;
const LOG_MAGIC: &[u8; 8] = b"STRAKELG";
/// Length of the salt in the head of a log.
pub(super) const SALT_BYTES: usize = 7;
/// Most blocks whose contents a mark holds.
pub(super) const MARK_BLOCKS_MAX: u64 = 16;
const MARK_RUN_BYTES: usize = 8;
/// Length of what precedes a record in the log.
pub(super) const FRAME_BYTES: usize = 8;
/// Where what a record says begins: after its frame, its version and its kind.
pub(super) const CONTENT_AT: usize = FRAME_BYTES + 2;
/// Largest record of a log: every block of the largest chunk in a run of its own.
pub(super) const RECORD_BYTES_MAX: usize =
    FRAME_BYTES + 32 + CHUNK_BLOCKS_MAX as usize * (RUN_BYTES + 4);
const _: () = assert!(
    FRAME_BYTES + 4 + MARK_BLOCKS_MAX as usize * (MARK_RUN_BYTES + BLOCK_BYTES as usize)
        <= RECORD_BYTES_MAX
);

/// A record that cannot be understood, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RecordError(pub &'static str);

type Result<T> = std::result::Result<T, RecordError>;

/// What a run of blocks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Nothing: zeros.
    Hole = 0,
    /// Zeros, with space set aside.
    Reserved = 1,
    /// Bytes, with a CRC32C for each block.
    Data = 2,
}

/// Consecutive blocks of a chunk that lie at consecutive places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First block within the chunk.
    pub first: u16,
    /// Number of blocks, at least 1.
    pub count: u16,
    /// What they are.
    pub kind: Kind,
    /// Place of the first, in blocks from the beginning of the first segment; 0 for a hole.
    pub at: u64,
}

/// What has become of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The chunk.
    pub chunk: ChunkId,
    /// The chunk is deleted; then there is nothing else.
    pub remove: bool,
    /// End of its last stored byte from now on.
    pub len: u64,
    /// Blocks that change, ascending.
    pub runs: Vec<Run>,
    /// CRC32C of each block of the runs of [`Kind::Data`], in their order.
    pub crcs: Vec<u32>,
}

impl Run {
    /// The places it takes on disk.
    pub(super) fn places(&self) -> std::ops::Range<u64> {
        match self.kind {
            Kind::Hole => 0..0,
            Kind::Reserved | Kind::Data => self.at..self.at + u64::from(self.count),
        }
    }

    /// The segments whose bytes it names. An earlier release wrote runs that lie in two.
    pub(super) fn segments(&self) -> std::ops::RangeInclusive<u64> {
        let last = self.at + u64::from(self.count) - 1;
        self.at / SEGMENT_BLOCKS..=last / SEGMENT_BLOCKS
    }
}

impl Edit {
    /// Nothing changes but perhaps the length.
    pub(super) fn new(chunk: ChunkId, len: u64) -> Self {
        Self { chunk, remove: false, len, runs: Vec::new(), crcs: Vec::new() }
    }

    pub(super) fn removal(chunk: ChunkId) -> Self {
        Self { remove: true, ..Self::new(chunk, 0) }
    }

    /// The leaves that it changes, at most, a bit each: leaf 0 carries the length.
    pub(super) fn leaves(&self) -> u64 {
        self.runs.iter().fold(1, |leaves, run| {
            let (first, count) = (u64::from(run.first), u64::from(run.count));
            let (first, last) = (first / LEAF_BLOCKS, (first + count - 1) / LEAF_BLOCKS);
            leaves | (u64::MAX >> (63 - (last - first))) << first
        })
    }

    /// The block becomes this. Blocks come in ascending order.
    pub(super) fn push(&mut self, block: u64, new: Block) {
        push_run(&mut self.runs, &mut self.crcs, block, new);
    }
}

fn push_run(runs: &mut Vec<Run>, crcs: &mut Vec<u32>, block: u64, new: Block) {
    let (kind, at) = match new {
        Block::Hole => (Kind::Hole, 0),
        Block::Reserved(at) => (Kind::Reserved, at),
        Block::Data(at, crc) => {
            crcs.push(crc);
            (Kind::Data, at)
        }
    };
    if let Some(last) = runs.last_mut() {
        let next = u64::from(last.first) + u64::from(last.count) == block;
        // A run lies in one segment: whoever syncs it, syncs one file.
        let same_segment = last.at / SEGMENT_BLOCKS == at / SEGMENT_BLOCKS;
        let adjoins = kind == Kind::Hole || (same_segment && last.at + u64::from(last.count) == at);
        if next && adjoins && last.kind == kind {
            last.count += 1;
            return;
        }
    }
    runs.push(Run { first: block as u16, count: 1, kind, at });
}

/// Says that everything before it in its log is to survive a power loss: it holds the blocks that
/// the edits since the mark before it have written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Places, as (first, how many).
    pub places: Vec<(u64, u32)>,
    /// What is there, block after block.
    pub blocks: Vec<u8>,
}

/// Says how much of its log was on disk when it was written: what of that is not whole later was
/// damaged, and is not where the log ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// That of the head of the log: a note is found by it.
    pub salt: [u8; SALT_BYTES],
    /// Everything before this byte of the log was on disk.
    pub synced: u64,
}

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A chunk has changed.
    Edit(Edit),
    /// What came before is durable.
    Mark(Mark),
    /// A part of what came before was durable when this was written.
    Note(Note),
}

/// Kinds of records, as they are stored.
const CHANGE: u8 = 0;
const REMOVAL: u8 = 1;
const MARK: u8 = 2;
const NOTE: u8 = 3;

/// Appends a mark to `out` as a record of the log whose head has the checksum `log`.
pub(super) fn encode_mark(mark: &Mark, log: u32, out: &mut Vec<u8>) {
    let start = begin_record(MARK, out);
    out.extend_from_slice(&(mark.places.len() as u16).to_le_bytes());
    for (at, count) in &mark.places {
        out.extend_from_slice(&at.to_le_bytes()[..6]);
        out.extend_from_slice(&(*count as u16).to_le_bytes());
    }
    out.extend_from_slice(&mark.blocks);
    end_record(start, log, out);
}

/// Appends a note to `out` as a record of the log whose head has the checksum `log`.
pub(super) fn encode_note(note: &Note, log: u32, out: &mut Vec<u8>) {
    let start = begin_record(NOTE, out);
    out.extend_from_slice(&note.salt);
    out.extend_from_slice(&note.synced.to_le_bytes());
    end_record(start, log, out);
}

/// Appends an edit to `out` as a record of the log whose head has the checksum `log`.
pub(super) fn encode_edit(edit: &Edit, log: u32, out: &mut Vec<u8>) {
    let start = begin_record(if edit.remove { REMOVAL } else { CHANGE }, out);
    out.extend_from_slice(&edit.chunk.volume.0.to_le_bytes());
    out.extend_from_slice(&edit.chunk.ino.0.to_le_bytes());
    out.extend_from_slice(&edit.chunk.index.0.to_le_bytes());
    out.extend_from_slice(&edit.len.to_le_bytes());
    encode_runs(&edit.runs, &edit.crcs, out);
    end_record(start, log, out);
}

/// Leaves room for the frame; returns where the record begins.
fn begin_record(kind: u8, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_BYTES]);
    out.extend_from_slice(&[VERSION, kind]);
    start
}

fn end_record(start: usize, log: u32, out: &mut [u8]) {
    let body_len = (out.len() - start - FRAME_BYTES) as u32;
    out[start..start + 4].copy_from_slice(&body_len.to_le_bytes());
    let sum = record_sum(log, &out[start + FRAME_BYTES..]);
    out[start + 4..start + 8].copy_from_slice(&sum.to_le_bytes());
}

/// Ties a record to its log, so that what an earlier use of the file left behind is not taken for a
/// record of the present one.
pub(super) fn record_sum(log: u32, body: &[u8]) -> u32 {
    crc::append(crc::of(&log.to_le_bytes()), crc::of(body), body.len() as u64)
}

/// Decodes the record at the beginning of `bytes`, of the log whose head has the checksum `log`;
/// says how long it is. `None`: the log ends here.
pub fn decode_record(bytes: &[u8], log: u32) -> Result<Option<(Record, usize)>> {
    let mut frame = Reader(bytes);
    let (Ok(body_len), Ok(sum)) = (frame.u32(), frame.u32()) else { return Ok(None) };
    let Ok(body) = frame.take(body_len as usize) else { return Ok(None) };
    if body_len == 0 || record_sum(log, body) != sum {
        return Ok(None);
    }
    let mut reader = Reader(body);
    reader.version()?;
    let record = match reader.u8()? {
        CHANGE => Record::Edit(reader.edit(false)?),
        REMOVAL => Record::Edit(reader.edit(true)?),
        MARK => Record::Mark(reader.mark()?),
        NOTE => Record::Note(Note { salt: reader.array()?, synced: reader.u64()? }),
        _ => return Err(RecordError("unknown kind of record")),
    };
    reader.end()?;
    Ok(Some((record, FRAME_BYTES + body_len as usize)))
}

/// How long the record at the beginning of `bytes` is, if one begins there, by its first bytes alone;
/// `None`: none does.
pub(super) fn claimed_len(bytes: &[u8]) -> Option<usize> {
    let mut reader = Reader(bytes);
    let (body_len, _sum) = (reader.u32().ok()?, reader.u32().ok()?);
    let (version, kind) = (reader.u8().ok()?, reader.u8().ok()?);
    let len = FRAME_BYTES + body_len as usize;
    let may_be = version == VERSION && kind <= NOTE && body_len >= 2;
    (may_be && len <= RECORD_BYTES_MAX.min(bytes.len())).then_some(len)
}

/// The key of a leaf in the table: chunks in order, a chunk's leaves together.
pub(super) fn encode_key(chunk: ChunkId, leaf: u8) -> [u8; KEY_BYTES] {
    let mut key = [leaf; KEY_BYTES];
    key[..4].copy_from_slice(&chunk.volume.0.to_be_bytes());
    key[4..12].copy_from_slice(&chunk.ino.0.to_be_bytes());
    key[12..20].copy_from_slice(&chunk.index.0.to_be_bytes());
    key
}

/// Decodes a key of the table: the chunk, and which of its leaves.
pub fn decode_key(key: &[u8]) -> Result<(ChunkId, u8)> {
    let &[v0, v1, v2, v3, i0, i1, i2, i3, i4, i5, i6, i7, c0, c1, c2, c3, c4, c5, c6, c7, leaf] =
        key
    else {
        return Err(RecordError("key of a wrong length"));
    };
    let chunk = ChunkId {
        volume: VolumeId(u32::from_be_bytes([v0, v1, v2, v3])),
        ino: Ino(u64::from_be_bytes([i0, i1, i2, i3, i4, i5, i6, i7])),
        index: ChunkIndex(u64::from_be_bytes([c0, c1, c2, c3, c4, c5, c6, c7])),
    };
    if u64::from(leaf) >= CHUNK_BLOCKS_MAX / LEAF_BLOCKS {
        return Err(RecordError("leaf number out of range"));
    }
    Ok((chunk, leaf))
}

/// The value of a leaf in the table. `len` is the chunk's length in leaf 0, and 0 in the others.
pub(super) fn encode_leaf(key: &[u8], leaf: &Leaf, len: u64) -> Vec<u8> {
    let (mut runs, mut crcs) = (Vec::new(), Vec::new());
    for (nth, block) in (0..).zip(leaf.iter()) {
        if block != Block::Hole {
            push_run(&mut runs, &mut crcs, nth, block);
        }
    }
    let mut out = Vec::with_capacity(16 + runs.len() * RUN_BYTES + crcs.len() * 4);
    out.push(VERSION);
    out.extend_from_slice(&len.to_le_bytes());
    encode_runs(&runs, &crcs, &mut out);
    let sum = leaf_sum(key, &out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// Ties a value to its key, so that a damaged key does not give a chunk the bytes of another.
pub(super) fn leaf_sum(key: &[u8], body: &[u8]) -> u32 {
    crc::append(crc::of(key), crc::of(body), body.len() as u64)
}

/// A decoded value of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafRecord {
    /// The chunk's length, in leaf 0.
    pub len: u64,
    /// Its blocks that are not holes; [`Run::first`] counts within the leaf.
    pub runs: Vec<Run>,
    /// CRC32C of each block of the runs of [`Kind::Data`], in their order.
    pub crcs: Vec<u32>,
}

/// Decodes the value of the leaf with this key.
pub fn decode_leaf(key: &[u8], bytes: &[u8]) -> Result<LeafRecord> {
    let (body, sum) = bytes.split_last_chunk::<4>().ok_or(RecordError("value too short"))?;
    let mut reader = Reader(body);
    reader.version()?;
    if leaf_sum(key, body) != u32::from_le_bytes(*sum) {
        return Err(RecordError("checksum mismatch in the extent map"));
    }
    let len = reader.chunk_len()?;
    let (runs, crcs) = reader.runs(LEAF_BLOCKS)?;
    reader.end()?;
    Ok(LeafRecord { len, runs, crcs })
}

impl LeafRecord {
    pub(super) fn into_leaf(self) -> Leaf {
        let mut leaf = Leaf::default();
        let mut crcs = self.crcs.into_iter();
        for run in self.runs {
            for nth in 0..u64::from(run.count) {
                let block = match run.kind {
                    Kind::Hole => Block::Hole,
                    Kind::Reserved => Block::Reserved(run.at + nth),
                    Kind::Data => Block::Data(run.at + nth, crcs.next().unwrap_or_default()),
                };
                leaf.set(u64::from(run.first) + nth, block);
            }
        }
        leaf
    }
}

/// The head of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHead {
    /// Logs are numbered; the table says up to which it contains their edits.
    pub generation: u64,
    /// The boot under which it was begun: after another boot only what its marks vouch for is there.
    pub boot: [u8; 36],
    /// Random: what a user writes cannot be made to look like a record.
    pub salt: [u8; SALT_BYTES],
    /// Checksum of the head, which the checksums of its records are tied to.
    pub sum: u32,
}

/// The head of a log, and its checksum.
pub(super) fn encode_log_head(
    generation: u64,
    boot: &[u8; 36],
    salt: &[u8; SALT_BYTES],
) -> ([u8; LOG_HEAD_BYTES], u32) {
    let mut head = [0; LOG_HEAD_BYTES];
    head[..8].copy_from_slice(LOG_MAGIC);
    head[8] = LOG_VERSION;
    head[9..16].copy_from_slice(salt);
    head[16..24].copy_from_slice(&generation.to_le_bytes());
    head[24..60].copy_from_slice(boot);
    let sum = crc::of(&head[..60]);
    head[60..].copy_from_slice(&sum.to_le_bytes());
    (head, sum)
}

/// Decodes the head of a log.
pub fn decode_log_head(bytes: &[u8]) -> Result<LogHead> {
    let head = bytes.first_chunk::<LOG_HEAD_BYTES>().ok_or(RecordError("log too short"))?;
    let mut reader = Reader(head);
    if reader.take(8)? != LOG_MAGIC {
        return Err(RecordError("not a log"));
    }
    if !matches!(reader.u8()?, 1 | LOG_VERSION) {
        return Err(RecordError("log of an unknown version"));
    }
    let salt = reader.array()?;
    let generation = reader.u64()?;
    let mut boot = [0; 36];
    boot.copy_from_slice(reader.take(36)?);
    let sum = reader.u32()?;
    if sum != crc::of(&head[..60]) {
        return Err(RecordError("checksum mismatch in the head of a log"));
    }
    Ok(LogHead { generation, boot, salt, sum })
}

fn encode_runs(runs: &[Run], crcs: &[u32], out: &mut Vec<u8>) {
    out.extend_from_slice(&(runs.len() as u16).to_le_bytes());
    for run in runs {
        out.extend_from_slice(&run.first.to_le_bytes());
        out.extend_from_slice(&run.count.to_le_bytes());
        out.push(run.kind as u8);
        out.extend_from_slice(&run.at.to_le_bytes()[..6]);
    }
    for crc in crcs {
        out.extend_from_slice(&crc.to_le_bytes());
    }
}

/// What is left of a record.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(RecordError("record too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(RecordError("record too short"))?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn version(&mut self) -> Result<()> {
        match self.u8()? {
            VERSION => Ok(()),
            _ => Err(RecordError("record of an unknown version")),
        }
    }

    fn edit(&mut self, remove: bool) -> Result<Edit> {
        let chunk = ChunkId {
            volume: VolumeId(self.u32()?),
            ino: Ino(self.u64()?),
            index: ChunkIndex(self.u64()?),
        };
        let len = self.chunk_len()?;
        let (runs, crcs) = self.runs(CHUNK_BLOCKS_MAX)?;
        Ok(Edit { chunk, remove, len, runs, crcs })
    }

    fn mark(&mut self) -> Result<Mark> {
        let (mut places, mut blocks) = (Vec::new(), 0);
        for _ in 0..self.u16()? {
            let (at, count) = (self.place()?, self.u16()?);
            let segment_end = (at / SEGMENT_BLOCKS + 1) * SEGMENT_BLOCKS;
            if count == 0 || at + u64::from(count) > segment_end.min(PLACE_MAX) {
                return Err(RecordError("blocks of a mark out of range"));
            }
            blocks += u64::from(count);
            places.push((at, u32::from(count)));
        }
        if blocks > MARK_BLOCKS_MAX {
            return Err(RecordError("too many blocks in a mark"));
        }
        let blocks = self.take((blocks * BLOCK_BYTES) as usize)?.to_vec();
        Ok(Mark { places, blocks })
    }

    fn place(&mut self) -> Result<u64> {
        let [a, b, c, d, e, f] = self.array()?;
        Ok(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }

    fn chunk_len(&mut self) -> Result<u64> {
        let len = self.u64()?;
        if len > CHUNK_BYTES_MAX {
            return Err(RecordError("chunk length out of range"));
        }
        Ok(len)
    }

    fn runs(&mut self, blocks_max: u64) -> Result<(Vec<Run>, Vec<u32>)> {
        let count = self.u16()?;
        let (mut runs, mut end, mut data_blocks) = (Vec::new(), 0, 0);
        for _ in 0..count {
            let (first, count) = (self.u16()?, self.u16()?);
            let kind = match self.u8()? {
                0 => Kind::Hole,
                1 => Kind::Reserved,
                2 => Kind::Data,
                _ => return Err(RecordError("unknown kind of blocks")),
            };
            let at = self.place()?;
            if u64::from(first) < end || count == 0 || at + u64::from(count) > PLACE_MAX {
                return Err(RecordError("blocks out of order or range"));
            }
            end = u64::from(first) + u64::from(count);
            data_blocks += if kind == Kind::Data { usize::from(count) } else { 0 };
            runs.push(Run { first, count, kind, at });
        }
        if end > blocks_max {
            return Err(RecordError("block number out of range"));
        }
        let crcs = self.take(data_blocks * 4)?.chunks_exact(4);
        Ok((runs, crcs.map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()))
    }

    fn end(&self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(RecordError("record too long")) }
    }
}

#[cfg(test)]
mod tests;
