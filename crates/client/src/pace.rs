//! How fast the targets of each group answer this mount, in each direction.
//!
//! A disk or a link serves what is under way one after the other. So what was under way when a request was sent, divided by the
//! time until its answer, is the speed of whatever is slowest on its way, however many requests there were.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strake_types::GroupId;

/// A shorter request says nothing of how fast large ones are.
pub(crate) const TELLING_BYTES_MIN: u64 = 64 << 10;
/// What one answer counts of the mean: a part in so many.
const SHARE: u64 = 8;
/// By what part of itself the shortest time that is remembered grows with each answer: it may have been another way.
const FORGETTING: u64 = 256;
/// Slower than this is a server that stood still, unless it is as slow again and again.
const SLOWEST: Duration = Duration::from_secs(1);

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From targets.
    Fetched,
    /// To targets.
    Sent,
}

/// The speeds of all groups that were asked for something.
#[derive(Default)]
pub(crate) struct Paces {
    groups: RwLock<HashMap<GroupId, Arc<[Flow; 2]>>>,
}

/// One direction.
#[derive(Default)]
struct Flow {
    under_way_bytes: AtomicU64,
    /// Mean time of a MiB in nanoseconds; 0: not known.
    mib_ns: AtomicU64,
    /// Shortest time of an answer in nanoseconds; 0: not known.
    least_ns: AtomicU64,
}

/// A request under way.
pub(crate) struct Passage {
    flows: Arc<[Flow; 2]>,
    way: Way,
    bytes: u64,
    /// When it was sent, itself included.
    under_way_bytes: u64,
    began: Duration,
}

impl Paces {
    /// A request of so many bytes is sent at the moment `now`.
    pub(crate) fn begin(&self, group: GroupId, way: Way, bytes: u64, now: Duration) -> Passage {
        let known = self.groups.read().get(&group).cloned();
        let flows = known.unwrap_or_else(|| self.groups.write().entry(group).or_default().clone());
        let before = flows[way as usize].under_way_bytes.fetch_add(bytes, Ordering::Relaxed);
        Passage { flows, way, bytes, under_way_bytes: before + bytes, began: now }
    }

    /// How long a MiB takes; `None`: nothing was answered yet.
    pub(crate) fn mib(&self, group: GroupId, way: Way) -> Option<Duration> {
        let ns = self.groups.read().get(&group)?[way as usize].mib_ns.load(Ordering::Relaxed);
        (ns > 0).then(|| Duration::from_nanos(ns))
    }

    /// How many bytes of changes pass in the time of the quickest answer: so many have to be under way to use all of a disk or a link.
    pub(crate) fn filling_bytes(&self, group: GroupId) -> u64 {
        let groups = self.groups.read();
        let Some(flows) = groups.get(&group) else { return 0 };
        let flow = &flows[Way::Sent as usize];
        let of = |ns: &AtomicU64| ns.load(Ordering::Relaxed) as f64;
        let mibs = of(&flow.least_ns) / of(&flow.mib_ns).max(1.0);
        (mibs * (1 << 20) as f64) as u64
    }
}

