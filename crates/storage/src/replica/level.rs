//! A change that has failed at the primary, perhaps half-way: what is there of it all copies get.

use super::Replica;
use super::errand::Errand;
use super::failing::{Part, about};
use super::lead::{Numbered, PAUSE_FIRST, PAUSE_MAX};
use super::ranges::Area;
use std::ops::Range;
use strake_engine::chunk::{BlockSums, difference};
use strake_types::limits::CHUNK_BYTES_MAX;
use strake_types::{ChunkId, Result};

impl Replica {
    /// A change has failed, perhaps half-way: whatever our copy is now in its area, all copies become. Waits for
    /// as long as the reign lasts; the caller holds the area.
    pub(super) async fn level(&self, numbered: &Numbered, area: &Area) -> Result<()> {
        let mut pause = PAUSE_FIRST;
        loop {
            let (epoch, members, _) = self.plan(numbered)?;
            let mut level = true;
            for member in members {
                let errand = Errand { reign: numbered.reign, epoch, member };
                let sent = self.common.clock.monotonic();
                let Err(error) = self.make_area_equal(errand, area).await else { continue };
                tracing::debug!("group {}: {error}", self.group);
                match self.required().contains(&member) {
                    true => level = false,
                    // One that is joining may be past these chunks already: it begins anew.
                    false => self.missed(epoch, member, sent, &error).await,
                }
            }
            // Whom we have missed in this epoch may count in the next one.
            if level && self.plan(numbered)?.0 == epoch {
                return Ok(());
            }
            self.look_again(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Makes what may differ of an area equal to ours at a member; the caller holds it, in whole blocks. The rest of its chunks
    /// is left as it is: others may be changing that.
    async fn make_area_equal(&self, errand: Errand, area: &Area) -> Result<()> {
        let chunks = match area.chunks() {
            Some(chunks) => chunks,
            None => self.chunks_anywhere(errand.epoch, &[errand.member], area.file()).await?,
        };
        for chunk in chunks {
            match area.within(chunk).as_slice() {
                [] => {}
                [all] if *all == (0..CHUNK_BYTES_MAX) => {
                    self.equalise(errand, chunk).await?;
                }
                ranges => self.equalise_within(errand, chunk, ranges).await?,
            }
        }
        Ok(())
    }

    /// Makes the blocks that ranges of a chunk touch equal to ours at a member. Its copy may get longer by what is sent, and is
    /// not cut: that would take away what others have written behind since we looked.
    async fn equalise_within(
        &self,
        errand: Errand,
        chunk: ChunkId,
        ranges: &[Range<u64>],
    ) -> Result<()> {
        let own = about(chunk, Part::Sums);
        let ours = self.ask_own_for(errand, own, self.shelf.sums(chunk)).await?;
        let ours = ours.unwrap_or_else(BlockSums::empty);
        let theirs = self.sums_at(errand.member, errand.epoch, chunk).await?;
        let theirs = theirs.unwrap_or_else(BlockSums::empty);
        // No longer than the change would have made it, even if others have made ours longer meanwhile.
        let end = ranges.last().map_or(0, |range| range.end);
        let len = theirs.chunk_len().max(end);
        let difference = difference(&ours.within(ranges, len), &theirs.within(ranges, len));
        self.send_difference(errand, chunk, difference).await.map(drop)
    }
}
