//! Reading: unsent data first, then what is being sent, what was sent and is kept, what was read
//! ahead, then targets.

use super::ahead::{Block, Reach};
use super::open::OpenFile;
use super::parts::{Parts, UNIT_BYTES};
use super::state::{Body, Core, FileState};
use crate::api::ReadData;
use crate::metrics::Op;
use crate::ops::unexpected;
use crate::pace::Way;
use crate::volume::Volume;
use bytes::Bytes;
use futures::future::try_join_all;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use strake_base::{is_broken, task};
use strake_types::layout::Placement;
use strake_types::{Error, ErrorKind, Piece, Result};
use strake_wire::message::meta::{self, Look, MetaAnswer, MetaOp};
use strake_wire::message::storage::{Read, StorageOp};

/// Least that is read ahead of a sequential reader once its window has grown.
const WINDOW_BYTES_MAX: u64 = 8 << 20;
/// Chunks per target that are read ahead, where that is more.
const WINDOW_CHUNKS_PER_TARGET: u64 = 2;

/// A shorter run of kept bytes is used only where it answers a read alone.
const KEPT_RUN_BYTES_MIN: u64 = 64 << 10;
/// How often what is damaged is read before its reader is told. It is mended between two reads of it, which may wait
/// for a server that stands still: a disk that goes bad can damage the same block again meanwhile.
const READS_OF_DAMAGED: usize = 4;

/// A part of an answer.
enum Part {
    /// Not yet with targets.
    Here(Bytes),
    /// Sent to targets before, and kept.
    Kept(Bytes),
    /// In a block that was read ahead: start and end in the file.
    Ahead(Arc<Block>, u64, u64),
    /// On targets.
    There(u64, u64),
}

/// Zeros for holes.
static ZEROS: [u8; 256 << 10] = [0; 256 << 10];

fn push_zeros(data: &mut ReadData, mut len: u64) {
    while len > 0 {
        let part = len.min(ZEROS.len() as u64);
        data.push(Bytes::from_static(&ZEROS[..part as usize]));
        len -= part;
    }
}

impl Volume {
    /// Reads up to `len` bytes; fewer only at the end of the file.
    pub async fn read(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        offset: u64,
        len: u32,
    ) -> Result<ReadData> {
        Ok(self.read_telling(file, offset, len, || {}).await?.0)
    }

    /// As [`Volume::read`], for who keeps what he reads: before any bytes are fetched he is told if they are `unleased`,
    /// so that nothing is recalled when they change. With leased bytes that all came from servers comes the time
    /// that took.
    pub async fn read_telling(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        offset: u64,
        len: u32,
        unleased: impl FnOnce(),
    ) -> Result<(ReadData, Option<Duration>)> {
        let range = offset..offset.saturating_add(u64::from(len));
        self.read_range(file, range, true, unleased).await
    }

    /// As [`Volume::read_telling`], of a range. What `tells` of what will be wanted next has more than that fetched.
    pub(super) async fn read_range(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        range: Range<u64>,
        tells: bool,
        unleased: impl FnOnce(),
    ) -> Result<(ReadData, Option<Duration>)> {
        let _timer = self.count(Op::Read);
        file.heard_of();
        file.check_readable(self)?;
        let mut unleased = Some(unleased);
        loop {
            let (life, began, mut from) = (file.state.life(), self.now(), None);
            let tell = || unleased.take().into_iter().for_each(|tell| tell());
            let read = self.read_once(file, &range, tells, tell, &mut from).await;
            // Once in many minutes at most: so long nobody moves it again.
            if !self.has_moved(life, from.as_ref(), began).await? {
                return read;
            }
        }
    }

