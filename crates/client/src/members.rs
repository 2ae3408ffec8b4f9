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
/// but not sooner than this, for small and for large reads,
const OVERDUE_MIN: [Duration; 2] = [Duration::from_millis(25), Duration::from_millis(100)];
/// and at this time at the latest, unless the target answers others meanwhile: then it is only busy,
/// and asking everything twice would make that worse.
const OVERDUE_MAX: Duration = Duration::from_millis(500);
/// How long a target that was slow or failed is asked only where there is no other, and how long it
/// counts as slow if it is asked nothing.
const SHUN: Duration = Duration::from_secs(3);
/// What a request weighs that moves less.
const WEIGHT_MIN: u64 = 4 << 10;
/// Bytes from which on a read is large: its time is mostly that of its bytes.
const LARGE_BYTES: u64 = 128 << 10;
/// A target counts as slow if it takes so many times as long as the fastest of those to choose from,
const SLOW_FACTOR: u32 = 4;
/// and longer than this, which a busy machine may take for anything.
const SLOW_MIN: Duration = Duration::from_millis(2);

/// The targets of groups of several members.
#[derive(Default)]
pub(crate) struct Members {
    targets: Mutex<HashMap<u32, Member>>,
}

#[derive(Default)]
struct Member {
    /// Weight of what is under way.
    under_way: u64,
    /// Those of small and of large reads.
    times: [Times; 2],
    /// When it answered last, or was asked when nothing was under way.
    alive: Option<Instant>,
    answered: Option<Instant>,
    shunned_to: Option<Instant>,
}

/// How long the last answers took, in no order.
#[derive(Default)]
struct Times {
    last: Vec<Duration>,
    /// Which of them is replaced next.
    oldest: usize,
    noted: Option<Instant>,
}

/// A request that is under way. If it is dropped without an answer, it took at least until then.
pub(crate) struct UnderWay<'a> {
    members: &'a Members,
    target: u32,
    weight: u64,
    size: usize,
    /// When it was asked; none: how long it takes is not noted.
    since: Option<Instant>,
}

/// 0 for a small read, 1 for a large one.
fn size_of(bytes: u64) -> usize {
    usize::from(bytes >= LARGE_BYTES)
}

impl Members {
    /// The one of several for a read of so many bytes: with the least under way, where a slow one counts
    /// as many times as it is slower; of equals one that `nth` picks, always the same.
    pub(crate) fn choose(&self, targets: &[u32], bytes: u64, nth: u64) -> Option<u32> {
        let (now, size) = (Instant::now(), size_of(bytes));
        let members = self.targets.lock();
        let takes = |target: &u32| {
            members.get(target).map_or(SLOW_MIN, |m| m.takes(size, now).max(SLOW_MIN))
        };
        let fastest = targets.iter().map(takes).min()?;
        let count = targets.len() as u64;
        let cost = |(at, target): &(u64, &u32)| {
            let member = members.get(*target);
            let shunned = member.is_some_and(|m| m.shunned_to.is_some_and(|to| now < to));
            let slower = takes(target).div_duration_f64(fastest) as u64;
            let slower = if slower < u64::from(SLOW_FACTOR) { 1 } else { slower };
            let load = member.map_or(0, |m| m.under_way) + bytes.max(WEIGHT_MIN);
            (shunned, load.saturating_mul(slower), (at + nth % count) % count)
        };
        (0..).zip(targets).min_by_key(cost).map(|(_, &target)| target)
    }

    /// A target is asked for so many bytes.
    pub(crate) fn begin(&self, target: u32, bytes: u64) -> UnderWay<'_> {
        let (weight, since) = (bytes.max(WEIGHT_MIN), Instant::now());
        let mut members = self.targets.lock();
        let member = members.entry(target).or_default();
        if member.under_way == 0 {
            member.alive = Some(since);
        }
        member.under_way += weight;
        drop(members);
        UnderWay { members: self, target, weight, size: size_of(bytes), since: Some(since) }
    }

    /// Others are asked for the next seconds, where there are any.
    pub(crate) fn shun(&self, target: u32) {
        let mut members = self.targets.lock();
        members.entry(target).or_default().shunned_to = Some(Instant::now() + SHUN);
    }

    /// How much longer to wait before another is asked for the same bytes; none: no longer.
    pub(crate) fn patience(&self, target: u32, bytes: u64, since: Instant) -> Option<Duration> {
        let (now, size) = (Instant::now(), size_of(bytes));
        let waited = now - since;
        if waited < OVERDUE_MIN[size] {
            return Some(OVERDUE_MIN[size] - waited);
        }
        let members = self.targets.lock();
        let member = members.get(&target);
        let usual = member.map_or(Duration::ZERO, |m| m.times[size].median()) * OVERDUE_FACTOR;
        let left = usual.checked_sub(waited).filter(|left| !left.is_zero())?;
        if waited < OVERDUE_MAX {
            return Some(left.min(OVERDUE_MAX - waited));
        }
        let silent = now - member.and_then(|m| m.answered).unwrap_or(since);
        Some(left.min(OVERDUE_MAX.checked_sub(silent).filter(|left| !left.is_zero())?))
    }
}

impl Member {
    /// How long an answer takes, by the last ones and by how long it has said nothing.
    fn takes(&self, size: usize, now: Instant) -> Duration {
        let silent =
            self.alive.filter(|_| self.under_way > 0).map_or(Duration::ZERO, |at| now - at);
        let times = &self.times[size];
        let lately = times.noted.is_some_and(|at| now - at < SHUN);
        if lately { times.mean().max(silent) } else { silent }
    }
}

