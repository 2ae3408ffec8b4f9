//! Whether members have the same: what no checksum shows.
//!
//! Digests are compared without holding anything; where they differ a change may just be under way, so the
//! chunk is looked at again while the primary holds it. What differs then should not. What is reserved is an exception:
//! where earlier releases have made a copy equal it has none, and gets it without a word. A chunk that one of two cannot look at, because
//! its map of it is damaged, is left as it is.

use super::digest::{Digest, found_on};
use super::errand::Errand;
use super::met::{READ_PAUSE, Tries};
use super::ranges::Area;
use super::{Replica, View};
use crate::apply::sums_of;
use bytes::Bytes;
use metrics::counter;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use strake_engine::chunk::{BlockSums, difference};
use strake_types::{ChunkId, Error, ErrorKind, Result, TargetId};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{StorageAnswer, StorageOp};

/// Differing chunks after which a comparison answers: each of them takes as long as it takes.
const DIFFERENT_MAX: usize = 64;
/// A page ends after so long, if it has got on: who asks for it waits for 20 s, and would begin it again.
const PAGE_TIME: Duration = Duration::from_secs(6);

/// Whether a copy differs from the primary's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Differs {
    No,
    /// It does, still.
    Left,
    /// It did.
    Repaired,
    /// Its bytes do not; but less, or more, was reserved there.
    Reserved,
}

/// Some chunks of a group at one member, with their digests.
pub(super) struct Page {
    pub digests: BTreeMap<ChunkId, Digest>,
    /// All up to this cursor are there; `None`: all.
    pub next: Option<msg::Chunk>,
}

impl Replica {
    /// Compares chunks that any member in sync has, from a cursor on as far as a page of each member reaches; for the
    /// primary. An error in the middle ends it earlier: what was found is told.
    pub async fn compare(
        self: &Arc<Self>,
        epoch: u64,
        request: msg::Compare,
    ) -> Result<msg::Compared> {
        let view = self.current(epoch).await?;
        self.check_lead(&view)?;
        let reign = self.reigning().await?;
        let own = self.page_of(None, view.epoch, request.after).await?;
        let mut end = own.next;
        let mut copies = Vec::new();
        for &member in view.in_sync.iter().skip(1) {
            let copy = self.page_of(Some(member), view.epoch, request.after).await?;
            end = end.into_iter().chain(copy.next).min_by_key(|&next| ChunkId::from(next));
            copies.push((member, copy.digests));
        }
        let mut found = msg::Compared { next: end, ..msg::Compared::default() };
        let (mut last, mut reserved) = (None, 0);
        let until = self.common.clock.monotonic() + PAGE_TIME;
        for (chunk, members) in self.suspects(&own.digests, &copies, end, request.repair) {
            if request.after.is_some() && self.shelf.is_up_to(chunk, request.after) {
                // At a member the chunks of a group that moves may come in another order.
                continue;
            }
            let (differing, compared) =
                self.compare_chunk(reign, &view, chunk, &members, request.repair).await;
            for (member, differs) in differing {
                if differs == Differs::Reserved {
                    reserved += 1;
                    continue;
                }
                found.different.push(chunk.into());
                found.members.push(member.0);
                found.left.push(request.repair && differs == Differs::Left);
            }
            if let Err(error) = compared {
                // What differs of the first chunk is found again: no cursor tells of less than a chunk.
                let Some(before) = last.filter(|_| !found.different.is_empty()) else {
                    return Err(error);
                };
                tracing::warn!("group {}: {chunk} is not compared: {error}", self.group);
                found.next = Some(before);
                break;
            }
            last = Some(self.shelf.cursor(chunk)?);
            let is_late = self.common.clock.monotonic() >= until;
            if is_late || found.different.len() + reserved >= DIFFERENT_MAX {
                found.next = last;
                break;
            }
        }
        let is_compared = |chunk: &&ChunkId| self.shelf.is_up_to(**chunk, found.next);
        found.chunks = own.digests.keys().filter(is_compared).count() as u64;
        Ok(found)
    }

    /// A page of the chunks after a cursor, ours or those of a member.
    pub(super) async fn page_of(
        &self,
        member: Option<TargetId>,
        epoch: u64,
        after: Option<msg::Chunk>,
    ) -> Result<Page> {
        let op = StorageOp::Digests(msg::DigestsAfter { after });
        let answer = match member {
            Some(member) => self.ask(member, epoch, op).await?,
            None => self.shelf.look(op).await?.0,
        };
        let StorageAnswer::Digests(page) = answer else {
            return Err(self.error(ErrorKind::Malformed, "no page of digests"));
        };
        let next = page.next;
        let digests = found_on(page).map(|found| (found.chunk, found.digest)).collect();
        Ok(Page { digests, next })
    }

