//! In which parts the bytes of a file travel.
//!
//! A part is read whole from a disk before it is sent, received whole before it is written, and forwarded when it has been received in
//! full. Smaller parts keep disks and both directions of links busy sooner, and until later; each costs the processors something. So
//! parts are smaller where something slow is on the way.

use crate::pace::{Paces, TELLING_BYTES_MIN, Way};
use std::sync::Arc;
use std::time::Duration;
use strake_types::GroupId;
use strake_types::layout::Placement;

/// Largest part of a chunk that is fetched at once, and that is sent at once to a group of one copy.
pub(crate) const UNIT_BYTES: u64 = 1 << 20;
/// The same where nobody knows yet how fast the group is.
const FIRST_UNIT_BYTES: u64 = 256 << 10;
/// Least that it shrinks to.
const UNIT_BYTES_MIN: u64 = TELLING_BYTES_MIN;
/// What a part of a group of one copy takes at most, give or take a power of two.
const UNIT_TIME: Duration = Duration::from_millis(8);
/// Bytes under way to a group, in the largest writes: what a primary receives, what it forwards and what is being acknowledged at the
/// same time.
const UNDER_WAY_BYTES: u64 = 4 << 20;
/// Parts under way to a slow group of one copy, beside what fills the way there, and the fewest to any other.
const SLOW_PARTS: u64 = 2;
/// No more is under way than passes in this time: each part waits for all that are before it, and who waits for too long gives up.
const UNDER_WAY_TIME: Duration = Duration::from_secs(4);
/// The largest part that is sent at once to a group of several copies that answers soon.
const COPIED_UNIT_BYTES: u64 = 512 << 10;
/// The same where a link or a disk limits, and the processors have time for more requests.
const SLOW_COPIED_UNIT_BYTES: u64 = 256 << 10;
/// Time of a MiB from which on that is so: 140 MB/s.
const SLOW: Duration = Duration::from_micros(7500);

/// How large the parts of a file are, by how fast its groups are.
#[derive(Clone, Default)]
pub(crate) struct Parts {
    paces: Arc<Paces>,
}

impl Parts {
    pub(crate) fn new(paces: &Arc<Paces>) -> Self {
        Self { paces: Arc::clone(paces) }
    }

    /// Bytes of the largest part that is sent at once to a group.
    pub(crate) fn sent_bytes(&self, group: GroupId) -> u64 {
        sent_bytes(group, self.paces.mib(group, Way::Sent))
    }

    /// How many parts of a file are sent at once to a group. To a slow one few more than it needs: one that takes more of a link
    /// than others would be done early, and leave them with more than their disks write in the time that is left.
    pub(crate) fn sent_together(&self, group: GroupId) -> u64 {
        let mib = self.paces.mib(group, Way::Sent);
        let bytes = sent_bytes(group, mib);
        match mib {
            None => UNDER_WAY_BYTES / bytes,
            Some(_) if group.copies() == 1 && bytes < UNIT_BYTES => {
                let filling = self.paces.filling_bytes(group);
                (SLOW_PARTS + filling.div_ceil(bytes)).min(UNDER_WAY_BYTES / bytes)
            }
            Some(mib) => {
                let under_way = UNDER_WAY_BYTES.min(passing_bytes(UNDER_WAY_TIME, mib));
                (under_way / bytes).max(SLOW_PARTS)
            }
        }
    }

    /// Bounds of what is sent at once around a byte.
    pub(crate) fn sent_around(&self, placement: &Placement, at: u64) -> (u64, u64) {
        part_of_chunk(placement, at, |group| self.sent_bytes(group))
    }

    /// Bounds of what is fetched at once around a byte.
    pub(crate) fn fetched_around(&self, placement: &Placement, at: u64) -> (u64, u64) {
        part_of_chunk(placement, at, |group| unit_bytes(self.paces.mib(group, Way::Fetched)))
    }
}

fn sent_bytes(group: GroupId, mib: Option<Duration>) -> u64 {
    if group.copies() == 1 {
        unit_bytes(mib)
    } else if mib.is_some_and(|mib| mib < SLOW) {
        COPIED_UNIT_BYTES
    } else {
        SLOW_COPIED_UNIT_BYTES
    }
}

fn unit_bytes(mib: Option<Duration>) -> u64 {
    let Some(mib) = mib else { return FIRST_UNIT_BYTES };
    passing_bytes(UNIT_TIME, mib).clamp(UNIT_BYTES_MIN, UNIT_BYTES).next_power_of_two()
}

/// How many bytes pass in a time, where a MiB takes so long.
fn passing_bytes(time: Duration, mib: Duration) -> u64 {
    // What a cast makes of the largest numbers is still large.
    (time.as_secs_f64() / mib.as_secs_f64() * (1 << 20) as f64) as u64
}

