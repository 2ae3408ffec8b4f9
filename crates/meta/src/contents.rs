//! Contents of regular files, as far as the metadata server has to do with them: small ones inside
//! the inode, and the cutting, moving out and deleting of chunks on the storage servers.
//!
//! A cut is marked in the inode (`cut_from`) in the transaction that commits the new length, and
//! the mark goes when every target has done it. While the mark is there nobody opens or extends the
//! file, or is granted a lock on it, without completing the cut first, so bytes that were cut off are
//! never seen again, not even after a crash between the two. Whoever had the file open before may write on: where some
//! groups have done it and others were away, those that are left are noted (`cut_groups`), and
//! the others are not cut again. What he writes to those that are left is cut; so no cut is begun beside him while a target is
//! known to be away, and of one that gets stuck he is told ([`cut_telling_others`]).

use crate::borrow::lock_here;
use crate::core::Core;
use crate::ctx::Ctx;
use crate::groups::{Part, on_group, request};
use crate::keys;
use crate::records::{self, Inode, Raw};
use crate::session::Session;
use crate::txn::{Mutation, under_locks};
use crate::view::Tx;
use crate::volume::Reign;
use bytes::{Bytes, BytesMut};
use futures::future::{join_all, try_join_all};
use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;
use strake_types::layout::Placement;
use strake_types::limits::FILE_CHUNKS_MAX;
use strake_types::{
    ChunkId, Consistency, Epoch, Error, ErrorKind, GroupId, Ino, Layout, Result, TargetId,
    Timestamp,
};
use strake_wire::message::manager::Target;
use strake_wire::message::meta::{MetaAnswer, Nothing};
use strake_wire::message::storage::{Cut, FileRef, StorageOp, StorageRequest, Truncate, Write};
use tokio::time::timeout;

/// How often a change is made that a target then loses with its power.
const CHANGES_MAX: u32 = 4;
/// A file that is younger may not be on disk at all: stores sync themselves about once a second.
const NEW_SECONDS: i64 = 2;
/// A cut that takes longer may come to nothing: a target may be lost.
const CUT_SOON: Duration = Duration::from_millis(250);

/// Contents of an inline file, as long as its length says.
pub(crate) async fn inline_bytes(tx: &mut Tx<'_>, inode: &Inode) -> Result<Bytes> {
    if inode.length == 0 {
        return Ok(Bytes::new());
    }
    let stored = stored_inline(tx, inode).await?;
    let length = inode.length as usize;
    if stored.len() >= length {
        return Ok(stored.slice(..length));
    }
    let mut longer = BytesMut::zeroed(length);
    longer[..stored.len()].copy_from_slice(&stored);
    Ok(longer.freeze())
}

/// What is stored of the contents of an inline file: without zeros at its end.
async fn stored_inline(tx: &mut Tx<'_>, inode: &Inode) -> Result<Bytes> {
    let key = keys::contents(tx.ctx.volume.id, inode.id());
    Ok(tx.get::<Raw>(&key).await?.unwrap_or_default().bytes)
}

/// True if a file has contents inside its inode that are more than zeros.
pub(crate) async fn has_inline(tx: &mut Tx<'_>, inode: &Inode) -> Result<bool> {
    Ok(inode.inline && inode.length > 0 && !stored_inline(tx, inode).await?.is_empty())
}

/// Sets the contents of an inline file. The length in `inode` follows; the caller writes it.
pub(crate) async fn set_inline(tx: &mut Tx<'_>, inode: &mut Inode, bytes: Bytes) -> Result<()> {
    let key = keys::contents(tx.ctx.volume.id, inode.id());
    inode.length = bytes.len() as u64;
    occupy(tx, inode, inode.length);
    match bytes.is_empty() {
        true => tx.delete(key).await,
        false => tx.put(key, &Raw { bytes }).await,
    }
}

/// Notes how many bytes a file occupies.
pub(crate) fn occupy(tx: &mut Tx<'_>, inode: &mut Inode, bytes: u64) {
    tx.count(inode.id(), 0, bytes as i64 - inode.occupied as i64);
    inode.occupied = bytes;
}

/// What clients say does not tell how much a file with holes occupies: it is counted when nobody writes to it any more.
pub(crate) fn note_sparse(ctx: &Ctx, inode: &Inode) {
    if inode.is_sparse() && ctx.is_here(inode.id()) {
        ctx.volume.uncounted.note(inode.id());
    }
}

