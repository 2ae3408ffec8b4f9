//! What copies of chunks are compared by, page by page.

use strake_types::ChunkId;
use strake_wire::message::storage as msg;

/// What a copy of a chunk is compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digest {
    /// Of its length and bytes.
    contents: u64,
    /// Of what is reserved in it; `None`: a member of an earlier release does not say.
    reserved: Option<u64>,
}

impl Digest {
    /// True if copies have the same bytes.
    pub fn has_contents_of(self, other: Self) -> bool {
        self.contents == other.contents
    }

    /// True if they also have room reserved for the same, as far as they say.
    pub fn agrees_with(self, other: Self) -> bool {
        let unknown = self.reserved.is_none() || other.reserved.is_none();
        self.has_contents_of(other) && (unknown || self.reserved == other.reserved)
    }
}

/// A chunk on a page.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub chunk: ChunkId,
    pub digest: Digest,
    pub len: u64,
}

/// The chunks on a page. Members of earlier releases say less of each.
pub(super) fn found_on(page: msg::DigestPage) -> impl Iterator<Item = Found> {
    let chunks = page.chunks.into_iter().map(ChunkId::from).zip(page.digests);
    let lens = page.lens.into_iter().chain(std::iter::repeat(0));
    let reserved = page.reserved.into_iter().map(Some).chain(std::iter::repeat(None));
    chunks.zip(lens).zip(reserved).map(|(((chunk, contents), len), reserved)| {
        let digest = Digest { contents, reserved };
        Found { chunk, digest, len }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(contents: u64, reserved: Option<u64>) -> Digest {
        Digest { contents, reserved }
    }

    #[test]
    fn what_a_member_does_not_say_of_its_reservations_is_no_difference() {
        let ours = digest(1, Some(7));
        for theirs in [digest(1, Some(7)), digest(1, None)] {
            assert!(ours.agrees_with(theirs) && theirs.agrees_with(ours));
        }
        for theirs in [digest(1, Some(0)), digest(2, Some(7)), digest(2, None)] {
            assert!(!ours.agrees_with(theirs) && !theirs.agrees_with(ours));
        }
        assert!(ours.has_contents_of(digest(1, Some(0))));
    }

    #[test]
    fn a_page_of_an_earlier_release_says_nothing_of_lengths_and_reservations() {
        let chunk = msg::Chunk { volume: 1, ino: 2, index: 3 };
        let page = msg::DigestPage { chunks: vec![chunk], digests: vec![9], ..Default::default() };
        let found: Vec<Found> = found_on(page).collect();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].chunk, found[0].len), (chunk.into(), 0));
        assert_eq!(found[0].digest, digest(9, None));
    }
}
