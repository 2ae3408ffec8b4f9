//! One file: begin, copy, switch or give up.

use super::ahead::bytes_of;
use super::pace::Pace;
use super::rest::have_rest;
use super::spare::{QUIET_MS, find, in_use};
use crate::contents::{self, is_away, is_silent, layout_of};
use crate::core::Core;
use crate::ctx::Ctx;
use crate::groups::{Part, ask_group, on_group, right_to};
use crate::keys;
use crate::layout;
use crate::ops::template::as_template;
use crate::recopies::UnderWay;
use crate::records::{self, Inode, Spare};
use crate::txn::{Mutation, under_locks};
use crate::view::Tx;
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{future, iter, ops};
use strake_types::layout::Placement;
use strake_types::{ChunkId, ChunkIndex, Error, ErrorKind, GroupId, Ino, Layout, Result};
use strake_wire::message::meta::{MetaAnswer, Nothing};
use strake_wire::message::storage::{
    ChunkList, ChunksOf, Copy, FileRef, Range, StorageAnswer, StorageOp,
};
use tokio::sync::mpsc;

/// Bytes of one request to copy: few, so that none is under way for long.
const PIECE_BYTES: u64 = 4 << 20;
/// Requests to copy under way for one file, and at the same time questions where there is something to copy.
const REQUESTS_MAX: usize = 4;
/// Chunks that are listed at a time: no file is too large for the memory there is.
const PAGE_CHUNKS: u32 = 4096;
/// How often somebody for whom the file has to stay is waited for when it has been copied.
const SWITCHES_MAX: u32 = 10;
/// The pause between that.
const SWITCH_PAUSE: Duration = Duration::from_millis(500);
/// Why what was copied counts for nothing.
const TOUCHED: &str = "it was opened for writing, or written to, while it was copied";

/// What a file is to become.
pub(super) struct Wanted<'a> {
    /// The file.
    pub ino: Ino,
    /// Copies that it is to have.
    pub copies: u32,
    /// How fast, and how long.
    pub pace: &'a Pace,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It has as many copies as wanted.
    Done,
    /// It had before, or has no contents anywhere.
    Unchanged,
    /// It is as it was; why.
    Waits(String),
}

/// A file that may be copied.
struct Begun {
    inode: Arc<Inode>,
    old: Layout,
    new: Layout,
}

/// How copying ended.
enum Copied {
    /// All of it is there, and durable.
    All,
    /// It cannot be used, and nothing is under way any more.
    Void(String),
    /// A request to copy has failed, and may be carried out still.
    Unknown(Error),
}

/// Gives one file another number of copies.
pub(super) async fn run(ctx: &Ctx, wanted: &Wanted<'_>, file: &UnderWay) -> Result<Outcome> {
    have_rest(ctx, wanted.ino).await;
    let begun = match begin(ctx, wanted, file).await? {
        Ok(begun) => begun,
        Err(outcome) => return Ok(outcome),
    };
    let (copied, settled) = match copy(ctx, wanted, file, &begun).await {
        Ok(Copied::All) => (switch_when_free(ctx, wanted, file, &begun).await, true),
        Ok(Copied::Void(why)) => (Ok(Outcome::Waits(why)), true),
        Ok(Copied::Unknown(error)) => (Err(error), false),
        Err(error) => (Err(error), true),
    };
    if copied != Ok(Outcome::Done) {
        give_up(ctx, file, &begun, settled).await?;
    }
    ctx.core.has_work(&ctx.volume);
    copied
}

