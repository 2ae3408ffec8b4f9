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
/// Parts under way to a slow group of one copy, beside what fills the way there.
const SLOW_PARTS: u64 = 2;
/// What is left of a file for such a group is sent in so many parts at least.
const LAST_PARTS: u64 = 8;
/// But in none that is smaller than others by more than this.
const LAST_PART: u64 = 4;
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
    fn sent_bytes_max(&self, group: GroupId) -> u64 {
        let mib = self.paces.mib(group, Way::Sent);
        if group.copies() == 1 {
            unit_bytes(mib)
        } else if mib.is_some_and(|mib| mib < SLOW) {
            COPIED_UNIT_BYTES
        } else {
            SLOW_COPIED_UNIT_BYTES
        }
    }

    /// Bytes of its largest parts, if a group is slow and has one copy.
    fn slow_bytes_max(&self, group: GroupId) -> Option<u64> {
        let mib = self.paces.mib(group, Way::Sent).filter(|_| group.copies() == 1);
        mib.map(|mib| unit_bytes(Some(mib))).filter(|&bytes| bytes < UNIT_BYTES)
    }

    /// How many parts of a file are sent at once to a group. To a slow one few more than it needs: one that takes more of a link
    /// than others would be done early, and leave them with more than their disks write in the time that is left.
    pub(crate) fn sent_together(&self, group: GroupId) -> u64 {
        match self.slow_bytes_max(group) {
            Some(bytes) => {
                let filling = self.paces.filling_bytes(group, Way::Sent);
                (SLOW_PARTS + filling.div_ceil(bytes)).min(UNDER_WAY_BYTES / bytes)
            }
            None => UNDER_WAY_BYTES / self.sent_bytes_max(group),
        }
    }

    /// Bounds of the piece around a byte in which it is kept until it is sent: with others as a part.
    pub(crate) fn kept_around(&self, placement: &Placement, at: u64) -> (u64, u64) {
        part_around(placement, at, self.kept_bytes(group_at(placement, at)))
    }

    fn kept_bytes(&self, group: GroupId) -> u64 {
        self.slow_bytes_max(group)
            .map_or_else(|| self.sent_bytes_max(group), |most| most / LAST_PART)
    }

    /// Bytes of the largest part that is sent next to a group, where so many `pieces` are ready to be sent to it.
    ///
    /// A link has nothing to do while a slow disk writes the last part. And of several groups that share a link one gets ahead of
    /// others by what is under way to it; then its disk is done while theirs are not. So parts become smaller to the end.
    pub(crate) fn sent_bytes(&self, group: GroupId, pieces: usize) -> u64 {
        let Some(most) = self.slow_bytes_max(group) else { return self.sent_bytes_max(group) };
        let least = most / LAST_PART;
        let left = least.saturating_mul(pieces as u64);
        1 << (left / LAST_PARTS).clamp(least, most).ilog2()
    }

    /// Bounds of what is fetched at once around a byte.
    pub(crate) fn fetched_around(&self, placement: &Placement, at: u64) -> (u64, u64) {
        let mib = self.paces.mib(group_at(placement, at), Way::Fetched);
        part_around(placement, at, unit_bytes(mib))
    }
}

fn unit_bytes(mib: Option<Duration>) -> u64 {
    let Some(mib) = mib else { return FIRST_UNIT_BYTES };
    let bytes = UNIT_TIME.as_secs_f64() / mib.as_secs_f64() * (1 << 20) as f64;
    // What a cast makes of the largest numbers is still large.
    (bytes as u64).clamp(UNIT_BYTES_MIN, UNIT_BYTES).next_power_of_two()
}

fn group_at(placement: &Placement, at: u64) -> GroupId {
    placement.group_of(placement.layout().chunk_at(at))
}

/// Bounds of the part of so many bytes around a byte.
pub(crate) fn part_around(placement: &Placement, at: u64, part_bytes: u64) -> (u64, u64) {
    let layout = placement.layout();
    let (start, bytes) = layout.chunk_bounds(layout.chunk_at(at));
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
        let sent = || parts.kept_around(&placement, AT);
        let fetched = || parts.fetched_around(&placement, AT);
        let bounds = |bytes: u64| (3 * MIB, 3 * MIB + bytes);
        assert_eq!((sent(), fetched()), (bounds(256 * KIB), bounds(256 * KIB)));
        // 2.83, 12.3, 125 and 2000 MB/s.
        for (mib_us, bytes) in [(370_000, 64), (85_000, 128), (8_400, 1024), (500, 1024)] {
            answer(&parts, 1, Way::Fetched, Duration::from_micros(mib_us));
            assert_eq!((sent(), fetched()), (bounds(256 * KIB), bounds(bytes * KIB)));
        }
        answer(&parts, 1, Way::Sent, Duration::from_millis(85));
        assert_eq!((sent(), fetched()), (bounds(32 * KIB), bounds(1024 * KIB)));
        assert_eq!(parts.kept_around(&placement, AT + 32 * KIB).0, 3 * MIB + 32 * KIB);
    }

    #[test]
    fn what_is_forwarded_is_sent_in_smaller_parts_and_in_smaller_ones_still_where_answers_are_slow()
    {
        let parts = Parts::default();
        let placement = placement(2);
        let bounds = |bytes: u64| (3 * MIB, 3 * MIB + bytes);
        assert_eq!(parts.kept_around(&placement, AT), bounds(256 * KIB));
        answer(&parts, 2, Way::Sent, Duration::from_millis(1));
        assert_eq!(parts.kept_around(&placement, AT), bounds(512 * KIB));
        answer(&parts, 2, Way::Sent, Duration::from_millis(88));
        assert_eq!(parts.kept_around(&placement, AT), bounds(256 * KIB));
    }

    #[test]
    fn the_last_parts_to_a_slow_group_are_small() {
        let parts = Parts::default();
        let group = GroupId::of_class(1, 0);
        let next = |pieces| parts.sent_bytes(group, pieces) / KIB;
        assert_eq!(next(1), 256);
        // 6.83 MB/s.
        answer(&parts, 1, Way::Sent, Duration::from_millis(153));
        assert_eq!([64, 32, 28, 16, 15, 1].map(next), [64, 64, 32, 32, 16, 16]);
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
