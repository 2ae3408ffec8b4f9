//! Reserving, freeing and zeroing ranges of a file.

use super::Life;
use super::flush::Tell;
use super::holes::taken;
use super::open::OpenFile;
use super::resize::Exclusive;
use super::state::{Body, FileState};
use crate::api::{FallocateMode, Wanted};
use crate::metrics::Op;
use crate::volume::Volume;
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use std::sync::Arc;
use strake_types::layout::Placement;
use strake_types::{Error, ErrorKind, Piece, Result};
use strake_wire::message::storage::{Range, StorageOp};

/// Requests under way at once for one operation.
pub(crate) const REQUESTS_MAX: usize = 32;
/// A range of more chunks than this is first asked which of them exist.
const PIECES_ASKED_MAX: usize = 1_024;
/// Of a longer range no more chunks are changed before others have the file's order.
const TURN_PIECES_MAX: usize = 4_096;

impl FallocateMode {
    fn frees(self) -> bool {
        !matches!(self, FallocateMode::Allocate | FallocateMode::KeepSize)
    }

    fn extends(self) -> bool {
        matches!(self, FallocateMode::Allocate | FallocateMode::Zero)
    }
}

impl Volume {
    /// Reserves, frees or zeroes a range. What was written before is sent first.
    pub async fn fallocate(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        self.fallocate_while(file, mode, (offset, len), &|| true).await
    }

    /// The same while it is wanted. When it is not any more nothing more of it is begun, and it fails with
    /// [`ErrorKind::Interrupted`] when what has begun is over.
    pub async fn fallocate_while(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        mode: FallocateMode,
        (offset, len): (u64, u64),
        is_wanted: Wanted<'_>,
    ) -> Result<()> {
        let _timer = self.count(Op::Fallocate);
        file.check_writable()?;
        let end = file.state.core().end_of(offset, len)?;
        if len == 0 {
            return Err(Error::with(ErrorKind::Invalid, "an empty range"));
        }
        let mut free = match mode.frees() {
            true => u64::MAX,
            false => self.statfs().await?.free_bytes,
        };
        let (life, mut at) = (file.state.life(), offset);
        while at < end {
            let turn = self.fallocate_turn((file, life), mode, (at, end), free, is_wanted);
            at = Box::pin(turn).await?;
            // There was enough for all of it.
            free = u64::MAX;
        }
        Ok(())
    }