/// Gives a file another length, in the transaction of an operation whose `prepare` has called
/// [`make_room`]. Chunks are cut by [`finish_cut`] after the commit.
pub(crate) async fn set_length(tx: &mut Tx<'_>, inode: &mut Inode, length: u64) -> Result<()> {
    if inode.inline && length <= tx.ctx.settings.inline_bytes_max {
        if length < inode.length {
            let bytes = inline_bytes(tx, inode).await?;
            return set_inline(tx, inode, bytes.slice(..length as usize)).await;
        }
        // Zeros at the end need not be stored.
        inode.length = length;
        return Ok(());
    }
    if inode.inline {
        // It was empty: otherwise make_room has moved it out.
        note_moved(tx.ctx, inode);
        inode.inline = false;
    } else {
        check_cut(tx.ctx, inode)?;
        inode.cut_from = Some(cut_point(tx.ctx, inode, length));
        inode.cut_groups.clear();
        tx.enqueue(inode).await?;
    }
    inode.length = length;
    occupy(tx, inode, inode.occupied.min(occupied_max(length)));
    note_sparse(tx.ctx, inode);
    Ok(())
}

/// Fails where others may write to a file of which something could not be cut now: what they write there as soon as its target
/// is back would be cut with it.
fn check_cut(ctx: &Ctx, inode: &Inode) -> Result<()> {
    let (ino, groups) = (inode.id(), layout_of(inode)?.slots());
    if !may_others_write(ctx, ino) || !is_away(&ctx.core, &groups) {
        return Ok(());
    }
    let (kind, why) = why_away(&ctx.core, &groups);
    let detail = format!("inode {ino}, to which others may write, is not cut: a target {why}");
    Err(Error::with(kind, detail))
}

/// Why a target of these groups is not asked. One whose disk has failed does not come back by itself: that is not waited for.
fn why_away(core: &Core, groups: &[GroupId]) -> (ErrorKind, &'static str) {
    match is_poisoned(core, groups) {
        true => (ErrorKind::Poisoned, "takes no writes"),
        false => (ErrorKind::Unavailable, "is away"),
    }
}

/// From where on a file is cut that is given a length: also behind its end, where targets have what the store would not be told.
/// The caller has told all that he has written to it.
fn cut_point(ctx: &Ctx, inode: &Inode, length: u64) -> u64 {
    match is_only_refused(ctx, inode.id()) {
        true => length.min(inode.length),
        false => length,
    }
}

/// True if targets have something behind the end of a file that the store would not be told, and nobody else may have bytes
/// there that are no part of the file yet.
fn is_only_refused(ctx: &Ctx, ino: Ino) -> bool {
    ctx.volume.refused.has(ino) && !may_others_write(ctx, ino)
}

fn may_others_write(ctx: &Ctx, ino: Ino) -> bool {
    ctx.volume.sessions.may_others_write(ctx.session.as_deref(), ino)
}

/// The most that a file of this length can occupy.
pub(crate) fn occupied_max(length: u64) -> u64 {
    length.next_multiple_of(4096)
}

/// Before a file is given a length: completes a cut, and moves contents out that will not fit.
pub(crate) async fn make_room(ctx: &Ctx, ino: Ino, length: u64) -> Result<()> {
    let Some(inode) = Tx::reader(ctx).find_inode(ino).await? else { return Ok(()) };
    finish_cut_of(ctx, &inode).await?;
    let grows_out = inode.inline && inode.length > 0 && length > ctx.settings.inline_bytes_max;
    match grows_out && inode.is_file() {
        true => Box::pin(move_out(ctx, ino)).await,
        false => Ok(()),
    }
}

/// Completes a cut, if the inode is marked.
pub(crate) async fn finish_cut(ctx: &Ctx, ino: Ino) -> Result<()> {
    finish_marked(ctx, ino, None).await
}

/// The same, for a request that has marked the inode itself: its client is not told, who doubts the cut by himself unless it is
/// answered.
pub(crate) async fn finish_own_cut(ctx: &Ctx, ino: Ino) -> Result<()> {
    finish_marked(ctx, ino, ctx.session.as_deref()).await
}