    /// `from` is where it is read, as far as that is asked of targets.
    async fn read_once(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        range: &Range<u64>,
        tells: bool,
        unleased: impl FnOnce(),
        from: &mut Option<Arc<Placement>>,
    ) -> Result<(ReadData, Option<Duration>)> {
        let (began, offset) = (self.now(), range.start);
        let asks = self.keeps_leases() || range.end > file.state.core().length;
        let leased = !asks || self.refresh_attr(&file.state, range).await?;
        if !leased {
            unleased();
        }
        let is_stale = {
            let mut core = file.state.core();
            if leased {
                file.reads(&mut core);
            }
            core.is_inline_stale()
        };
        if is_stale {
            self.refresh_inline(&file.state).await?;
        }
        let (parts, placement) = {
            let mut core = file.state.core();
            let end = range.end.min(core.length);
            if offset >= end {
                return Ok(Default::default());
            }
            if let Body::Inline(inline) = &core.body {
                return Ok((inline_part(inline.as_slice(), offset, end), None));
            }
            let now = self.now();
            let parts = core.plan(offset, end, now);
            self.count_parts(&parts);
            let placement = core.placement()?;
            if tells {
                self.read_ahead(file, &mut core, &placement, (offset, end));
            }
            (parts, placement)
        };
        let placement = &*from.insert(placement);
        let far = leased && parts.iter().all(|part| matches!(part, Part::There(..)));
        let mut data = self.fetch_parts(&file.state, placement, parts).await?;
        data.parts.retain(|part| !part.is_empty());
        self.metrics().bytes_read.increment(data.len() as u64);
        Ok((data, far.then(|| self.now().saturating_sub(began))))
    }

    fn count_parts(&self, parts: &[Part]) {
        let ahead = parts.iter().filter(|p| matches!(p, Part::Ahead(..))).count();
        let there = parts.iter().filter(|p| matches!(p, Part::There(..))).count();
        let kept = parts.iter().filter(|p| matches!(p, Part::Kept(..))).count();
        self.metrics().kept_hits.increment(kept as u64);
        self.metrics().ahead_hits.increment(ahead as u64);
        self.metrics().ahead_misses.increment(there as u64);
    }

    /// Another mount may have changed the file: asks, unless we know well enough. What is cached of it goes
    /// if so. False if the file could be leased, and is not. What others hold back is told first: all of it, if the range that
    /// is to be read is empty.
    pub(super) async fn refresh_attr(&self, file: &FileState, range: &Range<u64>) -> Result<bool> {
        self.settle_again(file).await?;
        let (learned, version, leasable) = {
            let core = file.core();
            (core.learned, core.attr.version, core.is_leasable())
        };
        let now = self.now();
        let known = match self.keeps_leases() && leasable {
            true => self.leases(file.ino()).covers(file.ino(), version, now),
            // Nothing is leased of a file without a name, or one of which everybody writes his part.
            false => {
                let age_max = self.options().attribute_age_ms;
                now.saturating_sub(learned) < std::time::Duration::from_millis(age_max)
            }
        };
        if known || self.options().exclusive || is_broken("recalls-reach-readers") {
            return Ok(true);
        }
        let (ino, Range { start, end }) = (file.ino().0, range.clone());
        let look = Look { ino, to_read: self.keeps_leases(), start, end, ..Look::default() };
        let attr = self.look(look).await?;
        let leasable = leasable && attr.nlink > 0 && self.keeps_leases();
        Ok(!leasable || self.leases(attr.ino).covers(attr.ino, attr.version, self.now()))
    }

    /// Asks for inline contents that another mount has changed. What is unsent of a relaxed file is told first: until then
    /// they are not taken.
    pub(super) async fn refresh_inline(self: &Arc<Self>, file: &Arc<FileState>) -> Result<()> {
        let told = self.tell_relaxed(file).await;
        if !file.core().is_told() {
            told?;
        }
        self.fetch_inline(file).await
    }