/// Notes where the chunks will be, so that they are deleted whatever happens. Files without chunks
/// are ready then.
async fn begin(
    ctx: &Ctx,
    wanted: &Wanted<'_>,
    file: &UnderWay,
) -> Result<std::result::Result<Begun, Outcome>> {
    let (core, ino) = (&ctx.core, wanted.ino);
    let _held = core.locks.lock(ctx.volume.id, &[ino]).await;
    file.check()?;
    let inode = Tx::reader(ctx).inode(ino).await?;
    if !inode.is_file() || inode.nlink == 0 {
        return Ok(Err(Outcome::Unchanged));
    }
    let old = layout_of(&inode)?;
    if old.copies() == wanted.copies {
        return Ok(Err(Outcome::Unchanged));
    }
    if let Some(why) = in_use(ctx, &inode).await? {
        return Ok(Err(Outcome::Waits(why)));
    }
    if find(ctx, ino).await?.is_some() {
        let why = "chunks that an earlier change has left are still being deleted";
        return Ok(Err(Outcome::Waits(why.to_owned())));
    }
    contents::finish_cut_at_once(ctx, ino).await?;
    let inode = Tx::reader(ctx).inode(ino).await?;
    let new = with_copies(&old, wanted.copies, ctx)?;
    let begun = Begun { inode, old, new };
    if begun.inode.inline {
        under_locks(ctx, &Switch(&begun)).await?;
        if begun.inode.length == 0 {
            // As below; what lies inside the inode is made durable when it moves out.
            ctx.volume.sync().await?;
        }
        return Ok(Err(Outcome::Done));
    }
    if let Some(why) = why_away(core, &begun) {
        return Ok(Err(Outcome::Waits(why.to_owned())));
    }
    let spare = Spare { layout: (&begun.new).into(), ..Spare::default() };
    ctx.volume.put(keys::spare(ctx.volume.id, ino), records::encode(&spare)).await?;
    ctx.volume.sync().await?;
    file.start();
    Ok(Ok(begun))
}

/// Why there is no use in copying a file now, as the map has it: each request would be waited for, and each file.
fn why_away(core: &Core, begun: &Begun) -> Option<&'static str> {
    if is_silent(core, &begun.old.slots()) {
        return Some("a target that it lies on is away");
    }
    // Nothing comes to the others: with a wide layout one target that is away would hold up every file.
    let new = Placement::new(begun.new.clone()).groups_below(begun.inode.length);
    let new: Vec<GroupId> = new.into_iter().collect();
    is_away(core, &new).then_some("a target that it is to lie on is away")
}

/// The same layout on groups of so many copies: the same bytes in the same chunks, and what is listed on the same targets.
fn with_copies(old: &Layout, copies: u32, ctx: &Ctx) -> Result<Layout> {
    let template = layout::with_copies(&as_template(old), copies, &ctx.core.map)?;
    let tables = &ctx.settings.tables;
    let new = template.resolve(old.seed, tables);
    new.validate()?;
    // As a file that is made now.
    let new = ctx.core.around_full(new);
    let (before, after) = (old.slots(), new.slots());
    if let Some(group) = after.iter().find(|group| !tables.has(**group) || before.contains(group)) {
        let detail = format!("group {group} cannot take the file; see strake status");
        return Err(Error::with(ErrorKind::Invalid, detail));
    }
    Ok(new)
}

/// A chunk of which there may be something to copy.
#[derive(Clone, Copy)]
struct Listed {
    index: ChunkIndex,
    /// Where its contents end, at most.
    end: u64,
    /// Its length, if it is full.
    bytes: u64,
    /// It has no holes, and nothing is reserved in it.
    is_whole: bool,
}

/// A part of a chunk that has contents, or is reserved for some.
#[derive(Clone, Copy)]
struct Piece {
    index: ChunkIndex,
    offset: u64,
    len: u64,
    reserved: bool,
}

impl Piece {
    /// A range that has contents.
    fn filled(index: ChunkIndex, range: ops::Range<u64>) -> Self {
        let (offset, len) = (range.start, range.end - range.start);
        Self { index, offset, len, reserved: false }
    }

    /// A range that is reserved.
    fn reserved(index: ChunkIndex, range: ops::Range<u64>) -> Self {
        Self { reserved: true, ..Self::filled(index, range) }
    }