async fn finish_marked(ctx: &Ctx, ino: Ino, own: Option<&Session>) -> Result<()> {
    // Nothing of the store is kept meanwhile.
    let inode = Tx::reader(ctx).find_inode(ino).await?;
    match inode {
        Some(inode) => finish_cut_beside(ctx, &inode, own).await,
        None => Ok(()),
    }
}

/// As [`finish_cut`], for who holds no lock yet: it may take long, and others would wait for those that he needs.
pub(crate) async fn finish_cut_first(ctx: &Ctx, ino: Ino) -> Result<()> {
    let inode = Tx::reader(ctx).find_inode(ino).await?;
    if inode.is_none_or(|inode| inode.cut_from.is_none()) {
        return Ok(());
    }
    let _held = lock_here(ctx, &[ino]).await?;
    finish_cut(ctx, ino).await
}

/// As [`finish_cut`], for who can come again: where a target is known to be away nobody waits for it with the lock held.
pub(crate) async fn finish_cut_at_once(ctx: &Ctx, ino: Ino) -> Result<()> {
    let inode = Tx::reader(ctx).find_inode(ino).await?;
    let Some(inode) = inode.filter(|inode| inode.cut_from.is_some()) else { return Ok(()) };
    let groups = groups_to_cut(&inode)?;
    if is_away(&ctx.core, &groups) {
        let (kind, why) = why_away(&ctx.core, &groups);
        let detail = format!("what inode {ino} has on a target that {why} is to be cut");
        return Err(Error::with(kind, detail));
    }
    finish_cut_of(ctx, &inode).await
}

/// Completes what a file that has a name is in the queue for.
pub(crate) async fn settle_queued(ctx: &Ctx, inode: &Inode) -> Result<()> {
    match inode.cut_from {
        Some(_) => finish_cut_of(ctx, inode).await,
        None => under_locks(ctx, &ClearCut { ino: inode.id() }).await,
    }
}

/// Completes a cut, if an inode is marked that was read by who holds its lock.
pub(crate) async fn finish_cut_of(ctx: &Ctx, inode: &Inode) -> Result<()> {
    finish_cut_beside(ctx, inode, None).await
}

async fn finish_cut_beside(ctx: &Ctx, inode: &Inode, own: Option<&Session>) -> Result<()> {
    match inode.cut_from {
        // In a box: few files are marked, and each change asks.
        Some(from) => Box::pin(cut(ctx, inode, from, own)).await,
        None => Ok(()),
    }
}

async fn cut(ctx: &Ctx, inode: &Inode, from: u64, own: Option<&Session>) -> Result<()> {
    // A loss of power that takes the length back shall find what was cut off, and not zeros; and none takes the mark of what
    // is under way.
    ctx.volume.sync().await?;
    match inode.inline {
        // What a move out has left: without the mark nobody looks for chunks of such a file.
        true => {
            let groups = groups_to_cut(inode)?;
            delete_parts(&ctx.core, parts_of(ctx.volume.reign(), inode.id(), groups)).await?;
        }
        false => cut_telling_others(ctx, inode, from, own).await?,
    }
    under_locks(ctx, &ClearCut { ino: inode.id() }).await?;
    // Before anybody writes there: a loss of power that left the mark would have that cut off, too, and no `fsync` notice.
    ctx.volume.sync().await
}

/// The cut of an inode has been done.
struct ClearCut {
    ino: Ino,
}

impl Mutation for ClearCut {
    async fn scope(&self, _ctx: &Ctx) -> Result<Vec<Ino>> {
        Ok(vec![self.ino])
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let mut inode = (*tx.inode(self.ino).await?).clone();
        inode.cut_from = None;
        inode.cut_groups.clear();
        if inode.nlink > 0 {
            tx.dequeue(&mut inode).await?;
        }
        tx.put_unseen(inode).await?;
        Ok(MetaAnswer::Done(Nothing {}))
    }
}

/// The cut of an inode has been done, but for these groups.
struct CutLeft {
    ino: Ino,
    groups: Vec<u32>,
}

impl Mutation for CutLeft {
    async fn scope(&self, _ctx: &Ctx) -> Result<Vec<Ino>> {
        Ok(vec![self.ino])
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let mut inode = (*tx.inode(self.ino).await?).clone();
        inode.cut_groups.clone_from(&self.groups);
        tx.put_unseen(inode).await?;
        Ok(MetaAnswer::Done(Nothing {}))
    }
}