    /// Asks for inline contents of which nothing is unsent.
    pub(super) async fn fetch_inline(&self, file: &FileState) -> Result<()> {
        let asked = self.now();
        let op = MetaOp::ReadInline(meta::Inode { ino: file.ino().0 });
        let MetaAnswer::Opened(opened) = self.ask(&self.root_cred(), op).await? else {
            return Err(unexpected("read inline"));
        };
        let attr = Arc::new(opened.attr.clone().try_into()?);
        file.refresh_body(&attr, &opened, asked);
        Ok(())
    }

    async fn fetch_parts(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        placement: &Placement,
        parts: Vec<Part>,
    ) -> Result<ReadData> {
        if parts.len() == 1 {
            let [part] = <[Part; 1]>::try_from(parts).map_err(|_| Error::new(ErrorKind::Io))?;
            return self.fetch_part(file, placement, part).await;
        }
        let all = parts.into_iter().map(|part| self.fetch_part(file, placement, part));
        let mut data = ReadData::default();
        for fetched in try_join_all(all).await? {
            data.parts.extend(fetched.parts);
        }
        Ok(data)
    }

    async fn fetch_part(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        placement: &Placement,
        part: Part,
    ) -> Result<ReadData> {
        let (from, to) = match part {
            Part::Here(bytes) | Part::Kept(bytes) => return Ok(ReadData { parts: vec![bytes] }),
            Part::There(from, to) => (from, to),
            Part::Ahead(block, from, to) => {
                let began = self.now();
                match block.bytes().await {
                    Ok(bytes) => {
                        let range = (from - block.start) as usize..(to - block.start) as usize;
                        return Ok(padded(&bytes, range));
                    }
                    // This reader has waited long enough as well.
                    Err(error) if error.kind == ErrorKind::TimedOut && self.has_waited(began) => {
                        file.core().in_vain.note(from..to, self.now(), Some(&error));
                        return Err(error);
                    }
                    Err(_) => {}
                }
                // Ask again: this time the error, if it stays, is the reader's.
                (from, to)
            }
        };
        let mut pieces = units(Parts::new(self.paces()), placement, from, to);
        let (first, second) = (pieces.next(), pieces.next());
        let (Some(first), Some(second)) = (first, second) else {
            return match first {
                Some(only) => {
                    let bytes = self.fetch_from(file, from, only).await?;
                    Ok(padded(&bytes, 0..only.len as usize))
                }
                None => Ok(ReadData::default()),
            };
        };
        let all: Vec<Piece> = [first, second].into_iter().chain(pieces).collect();
        let mut at = from;
        let fetched = try_join_all(all.iter().map(|&piece| {
            at += piece.len;
            self.fetch_from(file, at - piece.len, piece)
        }));
        let fetched = fetched.await?;
        let mut data = ReadData::default();
        for (piece, bytes) in all.iter().zip(fetched) {
            data.parts.extend(padded(&bytes, 0..piece.len as usize).parts);
        }
        Ok(data)
    }

    /// True if more than half of the time for an operation has passed since then.
    pub(crate) fn has_waited(&self, since: Duration) -> bool {
        let limit = Duration::from_millis(self.options().operation_wait_ms);
        self.now().saturating_sub(since) >= limit / 2
    }

    /// As [`Volume::fetch`], of a piece that begins there in the file. What was waited for in vain a moment ago is not
    /// waited for again.
    async fn fetch_from(&self, file: &FileState, at: u64, piece: Piece) -> Result<Bytes> {
        let range = at..at + piece.len;
        file.core().in_vain.check(&range, self.now())?;
        let fetched = self.fetch(file, piece).await;
        file.core().in_vain.note(range, self.now(), fetched.as_ref().err());
        fetched
    }

    /// Reads a piece from its target; the answer is short where nothing was ever written. What is damaged there is
    /// being mended from another copy when the answer comes, and may be damaged once more before it is read again.
    async fn fetch(&self, file: &FileState, piece: Piece) -> Result<Bytes> {
        for _ in 1..READS_OF_DAMAGED {
            match self.fetch_once(file, piece).await {
                Err(error) if error.kind == ErrorKind::Corrupt => {
                    let (ino, index) = (file.ino(), piece.index);
                    tracing::warn!("inode {ino} chunk {index}: {error}; reading again");
                }
                result => return result,
            }
        }
        self.fetch_once(file, piece).await
    }

