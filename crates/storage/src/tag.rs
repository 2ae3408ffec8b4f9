//! How chunks of different groups are kept apart on one target: a chunk's index carries its group.
//!
//! ```text
//! index in the store = tag << 40 | index in the file
//! ```
//!
//! The tag of group `g` on target `t` is 0 where `g = t - 1`, the group of one copy that was made when
//! `t` joined if none had left by then, and `g + 1` elsewhere. `docs/FORMATS.md` has the reason.

use std::ops::RangeInclusive;
use strake_engine::chunk::ChunkError;
use strake_types::limits::FILE_CHUNKS_MAX;
use strake_types::{
    ChunkId, ChunkIndex, Error, ErrorKind, GroupId, Ino, Result, TargetId, VolumeId,
};

/// Bits of an index that count within the file.
const INDEX_BITS: u32 = FILE_CHUNKS_MAX.trailing_zeros();

/// What marks the chunks of a group on a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u64);

impl Tag {
    /// The tag of a group on a target.
    pub fn of(target: TargetId, group: GroupId) -> Self {
        let native = target.0.checked_sub(1) == Some(group.0);
        Self(if native { 0 } else { u64::from(group.0) + 1 })
    }

    /// The group whose chunks on a target carry the tag of this index.
    pub fn group_at(target: TargetId, index: ChunkIndex) -> GroupId {
        match index.0 >> INDEX_BITS {
            0 => GroupId(target.0.saturating_sub(1)),
            tag => GroupId(tag as u32 - 1),
        }
    }

    /// A chunk as the store knows it.
    pub fn mark(self, chunk: ChunkId) -> Result<ChunkId> {
        if chunk.index.0 >> INDEX_BITS != 0 {
            let detail = format!("{chunk}: a file has at most 2^{INDEX_BITS} chunks");
            return Err(Error::with(ErrorKind::FileTooBig, detail));
        }
        Ok(ChunkId { index: self.mark_index(chunk.index.0), ..chunk })
    }

    fn mark_index(self, index: u64) -> ChunkIndex {
        ChunkIndex(self.0 << INDEX_BITS | index)
    }

    /// The chunks of a file from an index on, as the store knows them.
    pub fn from(self, index: u64) -> RangeInclusive<ChunkIndex> {
        self.between(index, u64::MAX)
    }

    /// The same, up to another one.
    pub fn between(self, first: u64, last: u64) -> RangeInclusive<ChunkIndex> {
        let (first, last) = (first.min(1 << INDEX_BITS), last.min((1 << INDEX_BITS) - 1));
        let tagged = self.0 << INDEX_BITS;
        ChunkIndex(tagged + first)..=ChunkIndex(tagged + last)
    }

    /// True for an index of this group in the store.
    pub fn has(self, index: ChunkIndex) -> bool {
        index.0 >> INDEX_BITS == self.0
    }
}

/// A chunk of the store as its file knows it.
pub(crate) fn plain(chunk: ChunkId) -> ChunkId {
    ChunkId { index: ChunkIndex(chunk.index.0 & ((1 << INDEX_BITS) - 1)), ..chunk }
}

/// The cursor of a store after which a chunk comes next; `None`: its beginning.
pub(crate) fn before(chunk: ChunkId) -> Option<ChunkId> {
    let ChunkId { volume, ino, index } = chunk;
    if let Some(index) = index.0.checked_sub(1) {
        return Some(ChunkId { volume, ino, index: ChunkIndex(index) });
    }
    let index = ChunkIndex(u64::MAX);
    match (ino.0.checked_sub(1), volume.0.checked_sub(1)) {
        (Some(ino), _) => Some(ChunkId { volume, ino: Ino(ino), index }),
        (None, Some(volume)) => {
            Some(ChunkId { volume: VolumeId(volume), ino: Ino(u64::MAX), index })
        }
        (None, None) => None,
    }
}

/// An error of the store, about the chunk as its file knows it.
pub(crate) fn plain_error(error: ChunkError) -> Error {
    match error {
        ChunkError::Corrupt { target, chunk, offset } => {
            ChunkError::Corrupt { target, chunk: plain(chunk), offset }.into()
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_kept_apart_and_the_first_group_of_a_target_has_no_mark() {
        let chunk = ChunkId { volume: VolumeId(1), ino: Ino(2), index: ChunkIndex(7) };
        let native = Tag::of(TargetId(4), GroupId(3));
        assert_eq!(native.mark(chunk).unwrap(), chunk);
        let other = Tag::of(TargetId(4), GroupId::of_class(2, 3));
        for group in [GroupId(3), GroupId(0), GroupId::of_class(2, 3)] {
            let marked = Tag::of(TargetId(4), group).mark(chunk).unwrap();
            assert_eq!(Tag::group_at(TargetId(4), marked.index), group);
        }
        let marked = other.mark(chunk).unwrap();
        assert!(other.has(marked.index) && !native.has(marked.index));
        assert_eq!(plain(marked), chunk);
        assert!(other.from(7).contains(&marked.index) && !other.from(8).contains(&marked.index));
        assert!(!native.from(0).contains(&marked.index));
        let beyond = ChunkId { index: ChunkIndex(1 << 40), ..chunk };
        assert_eq!(native.mark(beyond).unwrap_err().kind, ErrorKind::FileTooBig);
        assert!(native.from(u64::MAX).is_empty());
        assert!(other.between(7, 7).contains(&marked.index) && other.between(8, 7).is_empty());
        assert!(!other.between(0, 6).contains(&marked.index));
    }

    #[test]
    fn the_cursor_before_a_chunk_may_be_in_another_file_or_volume() {
        let chunk = |volume, ino, index| ChunkId {
            volume: VolumeId(volume),
            ino: Ino(ino),
            index: ChunkIndex(index),
        };
        assert_eq!(before(chunk(1, 2, 3)), Some(chunk(1, 2, 2)));
        assert_eq!(before(chunk(1, 2, 0)), Some(chunk(1, 1, u64::MAX)));
        assert_eq!(before(chunk(1, 0, 0)), Some(chunk(0, u64::MAX, u64::MAX)));
        assert_eq!(before(chunk(0, 0, 0)), None);
    }
}
