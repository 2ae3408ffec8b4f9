//! What a new primary does before it answers anybody: whatever may be at some members only, it makes
//! the same at all.

use super::digest::Digest;
use super::errand::{Errand, MetBy};
use super::failing::{Part, about};
use super::follow::PROMISE;
use super::holes::{Hole, hole_of};
use super::met::READS_MAX;
use super::ranges::Area;
use super::repair::sum_of;
use super::{Replica, Stage, View};
use crate::tag::before;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use strake_base::is_broken;
use strake_engine::chunk::{BLOCK_BYTES, BlockSums, Difference, difference};
use strake_types::{ChunkId, ChunkIndex, ErrorKind, Ino, Result, TargetId, VolumeId};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{StorageAnswer, StorageOp};

/// Pause before the next attempt to reach all members.
const PAUSE: Duration = Duration::from_millis(50);
/// Bytes sent at once to a member that lacks them.
const PIECE_BYTES: u64 = 1 << 20;
/// Of a file with more chunks only those are compared one by one whose digests differ: a page of these takes as long as some
/// thousand chunks, and may have other files, too.
const CHUNKS_COMPARED_MAX: usize = 1_024;

/// Digests of a file's chunks at one member.
type Digests = BTreeMap<ChunkId, Digest>;

impl Replica {
    /// Makes a reign ready.
    pub(super) async fn recover(self: Arc<Self>, since: u64) {
        let mut said = false;
        loop {
            let Some(view) = self.state.lock().reign(since).map(|reign| reign.view.clone()) else {
                return;
            };
            if self.may_be_bound(&view) {
                self.look_again(PAUSE).await;
                continue;
            }
            let others = &view.in_sync[1..];
            let others = if is_broken("new-primary-recovers") { &[] } else { others };
            match self.make_equal(since, view.epoch, others).await {
                Ok(chunks) if self.become_ready(since, &view) => {
                    tracing::info!(
                        "group {}: target {} leads epoch {}, {chunks} chunks were in doubt",
                        self.group,
                        self.me(),
                        view.epoch
                    );
                    self.progress.notify_waiters();
                    return;
                }
                Ok(_) => {}
                Err(error) if !said => {
                    tracing::warn!("group {}: cannot lead yet: {error}", self.group);
                    said = true;
                }
                Err(error) => tracing::debug!("group {}: cannot lead yet: {error}", self.group),
            }
            self.look_again(PAUSE).await;
        }
    }

    /// True while a promise has to be waited for. Others are told nothing before: a member may show at once what a recovery sends
    /// it, and whoever reads by the promise has what was before.
    fn may_be_bound(&self, view: &View) -> bool {
        self.is_too_early() || self.state.lock().is_bound(view, self.common.clock.monotonic())
    }

    /// True unless the view is another by now.
    fn become_ready(&self, since: u64, view: &View) -> bool {
        let mut state = self.state.lock();
        let Some(reign) = state.reign(since).filter(|reign| reign.view == *view) else {
            return false;
        };
        reign.ready = true;
        reign.holes = Vec::new();
        state.unsettled.retain(|(reign, _), _| *reign >= since);
        true
    }

    /// What we have applied in earlier reigns is what all have now: those changes are made.
    fn remember_own(&self, since: u64) {
        let state = self.state.lock();
        let earlier =
            state.unsettled.range(..(since, 0)).filter(|(_, entry)| entry.stage == Stage::Applied);
        for attempt in earlier.filter_map(|(_, entry)| entry.attempt) {
            self.shelf.target.attempts.note(attempt);
        }
    }

    /// True while a promise may run that we gave before this server started.
    fn is_too_early(&self) -> bool {
        if self.common.clock.monotonic() >= self.common.started + PROMISE {
            return false;
        }
        let map = self.common.map.current();
        let server_of = |target: u32| {
            let found = map.targets.iter().find(|t| t.id == target);
            found.map(|target| target.server)
        };
        let members = map.group(self.group).map(|group| group.members.as_slice());
        let own = server_of(self.me().0);
        members.unwrap_or_default().iter().any(|&member| server_of(member) != own)
    }

