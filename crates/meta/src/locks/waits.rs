//! Who waits for whom, and the circles in that.
//!
//! A wait is asked for again and again: each request lasts a second at most, the next one comes when its answer has
//! arrived, and nobody says when a wait is given up (only that another one for the same begins: its first request does not
//! wait). So it counts as one wait through those pauses, and a circle is sure when each wait in it was asked for again
//! after the last of them had begun to wait for the next one: at that moment all of them waited. Whoever is the last to
//! ask again finds that, however long the pauses of the others are, and is refused. (Where a thread of the same process asks
//! for the same without waiting in each pause, its wait begins anew each time, and no circle through it is found.)

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// Longest pause between two requests of one wait.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Who holds or wants a lock: session, and owner within the session.
pub(super) type Owner = (u64, u64);

/// The waits of all owners, each for a `W`.
pub(super) struct Waits<W> {
    all: HashMap<Owner, Vec<Wait<W>>>,
    /// Requests so far: they are what time is counted in.
    requests: u64,
    /// Who has begun to pause, and when.
    paused: VecDeque<(Instant, Owner)>,
}

struct Wait<W> {
    wanted: W,
    /// The last request.
    asked: u64,
    /// Whose locks are in the way, and since which request.
    blockers: BTreeMap<Owner, u64>,
    /// Requests that have no answer yet.
    open: usize,
    /// When the last of them was answered.
    paused: Instant,
}

impl<W> Default for Waits<W> {
    fn default() -> Self {
        Self { all: HashMap::new(), requests: 0, paused: VecDeque::new() }
    }
}

impl<W: PartialEq> Waits<W> {
    /// A request begins to wait.
    pub fn ask(&mut self, owner: Owner, wanted: W) {
        let now = Instant::now();
        self.forget_until(now);
        self.requests += 1;
        let waits = self.all.entry(owner).or_default();
        let nth = waits.iter().position(|wait| wait.wanted == wanted);
        let nth = nth.unwrap_or(waits.len());
        if nth == waits.len() {
            waits.push(Wait { wanted, asked: 0, blockers: BTreeMap::new(), open: 0, paused: now });
        }
        let wait = &mut waits[nth];
        (wait.asked, wait.open) = (self.requests, wait.open + 1);
    }

    /// A request waits no more; others may after it.
    pub fn pause(&mut self, owner: Owner, wanted: &W) {
        let waits = self.all.get_mut(&owner).into_iter().flatten();
        for wait in waits.filter(|wait| wait.wanted == *wanted) {
            let now = Instant::now();
            (wait.open, wait.paused) = (wait.open - 1, now);
            if wait.open == 0 {
                self.paused.push_back((now, owner));
            }
        }
    }

    /// An owner was granted what it wanted, perhaps by a request that did not have to wait, or refused: none will wait for it
    /// after that, but for those that do.
    pub fn end(&mut self, owner: Owner, wanted: &W) {
        if let Some(waits) = self.all.get_mut(&owner) {
            waits.retain(|wait| wait.open > 0 || wait.wanted != *wanted);
        }
        self.tidy(owner);
    }

    fn tidy(&mut self, owner: Owner) {
        if self.all.get(&owner).is_some_and(Vec::is_empty) {
            self.all.remove(&owner);
        }
    }

    /// Forgets waits that are not asked for any more.
    fn forget_until(&mut self, now: Instant) {
        let is_old = |since: Instant| now.duration_since(since) > PAUSE_MAX;
        while let Some(&(since, owner)) = self.paused.front() {
            if !is_old(since) {
                return;
            }
            self.paused.pop_front();
            if let Some(waits) = self.all.get_mut(&owner) {
                waits.retain(|wait| wait.open > 0 || !is_old(wait.paused));
            }
            self.tidy(owner);
        }
    }

    /// True if an owner waits, through others, for itself, and that is sure. `blockers` says whose locks are in the way of
    /// what an owner wants.
    pub fn is_in_circle(&mut self, owner: Owner, blockers: impl Fn(&W) -> Vec<Owner>) -> bool {
        let moments = self.look_again(owner, blockers);
        moments.into_iter().any(|moment| self.leads_back(owner, moment))
    }

