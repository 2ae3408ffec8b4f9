//! Which chunks of a file there are, page by page: a file has more than a message holds.

use prost::Message;
use std::ops::RangeInclusive;

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
    /// Bytes that are reserved in each and hold nothing; none from earlier releases.
    #[prost(uint64, repeated, tag = "5")]
    pub reserved: Vec<u64>,
}

/// The chunks of a file that are asked for page by page:
/// `while let Some(of) = pages.wanted() { pages.add(ask(of).await?); }`.
#[derive(Debug)]
pub struct ChunkPages {
    volume: u32,
    ino: u64,
    indices: RangeInclusive<u64>,
    next: Option<u64>,
    list: ChunkList,
}

impl ChunkPages {
    /// Of this file, the chunks with these indices.
    pub fn of(volume: u32, ino: u64, indices: RangeInclusive<u64>) -> Self {
        let next = Some(*indices.start());
        Self { volume, ino, indices, next, list: ChunkList::default() }
    }

    /// The next question; `None`: all is known.
    pub fn wanted(&self) -> Option<ChunksOf> {
        let from = self.next.filter(|next| self.indices.contains(next))?;
        Some(ChunksOf { volume: self.volume, ino: self.ino, from, max: 0 })
    }

    /// Adds the answer to it.
    pub fn add(&mut self, page: ChunkList) {
        self.list.indices.extend(page.indices);
        self.list.lens.extend(page.lens);
        self.list.occupied.extend(page.occupied);
        self.list.reserved.extend(page.reserved);
        self.list.reserved.resize(self.list.indices.len(), 0);
        // A page that leads back would never end.
        self.next = page.next.filter(|next| self.next < Some(*next));
    }

    /// What was found.
    pub fn found(self) -> ChunkList {
        let mut list = self.list;
        let count = list.indices.partition_point(|index| index <= self.indices.end());
        list.indices.truncate(count);
        list.lens.truncate(count);
        list.occupied.truncate(count);
        list.reserved.truncate(count);
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What asks a file for pages of two, of these chunks; and how often.
    fn asked(all: &[u64], indices: RangeInclusive<u64>) -> (Vec<u64>, u32) {
        let (mut pages, mut asked) = (ChunkPages::of(1, 2, indices), 0);
        while let Some(of) = pages.wanted() {
            asked += 1;
            let page = all.iter().copied().filter(|index| *index >= of.from).take(2);
            let indices: Vec<u64> = page.collect();
            let next = (indices.len() == 2).then(|| indices[1] + 1);
            pages.add(ChunkList {
                lens: indices.clone(),
                occupied: indices.clone(),
                // A page of an earlier release does not say it.
                reserved: if asked == 2 { Vec::new() } else { indices.clone() },
                indices,
                next,
            });
        }
        let list = pages.found();
        assert_eq!(list.reserved.len(), list.indices.len());
        assert!(list.reserved.iter().zip(&list.indices).all(|(r, index)| [0, *index].contains(r)));
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
        let mut pages = ChunkPages::of(1, 2, 0..=u64::MAX);
        pages.add(ChunkList { indices: vec![0], next: Some(0), ..ChunkList::default() });
        assert_eq!(pages.wanted(), None);
    }
}