    /// Chunks up to a cursor that only one of two has, or that are not the same, and at whom; if `reserved`, also those in
    /// which not the same is reserved. None of volumes that were deleted: each member drops these in its own time.
    fn suspects(
        &self,
        ours: &BTreeMap<ChunkId, Digest>,
        copies: &[(TargetId, BTreeMap<ChunkId, Digest>)],
        end: Option<msg::Chunk>,
        reserved: bool,
    ) -> BTreeMap<ChunkId, Vec<TargetId>> {
        let is_same = |ours: Digest, theirs: Digest| match reserved {
            true => ours.agrees_with(theirs),
            false => ours.has_contents_of(theirs),
        };
        let mut suspects: BTreeMap<ChunkId, Vec<TargetId>> = BTreeMap::new();
        for (member, theirs) in copies {
            let lacks = ours.iter().filter(|(chunk, digest)| {
                theirs.get(*chunk).is_none_or(|theirs| !is_same(**digest, *theirs))
            });
            let more = theirs.keys().filter(|chunk| !ours.contains_key(*chunk));
            for chunk in lacks.map(|(chunk, _)| chunk).chain(more) {
                if self.shelf.is_up_to(*chunk, end) && !self.common.map.is_deleted(chunk.volume) {
                    suspects.entry(*chunk).or_default().push(*member);
                }
            }
        }
        suspects
    }

    /// At which of these members a chunk differs, or did, and what ended that early.
    async fn compare_chunk(
        &self,
        reign: u64,
        view: &View,
        chunk: ChunkId,
        members: &[TargetId],
        repair: bool,
    ) -> (Vec<(TargetId, Differs)>, Result<()>) {
        let mut found = Vec::new();
        for &member in members {
            let errand = Errand { reign, epoch: view.epoch, member };
            match self.differs(errand, chunk, repair).await {
                Ok(Differs::No) => {}
                Ok(differs) => found.push((member, differs)),
                Err(error) => return (found, Err(error)),
            }
        }
        (found, Ok(()))
    }

    /// Whether a member's copy differs from ours while nobody changes it, and what became of that.
    pub(super) async fn differs(
        &self,
        errand: Errand,
        chunk: ChunkId,
        repair: bool,
    ) -> Result<Differs> {
        let _held = self.ranges.take(Area::of_chunk(chunk), true).await;
        let both = self.sums_of_both(errand, chunk).await;
        // It may have left the group while we waited for a change that it has not made, and not know yet.
        let view = self.current(errand.epoch).await?;
        let (ours, theirs) = match both {
            Err(error) if error.kind == ErrorKind::Io => {
                self.tell_left(chunk, &error);
                return Ok(Differs::Left);
            }
            both => both?,
        };
        let digest = |sums: &Option<BlockSums>| sums.as_ref().map(|s| s.digest());
        if digest(&ours) == digest(&theirs) {
            return match repair && reserve_other(ours.as_ref(), theirs.as_ref()) {
                true => self.share_reserved(errand, &view, chunk).await,
                false => Ok(Differs::No),
            };
        }
        // The volume may have been deleted since, and dropped at one of the two.
        if self.common.map.is_deleted(chunk.volume) {
            return Ok(Differs::No);
        }
        let target = errand.member.to_string();
        counter!("strake_storage_different_chunks_total", "target" => target).increment(1);
        tracing::error!(
            "group {}: {chunk} at target {} is not what target {} has",
            self.group,
            errand.member,
            self.me()
        );
        if !repair {
            return Ok(Differs::Left);
        }
        if let Err(error) = self.tried_again(|| self.unite(errand, &view, chunk)).await {
            if !matches!(error.kind, ErrorKind::Corrupt | ErrorKind::Io) {
                return Err(error);
            }
            self.tell_left(chunk, &error);
            return Ok(Differs::Left);
        }
        tracing::warn!("group {}: {chunk} was made equal at all members", self.group);
        Ok(Differs::Repaired)
    }

    /// The rest of the group can be compared all the same.
    fn tell_left(&self, chunk: ChunkId, error: &Error) {
        tracing::warn!("group {}: {chunk} is left as it is: {error}", self.group);
    }

    /// What we have of a chunk, and what a member has.
    async fn sums_of_both(
        &self,
        errand: Errand,
        chunk: ChunkId,
    ) -> Result<(Option<BlockSums>, Option<BlockSums>)> {
        self.tried_again(|| self.look_at_both(errand, chunk)).await
    }

    /// Does something, once more for a moment while a disk does not read what is needed.
    async fn tried_again<T, F>(&self, work: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let now = || self.common.clock.monotonic();
        let mut tries = Tries::since(now());
        loop {
            match work().await {
                Err(error) if error.kind == ErrorKind::Io && tries.once_more(now()) => {
                    tokio::time::sleep(READ_PAUSE).await;
                }
                done => return done,
            }
        }
    }

    async fn look_at_both(
        &self,
        errand: Errand,
        chunk: ChunkId,
    ) -> Result<(Option<BlockSums>, Option<BlockSums>)> {
        let ours = self.shelf.sums(chunk).await?;
        Ok((ours, self.look_then_sums_at(errand.member, errand.epoch, chunk).await?))
    }