    async fn make_equal(&self, reign: u64, epoch: u64, others: &[TargetId]) -> Result<usize> {
        let (own, own_files) = self.state.lock().doubtful();
        let mut chunks: BTreeSet<ChunkId> = own.into_iter().collect();
        let mut files: BTreeSet<(VolumeId, Ino)> = own_files.into_iter().collect();
        let mut holes = Vec::new();
        for &member in others {
            let answer = self.have_adopted(member, epoch).await?;
            let StorageAnswer::Unsettled(list) = answer else { return Err(self.nonsense(member)) };
            chunks.extend(list.chunks.into_iter().map(ChunkId::from));
            files.extend(list.files.iter().map(|f| (VolumeId(f.volume), Ino(f.ino))));
            holes.extend(list.holes.iter().map(|told| Hole::of(member, told)));
        }
        self.note_holes(reign, holes)?;
        // Alone there is nothing to make equal, and a store that fails is all there is.
        for file in files.into_iter().filter(|_| !others.is_empty()) {
            chunks.extend(self.chunks_in_doubt(epoch, others, file).await?);
        }
        for chunk in &chunks {
            let _held = self.ranges.take(Area::of_chunk(*chunk), true).await;
            for &member in others {
                self.equalise(Errand { reign, epoch, member }, *chunk).await?;
            }
        }
        self.remember_own(reign);
        for table in self.shelf.target.attempts.tables() {
            for &member in others {
                self.ask(member, epoch, StorageOp::Remember(table.clone())).await?;
            }
        }
        Ok(chunks.len())
    }

    /// The chunks of a file that others may have otherwise: all of a few, and of many those that are not the same by their digests.
    /// Nobody changes them before this reign is ready.
    async fn chunks_in_doubt(
        &self,
        epoch: u64,
        others: &[TargetId],
        file: (VolumeId, Ino),
    ) -> Result<BTreeSet<ChunkId>> {
        let all = self.chunks_anywhere(epoch, others, file).await?;
        let all: BTreeSet<ChunkId> = all.into_iter().collect();
        if all.len() <= CHUNKS_COMPARED_MAX {
            return Ok(all);
        }
        match self.chunks_that_differ(epoch, others, file, &all).await {
            Ok(different) => Ok(different),
            Err(error) => {
                // Who cannot be asked for one of them hears of that.
                tracing::debug!("group {}: {error}", self.group);
                Ok(all)
            }
        }
    }

    async fn chunks_that_differ(
        &self,
        epoch: u64,
        others: &[TargetId],
        file: (VolumeId, Ino),
        all: &BTreeSet<ChunkId>,
    ) -> Result<BTreeSet<ChunkId>> {
        let ours = self.digests_of(None, epoch, file).await?;
        let mut different = BTreeSet::new();
        for &member in others {
            let theirs = self.digests_of(Some(member), epoch, file).await?;
            let differs = |chunk: &ChunkId| match (ours.get(chunk), theirs.get(chunk)) {
                (Some(ours), Some(theirs)) => !ours.agrees_with(*theirs),
                (ours, theirs) => ours.is_some() || theirs.is_some(),
            };
            different.extend(all.iter().copied().filter(differs));
        }
        Ok(different)
    }

    /// Digests of a file's chunks, ours or those of a member: they follow each other in its store.
    async fn digests_of(
        &self,
        member: Option<TargetId>,
        epoch: u64,
        file: (VolumeId, Ino),
    ) -> Result<Digests> {
        let mut digests = Digests::new();
        let (volume, ino) = file;
        let first = ChunkId { volume, ino, index: ChunkIndex(0) };
        let mut after = before(first).map(msg::Chunk::from);
        loop {
            let page = self.page_of(member, epoch, after).await?;
            let of_file = |chunk: &ChunkId| (chunk.volume, chunk.ino) == file;
            digests.extend(page.digests.into_iter().filter(|(chunk, _)| of_file(chunk)));
            after = page.next;
            if after.is_none_or(|next| (VolumeId(next.volume), Ino(next.ino)) > file) {
                return Ok(digests);
            }
        }
    }

    /// The chunks of a file that we or others have.
    pub(super) async fn chunks_anywhere(
        &self,
        epoch: u64,
        others: &[TargetId],
        file: (VolumeId, Ino),
    ) -> Result<Vec<ChunkId>> {
        let mut chunks = Vec::new();
        for member in std::iter::once(self.me()).chain(others.iter().copied()) {
            chunks.extend(self.chunks_of(member, epoch, file).await?);
        }
        Ok(chunks)
    }

