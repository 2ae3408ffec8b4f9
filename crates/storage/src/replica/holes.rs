//! Holes that a member has made by a change which the new primary has not: in a recovery they are what a block is that this one
//! cannot read and nobody else has, as older or newer bytes of another member would be.
//!
//! What a member has never got looks the same, and is no hole. Numbers tell it: of changes that overlap each begins when the one
//! before is everywhere, and what the primary has and the member has not is not everywhere, so the primary has it among its
//! `unsettled` still; a hole is one only if it is newer than all that is there, and than all that the primary or the member knows
//! to be everywhere. What a recovery has sent a member by itself is none, either: a chunk that
//! was made longer has nothing there.

use super::ranges::Area;
use super::{Replica, Stage, State};
use strake_engine::chunk::BLOCK_BYTES;
use strake_types::{ChunkId, Result, TargetId};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::StorageOp;

/// The newest ones are named, in one message.
const HOLES_NAMED_MAX: usize = 4_096;

/// What a member has said of a hole.
#[derive(Clone, Debug)]
pub(super) struct Hole {
    member: TargetId,
    /// Of the change that has made it: reign and number.
    key: (u64, u64),
    area: Area,
}

impl Hole {
    pub fn of(member: TargetId, told: &msg::Hole) -> Self {
        let area = Area::of_piece(told.from, told.offset, told.bytes);
        Self { member, key: (told.reign, told.number), area }
    }
}

impl State {
    /// Holes that are made here, the newest first, as the primary is told of them.
    pub(super) fn holes(&self) -> Vec<msg::Hole> {
        let doubtful = self.unsettled.range(self.settled..).rev();
        let made = doubtful.filter(|(_, entry)| entry.stage == Stage::Applied);
        let told = made.filter_map(|(&(reign, number), entry)| {
            let (from, offset, bytes) = entry.hole.as_ref()?.piece()?;
            Some(msg::Hole { reign, number, from, offset, bytes })
        });
        told.take(HOLES_NAMED_MAX).collect()
    }

    /// The change by which a member has made a hole of all of an area, if that is newer than what we have there.
    fn newer_hole(&self, member: TargetId, area: &Area) -> Option<(u64, u64)> {
        let reign = self.reign.as_ref()?;
        // Those of this reign are its own: what we repair, and send.
        let earlier = self.unsettled.range(..(reign.since, 0));
        let last = earlier.rev().find(|(_, entry)| entry.area.overlaps(area)).map(|(key, _)| *key);
        let known = self.settled.max(last.unwrap_or_default());
        let theirs = reign.holes.iter().filter(|hole| hole.member == member);
        let made = theirs.filter(|hole| hole.key.0 < reign.since && hole.area.covers(area));
        made.map(|hole| hole.key).filter(|key| *key >= known).max()
    }
}

impl Replica {
    /// Notes the holes that others have told of.
    pub(super) fn note_holes(&self, reign: u64, holes: Vec<Hole>) -> Result<()> {
        let mut state = self.state.lock();
        state.reign(reign).ok_or_else(|| self.over())?.holes = holes;
        Ok(())
    }

    /// True if a member has made a hole of a block of ours that cannot be read, and that is newer than what we had. What an earlier
    /// primary had made there is not remembered as made, as where one that recovers writes over it.
    pub(super) fn takes_hole_of(&self, member: TargetId, chunk: ChunkId, block: u32) -> bool {
        let area = Area::of_block(chunk, block);
        let mut state = self.state.lock();
        let Some(key) = state.newer_hole(member, &area) else { return false };
        state.forget_overwritten(&key, &area);
        true
    }
}