impl Times {
    fn median(&self) -> Duration {
        let mut times = self.last.clone();
        let middle = times.len() / 2;
        if times.is_empty() { Duration::ZERO } else { *times.select_nth_unstable(middle).1 }
    }

    fn mean(&self) -> Duration {
        self.last.iter().sum::<Duration>() / self.last.len().max(1) as u32
    }

    fn note(&mut self, time: Duration) {
        self.noted = Some(Instant::now());
        if self.last.len() < TIMES {
            self.last.push(time);
        } else {
            self.last[self.oldest] = time;
            self.oldest = (self.oldest + 1) % TIMES;
        }
    }
}

impl UnderWay<'_> {
    /// The target says that it cannot answer now.
    pub(crate) fn refused(mut self) {
        self.since = None;
        self.answered();
    }

    /// The target has answered.
    pub(crate) fn answered(self) {
        let mut members = self.members.targets.lock();
        let member = members.entry(self.target).or_default();
        let now = Some(Instant::now());
        (member.answered, member.alive) = (now, now);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut members = self.members.targets.lock();
        let member = members.entry(self.target).or_default();
        member.under_way -= self.weight;
        if let Some(since) = self.since {
            member.times[self.size].note(since.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const MS: Duration = Duration::from_millis(1);

    async fn answer_after(members: &Members, target: u32, time: Duration) {
        let under_way = members.begin(target, LARGE_BYTES);
        advance(time).await;
        under_way.answered();
    }

    #[tokio::test(start_paused = true)]
    async fn the_least_busy_is_chosen_and_of_equals_always_the_same() {
        let members = Members::default();
        let choose = |nth| members.choose(&[7, 8, 9], 1, nth);
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
        assert_eq!(members.choose(&[8, 9], 1, 0), Some(9));
        assert_eq!(members.choose(&[], 1, 0), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_is_asked_after_a_few_times_the_usual_time() {
        let members = Members::default();
        let since = Instant::now();
        assert_eq!(members.patience(7, LARGE_BYTES, since), Some(OVERDUE_MIN[1]));
        advance(OVERDUE_MIN[1]).await;
        assert_eq!(members.patience(7, LARGE_BYTES, since), None, "nothing is known of it");
        for _ in 0..2 * TIMES {
            answer_after(&members, 7, 50 * MS).await;
        }
        let since = Instant::now();
        advance(OVERDUE_MIN[1]).await;
        assert_eq!(members.patience(7, LARGE_BYTES, since), Some(50 * MS));
        advance(50 * MS).await;
        assert_eq!(members.patience(7, LARGE_BYTES, since), None);
    }

    #[tokio::test(start_paused = true)]
    async fn small_reads_are_waited_for_by_what_small_reads_take() {
        let members = Members::default();
        for _ in 0..TIMES {
            answer_after(&members, 7, 1_000 * MS).await;
        }
        let since = Instant::now();
        assert_eq!(members.patience(7, 1, since), Some(OVERDUE_MIN[0]));
        advance(OVERDUE_MIN[0]).await;
        assert_eq!(members.patience(7, 1, since), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_target_is_asked_as_much_less_as_it_is_slower() {
        let members = Members::default();
        for _ in 0..TIMES {
            answer_after(&members, 7, 10 * MS).await;
            answer_after(&members, 8, 60 * MS).await;
        }
        let choose = || members.choose(&[7, 8], LARGE_BYTES, 1).unwrap();
        let under_way: Vec<_> = (0..5).map(|_| members.begin(7, LARGE_BYTES)).collect();
        assert_eq!(choose(), 8, "five others wait there already");
        drop(under_way);
        assert_eq!(choose(), 7);
        advance(SHUN).await;
        assert_eq!(choose(), 8, "nobody knows whether it still is");
        let members = Members::default();
        for (target, time) in [(7, 10 * MS), (8, 30 * MS)] {
            answer_after(&members, target, time).await;
        }
        assert_eq!(members.choose(&[7, 8], LARGE_BYTES, 1), Some(8), "not slow enough to matter");
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_that_says_nothing_gets_nothing_more() {
        let members = Members::default();
        let _stuck = members.begin(7, 1);
        let _two = [members.begin(8, 1), members.begin(8, 1)];
        assert_eq!(members.choose(&[7, 8], 1, 0), Some(7));
        advance(20 * MS).await;
        members.begin(8, 1).answered();
        assert_eq!(members.choose(&[7, 8], 1, 0), Some(8));
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_target_is_given_its_time_and_a_silent_one_is_not() {
        let members = Members::default();
        for _ in 0..TIMES {
            answer_after(&members, 7, 1_000 * MS).await;
        }
        let since = Instant::now();
        advance(OVERDUE_MIN[1]).await;
        assert_eq!(members.patience(7, LARGE_BYTES, since), Some(400 * MS));
        advance(400 * MS).await;
        assert_eq!(members.patience(7, LARGE_BYTES, since), None, "silent for half a second");
        members.begin(7, 1).answered();
        assert_eq!(members.patience(7, LARGE_BYTES, since), Some(500 * MS), "only busy");
        advance(500 * MS).await;
        assert_eq!(members.patience(7, LARGE_BYTES, since), None);
    }
}
