//! In which parts the bytes of a file travel.

use std::time::Duration;
use strake_types::layout::Placement;

/// Largest part of a chunk that is fetched at once, and that is sent at once to a group of one copy.
pub(crate) const UNIT_BYTES: u64 = 1 << 20;
/// The same of what is sent to a group of several copies that answers soon. Its primary forwards what it
/// has received in full: smaller parts keep both directions of its link busy sooner, and until later.
const COPIED_UNIT_BYTES: u64 = 512 << 10;
/// The same where a link or a disk limits, and the processors have time for more requests.
const SLOW_UNIT_BYTES: u64 = 256 << 10;
/// Mean time of an answer from which on that is so. With 4 MiB under way: 140 MB/s.
const SLOW: Duration = Duration::from_millis(30);
/// What one answer counts of the mean: a part in so many.
const SHARE: u32 = 8;

/// How large the parts are in which a file is sent, by how long the last ones took.
#[derive(Default)]
pub(crate) struct SentParts {
    /// Of the answers to large parts; none: nothing was sent yet.
    mean: Option<Duration>,
}

impl SentParts {
    /// Bytes of the largest part.
    pub(crate) fn bytes(&self, placement: &Placement) -> u64 {
        if placement.layout().copies() == 1 {
            UNIT_BYTES
        } else if self.mean.is_some_and(|mean| mean < SLOW) {
            COPIED_UNIT_BYTES
        } else {
            SLOW_UNIT_BYTES
        }
    }

    /// Bounds of the part around a byte.
    pub(crate) fn around(&self, placement: &Placement, at: u64) -> (u64, u64) {
        part_of_chunk(placement, at, self.bytes(placement))
    }

    /// So many bytes were answered after this time.
    pub(crate) fn note(&mut self, bytes: u64, took: Duration) {
        if bytes >= SLOW_UNIT_BYTES {
            let mean = self.mean.unwrap_or(took);
            self.mean = Some(mean - mean / SHARE + took / SHARE);
        }
    }
}

/// Bounds of what is fetched at once around a byte.
pub(crate) fn fetched_around(placement: &Placement, at: u64) -> (u64, u64) {
    part_of_chunk(placement, at, UNIT_BYTES)
}

fn part_of_chunk(placement: &Placement, at: u64, part_bytes: u64) -> (u64, u64) {
    let layout = placement.layout();
    let (start, bytes) = layout.chunk_bounds(layout.chunk_at(at));
    let from = start + (at - start) / part_bytes * part_bytes;
    (from, (from + part_bytes).min(start + bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_types::GroupId;
    use strake_types::layout::{GroupTables, LayoutTemplate};

    const AT: u64 = (3 << 20) + 5;

    fn placement(copies: u32) -> Placement {
        let template = LayoutTemplate { copies: Some(copies), ..LayoutTemplate::default() };
        let tables = GroupTables::of([GroupId::of_class(copies, 0)]);
        Placement::new(template.resolve(42, &tables))
    }

    #[test]
    fn what_is_forwarded_is_sent_in_smaller_parts_and_in_smaller_ones_still_where_answers_are_slow()
    {
        for (copies, first, soon, late) in
            [(1, 1 << 20, 1 << 20, 1 << 20), (2, 256 << 10, 512 << 10, 256 << 10)]
        {
            let placement = placement(copies);
            let bounds = |bytes: u64| (3 << 20, (3 << 20) + bytes);
            let mut parts = SentParts::default();
            assert_eq!(parts.around(&placement, AT), bounds(first));
            parts.note(first, Duration::from_millis(4));
            assert_eq!(parts.around(&placement, AT), bounds(soon));
            // A small write says nothing of how fast large ones are.
            parts.note(4 << 10, Duration::from_secs(1));
            assert_eq!(parts.around(&placement, AT), bounds(soon));
            (0..8).for_each(|_| parts.note(soon, Duration::from_millis(350)));
            assert_eq!(parts.around(&placement, AT), bounds(late));
            assert_eq!(fetched_around(&placement, AT), bounds(1 << 20));
        }
    }
}