    async fn chunks_of(
        &self,
        member: TargetId,
        epoch: u64,
        (volume, ino): (VolumeId, Ino),
    ) -> Result<Vec<ChunkId>> {
        let mut pages = msg::ChunkPages::of(volume.0, ino.0, 0..=u64::MAX);
        while let Some(of) = pages.wanted() {
            let op = StorageOp::Chunks(of);
            let answer = if member == self.me() {
                let page = (volume, ino, Part::Chunks(of.from));
                self.ask_own(epoch, page, self.shelf.look(op)).await?.0
            } else {
                self.ask(member, epoch, op).await?
            };
            let StorageAnswer::Chunks(page) = answer else { return Err(self.nonsense(member)) };
            pages.add(page);
        }
        let chunk = |index: u64| ChunkId { volume, ino, index: ChunkIndex(index) };
        Ok(pages.found().indices.into_iter().map(chunk).collect())
    }

    /// Makes a member's copy of a chunk equal to ours, with what is reserved in it. Nobody may change ours
    /// meanwhile. Returns the bytes sent.
    pub(super) async fn equalise(&self, errand: Errand, chunk: ChunkId) -> Result<u64> {
        for _ in 0..READS_MAX {
            if let Some(sent) = self.equalise_to_ours(errand, chunk).await? {
                return Ok(sent);
            }
        }
        Err(self.error(ErrorKind::Corrupt, &format!("{chunk} is damaged again and again")))
    }

    /// The same; `None`: ours has become another one, because it was repaired.
    async fn equalise_to_ours(&self, errand: Errand, chunk: ChunkId) -> Result<Option<u64>> {
        let own = about(chunk, Part::Sums);
        let ours = self.ask_own_for(errand, own, self.shelf.sums(chunk)).await?;
        let theirs = self.sums_at(errand.member, errand.epoch, chunk).await?;
        let cut = |length| StorageOp::Cut(msg::Cut { chunk: chunk.into(), length, lose: false });
        let (ours, theirs) = match (ours, theirs) {
            (None, None) => return Ok(Some(0)),
            (None, Some(_)) => {
                self.mend(errand, cut(None), Bytes::new()).await?;
                return Ok(Some(0));
            }
            (Some(ours), Some(theirs)) => (ours, theirs),
            (Some(ours), None) => {
                self.mend(errand, cut(Some(ours.chunk_len())), Bytes::new()).await?;
                (ours, BlockSums::empty())
            }
        };
        let (len, before) = (ours.chunk_len(), theirs.chunk_len());
        if len != before {
            match self.mend(errand, cut(Some(len)), Bytes::new()).await {
                Err(error) if error.kind == ErrorKind::Corrupt => {
                    if !self.cut_within_damage(errand, chunk, (len, before)).await? {
                        return Ok(None);
                    }
                }
                cut => cut?,
            }
        }
        let theirs = match len < before {
            // The block that was cut in part is another one now, or lost.
            true => self.sums_at(errand.member, errand.epoch, chunk).await?.unwrap_or_default(),
            false => theirs,
        };
        self.send_difference(errand, chunk, difference(&ours, &theirs)).await.map(Some)
    }

    /// Cuts a member's copy of a chunk, which was so long `before`, to our length within a block that cannot be read there: ours takes
    /// its place. Where that cannot be read either it is repaired, and only what nobody has is lost. False if it was, and all is to
    /// be compared again. The member is not tried for long: it would take itself out.
    async fn cut_within_damage(
        &self,
        errand: Errand,
        chunk: ChunkId,
        (len, before): (u64, u64),
    ) -> Result<bool> {
        let nth = len / BLOCK_BYTES;
        let cut = |lose| {
            let cut = msg::Cut { chunk: chunk.into(), length: Some(len), lose };
            self.mend(errand, StorageOp::Cut(cut), Bytes::new())
        };
        let sent = self.send_block(errand, chunk, nth as u32, before).await;
        let made = match sent.map(drop) {
            Ok(()) => cut(false).await,
            failed => failed,
        };
        match made {
            Err(error) if error.kind == ErrorKind::Corrupt => {}
            made => return made.map(|()| true),
        }
        let blocks = nth..nth + 1;
        let outcome = self.repair_held(errand.reign, chunk, blocks, MetBy::Resync).await?;
        match outcome.lost.is_empty() {
            true => Ok(false),
            false => cut(true).await.map(|()| true),
        }
    }