fn part_of_chunk(placement: &Placement, at: u64, bytes_of: impl Fn(GroupId) -> u64) -> (u64, u64) {
    let layout = placement.layout();
    let index = layout.chunk_at(at);
    let (start, bytes) = layout.chunk_bounds(index);
    let part_bytes = bytes_of(placement.group_of(index));
    let from = start + (at - start) / part_bytes * part_bytes;
    (from, (from + part_bytes).min(start + bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_types::layout::{GroupTables, LayoutTemplate};

    const AT: u64 = (3 << 20) + 5;
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn placement(copies: u32) -> Placement {
        let template = LayoutTemplate { copies: Some(copies), ..LayoutTemplate::default() };
        let tables = GroupTables::of([GroupId::of_class(copies, 0)]);
        Placement::new(template.resolve(42, &tables))
    }

    /// Answers, each a MiB that was alone under way for so long.
    fn answer(parts: &Parts, copies: u32, way: Way, mib: Duration) {
        for _ in 0..64 {
            let group = GroupId::of_class(copies, 0);
            parts.paces.begin(group, way, MIB, Duration::ZERO).answered(mib);
        }
    }

    #[test]
    fn parts_are_as_large_as_a_disk_or_a_link_carries_in_a_moment() {
        let parts = Parts::default();
        let placement = placement(1);
        let sent = || parts.sent_around(&placement, AT);
        let fetched = || parts.fetched_around(&placement, AT);
        let bounds = |bytes: u64| (3 * MIB, 3 * MIB + bytes);
        assert_eq!((sent(), fetched()), (bounds(256 * KIB), bounds(256 * KIB)));
        // 2.83, 12.3, 125 and 2000 MB/s.
        for (mib_us, bytes) in [(370_000, 64), (85_000, 128), (8_400, 1024), (500, 1024)] {
            answer(&parts, 1, Way::Fetched, Duration::from_micros(mib_us));
            assert_eq!((sent(), fetched()), (bounds(256 * KIB), bounds(bytes * KIB)));
        }
        answer(&parts, 1, Way::Sent, Duration::from_millis(85));
        assert_eq!((sent(), fetched()), (bounds(128 * KIB), bounds(1024 * KIB)));
        assert_eq!(parts.sent_around(&placement, AT + 128 * KIB).0, 3 * MIB + 128 * KIB);
    }

    #[test]
    fn what_is_forwarded_is_sent_in_smaller_parts_and_in_smaller_ones_still_where_answers_are_slow()
    {
        let parts = Parts::default();
        let placement = placement(2);
        let bounds = |bytes: u64| (3 * MIB, 3 * MIB + bytes);
        assert_eq!(parts.sent_around(&placement, AT), bounds(256 * KIB));
        answer(&parts, 2, Way::Sent, Duration::from_millis(1));
        assert_eq!(parts.sent_around(&placement, AT), bounds(512 * KIB));
        answer(&parts, 2, Way::Sent, Duration::from_millis(88));
        assert_eq!(parts.sent_around(&placement, AT), bounds(256 * KIB));
    }

    #[test]
    fn less_is_under_way_to_what_is_slow_unless_the_way_is_long() {
        let (one, two) = (GroupId::of_class(1, 0), GroupId::of_class(2, 0));
        let parts = Parts::default();
        assert_eq!((parts.sent_together(one), parts.sent_together(two)), (16, 16));
        answer(&parts, 1, Way::Sent, Duration::from_millis(1));
        assert_eq!(parts.sent_together(one), 4);
        // 6.83 MB/s: what comes together waits, so one MiB alone says how long the way is.
        let parts = Parts::default();
        parts
            .paces
            .begin(one, Way::Sent, 64 * KIB, Duration::ZERO)
            .answered(Duration::from_millis(10));
        assert_eq!(parts.sent_together(one), 3);
        // As many bytes a second, each 100 ms after it was sent.
        let parts = Parts::default();
        let many: Vec<_> =
            (0..16).map(|_| parts.paces.begin(one, Way::Sent, 64 * KIB, Duration::ZERO)).collect();
        many.into_iter().for_each(|sent| sent.answered(Duration::from_millis(100)));
        assert!(parts.sent_together(one) > 4, "{}", parts.sent_together(one));
    }

    /// Sixteen groups behind a link of 3.4 MB/s had 20 s of it before each part, and all that was sent later was late.
    #[test]
    fn no_more_is_under_way_to_copies_than_passes_in_a_few_seconds() {
        let two = GroupId::of_class(2, 0);
        let parts = Parts::default();
        // 1.3 MB/s: as many as where links are fast.
        answer(&parts, 2, Way::Sent, Duration::from_millis(800));
        assert_eq!(parts.sent_together(two), 16);
        // 262 kB/s, and 10.
        answer(&parts, 2, Way::Sent, Duration::from_secs(4));
        assert_eq!(parts.sent_together(two), 4);
        answer(&parts, 2, Way::Sent, Duration::from_secs(100));
        assert_eq!(parts.sent_together(two), 2);
        // One answer of a server that stood still changes nothing.
        let parts = Parts::default();
        answer(&parts, 2, Way::Sent, Duration::from_millis(88));
        let began = parts.paces.begin(two, Way::Sent, MIB, Duration::ZERO);
        began.answered(Duration::from_secs(60));
        assert_eq!(parts.sent_together(two), 16);
    }

    #[test]
    fn no_part_crosses_a_chunk() {
        let template = LayoutTemplate { chunk_size: Some(64 * KIB), ..LayoutTemplate::default() };
        let tables = GroupTables::of([GroupId::of_class(1, 0)]);
        let placement = Placement::new(template.resolve(42, &tables));
        let parts = Parts::default();
        answer(&parts, 1, Way::Fetched, Duration::from_millis(1));
        assert_eq!(parts.fetched_around(&placement, AT), (3 * MIB, 3 * MIB + 64 * KIB));
    }
}