    /// The same, each part a request.
    fn requests(self) -> impl Iterator<Item = Self> {
        let most = if self.reserved { self.len } else { PIECE_BYTES };
        let end = self.offset + self.len;
        (self.offset..end).step_by(most.max(1) as usize).map(move |offset| {
            let len = most.min(end - offset);
            Self { offset, len, ..self }
        })
    }

    /// Bytes to be copied.
    fn bytes(&self) -> u64 {
        if self.reserved { 0 } else { self.len }
    }
}

/// Copies all contents and makes them durable.
async fn copy(ctx: &Ctx, wanted: &Wanted<'_>, file: &UnderWay, begun: &Begun) -> Result<Copied> {
    file.set_bytes(bytes_of(&begun.inode));
    let copying = Copying::new(ctx, wanted.pace, file, begun);
    let found = copying.all().await;
    let Copying { boots, failed, .. } = copying;
    // Before what a question says that has failed, too.
    if let Some(error) = failed.into_inner() {
        return Ok(Copied::Unknown(error));
    }
    found?;
    file.check()?;
    if file.is_touched() {
        return Ok(Copied::Void(TOUCHED.to_owned()));
    }
    if wanted.pace.is_over() {
        return Ok(Copied::Void("the job has ended".to_owned()));
    }
    for group in boots.groups() {
        let sync = StorageOp::Sync(FileRef { volume: ctx.volume.id.0, ino: begun.inode.ino });
        boots.heard(group, on_group(&ctx.core, part(ctx, begun, group), sync, Bytes::new()).await?);
    }
    match boots.at_most_one_each() {
        true => Ok(Copied::All),
        false => Ok(Copied::Void("a storage server lost power while it was copied".to_owned())),
    }
}

/// Contents on their way.
struct Copying<'a> {
    ctx: &'a Ctx,
    pace: &'a Pace,
    file: &'a UnderWay,
    begun: &'a Begun,
    old: Placement,
    new: Placement,
    boots: Boots,
    /// A request was made.
    has_begun: AtomicBool,
    /// A question has failed: what there is to copy is not known.
    is_unknown: AtomicBool,
    /// Why the first one has failed that did.
    failed: Mutex<Option<Error>>,
}

impl<'a> Copying<'a> {
    fn new(ctx: &'a Ctx, pace: &'a Pace, file: &'a UnderWay, begun: &'a Begun) -> Self {
        let (old, new) = (Placement::new(begun.old.clone()), Placement::new(begun.new.clone()));
        let (boots, has_begun, is_unknown, failed) = Default::default();
        Self { ctx, pace, file, begun, old, new, boots, has_begun, is_unknown, failed }
    }

    /// True if there is no use in more of it.
    fn is_over(&self) -> bool {
        let failed = self.is_unknown.load(Ordering::Relaxed) || self.failed.lock().is_some();
        let ended = self.pace.is_over() || self.file.check().is_err();
        failed || ended || self.file.is_touched()
    }

    /// Copies what all groups have, until it is over. An error: what there is is not known. Nothing is under way when this
    /// returns.
    async fn all(&self) -> Result<()> {
        let (found, mut pieces) = mpsc::channel(REQUESTS_MAX);
        let finding = async {
            let ended = self.find(found).await;
            self.is_unknown.store(ended.is_err(), Ordering::Relaxed);
            ended
        };
        // To the end, also after a failure.
        let copying = stream::poll_fn(move |cx| pieces.poll_recv(cx))
            .map(|piece| self.copy(piece))
            .buffer_unordered(REQUESTS_MAX)
            .for_each(future::ready);
        tokio::join!(finding, copying).0
    }

