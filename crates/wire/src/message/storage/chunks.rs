//! Which chunks of a file there are, page by page: a file has more than a message holds.

use prost::Message;
use std::ops::RangeInclusive;
use strake_types::Result;

/// See [`StorageOp::Chunks`](super::StorageOp::Chunks).
#[derive(Clone, Copy, PartialEq, Message)]
pub struct ChunksOf {
    /// Volume.
    #[prost(uint32, tag = "1")]
    pub volume: u32,
    /// Inode.
    #[prost(uint64, tag = "2")]
    pub ino: u64,
    /// The first index that is asked for.
    #[prost(uint64, tag = "3")]
    pub from: u64,
    /// Most chunks of the answer; 0: as many as the server likes.
    #[prost(uint32, tag = "4")]
    pub max: u32,
}

/// See [`StorageAnswer::Chunks`](super::StorageAnswer::Chunks).
#[derive(Clone, PartialEq, Message)]
pub struct ChunkList {
    /// Indices, ascending.
    #[prost(uint64, repeated, tag = "1")]
    pub indices: Vec<u64>,
    /// End of the last stored byte in each.
    #[prost(uint64, repeated, tag = "2")]
    pub lens: Vec<u64>,
    /// Bytes that each occupies.
    #[prost(uint64, repeated, tag = "3")]
    pub occupied: Vec<u64>,
    /// The index to go on with; absent: there are no more.
    #[prost(uint64, optional, tag = "4")]
    pub next: Option<u64>,
}

impl ChunkList {
    /// The chunks of a file with these indices, page by page, as `ask` gets them.
    ///
    /// # Errors
    /// The first one of `ask`.
    pub async fn within(
        volume: u32,
        ino: u64,
        indices: RangeInclusive<u64>,
        mut ask: impl AsyncFnMut(ChunksOf) -> Result<Self>,
    ) -> Result<Self> {
        let (mut all, mut next) = (Self::default(), Some(*indices.start()));
        while let Some(from) = next.filter(|from| indices.contains(from)) {
            let page = ask(ChunksOf { volume, ino, from, max: 0 }).await?;
            all.indices.extend(page.indices);
            all.lens.extend(page.lens);
            all.occupied.extend(page.occupied);
            // A page that leads back would never end.
            next = page.next.filter(|next| *next > from);
        }
        let count = all.indices.partition_point(|index| index <= indices.end());
        all.indices.truncate(count);
        all.lens.truncate(count);
        all.occupied.truncate(count);
        Ok(all)
    }

    /// All of them.
    ///
    /// # Errors
    /// The first one of `ask`.
    pub async fn all(
        volume: u32,
        ino: u64,
        ask: impl AsyncFnMut(ChunksOf) -> Result<Self>,
    ) -> Result<Self> {
        Self::within(volume, ino, 0..=u64::MAX, ask).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    /// What asks a file for pages of two, of these chunks.
    fn asked(all: &[u64], indices: RangeInclusive<u64>) -> (Vec<u64>, u32) {
        let mut asked = 0;
        let list = ChunkList::within(1, 2, indices, async |of| {
            asked += 1;
            let page = all.iter().copied().filter(|index| *index >= of.from).take(2);
            let indices: Vec<u64> = page.collect();
            let next = (indices.len() == 2).then(|| indices[1] + 1);
            Ok(ChunkList { lens: indices.clone(), occupied: indices.clone(), indices, next })
        });
        let list = list.now_or_never().expect("nothing waits").expect("nothing fails");
        assert_eq!((&list.lens, &list.occupied), (&list.indices, &list.indices));
        (list.indices, asked)
    }

    #[test]
    fn pages_are_asked_for_until_all_is_known_that_is_wanted() {
        let all = [3, 4, 7, 9, 12];
        assert_eq!(asked(&all, 0..=u64::MAX), (all.to_vec(), 3));
        assert_eq!(asked(&all, 4..=7), (vec![4, 7], 1));
        assert_eq!(asked(&all, 4..=8), (vec![4, 7], 2));
        assert_eq!(asked(&all, 13..=20), (vec![], 1));
        assert_eq!(asked(&all[..4], 0..=u64::MAX), (all[..4].to_vec(), 3));
    }

    #[test]
    fn a_page_that_leads_back_is_the_last_one() {
        let list = ChunkList::all(1, 2, async |of| {
            Ok(ChunkList { indices: vec![of.from], next: Some(of.from), ..ChunkList::default() })
        });
        let list = list.now_or_never().expect("nothing waits").expect("nothing fails");
        assert_eq!(list.indices, [0]);
    }
}
