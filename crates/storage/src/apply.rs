//! What an operation does to one target's store.

use crate::gate::{Gate, Pass};
use crate::syncs::{Asked, Turn};
use crate::tag::{Tag, plain, plain_error};
use crate::target::{Target, check_parts, in_chunk};
use bytes::Bytes;
use std::ops::{Range, RangeInclusive};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strake_engine::chunk::{self, BLOCK_BYTES, BlockSums, ChunkStore};
use strake_types::limits::{FILE_CHUNKS_MAX, PAYLOAD_BYTES_MAX};
use strake_types::{ChunkId, ChunkIndex, Error, ErrorKind, GroupId, Ino, Result, VolumeId};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{StorageAnswer, StorageOp};
use tokio::time::timeout;

/// Chunks of one page of digests. Of few in tests, which have several then.
const PAGE_CHUNKS_MAX: usize = if cfg!(test) { 500 } else { 4096 };
/// Chunks of one page of a file's: they take 2 MiB of a message at most.
const LISTED_CHUNKS_MAX: usize = 65_536;
/// Chunks of one part of a cut: a new epoch waits for one. Of few in tests, which have several then.
const CUT_CHUNKS_MAX: usize = if cfg!(test) { 500 } else { 1024 };
/// How long a change waits that is to be durable. Its client syncs by itself then.
pub(crate) const DURABLE_WAIT: Duration = Duration::from_secs(10);

/// What an operation answers: the body's answer and the payload.
pub(crate) type Answer = (StorageAnswer, Bytes);

/// The chunks of one group on one target.
#[derive(Clone)]
pub(crate) struct Shelf {
    pub target: Arc<Target>,
    tag: Tag,
    /// Goes with every operation to its end, whoever waits for it.
    pass: Option<Pass>,
    /// What is done, if that can be given up.
    attempt: Option<msg::Attempt>,
    /// What is changed other copies have already.
    follows: bool,
}

/// What another server is told, who asks for no boot.
pub(crate) fn done() -> Answer {
    done_in(0)
}

/// With the boot that vouches for what was done until it is synced.
pub(crate) fn done_in(boot: u64) -> Answer {
    (StorageAnswer::Done(msg::Done { boot, ..msg::Done::default() }), Bytes::new())
}

/// The same, of what is synced.
pub(crate) fn durable((answer, payload): Answer) -> Answer {
    match answer {
        StorageAnswer::Done(done) => {
            (StorageAnswer::Done(msg::Done { durable: true, ..done }), payload)
        }
        other => (other, payload),
    }
}

/// What is left of a cut when this part of it is made.
pub(crate) fn rest_of(cut: msg::Truncate, part: msg::Truncate) -> msg::Truncate {
    msg::Truncate { to_index: part.from_index.checked_sub(1), ..cut }
}

pub(crate) fn plain_answer(answer: StorageAnswer) -> Result<Answer> {
    Ok((answer, Bytes::new()))
}

impl Shelf {
    /// The chunks of a group on a target.
    pub fn new(target: &Arc<Target>, group: GroupId) -> Self {
        let (target, tag) = (target.clone(), Tag::of(target.id, group));
        Self { target, tag, pass: None, attempt: None, follows: false }
    }

    /// The same, for who has no replica.
    pub fn with(self, pass: Pass) -> Self {
        Self { pass: Some(pass), ..self }
    }

    /// The same, which does nothing any more once a client has given this up: a change that has waited long for
    /// its turn must not be made over what came after it.
    pub fn unless_given_up(self, attempt: Option<msg::Attempt>) -> Self {
        Self { attempt, ..self }
    }

    /// The same, for who gets what others have: a copy that refuses it would have to leave, or stay damaged.
    pub fn following(&self) -> Self {
        Self { follows: true, ..self.clone() }
    }