    async fn fetch_once(&self, file: &FileState, piece: Piece) -> Result<Bytes> {
        let chunk = self.chunk(file.ino(), piece.index);
        let read = Read { chunk: chunk.into(), offset: piece.chunk_offset, len: piece.len };
        let passage = self.paces().begin(piece.group, Way::Fetched, piece.len, self.now());
        let (_, bytes) = self.storage(file, piece.group, false, StorageOp::Read(read)).await?;
        if bytes.len() as u64 == piece.len {
            passage.answered(self.now());
        }
        Ok(bytes)
    }

    /// Starts fetching what a sequential reader will want next, on all targets at once.
    fn read_ahead(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        core: &mut Core,
        placement: &Arc<Placement>,
        (offset, end): (u64, u64),
    ) {
        self.note_read_ahead(&file.state, core);
        let chunk = placement.layout().chunk_size;
        let stripe = placement.slots().len() as u64 * chunk;
        let most = (WINDOW_CHUNKS_PER_TARGET * stripe)
            .max(WINDOW_BYTES_MAX)
            .min(self.options().memory_bytes / 8);
        let mut sequence = file.sequence.lock();
        let reach = Reach { chunk, stripe, most };
        let ahead = sequence.read(offset, end - offset, reach);
        let who = Arc::as_ptr(file) as usize;
        if core.handles > 1 {
            core.ahead.note_reader(who, sequence.span(), self.now());
        }
        let Some((from, to)) = ahead else { return };
        let to = to.min(core.length);
        let mut at = from;
        while at < to {
            let unit_end = core.parts.fetched_around(placement, at).1;
            if let Some(covered) =
                core.ahead.covered_to(at).or_else(|| core.ahead.passed_by_others(who, at))
            {
                at = covered;
                continue;
            }
            let mut stop = unit_end.min(core.length);
            if let Some(next) = core.ahead.first_in(at, stop) {
                stop = next;
            }
            let unsent = core.dirty.touches(at, stop) || core.is_in_flight(at, stop);
            if unsent || core.kept.covers(at, stop) {
                at = stop;
                continue;
            }
            let Some(room) = self.memory().try_ahead((stop - at) as usize) else {
                sequence.stopped_at(at);
                return;
            };
            let block = Block::new(at, stop - at, room);
            core.ahead.insert(&block, self.now());
            task::spawn(fetch_block(
                Arc::clone(self),
                Arc::clone(&file.state),
                Arc::clone(placement),
                block,
            ));
            at = stop;
        }
    }
}

/// The pieces of a range, none longer than what is fetched at once.
fn units(
    parts: Parts,
    placement: &Placement,
    from: u64,
    to: u64,
) -> impl Iterator<Item = Piece> + '_ {
    let mut at = from;
    std::iter::from_fn(move || {
        if at >= to {
            return None;
        }
        let end = parts.fetched_around(placement, at).1.min(to);
        let piece = placement.pieces(at, end - at).next();
        at = end;
        piece
    })
}

async fn fetch_block(
    volume: Arc<Volume>,
    file: Arc<FileState>,
    placement: Arc<Placement>,
    block: Arc<Block>,
) {
    let piece = placement.pieces(block.start, block.len).next();
    let result = match piece {
        Some(piece) if piece.len == block.len => volume.fetch(&file, piece).await,
        _ => Err(Error::with(ErrorKind::Io, "a block read ahead crosses a chunk")),
    };
    block.finish(result);
}