/// Makes a block a hole.
pub(super) fn hole_of(chunk: ChunkId, block: u32) -> StorageOp {
    let offset = u64::from(block) * BLOCK_BYTES;
    StorageOp::Punch(msg::Range { chunk: chunk.into(), offset, len: BLOCK_BYTES })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::{Reign, Unsettled, View};
    use std::time::Duration;

    const MEMBER: TargetId = TargetId(3);

    fn chunk() -> ChunkId {
        ChunkId { volume: 1.into(), ino: 2.into(), index: 5.into() }
    }

    fn punch(block: u64, count: u64) -> StorageOp {
        let (offset, len) = (block * BLOCK_BYTES, count * BLOCK_BYTES);
        StorageOp::Punch(msg::Range { chunk: chunk().into(), offset, len })
    }

    fn truncate(last_chunk_len: u64) -> StorageOp {
        let cut = msg::Truncate {
            volume: 1,
            ino: 2,
            from_index: 6,
            last_chunk_len: Some(last_chunk_len),
            to_index: None,
        };
        StorageOp::Truncate(cut)
    }

    fn write(block: u32) -> StorageOp {
        let offset = u64::from(block) * BLOCK_BYTES;
        let (chunk, crc) = (chunk().into(), 0);
        StorageOp::Write(msg::Write { chunk, offset, crc, durable: false })
    }

    /// One who has these changes, by reign and number.
    fn with(changes: &[((u64, u64), StorageOp, Stage)]) -> State {
        let mut state = State::default();
        for (key, op, stage) in changes {
            let entry = Unsettled {
                area: Area::checked(op, BLOCK_BYTES).unwrap(),
                hole: Area::of_hole(op),
                stage: *stage,
                damaged: None,
                attempt: None,
                epoch: 1,
                came: Duration::ZERO,
            };
            state.unsettled.insert(*key, entry);
        }
        state
    }

    /// Whether the third block is a hole at a new primary that cannot read it, in the reign of this name.
    fn is_hole(mut primary: State, member: &State, since: u64) -> bool {
        let mut reign = Reign::new(View { epoch: since, ..View::default() });
        reign.holes = member.holes().iter().map(|told| Hole::of(MEMBER, told)).collect();
        primary.reign = Some(reign);
        assert_eq!(primary.newer_hole(TargetId(4), &Area::of_block(chunk(), 2)), None);
        primary.newer_hole(MEMBER, &Area::of_block(chunk(), 2)).is_some()
    }

    #[test]
    fn a_hole_is_one_only_if_it_is_made_and_newer_than_what_the_primary_has() {
        use Stage::{Applied, Begun, Failed};
        let hole = |stage| with(&[((1, 5), punch(1, 2), stage)]);
        assert!(is_hole(State::default(), &hole(Applied), 2));
        assert!(!is_hole(State::default(), &hole(Begun), 2));
        assert!(!is_hole(State::default(), &hole(Failed), 2));
        assert!(!is_hole(State::default(), &hole(Applied), 1), "it was sent by this reign itself");
        let older = with(&[((1, 4), write(2), Applied), ((1, 9), write(7), Applied)]);
        assert!(is_hole(older, &hole(Applied), 2));
        let own = with(&[((1, 5), punch(1, 2), Failed)]);
        assert!(is_hole(own, &hole(Applied), 2), "damage was in its way");
        let newer = with(&[((1, 6), write(2), Applied)]);
        assert!(!is_hole(newer, &hole(Applied), 2), "the member has never got that");
        let settled = State { settled: (1, 6), ..State::default() };
        assert!(!is_hole(settled, &hole(Applied), 2), "the primary has it, too");
        assert!(!is_hole(State::default(), &with(&[((1, 5), write(2), Applied)]), 2));
    }

    #[test]
    fn a_cut_makes_holes_of_whole_blocks_behind_it_alone() {
        let is_cut = |len| {
            let member = with(&[((1, 5), truncate(len), Stage::Applied)]);
            is_hole(State::default(), &member, 2)
        };
        assert!(is_cut(0) && is_cut(2 * BLOCK_BYTES));
        assert!(!is_cut(2 * BLOCK_BYTES + 1) && !is_cut(4 * BLOCK_BYTES));
        let part =
            msg::Truncate { volume: 1, ino: 2, to_index: Some(9), ..msg::Truncate::default() };
        let part = with(&[((1, 5), StorageOp::Truncate(part), Stage::Applied)]);
        assert!(is_hole(State::default(), &part, 2), "a part of a cut is one, too");
        let part = with(&[((1, 5), punch(3, 1), Stage::Applied)]);
        assert!(!is_hole(State::default(), &part, 2));
    }
}