    /// Looks who is in the way now of an owner, and of those that it waits for, through others. The moments since when each
    /// is; none if that does not lead back to the owner.
    fn look_again(&mut self, owner: Owner, blockers: impl Fn(&W) -> Vec<Owner>) -> BTreeSet<u64> {
        let (mut open, mut seen) = (vec![owner], HashSet::from([owner]));
        let (mut moments, mut leads_back) = (BTreeSet::new(), false);
        while let Some(next) = open.pop() {
            for wait in self.all.get_mut(&next).into_iter().flatten() {
                let before = std::mem::take(&mut wait.blockers);
                for blocker in blockers(&wait.wanted) {
                    let since = before.get(&blocker).copied().unwrap_or(self.requests);
                    wait.blockers.insert(blocker, since);
                    moments.insert(since);
                    leads_back |= blocker == owner;
                    if seen.insert(blocker) {
                        open.push(blocker);
                    }
                }
            }
        }
        if leads_back { moments } else { BTreeSet::new() }
    }

    /// True if an owner waited at a moment, through others, for itself, and all of them have asked again since.
    fn leads_back(&self, owner: Owner, moment: u64) -> bool {
        let (mut open, mut seen) = (vec![owner], HashSet::new());
        while let Some(next) = open.pop() {
            let waits = self.all.get(&next).into_iter().flatten();
            let sure = waits.filter(|wait| wait.asked > moment).flat_map(|wait| &wait.blockers);
            for (blocker, _) in sure.filter(|(_, since)| **since <= moment) {
                if *blocker == owner {
                    return true;
                }
                if seen.insert(*blocker) {
                    open.push(*blocker);
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Owner `n` wants the lock that owner `wanted[n]` has.
    const WANTED: [u64; 4] = [0, 2, 3, 1];

    fn owner(number: u64) -> Owner {
        (number, number)
    }

    /// An owner asks, and is refused or waits until it asks again.
    fn is_refused(waits: &mut Waits<u64>, number: u64) -> bool {
        let wanted = WANTED[number as usize];
        waits.ask(owner(number), wanted);
        let refused = waits.is_in_circle(owner(number), |holder| vec![owner(*holder)]);
        waits.pause(owner(number), &wanted);
        if refused {
            waits.end(owner(number), &wanted);
        }
        refused
    }

    #[test]
    fn the_last_of_a_circle_to_ask_again_is_refused_and_no_other() {
        let mut waits = Waits::default();
        for number in [1, 2, 3, 3, 1] {
            assert!(!is_refused(&mut waits, number), "{number}: the second has not asked again");
        }
        assert!(is_refused(&mut waits, 2));
        for number in [1, 3, 1, 3] {
            assert!(!is_refused(&mut waits, number), "{number}: the second waits no more");
        }
        // It begins anew.
        for number in [2, 1, 3] {
            assert!(!is_refused(&mut waits, number), "{number}");
        }
        assert!(is_refused(&mut waits, 2));
    }

    #[test]
    fn who_does_not_ask_again_is_in_no_circle() {
        let mut waits = Waits::default();
        for number in [1, 2, 1, 2, 3, 2, 3, 2, 3] {
            assert!(!is_refused(&mut waits, number), "{number}: the first has given up");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_nobody_asks_for_any_more_is_forgotten() {
        let mut waits = Waits::default();
        assert!(!is_refused(&mut waits, 1));
        tokio::time::advance(PAUSE_MAX * 2 / 3).await;
        assert!(!is_refused(&mut waits, 2));
        tokio::time::advance(PAUSE_MAX * 2 / 3).await;
        assert!(!is_refused(&mut waits, 3));
        assert!(!waits.all.contains_key(&owner(1)));
        assert_eq!((waits.all.len(), waits.paused.len()), (2, 2));
    }
}