    /// Finds what there is to copy, of one group after the other and page by page, no faster than it is copied.
    async fn find(&self, found: mpsc::Sender<Piece>) -> Result<()> {
        for group in self.old.groups() {
            let (reign, ino) = (self.ctx.volume.reign(), self.begun.inode.id());
            let part = Part { reign, ino, group, min_copies: 0 };
            let mut next = Some(0);
            while let Some(from) = next.filter(|_| !self.is_over()) {
                let page = chunks_from(self.ctx, part, from).await?;
                stream::iter(self.listed(group, &page).into_iter().map(Ok::<_, Error>))
                    .try_for_each_concurrent(REQUESTS_MAX, |chunk| self.look(part, chunk, &found))
                    .await?;
                // A page that leads back would never end.
                next = page.next.filter(|next| *next > from);
            }
        }
        Ok(())
    }

    /// What of a page is of the file. What lies behind the file's end is nobody's.
    fn listed(&self, group: GroupId, page: &ChunkList) -> Vec<Listed> {
        // Of a chunk of which it is not said it counts as if it had no holes, and as if nothing were reserved.
        let occupied = page.occupied.iter().copied().chain(iter::repeat(u64::MAX));
        let reserved = page.reserved.iter().copied().chain(iter::repeat(0));
        let chunks = page.indices.iter().zip(&page.lens).zip(occupied.zip(reserved));
        let own = chunks.filter(|((index, _), _)| self.old.group_of(ChunkIndex(**index)) == group);
        own.map(|((index, len), (occupied, reserved))| {
            let index = ChunkIndex(*index);
            let (start, bytes) = self.begun.old.chunk_bounds(index);
            let end = (*len).min(bytes).min(self.begun.inode.length.saturating_sub(start));
            Listed { index, end, bytes, is_whole: reserved == 0 && occupied >= *len }
        })
        .collect()
    }

