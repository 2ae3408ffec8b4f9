//! Whether members have the same: what no checksum shows.
//!
//! Digests are compared without holding anything; where they differ a change may just be under way, so the
//! chunk is looked at again while the primary holds it. What differs then should not.

use super::Replica;
use super::errand::Errand;
use super::ranges::Area;
use crate::apply::sums_of;
use metrics::counter;
use std::collections::BTreeMap;
use std::sync::Arc;
use strake_types::{ChunkId, Error, ErrorKind, Result, TargetId};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{StorageAnswer, StorageOp};

/// Pages of one member asked for at most, while the primary has one.
const PAGES_MAX: usize = 4096;

/// Some chunks of a group at one member, with their digests.
#[derive(Default)]
struct Part {
    digests: BTreeMap<ChunkId, u64>,
    /// All up to this cursor are there; `None`: all.
    next: Option<msg::Chunk>,
}

impl Replica {
    /// Compares a page of the chunks that any member in sync has; for the primary.
    pub async fn compare(
        self: &Arc<Self>,
        epoch: u64,
        request: msg::Compare,
    ) -> Result<msg::Compared> {
        let view = self.current(epoch).await?;
        self.check_lead(&view)?;
        let reign = self.reigning().await?;
        let own = self.part(None, view.epoch, request.after, None).await?;
        let end = own.next;
        let mut found = msg::Compared { next: end, ..msg::Compared::default() };
        found.chunks = own.digests.len() as u64;
        for &member in view.in_sync.iter().skip(1) {
            let theirs = self.part(Some(member), view.epoch, request.after, end).await?;
            let errand = Errand { reign, epoch: view.epoch, member };
            for chunk in different(&own.digests, &theirs.digests) {
                if self.differs(errand, chunk, request.repair).await? {
                    found.different.push(chunk.into());
                    found.members.push(member.0);
                }
            }
        }
        Ok(found)
    }

    /// The chunks after a cursor: our first page of them, or those of a member up to `end`.
    async fn part(
        &self,
        member: Option<TargetId>,
        epoch: u64,
        after: Option<msg::Chunk>,
        end: Option<msg::Chunk>,
    ) -> Result<Part> {
        let mut part = Part { next: after, ..Part::default() };
        for _ in 0..PAGES_MAX {
            let op = StorageOp::Digests(msg::DigestsAfter { after: part.next });
            let answer = match member {
                Some(member) => self.ask(member, epoch, op).await?,
                None => self.shelf.look(op).await?.0,
            };
            let StorageAnswer::Digests(page) = answer else {
                return Err(self.error(ErrorKind::Malformed, "no page of digests"));
            };
            let chunks = page.chunks.into_iter().map(ChunkId::from);
            part.digests.extend(chunks.zip(page.digests));
            part.next = page.next;
            let enough = match (part.next, end) {
                (None, _) => true,
                (Some(next), Some(end)) => ChunkId::from(next) >= ChunkId::from(end),
                (Some(_), None) => member.is_none(),
            };
            if enough {
                part.digests.retain(|chunk, _| self.shelf.is_up_to(*chunk, end.or(part.next)));
                return Ok(part);
            }
        }
        Err(self.error(ErrorKind::TooBig, "a member has far more chunks than the primary"))
    }

    /// True if a member's copy differs from ours while nobody changes it.
    pub(super) async fn differs(
        &self,
        errand: Errand,
        chunk: ChunkId,
        repair: bool,
    ) -> Result<bool> {
        let _held = self.ranges.take(Area::of_chunk(chunk), true).await;
        let ours = self.shelf.sums(chunk).await?;
        let op = StorageOp::Sums(chunk.into());
        let theirs = match self.ask(errand.member, errand.epoch, op).await? {
            StorageAnswer::Sums(sums) => sums_of(&sums)?,
            _ => return Err(self.nonsense(errand.member)),
        };
        // It may have left the group while we waited for a change that it has not made, and not know yet.
        let view = self.current(errand.epoch).await?;
        let digest =
            |sums: &Option<strake_engine::chunk::BlockSums>| sums.as_ref().map(|s| s.digest());
        if digest(&ours) == digest(&theirs) {
            return Ok(false);
        }
        let target = errand.member.to_string();
        counter!("strake_storage_different_chunks_total", "target" => target).increment(1);
        tracing::error!(
            "group {}: {chunk} at target {} is not what target {} has",
            self.group,
            errand.member,
            self.me()
        );
        if repair {
            // What only one has is kept: too much can be taken away again, too little not be brought back.
            if let Some(theirs) = &theirs {
                self.take_back(errand, chunk, &ours.unwrap_or_default(), theirs).await?;
            }
            for &member in view.in_sync.iter().skip(1) {
                self.equalise(Errand { member, ..errand }, chunk).await?;
            }
            tracing::warn!(
                "group {}: {chunk} at target {} was made equal",
                self.group,
                errand.member
            );
        }
        Ok(true)
    }

    pub(super) fn nonsense(&self, member: TargetId) -> Error {
        self.error(ErrorKind::Malformed, &format!("target {member} answered something else"))
    }
}

/// Chunks that only one of two has, or that are not the same.
fn different(ours: &BTreeMap<ChunkId, u64>, theirs: &BTreeMap<ChunkId, u64>) -> Vec<ChunkId> {
    let lacks = ours.iter().filter(|(chunk, digest)| theirs.get(*chunk) != Some(*digest));
    let more = theirs.keys().filter(|chunk| !ours.contains_key(*chunk));
    lacks.map(|(chunk, _)| *chunk).chain(more.copied()).collect()
}