    /// Sends a member what it lacks of a chunk, whose length is right there. Returns the bytes sent.
    pub(super) async fn send_difference(
        &self,
        errand: Errand,
        chunk: ChunkId,
        difference: Difference,
    ) -> Result<u64> {
        for hole in difference.punch.into_iter().chain(difference.release) {
            let (offset, len) = (hole.start, hole.end - hole.start);
            let range = msg::Range { chunk: chunk.into(), offset, len };
            self.mend(errand, StorageOp::Punch(range), Bytes::new()).await?;
        }
        let mut sent = 0;
        for part in difference.send {
            sent += self.send_part(errand, chunk, part).await?;
        }
        for part in difference.reserve {
            let (offset, len) = (part.start, part.end - part.start);
            self.reserve_at(errand, msg::Range { chunk: chunk.into(), offset, len }).await?;
        }
        Ok(sent)
    }

    async fn send_part(&self, errand: Errand, chunk: ChunkId, part: Range<u64>) -> Result<u64> {
        let mut at = part.start;
        while at < part.end {
            let len = PIECE_BYTES.min(part.end - at);
            let read = msg::Read { chunk: chunk.into(), offset: at, len };
            let own = about(chunk, |index| Part::Bytes(index, at));
            match self.ask_own_for(errand, own, self.shelf.bytes(read)).await {
                Ok((data, _)) if data.is_empty() => {}
                Ok((data, crc)) => {
                    let write = msg::Write { chunk: chunk.into(), offset: at, crc, durable: false };
                    self.mend(errand, StorageOp::Write(write), data).await?;
                }
                Err(error) if error.kind == ErrorKind::Corrupt => {
                    self.send_damaged(errand, chunk, at..at + len).await?;
                }
                Err(error) => return Err(error),
            }
            at += len;
        }
        Ok(part.end - part.start)
    }

    /// As [`Replica::send_part`], where some of ours is damaged: that is repaired first. What no member
    /// has is lost there too, instead of being something else: whoever wrote it, and was not answered, may write it again.
    async fn send_damaged(&self, errand: Errand, chunk: ChunkId, part: Range<u64>) -> Result<()> {
        let blocks = part.start / BLOCK_BYTES..part.end.div_ceil(BLOCK_BYTES);
        let outcome = self.repair_held(errand.reign, chunk, blocks.clone(), MetBy::Resync).await?;
        let sums = self.shelf.sums(chunk).await?.unwrap_or_default();
        for block in blocks.map(|block| block as u32) {
            if !outcome.lost.contains(&block) {
                match sum_of(&sums, block) {
                    Some(_) => {
                        self.send_block(errand, chunk, block, sums.chunk_len()).await.map(drop)?;
                    }
                    None => self.mend(errand, hole_of(chunk, block), Bytes::new()).await?,
                }
                continue;
            }
            self.check_lost(errand, chunk, block).await?;
            self.forget_requests(chunk, block);
            let crcs: Vec<u32> = sum_of(&sums, block).into_iter().collect();
            let blocks = crcs.iter().map(|_| block).collect();
            let lost = msg::LostBlocks { chunk: chunk.into(), blocks, crcs };
            self.mend(errand, StorageOp::Lose(lost), Bytes::new()).await?;
        }
        Ok(())
    }

    /// An error if a block of ours that nobody has may not be lost at a member: our disk does not read it now, and may do so
    /// later, and the member may be there to take our place. Where it counts, the group would stand still for that.
    async fn check_lost(&self, errand: Errand, chunk: ChunkId, block: u32) -> Result<()> {
        if self.required().contains(&errand.member)
            || !self.shelf.is_unreadable(chunk, block).await?
        {
            return Ok(());
        }
        let at = u64::from(block) * BLOCK_BYTES;
        let what =
            format!("{chunk} cannot be read at {at}, and no other copy has that; look at the disk");
        Err(self.error(ErrorKind::Io, &what))
    }
}
