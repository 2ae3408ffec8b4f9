//! Finding data and holes.

use super::open::OpenFile;
use super::state::FileState;
use crate::api::SeekTo;
use crate::metrics::Op;
use crate::ops::unexpected;
use crate::volume::Volume;
use futures::future::try_join_all;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use strake_types::layout::Placement;
use strake_types::{ChunkIndex, Error, ErrorKind, GroupId, Piece, Result};
use strake_wire::message::storage::{
    ChunkList, ChunkPages, ChunksOf, ExtentList, StorageAnswer, StorageOp,
};

/// Chunks asked for at once, at most; the first step asks for one, each further for four times more.
const STEP_MAX: usize = 64;
/// Chunks asked for where the next one is looked for: some may have been deleted.
const NEXT_MAX: u32 = 256;

impl Volume {
    /// The next byte of data, or of a hole, from an offset on. The end of the file is a hole;
    /// [`ErrorKind::NoSuchAddress`] at and after it, and where no data follows.
    pub async fn seek(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        offset: u64,
        to: SeekTo,
    ) -> Result<u64> {
        let _timer = self.count(Op::Seek);
        loop {
            let (life, began, mut from) = (file.state.life(), self.now(), None);
            let found = self.seek_once(&file.state, (offset, to), &mut from).await;
            // Once in many minutes at most: so long nobody moves it again.
            if !self.has_moved(life, from.as_ref(), began).await? {
                return found;
            }
        }
    }

    /// `from` is where it is looked for, as far as targets are asked.
    async fn seek_once(
        self: &Arc<Self>,
        state: &Arc<FileState>,
        (offset, to): (u64, SeekTo),
        from: &mut Option<Arc<Placement>>,
    ) -> Result<u64> {
        self.refresh_attr(state, &(0..0)).await?;
        // Looked at before all is sent: it may be moved out of the inode meanwhile, unsent.
        let (length, placement) = {
            let core = state.core();
            if offset >= core.length {
                return Err(Error::new(ErrorKind::NoSuchAddress));
            }
            if core.is_inline() {
                return Ok(if to == SeekTo::Data { offset } else { core.length });
            }
            (core.length, core.placement()?)
        };
        let placement = &*from.insert(placement);
        self.drain(state).await;
        let found = match to {
            SeekTo::Data => self.seek_data(state, placement, offset, length).await?,
            SeekTo::Hole => Some(self.seek_hole(state, placement, offset, length).await?),
        };
        found.ok_or(Error::new(ErrorKind::NoSuchAddress))
    }

    async fn seek_data(
        &self,
        file: &FileState,
        placement: &Placement,
        offset: u64,
        length: u64,
    ) -> Result<Option<u64>> {
        let (mut at, mut step) = (offset, 1);
        while at < length {
            let pieces: Vec<Piece> = placement.pieces(at, length - at).take(step).collect();
            let found = try_join_all(pieces.iter().map(|&p| self.data_in(file, p))).await?;
            if let Some(&(from, _)) = found.iter().flatten().next() {
                return Ok(Some(from));
            }
            at = pieces.last().map_or(length, |p| p.file_offset + p.len);
            step = (step * 4).min(STEP_MAX);
            if step == STEP_MAX && at < length {
                // A long hole: jump to the next chunk that exists.
                let layout = placement.layout();
                match self.next_chunk(file, placement, layout.chunk_at(at)).await? {
                    Some(index) => at = at.max(layout.chunk_bounds(index).0),
                    None => return Ok(None),
                }
            }
        }
        Ok(None)
    }

    async fn seek_hole(
        &self,
        file: &FileState,
        placement: &Placement,
        offset: u64,
        length: u64,
    ) -> Result<u64> {
        let (mut at, mut step) = (offset, 1);
        while at < length {
            let pieces: Vec<Piece> = placement.pieces(at, length - at).take(step).collect();
            let found = try_join_all(pieces.iter().map(|&p| self.data_in(file, p))).await?;
            for (piece, ranges) in pieces.iter().zip(found) {
                for (from, to) in ranges {
                    if from > at {
                        return Ok(at);
                    }
                    at = to;
                }
                if at < piece.file_offset + piece.len {
                    return Ok(at);
                }
            }
            step = (step * 4).min(STEP_MAX);
        }
        Ok(length)
    }

