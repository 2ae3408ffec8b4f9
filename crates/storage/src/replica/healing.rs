//! When members are made equal and how fast, as the manager orders, and how far that is. Whoever has to
//! wait for the target otherwise comes first.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strake_types::{ChunkId, GroupId, TargetId};
use strake_wire::member::BEAT_MS;
use strake_wire::message::jobs::{Order, Progress};
use tokio::time::Instant;

/// Time between two looks at the orders.
const LOOK: Duration = Duration::from_millis(100);
/// Longest wait for the manager's first word about a member: some heartbeats.
const HEAR_MAX: Duration = Duration::from_millis(5 * BEAT_MS);
/// Longest pause after a chunk while others wait for the target.
const YIELD_MAX: Duration = Duration::from_millis(200);
/// A chunk is followed by at most so many times the time it took.
const YIELD_FACTOR: u32 = 4;

/// A group, and the member that is made equal.
type Item = (GroupId, TargetId);

/// What all primaries of a server share.
#[derive(Default)]
pub(crate) struct Healing {
    orders: Mutex<Orders>,
    progress: Mutex<BTreeMap<Item, Attempt>>,
    begun: AtomicU64,
}

/// The latest attempt to make a member equal. One that is over may end after the next has begun.
struct Attempt {
    number: u64,
    progress: Progress,
}

#[derive(Default)]
struct Orders {
    of: BTreeMap<Item, Order>,
    /// How often the manager has been heard.
    heard: u64,
}

/// How one member is made equal; nothing is known of it any more when it is dropped.
pub(crate) struct Pace<'a> {
    healing: &'a Healing,
    item: Item,
    number: u64,
    /// Bytes sent for which the rate has to make up.
    owed: f64,
    since: Instant,
    /// How often the manager had been heard when this began, and when that was; `None` once it has
    /// been heard again.
    awaits: Option<(u64, Instant)>,
}

impl Healing {
    /// What holds from now on; what is not named may go as fast as it can.
    pub fn obey(&self, orders: &[Order]) {
        let item = |order: &Order| ((GroupId(order.group), TargetId(order.member)), *order);
        let mut now = self.orders.lock();
        now.of = orders.iter().map(item).collect();
        now.heard += 1;
    }

    /// How far everything is.
    pub fn progress(&self) -> Vec<Progress> {
        self.progress.lock().values().map(|attempt| attempt.progress).collect()
    }

    /// So many bytes are to be gone through to make a member equal.
    pub fn expect(&self, group: GroupId, member: TargetId, bytes: u64) {
        let mut progress = self.progress.lock();
        progress.entry((group, member)).and_modify(|attempt| attempt.progress.total = bytes);
    }

    /// A member is about to be made equal.
    pub fn begin(&self, group: GroupId, member: TargetId) -> Pace<'_> {
        let progress = Progress { group: group.0, member: member.0, ..Progress::default() };
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        self.progress.lock().insert((group, member), Attempt { number, progress });
        let (item, since) = ((group, member), Instant::now());
        let awaits = Some((self.orders.lock().heard, since));
        Pace { healing: self, item, number, owed: 0.0, since, awaits }
    }
}

impl Pace<'_> {
    /// True if the next chunk may be sent; else look again in a moment. What was ordered of the
    /// member while another led its group is not known here before the manager is heard again.
    fn may_go_on(&mut self) -> bool {
        let now = Instant::now();
        let (order, heard) = {
            let orders = self.healing.orders.lock();
            (orders.of.get(&self.item).copied().unwrap_or_default(), orders.heard)
        };
        self.awaits = self.awaits.filter(|(then, since)| heard == *then && now - *since < HEAR_MAX);
        if self.awaits.is_some() {
            return false;
        }
        let passed = (now - self.since).as_secs_f64();
        self.since = now;
        match order.rate {
            0 => self.owed = 0.0,
            rate => self.owed = (self.owed - passed * rate as f64).max(0.0),
        }
        !order.paused && self.owed <= 0.0
    }

    /// Waits until the next chunk may be sent, or `ends` says that there is no reason any more.
    pub async fn wait(&mut self, ends: impl Fn() -> bool) {
        while !self.may_go_on() && !ends() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A chunk of so many bytes is equal, for which so many were sent.
    pub fn note(&mut self, at: ChunkId, compared: u64, sent: u64) {
        self.owed += sent as f64;
        let mut progress = self.healing.progress.lock();
        let own = progress.get_mut(&self.item).filter(|attempt| attempt.number == self.number);
        let Some(Attempt { progress, .. }) = own else { return };
        progress.compared += compared;
        progress.sent += sent;
        progress.at = Some(at.into());
    }
}