/// Moves the contents of an inline file to chunks; the caller holds its lock.
pub(crate) async fn move_out(ctx: &Ctx, ino: Ino) -> Result<()> {
    let mut tx = Tx::reader(ctx);
    let inode = tx.inode(ino).await?;
    if !inode.inline {
        drop(tx);
        return keep_moved(ctx, ino).await;
    }
    let bytes = inline_bytes(&mut tx, &inode).await?;
    drop(tx);
    if !bytes.is_empty() {
        // Should this server stop half-way, what it has written to chunks must not be seen. The mark must not go with the
        // power and leave them: nobody would look for chunks of such a file.
        finish_cut_of(ctx, &inode).await?;
        under_locks(ctx, &MarkCut { ino, from: 0 }).await?;
        ctx.volume.sync().await?;
        write_chunks(&ctx.core, ctx.volume.reign(), &inode, &bytes).await?;
    }
    note_moved(ctx, &inode);
    under_locks(ctx, &MovedOut { ino }).await?;
    keep_moved(ctx, ino).await
}

/// True for a file that was just made, and never had contents: of it nothing can be on disk but that it is empty, and mostly
/// nothing is.
fn is_as_made(inode: &Inode, now: Timestamp) -> bool {
    let age = now.seconds.saturating_sub(inode.btime.seconds);
    inode.length == 0 && inode.mtime == inode.btime && (0..NEW_SECONDS).contains(&age)
}

/// An inline file, as it was read, is about to lie in chunks. What others would find of it after a loss of power is to be on
/// disk ([`keep_moved`]), unless it was just made: who makes a file and writes to it waits for no disk.
fn note_moved(ctx: &Ctx, inode: &Inode) {
    if !is_as_made(inode, ctx.core.now()) {
        ctx.volume.moved.lock().insert(inode.id());
    }
}

/// Returns when it is on disk that a file has moved out, also if that was tried in vain before. A loss of power would have
/// its contents lie in the inode again, with clients that go on with chunks. The caller holds its lock.
pub(crate) async fn keep_moved(ctx: &Ctx, ino: Ino) -> Result<()> {
    let is_noted = ctx.volume.moved.lock().contains(&ino);
    if is_noted {
        ctx.volume.sync().await?;
        ctx.volume.moved.lock().remove(&ino);
    }
    Ok(())
}

/// What targets have of a file from a byte on is about to be cut; of an inline file, whose chunks are about to be written, all
/// of it, unless that comes to its end.
pub(crate) struct MarkCut {
    pub ino: Ino,
    pub from: u64,
}

impl Mutation for MarkCut {
    async fn scope(&self, _ctx: &Ctx) -> Result<Vec<Ino>> {
        Ok(vec![self.ino])
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let mut inode = (*tx.inode(self.ino).await?).clone();
        inode.cut_from = Some(self.from);
        inode.cut_groups.clear();
        tx.enqueue(&mut inode).await?;
        tx.put_unseen(inode).await?;
        Ok(MetaAnswer::Done(Nothing {}))
    }
}

/// The contents of an inline file lie in chunks now.
struct MovedOut {
    ino: Ino,
}

impl Mutation for MovedOut {
    async fn scope(&self, _ctx: &Ctx) -> Result<Vec<Ino>> {
        Ok(vec![self.ino])
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let mut inode = (*tx.inode(self.ino).await?).clone();
        inode.inline = false;
        inode.cut_from = None;
        inode.cut_groups.clear();
        if inode.nlink > 0 {
            tx.dequeue(&mut inode).await?;
        }
        tx.delete(keys::contents(tx.ctx.volume.id, self.ino)).await?;
        tx.put_inode(inode).await?;
        Ok(MetaAnswer::Done(Nothing {}))
    }
}

pub(crate) fn layout_of(inode: &Inode) -> Result<Layout> {
    let none = || Error::with(ErrorKind::Corrupt, format!("file {} has no layout", inode.ino));
    inode.layout.clone().ok_or_else(none)?.try_into()
}

/// Deletes everything that a file has in the groups of a layout, for good: when nothing names the chunks
/// any more, no loss of power may bring them back. Whatever makes them superfluous is on disk already.
pub(crate) async fn delete_chunks(
    core: &Core,
    reign: Reign,
    ino: Ino,
    layout: &Layout,
) -> Result<()> {
    delete_parts(core, parts_of(reign, ino, Placement::new(layout.clone()).groups())).await
}