    /// The gate of the group, of who has no replica.
    pub fn gate(&self) -> Option<&Gate> {
        self.pass.as_ref().map(Pass::gate)
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ChunkStore) -> chunk::Result<T> + Send + 'static,
    ) -> Result<T> {
        let pass = self.pass.clone();
        let work = move |store: &ChunkStore| {
            let done = work(store);
            drop(pass);
            done
        };
        self.target.run_attempt(self.attempt, work).await
    }

    /// Makes everything on the target durable.
    pub async fn sync(&self) -> Result<()> {
        self.target.sync(None).await
    }

    /// The same, of what is asked for again until it is done.
    pub async fn sync_asked(&self, asked: Option<Asked>) -> Result<()> {
        self.target.sync(asked).await
    }

    fn in_chunk(&self, range: msg::Range) -> Result<(ChunkId, u64, u64)> {
        let (chunk, offset, len) = in_chunk(range)?;
        Ok((self.tag.mark(chunk)?, offset, len))
    }

    /// As [`done_in`], to the primary: with whether the target is short of room.
    pub fn done_at(&self, boot: u64) -> Answer {
        let short = self.target.is_short();
        (StorageAnswer::Done(msg::Done { boot, short, ..msg::Done::default() }), Bytes::new())
    }

    /// True if a write needs free room on the target.
    pub async fn takes_room(&self, op: &StorageOp, payload: &Bytes) -> Result<bool> {
        match op {
            StorageOp::Write(write) => {
                let len = payload.len() as u64;
                let range = msg::Range { chunk: write.chunk, offset: write.offset, len };
                let (chunk, offset, len) = self.in_chunk(range)?;
                self.run(move |s| s.write_takes_room(chunk, offset, len)).await
            }
            StorageOp::WriteMany(writes) => {
                let parts = self.parts(writes, payload)?;
                let needs = move |s: &ChunkStore| {
                    let mut needs = false;
                    for part in parts {
                        needs |=
                            s.write_takes_room(part.chunk, part.offset, part.data.len() as u64)?;
                    }
                    Ok(needs)
                };
                self.run(needs).await
            }
            _ => Ok(false),
        }
    }

    /// True for a punch that makes no extent map larger.
    pub async fn leaves_no_pieces(&self, op: &StorageOp) -> Result<bool> {
        let StorageOp::Punch(range) = op else { return Ok(false) };
        let (chunk, offset, len) = self.in_chunk(*range)?;
        self.run(move |s| s.punch_leaves_pieces(chunk, offset, len).map(|leaves| !leaves)).await
    }

    /// True if what is to be written takes no room, for it is reserved.
    pub async fn has_reserved(&self, parts: Vec<msg::Range>) -> Result<bool> {
        let parts = parts.into_iter().map(|part| self.in_chunk(part));
        let parts: Vec<_> = parts.collect::<Result<_>>()?;
        self.run(move |s| {
            for (chunk, offset, len) in parts {
                if s.write_takes_room(chunk, offset, len)? {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await
    }

    /// Bytes of free room that reservations take here.
    pub async fn reservations_take(&self, parts: Vec<msg::Range>) -> Result<u64> {
        let parts = parts.into_iter().map(|part| self.in_chunk(part));
        let parts: Vec<_> = parts.collect::<Result<_>>()?;
        self.run(move |s| {
            let mut bytes = 0;
            for (chunk, offset, len) in parts {
                bytes += s.allocate_takes(chunk, offset, len)?;
            }
            Ok(bytes)
        })
        .await
    }

    /// Reserves room, or nothing if less would be left than is kept for what is under way to the target.
    pub async fn reserve(&self, range: msg::Range) -> Result<()> {
        // The caller may hold the epoch.
        let turn = self.target.reserving.lock();
        let _one_at_a_time = self.target.while_disk_answers(turn).await?;
        let bytes = self.reservations_take(vec![range]).await?;
        if bytes > 0 && !self.target.may_reserve(bytes) {
            let detail = format!("target {} is short of room", self.target.id);
            return Err(Error::with(ErrorKind::NoSpace, detail));
        }
        self.change(StorageOp::Allocate(range), Bytes::new()).await
    }

    /// Makes a chunk that is not there, with nothing in it.
    pub async fn touch(&self, chunk: ChunkId) -> Result<()> {
        let chunk = self.tag.mark(chunk)?;
        self.run(move |s| s.touch(chunk)).await
    }

    /// Makes a change that is to be durable. True if everything on the target is: of a write, unless that takes long, and of
    /// nothing else.
    pub async fn change_and_sync(&self, op: StorageOp, payload: Bytes) -> Result<bool> {
        match op {
            StorageOp::Write(write) => match self.target.syncs.try_turn() {
                Some(turn) => self.write_and_sync(write, payload, turn).await,
                None => {
                    self.write(write, payload).await?;
                    let synced = timeout(DURABLE_WAIT, self.sync()).await;
                    synced.map_or(Ok(false), |synced| synced.map(|()| true))
                }
            },
            op => self.change(op, payload).await.map(|()| false),
        }
    }

    /// Makes a change. Copies are made of other changes and do not come here.
    pub async fn change(&self, op: StorageOp, payload: Bytes) -> Result<()> {
        match op {
            StorageOp::Write(write) => self.write(write, payload).await,
            StorageOp::WriteMany(writes) => self.write_many(writes, payload).await,
            StorageOp::Truncate(cut) => self.truncate(cut).await,
            StorageOp::Punch(range) => {
                let (chunk, offset, len) = self.in_chunk(range)?;
                let punch = match self.follows {
                    true => ChunkStore::punch_copy,
                    false => ChunkStore::punch,
                };
                self.run(move |s| punch(s, chunk, offset, len)).await
            }
            StorageOp::Allocate(range) => {
                let (chunk, offset, len) = self.in_chunk(range)?;
                self.run(move |s| s.allocate(chunk, offset, len)).await?;
                self.target.note_reserved(len);
                Ok(())
            }
            StorageOp::Cut(cut) => {
                let chunk = self.tag.mark(cut.chunk.into())?;
                let only = chunk.index..=chunk.index;
                let cut = move |s: &ChunkStore| match cut.length {
                    Some(len) if cut.lose => s.set_len_or_lose(chunk, len),
                    Some(len) => s.set_len(chunk, len),
                    None => s.delete_range(chunk.volume, chunk.ino, only),
                };
                self.run(cut).await
            }
            StorageOp::Lose(lost) => {
                let chunk = self.tag.mark(lost.chunk.into())?;
                if lost.blocks.len() != lost.crcs.len() {
                    let detail = "as many checksums as lost blocks are needed";
                    return Err(Error::with(ErrorKind::Malformed, detail));
                }
                let blocks: Vec<_> = lost.blocks.into_iter().zip(lost.crcs).collect();
                self.target.run(move |s| s.lose(chunk, &blocks)).await
            }
            _ => Err(Error::with(ErrorKind::Malformed, "a change that is none")),
        }
    }

    /// How the store is written to.
    fn puts(&self) -> Put {
        if self.follows { ChunkStore::write_copy } else { ChunkStore::write }
    }

    /// Where a write goes, and how long it is.
    fn written_to(&self, write: msg::Write, payload: &Bytes) -> Result<(ChunkId, u64, u64)> {
        let len = payload.len() as u64;
        self.in_chunk(msg::Range { chunk: write.chunk, offset: write.offset, len })
    }

    async fn write(&self, write: msg::Write, payload: Bytes) -> Result<()> {
        let (chunk, offset, bytes) = self.written_to(write, &payload)?;
        let put = self.puts();
        self.run(move |s| put(s, chunk, offset, &payload, write.crc)).await?;
        self.target.note_written(bytes);
        Ok(())
    }

    /// A write and a sync by one thread: small ones cost more to hand over than to do. False where the sync takes long.
    async fn write_and_sync(&self, write: msg::Write, payload: Bytes, turn: Turn) -> Result<bool> {
        let (chunk, offset, bytes) = self.written_to(write, &payload)?;
        let written = Arc::new(AtomicBool::new(false));
        let made = written.clone();
        let mut both = pin!(self.run(move |s| {
            s.write(chunk, offset, &payload, write.crc)?;
            made.store(true, Ordering::Release);
            let synced = s.sync();
            drop(turn);
            synced
        }));
        let synced = loop {
            match timeout(DURABLE_WAIT, &mut both).await {
                Ok(synced) => break synced.map(|()| true)?,
                Err(_late) if written.load(Ordering::Acquire) => break false,
                Err(_late) => {}
            }
        };
        self.target.note_written(bytes);
        Ok(synced)
    }

    /// Several writes by one thread, for the same reason.
    async fn write_many(&self, writes: msg::WriteMany, payload: Bytes) -> Result<()> {
        let bytes = payload.len() as u64;
        let parts = self.parts(&writes, &payload)?;
        let put = self.puts();
        self.run(move |s| parts.iter().try_for_each(|p| put(s, p.chunk, p.offset, &p.data, p.crc)))
            .await?;
        self.target.note_written(bytes);
        Ok(())
    }

    /// The parts of a payload; the lists must fit each other and the payload.
    fn parts(&self, writes: &msg::WriteMany, payload: &Bytes) -> Result<Vec<Part>> {
        let (count, malformed) = (writes.lens.len(), |what: &str| {
            Error::with(ErrorKind::Malformed, format!("writes to inode {}: {what}", writes.ino))
        });
        check_parts(writes)?;
        let mut parts = Vec::with_capacity(count);
        let mut rest = payload.clone();
        for nth in 0..count {
            let len = writes.lens[nth];
            if len > rest.len() as u64 {
                return Err(malformed("the payload is shorter than its parts"));
            }
            let chunk =
                msg::Chunk { volume: writes.volume, ino: writes.ino, index: writes.indices[nth] };
            let range = msg::Range { chunk, offset: writes.offsets[nth], len };
            let (chunk, offset, _) = self.in_chunk(range)?;
            let data = rest.split_to(len as usize);
            parts.push(Part { chunk, offset, data, crc: writes.crcs[nth] });
        }
        match rest.is_empty() {
            true => Ok(parts),
            false => Err(malformed("the payload is longer than its parts")),
        }
    }

    /// The parts of a cut, from the end of the file on, but for the first of the file.
    pub async fn later_parts(&self, cut: msg::Truncate) -> Result<Vec<msg::Truncate>> {
        let (volume, ino, gone) = self.cut_away(&cut);
        let firsts = self.run(move |s| s.every_nth(volume, ino, gone, CUT_CHUNKS_MAX)).await?;
        let mut rest = cut;
        let parts = firsts.into_iter().skip(1).rev().map(|index| {
            let from_index = plain(ChunkId { volume, ino, index }).index.0;
            let part = msg::Truncate { from_index, last_chunk_len: None, ..rest };
            rest = rest_of(rest, part);
            part
        });
        Ok(parts.collect())
    }

    /// The chunks of a file that a cut deletes.
    fn cut_away(&self, cut: &msg::Truncate) -> (VolumeId, Ino, RangeInclusive<ChunkIndex>) {
        let last = cut.to_index.unwrap_or(u64::MAX);
        (VolumeId(cut.volume), Ino(cut.ino), self.tag.between(cut.from_index, last))
    }

    async fn truncate(&self, cut: msg::Truncate) -> Result<()> {
        let (volume, ino, gone) = self.cut_away(&cut);
        // A chunk that cannot be has nothing to cut.
        let can_be = |index: &u64| *index < FILE_CHUNKS_MAX;
        let last = match (cut.last_chunk_len, cut.from_index.checked_sub(1).filter(can_be)) {
            (Some(len), Some(index)) => {
                let chunk = ChunkId { volume, ino, index: ChunkIndex(index) };
                Some((self.tag.mark(chunk)?, len))
            }
            _ => None,
        };
        let cut = move |s: &ChunkStore| {
            s.delete_range(volume, ino, gone)?;
            last.map_or(Ok(()), |(chunk, len)| s.truncate(chunk, len))
        };
        self.run(cut).await
    }

    /// Bytes of a chunk: from memory at once where the kernel has them; else by a thread that may
    /// wait.
    pub async fn bytes(&self, read: msg::Read) -> Result<(Bytes, u32)> {
        if read.len > PAYLOAD_BYTES_MAX as u64 {
            let detail = format!("a read of {} bytes; at most {PAYLOAD_BYTES_MAX}", read.len);
            return Err(Error::with(ErrorKind::Invalid, detail));
        }
        let range = msg::Range { chunk: read.chunk, offset: read.offset, len: read.len };
        let (chunk, offset, len) = self.in_chunk(range)?;
        let cached = self.target.store.read_cached(chunk, offset, len).map_err(plain_error)?;
        let (data, crc) = match cached {
            Some(cached) => cached,
            None => {
                // Who is told meanwhile that the disk does not answer asks another member. A change is under way until it has ended.
                let read = Box::pin(self.run(move |s| s.read(chunk, offset, len)));
                self.target.while_disk_answers(read).await??
            }
        };
        self.target.bytes_read.increment(data.len() as u64);
        Ok((data, crc))
    }

    /// Answers what asks for contents.
    pub async fn look(&self, op: StorageOp) -> Result<Answer> {
        match op {
            StorageOp::Read(read) => {
                let (data, crc) = self.bytes(read).await?;
                Ok((StorageAnswer::Data(msg::Data { crc }), data))
            }
            StorageOp::Extents(chunk) => {
                let chunk = self.tag.mark(chunk.into())?;
                let both = move |s: &ChunkStore| Ok((s.extents(chunk)?, s.reserved(chunk)?));
                let (extents, reserved) = self.run(both).await?;
                let (starts, lens) = extents.into_iter().unzip();
                let (reserved_starts, reserved_lens) = reserved.into_iter().unzip();
                let list = msg::ExtentList { starts, lens, reserved_starts, reserved_lens };
                plain_answer(StorageAnswer::Extents(list))
            }
            StorageOp::Chunks(of) => self.chunks_of(of).await,
            StorageOp::Digests(from) => self.digests(from).await,
            StorageOp::Sums(chunk) => {
                let sums = self.sums(chunk.into()).await?;
                plain_answer(StorageAnswer::Sums(message_of(sums.as_ref())))
            }
            StorageOp::Damage(range) => {
                let (chunk, offset, len) = in_chunk(range)?;
                let blocks = offset / BLOCK_BYTES..(offset + len).div_ceil(BLOCK_BYTES);
                let blocks = self.damaged(chunk, blocks).await?;
                plain_answer(StorageAnswer::Damage(msg::BlockList { blocks }))
            }
            _ => Err(Error::with(ErrorKind::Malformed, "a question that is none")),
        }
    }

    async fn chunks_of(&self, of: msg::ChunksOf) -> Result<Answer> {
        let (volume, ino, indices) = (VolumeId(of.volume), Ino(of.ino), self.tag.from(of.from));
        let limit = match of.max {
            0 => LISTED_CHUNKS_MAX,
            max => LISTED_CHUNKS_MAX.min(max as usize),
        };
        let (found, next) = self.run(move |s| s.chunks_of(volume, ino, indices, limit)).await?;
        let index = |index| plain(ChunkId { volume, ino, index }).index.0;
        plain_answer(StorageAnswer::Chunks(msg::ChunkList {
            indices: found.iter().map(|c| index(c.index)).collect(),
            lens: found.iter().map(|c| c.len).collect(),
            occupied: found.iter().map(|c| c.occupied).collect(),
            reserved: found.iter().map(|c| c.reserved).collect(),
            next: next.map(|last| index(last) + 1),
        }))
    }

    async fn digests(&self, from: msg::DigestsAfter) -> Result<Answer> {
        let tag = self.tag;
        // The cursor is one of the store: between its pages, other groups' chunks are passed over.
        let after = from.after.map(ChunkId::from);
        let page =
            self.run(move |s| s.chunks_after(after, |i| tag.has(i), PAGE_CHUNKS_MAX)).await?;
        plain_answer(StorageAnswer::Digests(msg::DigestPage {
            chunks: page.chunks.iter().map(|c| plain(c.id).into()).collect(),
            digests: page.chunks.iter().map(|c| c.digest).collect(),
            lens: page.chunks.iter().map(|c| c.len).collect(),
            reserved: page.chunks.iter().map(|c| c.reserved).collect(),
            next: page.next.map(Into::into),
        }))
    }

    /// The cursor of the store after which the chunks behind this one come.
    pub fn cursor(&self, chunk: ChunkId) -> Result<msg::Chunk> {
        self.tag.mark(chunk).map(msg::Chunk::from)
    }

    /// True if a chunk does not come after a cursor of the store; `None`: after which nothing comes.
    pub fn is_up_to(&self, chunk: ChunkId, end: Option<msg::Chunk>) -> bool {
        let Some(end) = end else { return true };
        self.tag.mark(chunk).is_ok_and(|chunk| chunk <= end.into())
    }

    /// Which of these blocks of a chunk do not match their checksums.
    pub async fn damaged(&self, chunk: ChunkId, blocks: Range<u64>) -> Result<Vec<u32>> {
        let chunk = self.tag.mark(chunk)?;
        self.target.run(move |s| s.damaged(chunk, blocks)).await
    }

    /// True if the disk does not read a block, and may do so again.
    pub async fn is_unreadable(&self, chunk: ChunkId, block: u32) -> Result<bool> {
        let chunk = self.tag.mark(chunk)?;
        self.target.run(move |s| s.is_unreadable(chunk, block.into())).await
    }

    /// Checksums of a chunk's blocks.
    pub async fn sums(&self, chunk: ChunkId) -> Result<Option<BlockSums>> {
        let chunk = self.tag.mark(chunk)?;
        self.run(move |s| s.blocks_of(chunk)).await
    }
}

/// As [`ChunkStore::write`].
type Put = fn(&ChunkStore, ChunkId, u64, &Bytes, u32) -> chunk::Result<()>;

struct Part {
    chunk: ChunkId,
    offset: u64,
    data: Bytes,
    crc: u32,
}

fn message_of(sums: Option<&BlockSums>) -> msg::BlockSums {
    let Some(sums) = sums else {
        return msg::BlockSums { missing: true, ..msg::BlockSums::default() };
    };
    msg::BlockSums {
        len: sums.chunk_len(),
        blocks: sums.blocks().iter().map(|(block, _)| *block).collect(),
        crcs: sums.blocks().iter().map(|(_, crc)| *crc).collect(),
        missing: false,
        reserved: sums.reserved().map(|blocks| msg::BlockList { blocks: blocks.to_vec() }),
    }
}

/// Checksums of blocks as another target told them; `None`: it has no such chunk.
pub(crate) fn sums_of(message: &msg::BlockSums) -> Result<Option<BlockSums>> {
    if message.missing {
        return Ok(None);
    }
    let malformed = |what: String| Error::with(ErrorKind::Malformed, what);
    if message.blocks.len() != message.crcs.len() {
        return Err(malformed("as many checksums as blocks are needed".into()));
    }
    let blocks = message.blocks.iter().copied().zip(message.crcs.iter().copied()).collect();
    let reserved = message.reserved.as_ref().map(|list| list.blocks.clone());
    let sums = BlockSums::new(message.len, blocks, reserved);
    sums.map(Some).map_err(|e| malformed(e.to_string()))
}