impl Core {
    /// Where the bytes of a range are to be had, in order.
    fn plan(&mut self, from: u64, to: u64, now: std::time::Duration) -> Vec<Part> {
        debug_assert!(to - from <= u64::from(u32::MAX) + UNIT_BYTES);
        let mut parts = Vec::new();
        let mut at = from;
        if !self.dirty.is_empty() {
            for (start, bytes) in self.dirty.overlay(from, to) {
                self.plan_sent(at, start, now, &mut parts);
                at = start + bytes.len() as u64;
                parts.push(Part::Here(bytes));
            }
        }
        self.plan_sent(at, to, now, &mut parts);
        parts
    }

    /// As [`Core::plan`], of a range without unsent data.
    fn plan_sent(&mut self, from: u64, to: u64, now: std::time::Duration, parts: &mut Vec<Part>) {
        let (mut at, life) = (from, self.life);
        while at < to {
            let before = self.in_flight.range(..=at).next_back();
            let covering = before.filter(|(start, f)| *start + f.data.len() as u64 > at);
            // What was given up with a life is not to be seen, although it is under way.
            let next = covering
                .filter(|(_, f)| f.life == life)
                .or_else(|| self.in_flight.range(at..to).find(|(_, f)| f.life == life));
            let Some((&first, next)) = next else { return self.plan_kept(at, to, now, parts) };
            let (start, end) = (first.max(at), (first + next.data.len() as u64).min(to));
            let bytes = next.data.slice((start - first) as usize..(end - first) as usize);
            self.plan_kept(at, start, now, parts);
            parts.push(Part::Here(bytes));
            at = end;
        }
    }

    /// As [`Core::plan`], of a range that targets have. What is kept of it is taken in long runs
    /// only: to ask for all the gaps between short ones would cost more than to ask for everything.
    fn plan_kept(&mut self, from: u64, to: u64, now: std::time::Duration, parts: &mut Vec<Part>) {
        let mut at = from;
        let kept = if from < to { self.kept.overlay(from, to, now) } else { Vec::new() };
        for run in kept.chunk_by(|(a, bytes), (b, _)| a + bytes.len() as u64 == *b) {
            let len: u64 = run.iter().map(|(_, bytes)| bytes.len() as u64).sum();
            if len < KEPT_RUN_BYTES_MIN.min(to - from) {
                continue;
            }
            self.plan_fetched(at, run[0].0, now, parts);
            parts.extend(run.iter().map(|(_, bytes)| Part::Kept(bytes.clone())));
            at = run[0].0 + len;
        }
        self.plan_fetched(at, to, now, parts);
    }

    /// As [`Core::plan`], of a range that has to be fetched or has been.
    fn plan_fetched(
        &mut self,
        from: u64,
        to: u64,
        now: std::time::Duration,
        parts: &mut Vec<Part>,
    ) {
        let mut at = from;
        while at < to {
            if self.ahead.is_empty() {
                parts.push(Part::There(at, to));
                return;
            }
            if let Some(block) = self.ahead.use_block(at, to, now) {
                let end = (block.start + block.len).min(to);
                parts.push(Part::Ahead(block, at, end));
                at = end;
                continue;
            }
            let stop = self.ahead.first_in(at, to).unwrap_or(to);
            parts.push(Part::There(at, stop));
            at = stop;
        }
    }
}

fn inline_part(contents: &[u8], offset: u64, end: u64) -> ReadData {
    let mut data = ReadData::default();
    let have = contents.len() as u64;
    if offset < have {
        data.push(Bytes::copy_from_slice(&contents[offset as usize..end.min(have) as usize]));
    }
    push_zeros(&mut data, end - end.min(have.max(offset)));
    data
}

/// A range of what a target answered, which is zeros after its end.
fn padded(bytes: &Bytes, range: std::ops::Range<usize>) -> ReadData {
    let mut data = ReadData::default();
    let have = bytes.len().clamp(range.start, range.end);
    data.push(bytes.slice(range.start.min(bytes.len())..have.min(bytes.len())));
    push_zeros(&mut data, (range.end - have) as u64);
    data
}