async fn delete_parts(core: &Core, parts: Vec<Part>) -> Result<()> {
    let calls = parts.into_iter().map(|part| {
        let all = StorageOp::Truncate(Truncate {
            volume: part.reign.volume.0,
            ino: part.ino.0,
            from_index: 0,
            last_chunk_len: None,
            to_index: None,
        });
        durably(core, part, all, Bytes::new())
    });
    try_join_all(calls).await.map(drop)
}

/// A file in these groups.
fn parts_of(reign: Reign, ino: Ino, groups: impl IntoIterator<Item = GroupId>) -> Vec<Part> {
    groups.into_iter().map(|group| Part { reign, ino, group, min_copies: 0 }).collect()
}

/// The groups in which a cut of a file is still to be done.
pub(crate) fn groups_to_cut(inode: &Inode) -> Result<Vec<GroupId>> {
    let all = Placement::new(layout_of(inode)?).groups().into_iter();
    Ok(all.filter(|group| inode.is_to_be_cut_in(*group)).collect())
}

/// Nobody answers for some group, or takes changes, or its disk hangs, as the map has it: to ask would be in vain, and hold up
/// others, and whoever waits for the lock of the inode.
pub(crate) fn is_away(core: &Core, groups: &[GroupId]) -> bool {
    is_led_by(core, groups, |target| {
        let spec = &target.spec;
        !target.up || !spec.poisoned.is_empty() || spec.silent_ms.is_some()
    })
}

/// Who answers for some group takes no changes, as the map has it.
fn is_poisoned(core: &Core, groups: &[GroupId]) -> bool {
    is_led_by(core, groups, |target| !target.spec.poisoned.is_empty())
}

/// Nobody answers for some group, as the map has it. One that takes no changes may be read still.
pub(crate) fn is_silent(core: &Core, groups: &[GroupId]) -> bool {
    is_led_by(core, groups, |target| !target.up)
}

fn is_led_by(core: &Core, groups: &[GroupId], is_such: impl Fn(&Target) -> bool) -> bool {
    let map = core.map.current();
    let such = map.targets.iter().filter(|target| is_such(target));
    let such: HashSet<u32> = such.map(|target| target.id).collect();
    let of_group = |group: &GroupId| {
        let primary = core.map.primary_of(*group);
        primary.is_ok_and(|(target, _)| such.contains(&target.0))
    };
    !such.is_empty() && groups.iter().any(of_group)
}

/// As [`cut_chunks`]. Where that is not done soon those who may write to the file hear of it, but for `own`: what they write to a
/// target that is lost now, as soon as it is back, would be cut with what is left. They are told while this goes on, so that they
/// know before it fails.
async fn cut_telling_others(
    ctx: &Ctx,
    inode: &Inode,
    length: u64,
    own: Option<&Session>,
) -> Result<()> {
    let mut cut = pin!(cut_chunks(ctx, inode, length));
    let soon = timeout(CUT_SOON, &mut cut).await;
    if !matches!(soon, Ok(Ok(()))) {
        tell_of_cut(ctx, inode, own);
    }
    match soon {
        Ok(done) => done,
        Err(_) => cut.await,
    }
}

/// Tells those who may write to a file, but for `own`, that a cut of it may stay undone: they send nothing more to any of its
/// targets until it is done. Of one that is not strict nobody is told: what is held back of it for targets that are there would be
/// given up after a while, and be lost.
pub(crate) fn tell_of_cut(ctx: &Ctx, inode: &Inode, own: Option<&Session>) {
    if inode.consistency() == Consistency::Strict {
        ctx.volume.sessions.doubt_cut(inode.id(), own);
    }
}