    /// Does the first part of a range, after which others have the file's order; where that ends. So much is `free`.
    async fn fallocate_turn(
        self: &Arc<Self>,
        (file, life): (&Arc<OpenFile>, Life<'_>),
        mode: FallocateMode,
        (offset, end): (u64, u64),
        free: u64,
        is_wanted: Wanted<'_>,
    ) -> Result<u64> {
        let state = &file.state;
        self.refresh_attr(state, &(0..0)).await?;
        self.claim_nothing(state).await?;
        let order = self.in_order(state).await?;
        let exclusive = Exclusive::new(self, state);
        self.wake(state).await?;
        life.check()?;
        let stale = state.core().is_inline_stale();
        if stale {
            // As whoever has not the file's order tells it and asks.
            self.tell_in_order(state, false).await?;
            self.fetch_inline(state).await?;
            life.check()?;
        }
        file.check_wanted(is_wanted)?;
        if self.fallocate_inline(file, mode, offset, end) {
            self.mark_busy(state);
            drop((exclusive, order));
            return self.tell_shared(file).await.map(|()| end);
        }
        self.check_room(file, free, (offset, end), is_wanted).await?;
        self.move_out(state).await?;
        self.drain(state).await;
        life.check()?;
        file.check_wanted(is_wanted)?;
        let changed = self.fallocate_chunks((file, life), mode, (offset, end), is_wanted).await;
        drop(exclusive);
        // Also what has failed half-way is told, and if that fails, later.
        self.mark_busy(state);
        let told = self.publish(state, Tell::Lazily).await;
        let until = changed?;
        told.map(|_| until)
    }

    /// Fails where more room is to be reserved than is free in the cluster: what of a range is written or reserved already
    /// needs none. Copies do not count; targets refuse for themselves.
    async fn check_room(
        &self,
        file: &OpenFile,
        free: u64,
        (from, to): (u64, u64),
        is_wanted: Wanted<'_>,
    ) -> Result<()> {
        let Some(least) = (to - from).checked_sub(free).filter(|least| *least > 0) else {
            return Ok(());
        };
        let taken = self.taken_at_most(file, (from, to), least, is_wanted).await?;
        if taken >= least {
            return Ok(());
        }
        let wanted = to - from - taken;
        let detail = format!("{wanted} bytes or more are to be reserved, {free} are free");
        Err(Error::with(ErrorKind::NoSpace, detail))
    }

    /// How many bytes of a range targets hold or have reserved, at most: it is asked until it is known whether they are as many
    /// as these.
    async fn taken_at_most(
        &self,
        handle: &OpenFile,
        (from, to): (u64, u64),
        least: u64,
        is_wanted: Wanted<'_>,
    ) -> Result<u64> {
        let file = &handle.state;
        let placement = {
            let core = file.core();
            if core.is_inline() {
                return Ok(0);
            }
            core.placement()?
        };
        let pieces = self.existing_pieces(file, &placement, from, to).await?;
        let (mut known, mut at_most) = (0, pieces.iter().map(|piece| piece.len).sum::<u64>());
        let mut answers = stream::iter(pieces)
            .map(|piece| async move {
                let list = self.extents(file, piece).await?;
                Ok::<_, Error>((taken(&list, &piece), piece.len))
            })
            .buffer_unordered(REQUESTS_MAX);
        while known < least && at_most >= least {
            handle.check_wanted(is_wanted)?;
            let Some((taken, len)) = answers.try_next().await? else { break };
            known += taken;
            at_most -= len.saturating_sub(taken);
        }
        Ok(at_most)
    }

    /// Does it inside the inode; false if the file is not there or would outgrow it.
    fn fallocate_inline(&self, file: &OpenFile, mode: FallocateMode, from: u64, to: u64) -> bool {
        let mut core = file.state.core();
        let core = &mut *core;
        let length = core.length;
        if core.shared {
            return false;
        }
        let Body::Inline(inline) = &mut core.body else { return false };
        let grows = mode.extends() && to > length;
        if (grows || !mode.frees()) && to > self.inline_bytes_max() {
            return false;
        }
        let start = if mode.frees() { from.min(length) } else { length };
        let end = if grows { to } else { to.min(length) };
        if start < end {
            let zeros = vec![0; (end - start) as usize];
            let mut room = self.memory().try_dirty(zeros.len());
            self.memory().charge(&mut room, self.in_inodes(file.ino()));
            inline.write(start as usize, &zeros, room);
            core.touch(start, end, self.wall_time());
            self.note_change(file, core);
        }
        true
    }

    /// As [`Volume::fallocate_turn`], in chunks; the first piece is changed also where that is not wanted any more.
    async fn fallocate_chunks(
        &self,
        (handle, life): (&OpenFile, Life<'_>),
        mode: FallocateMode,
        (from, to): (u64, u64),
        is_wanted: Wanted<'_>,
    ) -> Result<u64> {
        let file = life.file();
        let placement = file.core().placement()?;
        let mut to = self.turn_end(file, &placement, mode, (from, to)).await?;
        let length = {
            let core = file.core();
            // Already now: nobody may see it again, not even if this is given up half-way.
            core.kept.cut(from, to);
            core.length
        };
        let end = if mode.extends() { length.max(to) } else { length }.next_multiple_of(4096);
        let pieces = match mode.frees() {
            true => self.existing_pieces(file, &placement, from, to).await?,
            false => placement.pieces(from, to - from).collect(),
        };
        let doubt = std::mem::replace(&mut file.core().change_in_doubt, true);
        let (mut pieces, mut begun) = (pieces.into_iter(), false);
        let wanted = std::iter::from_fn(|| {
            let piece = pieces.next()?;
            if std::mem::replace(&mut begun, true) && !is_wanted() {
                to = piece.file_offset;
                return None;
            }
            Some(piece)
        });
        let changed = stream::iter(wanted)
            .map(|piece| self.fallocate_piece(life, piece, mode.frees(), end))
            .buffer_unordered(REQUESTS_MAX)
            .try_fold(0i64, |sum, delta| async move { Ok(sum + delta) });
        let changed = changed.await;
        let mut core = file.core();
        core.ahead.cut(from, to);
        core.change_in_doubt = doubt || changed.is_err();
        life.check_in(&core)?;
        core.unpublished.written(self.wall_time());
        self.note_change(handle, &mut core);
        core.unpublished.occupied += *changed.as_ref().unwrap_or(&0);
        if changed.is_ok() && mode.extends() && to > core.length {
            core.length = to;
            core.unpublished.acknowledged = core.unpublished.acknowledged.max(to);
        }
        changed.map(|_| to)
    }

    /// Where a turn ends that begins there: behind so many chunks, and what is free behind them needs no turn to be freed.
    async fn turn_end(
        &self,
        file: &FileState,
        placement: &Placement,
        mode: FallocateMode,
        (from, to): (u64, u64),
    ) -> Result<u64> {
        let Some(next) = placement.pieces(from, to - from).nth(TURN_PIECES_MAX) else {
            return Ok(to);
        };
        if !mode.frees() {
            return Ok(next.file_offset);
        }
        let existing = self.next_chunk(file, placement, next.index).await?;
        let start = existing.map_or(to, |index| placement.layout().chunk_bounds(index).0);
        Ok(start.clamp(next.file_offset, to))
    }

    /// By how much the bytes occupied have changed. Those behind `end` do not count (`Publish::occupied_delta`).
    async fn fallocate_piece(
        &self,
        life: Life<'_>,
        piece: Piece,
        frees: bool,
        end: u64,
    ) -> Result<i64> {
        let file = life.file();
        let list = self.extents(file, piece).await?;
        if frees && taken(&list, &piece) == 0 {
            return Ok(0);
        }
        let chunk = self.chunk(file.ino(), piece.index);
        let range = Range { chunk: chunk.into(), offset: piece.chunk_offset, len: piece.len };
        let op = if frees { StorageOp::Punch(range) } else { StorageOp::Allocate(range) };
        // Before as well: it may be done although nobody waits for the answer any more.
        self.acknowledged(file, piece.group, None);
        let (answer, _) = self.change(life, piece.group, op, Bytes::new()).await?;
        self.acknowledged(file, piece.group, Some(&answer));
        let counted = Piece { len: piece.len.min(end.saturating_sub(piece.file_offset)), ..piece };
        let taken = taken(&list, &counted);
        Ok(if frees { -(taken as i64) } else { (counted.len - taken) as i64 })
    }

    /// The pieces of a range whose chunks exist.
    pub(crate) async fn existing_pieces(
        &self,
        file: &FileState,
        placement: &Placement,
        from: u64,
        to: u64,
    ) -> Result<Vec<Piece>> {
        let few: Vec<Piece> =
            placement.pieces(from, to - from).take(PIECES_ASKED_MAX + 1).collect();
        if few.len() <= PIECES_ASKED_MAX {
            return Ok(few);
        }
        let layout = placement.layout();
        let indices = layout.chunk_at(from).0..=layout.chunk_at(to - 1).0;
        let existing = self.existing_chunks(file, placement, indices).await?;
        let within = existing.into_iter().filter_map(|index| {
            let (start, len) = layout.chunk_bounds(strake_types::ChunkIndex(index));
            let (start, end) = (start.max(from), (start + len).min(to));
            placement.pieces(start, end - start).next()
        });
        Ok(within.collect())
    }
}