    /// The parts of a piece that hold data, as ranges of the file, in order.
    pub(crate) async fn data_in(&self, file: &FileState, piece: Piece) -> Result<Vec<(u64, u64)>> {
        let list = self.extents(file, piece).await?;
        let in_file = |at: u64| piece.file_offset + (at - piece.chunk_offset);
        let data = within(&piece, &list.starts, &list.lens);
        Ok(data.map(|(from, to)| (in_file(from), in_file(to))).collect())
    }

    /// What of a piece's chunk holds data, and what is reserved.
    pub(crate) async fn extents(&self, file: &FileState, piece: Piece) -> Result<ExtentList> {
        let chunk = self.chunk(file.ino(), piece.index);
        let op = StorageOp::Extents(chunk.into());
        let (answer, _) = self.storage(file, piece.group, false, op).await?;
        let StorageAnswer::Extents(list) = answer else { return Err(unexpected("extents")) };
        Ok(list)
    }

    /// The first chunk of a file that exists, from an index on.
    pub(super) async fn next_chunk(
        &self,
        file: &FileState,
        placement: &Placement,
        from: ChunkIndex,
    ) -> Result<Option<ChunkIndex>> {
        let groups = placement.groups().into_iter();
        let found = groups.map(|group| self.next_chunk_in(file, group, from.0));
        let found = try_join_all(found).await?;
        Ok(found.into_iter().flatten().min().map(ChunkIndex))
    }

    /// The same in a group.
    async fn next_chunk_in(
        &self,
        file: &FileState,
        group: GroupId,
        from: u64,
    ) -> Result<Option<u64>> {
        let (volume, ino) = (self.home(file.ino()).0, file.ino().0);
        let mut next = Some(from);
        while let Some(from) = next {
            let page =
                self.listed(file, group, ChunksOf { volume, ino, from, max: NEXT_MAX }).await?;
            if let Some(index) = page.indices.first() {
                return Ok(Some(*index));
            }
            // They were deleted lately.
            next = page.next.filter(|next| *next > from);
        }
        Ok(None)
    }

    /// The chunks of a file with these indices that exist, ascending.
    pub(crate) async fn existing_chunks(
        &self,
        file: &FileState,
        placement: &Placement,
        indices: RangeInclusive<u64>,
    ) -> Result<BTreeSet<u64>> {
        let (volume, ino) = (self.home(file.ino()).0, file.ino().0);
        let lists = placement.groups().into_iter().map(|group| {
            let mut pages = ChunkPages::of(volume, ino, indices.clone());
            async move {
                while let Some(of) = pages.wanted() {
                    pages.add(self.listed(file, group, of).await?);
                }
                Ok::<_, Error>(pages.found().indices)
            }
        });
        Ok(try_join_all(lists).await?.into_iter().flatten().collect())
    }

    /// A page of the chunks of a file in a group.
    async fn listed(&self, file: &FileState, group: GroupId, of: ChunksOf) -> Result<ChunkList> {
        match self.storage(file, group, false, StorageOp::Chunks(of)).await?.0 {
            StorageAnswer::Chunks(page) => Ok(page),
            _ => Err(unexpected("chunks")),
        }
    }
}

/// How many bytes of a piece hold data or are reserved.
pub(crate) fn taken(list: &ExtentList, piece: &Piece) -> u64 {
    let data = within(piece, &list.starts, &list.lens);
    let reserved = within(piece, &list.reserved_starts, &list.reserved_lens);
    data.chain(reserved).map(|(from, to)| to - from).sum()
}

/// What of some ranges of a chunk lies in a piece of it, as offsets in the chunk.
fn within(piece: &Piece, starts: &[u64], lens: &[u64]) -> impl Iterator<Item = (u64, u64)> {
    let (first, last) = (piece.chunk_offset, piece.chunk_offset + piece.len);
    let clipped =
        move |(&start, &len): (&u64, &u64)| (start.max(first), start.saturating_add(len).min(last));
    starts.iter().zip(lens).map(clipped).filter(|(from, to)| from < to)
}
