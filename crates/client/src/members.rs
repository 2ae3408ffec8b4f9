//! Which members of groups answer reads: what this client has under way with each target, and how
//! each has answered lately.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Answers whose times are remembered per target.
const TIMES: usize = 15;
/// Another member is asked as well after this many times the usual time of an answer,
const OVERDUE_FACTOR: u32 = 3;
/// but not sooner than this,
const OVERDUE_MIN: Duration = Duration::from_millis(100);
/// and at this time at the latest, unless the target answers others meanwhile: then it is only busy,
/// and asking everything twice would make that worse.
const OVERDUE_MAX: Duration = Duration::from_millis(500);
/// How long a target that was slow or failed is asked only where there is no other.
const SHUN: Duration = Duration::from_secs(3);
/// What a request weighs that moves less.
const WEIGHT_MIN: u64 = 4 << 10;

/// The targets of groups of several members.
#[derive(Default)]
pub(crate) struct Members {
    targets: Mutex<HashMap<u32, Member>>,
}

#[derive(Default)]
struct Member {
    /// Weight of what is under way.
    under_way: u64,
    /// How long the last answers took, in no order.
    times: Vec<Duration>,
    /// Which of them is replaced next.
    oldest: usize,
    answered: Option<Instant>,
    shunned_to: Option<Instant>,
}

/// A request that is under way. If it is dropped without an answer, it took at least until then.
pub(crate) struct UnderWay<'a> {
    members: &'a Members,
    target: u32,
    weight: u64,
    since: Instant,
}

impl Members {
    /// The one of several with the least under way; of equals one that `nth` picks, always the same.
    pub(crate) fn choose(&self, targets: &[u32], nth: u64) -> Option<u32> {
        let now = Instant::now();
        let members = self.targets.lock();
        let count = targets.len() as u64;
        let cost = |(at, target): &(u64, &u32)| {
            let member = members.get(*target);
            let shunned = member.is_some_and(|m| m.shunned_to.is_some_and(|to| now < to));
            (shunned, member.map_or(0, |m| m.under_way), (at + nth % count) % count)
        };
        (0..).zip(targets).min_by_key(cost).map(|(_, &target)| target)
    }

    /// A target is asked for so many bytes.
    pub(crate) fn begin(&self, target: u32, bytes: u64) -> UnderWay<'_> {
        let weight = bytes.max(WEIGHT_MIN);
        self.targets.lock().entry(target).or_default().under_way += weight;
        UnderWay { members: self, target, weight, since: Instant::now() }
    }

    /// Others are asked for the next seconds, where there are any.
    pub(crate) fn shun(&self, target: u32) {
        let mut members = self.targets.lock();
        members.entry(target).or_default().shunned_to = Some(Instant::now() + SHUN);
    }

    /// How much longer to wait before another is asked for the same; none: no longer.
    pub(crate) fn patience(&self, target: u32, since: Instant) -> Option<Duration> {
        let now = Instant::now();
        let waited = now - since;
        if waited < OVERDUE_MIN {
            return Some(OVERDUE_MIN - waited);
        }
        let members = self.targets.lock();
        let member = members.get(&target);
        let usual = member.map_or(Duration::ZERO, Member::usual) * OVERDUE_FACTOR;
        let left = usual.checked_sub(waited).filter(|left| !left.is_zero())?;
        if waited < OVERDUE_MAX {
            return Some(left.min(OVERDUE_MAX - waited));
        }
        let silent = now - member.and_then(|m| m.answered).unwrap_or(since);
        Some(left.min(OVERDUE_MAX.checked_sub(silent).filter(|left| !left.is_zero())?))
    }
}

impl Member {
    /// The median of the last times.
    fn usual(&self) -> Duration {
        let mut times = self.times.clone();
        let middle = times.len() / 2;
        if times.is_empty() { Duration::ZERO } else { *times.select_nth_unstable(middle).1 }
    }

    fn took(&mut self, time: Duration) {
        if self.times.len() < TIMES {
            self.times.push(time);
        } else {
            self.times[self.oldest] = time;
            self.oldest = (self.oldest + 1) % TIMES;
        }
    }
}

impl UnderWay<'_> {
    /// The target has answered.
    pub(crate) fn answered(self) {
        let mut members = self.members.targets.lock();
        members.entry(self.target).or_default().answered = Some(Instant::now());
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut members = self.members.targets.lock();
        let member = members.entry(self.target).or_default();
        member.under_way -= self.weight;
        member.took(self.since.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const MS: Duration = Duration::from_millis(1);

    async fn answer_after(members: &Members, target: u32, time: Duration) {
        let under_way = members.begin(target, 1);
        advance(time).await;
        under_way.answered();
    }

    #[tokio::test(start_paused = true)]
    async fn the_least_busy_is_chosen_and_of_equals_always_the_same() {
        let members = Members::default();
        let choose = |nth| members.choose(&[7, 8, 9], nth);
        assert_eq!([choose(0), choose(1), choose(2), choose(3)].map(Option::unwrap), [7, 9, 8, 7]);
        let large = members.begin(7, 1 << 20);
        let _small = members.begin(9, 1);
        assert_eq!(choose(0), Some(8));
        let _large = members.begin(8, 2 << 20);
        assert_eq!(choose(0), Some(9));
        members.shun(9);
        assert_eq!(choose(0), Some(7));
        drop(large);
        members.shun(7);
        members.shun(8);
        assert_eq!(choose(1), Some(7), "where all are shunned the least busy");
        advance(SHUN).await;
        assert_eq!(members.choose(&[8, 9], 0), Some(9));
        assert_eq!(members.choose(&[], 0), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_is_asked_after_a_few_times_the_usual_time() {
        let members = Members::default();
        let since = Instant::now();
        assert_eq!(members.patience(7, since), Some(OVERDUE_MIN));
        advance(OVERDUE_MIN).await;
        assert_eq!(members.patience(7, since), None, "nothing is known of it");
        for _ in 0..2 * TIMES {
            answer_after(&members, 7, 50 * MS).await;
        }
        let since = Instant::now();
        advance(OVERDUE_MIN).await;
        assert_eq!(members.patience(7, since), Some(50 * MS));
        advance(50 * MS).await;
        assert_eq!(members.patience(7, since), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_target_is_given_its_time_and_a_silent_one_is_not() {
        let members = Members::default();
        for _ in 0..TIMES {
            answer_after(&members, 7, 1_000 * MS).await;
        }
        let since = Instant::now();
        advance(OVERDUE_MIN).await;
        assert_eq!(members.patience(7, since), Some(400 * MS));
        advance(400 * MS).await;
        assert_eq!(members.patience(7, since), None, "silent for half a second");
        members.begin(7, 1).answered();
        assert_eq!(members.patience(7, since), Some(500 * MS), "only busy");
        advance(500 * MS).await;
        assert_eq!(members.patience(7, since), None);
    }
}