/// Cuts the chunks of a file at a length, on every target that may have some. Where it fails on some it is noted that it is
/// done on the others: who has the file open may have written there again when it is tried again.
async fn cut_chunks(ctx: &Ctx, inode: &Inode, length: u64) -> Result<()> {
    let (core, reign) = (&ctx.core, ctx.volume.reign());
    let (ino, layout) = (inode.id(), layout_of(inode)?);
    let index = layout.chunk_at(length);
    let (start, _) = layout.chunk_bounds(index);
    // Earlier releases took lengths whose last chunk cannot be: there is nothing to cut of it.
    let within = length > start && index.0 < FILE_CHUNKS_MAX;
    let op = StorageOp::Truncate(Truncate {
        volume: reign.volume.0,
        ino: ino.0,
        from_index: index.0 + u64::from(within),
        last_chunk_len: within.then_some(length - start),
        to_index: None,
    });
    let parts = parts_of(reign, ino, groups_to_cut(inode)?);
    // What was refused to become a part of it must not become one with the power: no `fsync` of who makes it longer asks for that.
    let lasts = length < inode.length || is_only_refused(ctx, ino);
    let calls = parts.iter().copied().map(|part| cut_in(core, part, op.clone(), lasts));
    // One that fails does not end the others half-way.
    let done = join_all(calls).await;
    let failed = parts.iter().zip(&done).filter(|(_, done)| done.is_err());
    let groups: Vec<u32> = failed.map(|(part, _)| part.group.0).collect();
    if !groups.is_empty() && groups.len() < parts.len() {
        under_locks(ctx, &CutLeft { ino, groups }).await?;
        // As in `cut`: those that have done it may be written to.
        ctx.volume.sync().await?;
    }
    done.into_iter().collect()
}

/// Cuts what a group has of a file; such that it `lasts`: also when its power is lost.
async fn cut_in(core: &Core, part: Part, op: StorageOp, lasts: bool) -> Result<()> {
    match lasts {
        true => durably(core, part, op, Bytes::new()).await,
        false => on_group(core, part, op, Bytes::new()).await.map(drop),
    }
}

/// Writes the first bytes of a file to its chunks and makes them durable: they were, if somebody had
/// synced the file while they lay inside the inode.
async fn write_chunks(core: &Core, reign: Reign, inode: &Inode, bytes: &Bytes) -> Result<()> {
    let placement = Placement::new(layout_of(inode)?);
    let calls = placement.pieces(0, bytes.len() as u64).map(|piece| {
        let first = piece.file_offset as usize;
        let payload = bytes.slice(first..first + piece.len as usize);
        let volume = reign.volume;
        let chunk = strake_types::ChunkId { volume, ino: inode.id(), index: piece.index };
        let op = StorageOp::Write(Write {
            chunk: chunk.into(),
            offset: piece.chunk_offset,
            crc: records::checksum(&payload),
            durable: false,
        });
        let min_copies = placement.layout().safety.min_copies;
        let part = Part { reign, ino: inode.id(), group: piece.group, min_copies };
        durably(core, part, op, payload)
    });
    try_join_all(calls).await.map(drop)
}

/// Makes a change in a group until a sync is answered from the boots that have it.
async fn durably(core: &Core, part: Part, change: StorageOp, payload: Bytes) -> Result<()> {
    let Part { reign: Reign { volume, .. }, ino, group, .. } = part;
    let sync = StorageOp::Sync(FileRef { volume: volume.0, ino: ino.0 });
    for _ in 0..CHANGES_MAX {
        let changed = on_group(core, part, change.clone(), payload.clone()).await?;
        let synced = on_group(core, part, sync.clone(), Bytes::new()).await?;
        if changed == synced || changed == 0 || synced == 0 {
            return Ok(());
        }
        tracing::warn!("volume {volume} inode {ino}: group {group} lost power: once more");
    }
    let detail = format!("volume {volume} inode {ino}: group {group} loses power again and again");
    Err(Error::with(ErrorKind::Io, detail))
}

/// Deletes everything of a volume on all targets.
pub(crate) async fn drop_volume(core: &Core, reign: Reign) -> Result<()> {
    let map = core.map.current();
    let op = StorageOp::DropVolume(FileRef { volume: reign.volume.0, ino: 0 });
    let calls = map.targets.iter().map(|target| {
        let request =
            StorageRequest { target: target.id, ..request(core, reign, Ino(0), op.clone()) };
        async move { core.map.storage_of(TargetId(target.id))?.call(request, Bytes::new()).await }
    });
    try_join_all(calls).await.map(drop)
}

/// Deletes one chunk of a group, whether its file has others or not.
pub(crate) async fn delete_chunk(
    core: &Core,
    since: Epoch,
    chunk: ChunkId,
    group: GroupId,
) -> Result<()> {
    let op = StorageOp::Cut(Cut { chunk: chunk.into(), length: None, lose: false });
    let part =
        Part { reign: Reign { volume: chunk.volume, since }, ino: chunk.ino, group, min_copies: 0 };
    on_group(core, part, op, Bytes::new()).await.map(drop)
}