impl Passage {
    /// It was answered.
    pub(crate) fn answered(self, now: Duration) {
        if self.bytes < TELLING_BYTES_MIN {
            return;
        }
        let took = now.saturating_sub(self.began);
        let mib = took.as_secs_f64() * (1 << 20) as f64 / self.under_way_bytes as f64;
        let Flow { mib_ns: mean, least_ns, .. } = &self.flows[self.way as usize];
        let took_ns = (took.min(SLOWEST).as_nanos() as u64).max(1);
        let least = match least_ns.load(Ordering::Relaxed) {
            0 => took_ns,
            least => took_ns.min(least + least.div_ceil(FORGETTING)),
        };
        least_ns.store(least, Ordering::Relaxed);
        // Of two answers at the same moment one may count alone.
        let known = mean.load(Ordering::Relaxed);
        let slowest_ns = (SLOWEST.as_nanos() as u64).max(known.saturating_mul(2));
        let ns = ((mib * 1e9) as u64).min(slowest_ns);
        let next = if known == 0 { ns } else { known - known / SHARE + ns / SHARE };
        mean.store(next.max(1), Ordering::Relaxed);
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        let under_way = &self.flows[self.way as usize].under_way_bytes;
        under_way.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(3);
    const MIB: u64 = 1 << 20;
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_disk_is_as_fast_however_many_requests_wait_for_it() {
        for depth in [1, 4, 32] {
            let paces = Paces::default();
            let sent: Vec<_> =
                (0..depth).map(|_| paces.begin(GROUP, Way::Fetched, MIB, MS)).collect();
            for (nth, passage) in (1..).zip(sent) {
                passage.answered(MS + MS * 10 * nth);
            }
            assert_eq!(paces.mib(GROUP, Way::Fetched), Some(MS * 10));
            assert_eq!(paces.mib(GROUP, Way::Sent), None);
            assert_eq!(paces.mib(GroupId(4), Way::Fetched), None);
            let flow = &paces.groups.read()[&GROUP][Way::Fetched as usize];
            assert_eq!(flow.under_way_bytes.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn small_requests_say_nothing_and_a_standstill_little() {
        let paces = Paces::default();
        let answer = |bytes, took| paces.begin(GROUP, Way::Sent, bytes, MS).answered(MS + took);
        answer(4 << 10, MS * 1000);
        assert_eq!(paces.mib(GROUP, Way::Sent), None);
        answer(MIB, MS * 8);
        answer(MIB, MS * 60_000);
        assert_eq!(paces.mib(GROUP, Way::Sent), Some(MS * 132));
    }

    #[test]
    fn what_is_always_slower_than_a_standstill_is_known_as_that() {
        let paces = Paces::default();
        let answer = |took| paces.begin(GROUP, Way::Sent, MIB, MS).answered(MS + took);
        (0..80).for_each(|_| answer(MS * 5_000));
        let mib = paces.mib(GROUP, Way::Sent).unwrap();
        assert!((MS * 4_950..=MS * 5_000).contains(&mib), "{mib:?}");
        (0..40).for_each(|_| answer(MS * 10));
        assert!(paces.mib(GROUP, Way::Sent).unwrap() < MS * 50);
    }

    #[test]
    fn as_much_fills_a_way_as_passes_in_the_time_of_the_quickest_answer() {
        let paces = Paces::default();
        assert_eq!(paces.filling_bytes(GROUP), 0);
        // A MiB a way of 100 ms, alone and with seven others; then they wait for each other.
        paces.begin(GROUP, Way::Sent, MIB, MS).answered(MS * 101);
        assert_eq!(paces.filling_bytes(GROUP), MIB);
        for _ in 0..100 {
            let eight: Vec<_> = (0..8).map(|_| paces.begin(GROUP, Way::Sent, MIB, MS)).collect();
            (1..).zip(eight).for_each(|(nth, one)| one.answered(MS + MS * 100 * nth));
        }
        let waiting = paces.filling_bytes(GROUP);
        assert!((MIB..MIB + MIB / 20).contains(&waiting), "{waiting}");
        for _ in 0..64 {
            let eight: Vec<_> = (0..8).map(|_| paces.begin(GROUP, Way::Sent, MIB, MS)).collect();
            eight.into_iter().for_each(|one| one.answered(MS * 101));
        }
        let wide = paces.filling_bytes(GROUP);
        assert!(wide > 3 * MIB, "a way is long, and nothing waits: {wide}");
    }

    #[test]
    fn what_is_given_up_is_no_longer_under_way() {
        let paces = Paces::default();
        drop(paces.begin(GROUP, Way::Sent, MIB, MS));
        paces.begin(GROUP, Way::Sent, MIB, MS).answered(MS * 2);
        assert_eq!(paces.mib(GROUP, Way::Sent), Some(MS));
    }
}