impl Drop for Pace<'_> {
    fn drop(&mut self) {
        let mut progress = self.healing.progress.lock();
        if progress.get(&self.item).is_some_and(|attempt| attempt.number == self.number) {
            progress.remove(&self.item);
        }
    }
}

/// How long to leave a target alone after a chunk that took so long, while so many wait for it.
pub(super) fn yield_after(took: Duration, waiting: u32) -> Duration {
    (took * waiting.min(YIELD_FACTOR)).min(YIELD_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEM: (GroupId, TargetId) = (GroupId(7), TargetId(2));

    fn order(paused: bool, rate: u64) -> [Order; 1] {
        [Order { group: 7, member: 2, paused, rate }]
    }

    fn chunk() -> ChunkId {
        ChunkId { volume: 1.into(), ino: 2.into(), index: 3.into() }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_sent_before_the_manager_could_say_how_fast() {
        let healing = Healing::default();
        healing.obey(&[]);
        let mut pace = healing.begin(ITEM.0, ITEM.1);
        let begun = Instant::now();
        tokio::join!(pace.wait(|| false), async {
            tokio::time::sleep(HEAR_MAX / 2).await;
            healing.obey(&order(true, 0));
            tokio::time::sleep(HEAR_MAX * 3).await;
            healing.obey(&[]);
        });
        assert!(begun.elapsed() > HEAR_MAX * 3, "paused from the first word on");
        drop(pace);
        let mut pace = healing.begin(ITEM.0, ITEM.1);
        let begun = Instant::now();
        pace.wait(|| false).await;
        assert!(
            begun.elapsed() >= HEAR_MAX,
            "a manager that says nothing holds nothing up for long"
        );
    }

    /// Nothing was shown of a heal from the next epoch on.
    #[test]
    fn an_attempt_that_is_over_takes_nothing_of_the_next_one_away() {
        let healing = Healing::default();
        let mut old = healing.begin(ITEM.0, ITEM.1);
        let mut new = healing.begin(ITEM.0, ITEM.1);
        healing.expect(ITEM.0, ITEM.1, 9);
        old.note(chunk(), 1, 1);
        drop(old);
        new.note(chunk(), 4, 2);
        let shown = healing.progress();
        assert_eq!((shown.len(), shown[0].total, shown[0].compared), (1, 9, 4));
        drop(new);
        assert!(healing.progress().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_and_a_pause_are_obeyed_at_once_and_may_change_on_the_way() {
        let healing = Healing::default();
        let mut pace = healing.begin(ITEM.0, ITEM.1);
        healing.obey(&order(false, 1_000));
        pace.wait(|| false).await;
        healing.expect(ITEM.0, ITEM.1, 20_000);
        pace.note(chunk(), 9_000, 10_000);
        let begun = Instant::now();
        let half = tokio::time::timeout(Duration::from_secs(5), pace.wait(|| false)).await;
        assert!(half.is_err(), "10 s are to pass");
        healing.obey(&order(false, 100_000));
        pace.wait(|| false).await;
        assert!(begun.elapsed() < Duration::from_secs(6));
        healing.obey(&order(true, 0));
        let waits = tokio::time::timeout(Duration::from_secs(60), pace.wait(|| false)).await;
        assert!(waits.is_err(), "paused");
        pace.wait(|| true).await;
        healing.obey(&[]);
        pace.wait(|| false).await;
        let progress = healing.progress();
        assert_eq!((progress[0].compared, progress[0].sent), (9_000, 10_000));
        assert_eq!(progress[0].total, 20_000);
        assert_eq!(progress[0].at, Some(chunk().into()));
        drop(pace);
        assert_eq!(healing.progress(), []);
    }

    #[test]
    fn who_heals_leaves_room_in_proportion_to_those_who_wait() {
        let took = Duration::from_millis(10);
        assert_eq!(yield_after(took, 0), Duration::ZERO);
        assert_eq!(yield_after(took, 2), Duration::from_millis(20));
        assert_eq!(yield_after(took, 99), Duration::from_millis(40));
        assert_eq!(yield_after(Duration::from_secs(9), 1), YIELD_MAX);
    }
}