    /// Finds what there is to copy of a chunk, unless it is over.
    async fn look(&self, part: Part, chunk: Listed, found: &mpsc::Sender<Piece>) -> Result<()> {
        let Listed { index, end, bytes, is_whole } = chunk;
        let pieces = if is_whole {
            vec![Piece::filled(index, 0..end)]
        } else {
            self.pace.while_paused(self.file).await;
            if self.is_over() {
                return Ok(());
            }
            pieces_of(self.ctx, part, index, (end, bytes)).await?
        };
        for piece in pieces.into_iter().flat_map(Piece::requests) {
            if self.is_over() || found.send(piece).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Copies a piece, unless it is over. Where one has failed nothing more is asked for: each would be waited for as long.
    async fn copy(&self, piece: Piece) {
        if self.is_over() {
            return;
        }
        if let Err(error) = self.attempt(piece).await {
            self.failed.lock().get_or_insert(error);
        }
    }

    async fn attempt(&self, piece: Piece) -> Result<()> {
        if self.has_begun.swap(true, Ordering::Relaxed) {
            self.pace.wait(piece.bytes(), Some(self.file)).await;
        } else {
            // Who has begun gets on: a file of one piece comes to its end although it is paused now.
            self.pace.owe(piece.bytes());
        }
        if self.is_over() {
            return Ok(());
        }
        let (ctx, begun, group) = (self.ctx, self.begun, self.new.group_of(piece.index));
        let op = copy_op(ctx, begun.inode.id(), piece, self.old.group_of(piece.index));
        let boot = on_group(&ctx.core, part(ctx, begun, group), op, Bytes::new()).await?;
        self.boots.heard(group, boot);
        self.file.add_copied(piece.bytes());
        Ok(())
    }
}

fn part(ctx: &Ctx, begun: &Begun, group: GroupId) -> Part {
    let min_copies = begun.new.safety.min_copies;
    Part { reign: ctx.volume.reign(), ino: begun.inode.id(), group, min_copies }
}

fn copy_op(ctx: &Ctx, ino: Ino, piece: Piece, from: GroupId) -> StorageOp {
    let chunk = ChunkId { volume: ctx.volume.id, ino, index: piece.index };
    let range = Range { chunk: chunk.into(), offset: piece.offset, len: piece.len };
    if piece.reserved {
        return StorageOp::Allocate(range);
    }
    StorageOp::Copy(Copy {
        to: range,
        from: range,
        // Looked up whenever it is sent.
        from_target: 0,
        from_group: from.0,
        from_capability: right_to(&ctx.core, ctx.volume.reign(), ino),
    })
}

/// A page of the chunks that a group has of a file.
async fn chunks_from(ctx: &Ctx, part: Part, from: u64) -> Result<ChunkList> {
    let (volume, ino) = (ctx.volume.id.0, part.ino.0);
    let of = ChunksOf { volume, ino, from, max: PAGE_CHUNKS };
    match ask_group(&ctx.core, part, StorageOp::Chunks(of), Bytes::new()).await? {
        Some(StorageAnswer::Chunks(page)) => Ok(page),
        _ => {
            let detail = format!("group {} does not say which chunks it has", part.group);
            Err(Error::with(ErrorKind::Malformed, detail))
        }
    }
}

/// What there is to copy of a chunk that has holes, or in which room is reserved: neither is written to. A hole would take
/// room, and what is reserved would be used up. Contents lie before the first of two places, what is reserved before the second.
async fn pieces_of(
    ctx: &Ctx,
    part: Part,
    index: ChunkIndex,
    (len, bytes): (u64, u64),
) -> Result<Vec<Piece>> {
    let chunk = ChunkId { volume: ctx.volume.id, ino: part.ino, index };
    let answer = ask_group(&ctx.core, part, StorageOp::Extents(chunk.into()), Bytes::new()).await?;
    let Some(StorageAnswer::Extents(list)) = answer else {
        let detail = format!("group {} does not say what it has of {chunk}", part.group);
        return Err(Error::with(ErrorKind::Malformed, detail));
    };
    let filled = ranges(&list.starts, &list.lens, len);
    let reserved = ranges(&list.reserved_starts, &list.reserved_lens, bytes);
    let mut pieces: Vec<Piece> = filled.map(|range| Piece::filled(index, range)).collect();
    pieces.extend(reserved.map(|range| Piece::reserved(index, range)));
    Ok(pieces)
}

/// Ranges by their starts and lengths, as far as they lie before a place.
fn ranges(starts: &[u64], lens: &[u64], end: u64) -> impl Iterator<Item = ops::Range<u64>> {
    let ranges = starts.iter().zip(lens);
    let ranges = ranges.map(move |(start, len)| *start..start.saturating_add(*len).min(end));
    ranges.filter(|range| !range.is_empty())
}

/// From which boots each group has answered. A second one of a group says that what the first has
/// taken may be lost.
#[derive(Default)]
struct Boots(Mutex<BTreeMap<GroupId, Vec<u64>>>);

impl Boots {
    fn heard(&self, group: GroupId, boot: u64) {
        let mut all = self.0.lock();
        let known = all.entry(group).or_default();
        // 0: it does not say.
        if boot != 0 && !known.contains(&boot) {
            known.push(boot);
        }
    }

    fn groups(&self) -> Vec<GroupId> {
        self.0.lock().keys().copied().collect()
    }

    fn at_most_one_each(&self) -> bool {
        self.0.lock().values().all(|boots| boots.len() <= 1)
    }
}

/// Switches a file over that has been copied, as soon as nobody has it open who would go on by where it lies.
async fn switch_when_free(
    ctx: &Ctx,
    wanted: &Wanted<'_>,
    file: &UnderWay,
    begun: &Begun,
) -> Result<Outcome> {
    let ino = begun.inode.id();
    let mut waits = None;
    for _ in 0..SWITCHES_MAX {
        {
            let _held = ctx.core.locks.lock(ctx.volume.id, &[ino]).await;
            file.check()?;
            if file.is_touched() {
                return Ok(Outcome::Waits(TOUCHED.to_owned()));
            }
            waits = in_use(ctx, &begun.inode).await?;
            if waits.is_none() {
                keep_for_readers(ctx, begun).await?;
                return match under_locks(ctx, &Switch(begun)).await {
                    Ok(()) => {
                        // Before anybody can write where it lies now: a loss of power would have it lie where it was.
                        ctx.volume.sync().await?;
                        Ok(Outcome::Done)
                    }
                    Err(error) if error.kind == ErrorKind::Conflict => {
                        Ok(Outcome::Waits(error.to_string()))
                    }
                    Err(error) => Err(error),
                };
            }
        }
        if wanted.pace.is_over() {
            break;
        }
        tokio::time::sleep(SWITCH_PAUSE).await;
    }
    Ok(Outcome::Waits(waits.unwrap_or_default()))
}

/// Before a file is switched over that somebody has open: he may read where it is to lie before that is durable, and a loss of
/// power would have it lie where it was.
async fn keep_for_readers(ctx: &Ctx, begun: &Begun) -> Result<()> {
    let ino = begun.inode.id();
    if !ctx.volume.sessions.may_hold(ino) {
        return Ok(());
    }
    let again_ms = ctx.core.wall_ms() + QUIET_MS;
    let spare = Spare { layout: (&begun.new).into(), settled: true, again_ms };
    ctx.volume.put(keys::spare(ctx.volume.id, ino), records::encode(&spare)).await?;
    ctx.volume.sync().await
}

/// The file lies elsewhere from now on; where it was goes.
struct Switch<'a>(&'a Begun);

impl Mutation for Switch<'_> {
    async fn scope(&self, _ctx: &Ctx) -> Result<Vec<Ino>> {
        Ok(vec![self.0.inode.id()])
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let Begun { inode: known, old, new } = self.0;
        let found = tx.find_inode(known.id()).await?;
        let same = found.as_ref().is_some_and(|inode| {
            inode.version == known.version && inode.nlink > 0 && inode.cut_from.is_none()
        });
        let Some(inode) = found.filter(|_| same) else {
            return Err(Error::with(ErrorKind::Conflict, "it was changed while it was copied"));
        };
        let mut moved = (*inode).clone();
        moved.layout = Some(new.into());
        if !moved.inline {
            // Who has it open may be reading there: he asks before he begins to, and not while he is at it.
            let open = tx.ctx.volume.sessions.may_hold(known.id());
            let again_ms = if open { tx.ctx.core.wall_ms() + QUIET_MS } else { 0 };
            let spare = Spare { layout: old.into(), settled: true, again_ms };
            tx.put(keys::spare(tx.ctx.volume.id, known.id()), &spare).await?;
        }
        tx.put_inode(moved).await?;
        Ok(MetaAnswer::Done(Nothing {}))
    }
}

/// Has deleted what was copied, unless the file lies there now. `settled`: nothing that could write
/// there is under way.
async fn give_up(ctx: &Ctx, file: &UnderWay, begun: &Begun, settled: bool) -> Result<()> {
    let ino = begun.inode.id();
    let _held = ctx.core.locks.lock(ctx.volume.id, &[ino]).await;
    file.check()?;
    under_locks(ctx, &GiveUp { begun, settled }).await?;
    ctx.core.has_work(&ctx.volume);
    Ok(())
}

struct GiveUp<'a> {
    begun: &'a Begun,
    settled: bool,
}

impl Mutation for GiveUp<'_> {
    async fn scope(&self, _ctx: &Ctx) -> Result<Vec<Ino>> {
        Ok(vec![self.begun.inode.id()])
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let key = keys::spare(tx.ctx.volume.id, self.begun.inode.id());
        let found: Option<Spare> = tx.get(&key).await?;
        if let Some(spare) = found.filter(|spare| spare.layout == (&self.begun.new).into()) {
            // Nobody has learned that it would lie there.
            tx.put(key, &Spare { settled: self.settled, again_ms: 0, ..spare }).await?;
        }
        Ok(MetaAnswer::Done(Nothing {}))
    }
}