    /// As [`Replica::sums_at`]. The member is asked first for damage in none of its blocks, which fails, too, where its map of the chunk is
    /// damaged: for sums that fail again and again it takes itself out, and no change waits for these.
    async fn look_then_sums_at(
        &self,
        member: TargetId,
        epoch: u64,
        chunk: ChunkId,
    ) -> Result<Option<BlockSums>> {
        let none = msg::Range { chunk: chunk.into(), offset: 0, len: 0 };
        self.ask(member, epoch, StorageOp::Damage(none)).await?;
        self.sums_at(member, epoch, chunk).await
    }

    /// Reserves at all members in sync what any of them has reserved of a chunk. The caller holds it. Who is close to being
    /// short of room is left as it is.
    async fn share_reserved(&self, errand: Errand, view: &View, chunk: ChunkId) -> Result<Differs> {
        // A member that joins may be past this chunk already.
        if !view.joining.is_empty() || self.shelf.target.is_short() {
            return Ok(Differs::No);
        }
        match self.reserve_everywhere(errand, view, chunk).await {
            Ok(()) => Ok(Differs::Reserved),
            Err(error) if error.kind == ErrorKind::NoSpace => {
                tracing::debug!("group {}: {chunk}: {error}", self.group);
                Ok(Differs::No)
            }
            Err(error) if error.kind == ErrorKind::Io => {
                self.tell_left(chunk, &error);
                Ok(Differs::No)
            }
            Err(error) => Err(error),
        }
    }

    /// As [`Replica::share_reserved`], as far as there is room.
    async fn reserve_everywhere(&self, errand: Errand, view: &View, chunk: ChunkId) -> Result<()> {
        let others = || view.in_sync.iter().skip(1);
        for &member in others() {
            let theirs = self.look_then_sums_at(member, errand.epoch, chunk).await?;
            let theirs = theirs.unwrap_or_default();
            let ours = self.shelf.sums(chunk).await?.unwrap_or_default();
            for part in difference(&theirs, &ours).reserve {
                let (offset, len) = (part.start, part.end - part.start);
                let range = msg::Range { chunk: chunk.into(), offset, len };
                if self.shelf.target.is_tight(len) {
                    return Err(self.has_no_room(self.me()));
                }
                self.change_own_in(errand, StorageOp::Allocate(range), Bytes::new()).await?;
            }
        }
        for &member in others() {
            self.equalise(Errand { member, ..errand }, chunk).await?;
        }
        Ok(())
    }

    /// Makes a chunk equal at all members in sync, none of which loses what only it has: too much can be taken away again, too
    /// little not be brought back. The caller holds it.
    async fn unite(&self, errand: Errand, view: &View, chunk: ChunkId) -> Result<()> {
        let others = || view.in_sync.iter().skip(1);
        for &member in others() {
            let errand = Errand { member, ..errand };
            let theirs = self.look_then_sums_at(member, errand.epoch, chunk).await?;
            let Some(theirs) = theirs else { continue };
            let ours = self.shelf.sums(chunk).await?;
            let blocks = lacking(ours.as_ref(), &theirs);
            if ours.is_some() && blocks.is_empty() {
                continue;
            }
            if !view.joining.is_empty() {
                // It may be past this chunk already.
                return Err(self.error(ErrorKind::NotCurrent, "a member is being made equal"));
            }
            self.take_back(errand, chunk, &blocks).await?;
            let len = theirs.chunk_len();
            if ours.is_none_or(|ours| ours.chunk_len() < len) {
                let cut = msg::Cut { chunk: chunk.into(), length: Some(len), lose: false };
                self.change_own_in(errand, StorageOp::Cut(cut), Bytes::new()).await?;
            }
        }
        for &member in others() {
            self.equalise(Errand { member, ..errand }, chunk).await?;
        }
        Ok(())
    }

    /// What a member has of a chunk.
    pub(super) async fn sums_at(
        &self,
        member: TargetId,
        epoch: u64,
        chunk: ChunkId,
    ) -> Result<Option<BlockSums>> {
        let op = StorageOp::Sums(chunk.into());
        match self.ask(member, epoch, op).await? {
            StorageAnswer::Sums(sums) => sums_of(&sums),
            _ => Err(self.nonsense(member)),
        }
    }

    pub(super) fn nonsense(&self, member: TargetId) -> Error {
        self.error(ErrorKind::Malformed, &format!("target {member} answered something else"))
    }
}

/// True if two copies say that not the same is reserved in them.
fn reserve_other(ours: Option<&BlockSums>, theirs: Option<&BlockSums>) -> bool {
    let both = ours.and_then(BlockSums::reserved).zip(theirs.and_then(BlockSums::reserved));
    both.is_some_and(|(ours, theirs)| ours != theirs)
}

/// Blocks, each with its checksum, that a member has and we have not.
fn lacking(ours: Option<&BlockSums>, theirs: &BlockSums) -> Vec<(u32, u32)> {
    let known = ours.map_or(&[][..], BlockSums::blocks);
    let known: HashSet<u32> = known.iter().map(|(block, _)| *block).collect();
    theirs.blocks().iter().copied().filter(|(block, _)| !known.contains(block)).collect()
}
