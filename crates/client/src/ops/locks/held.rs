//! What owners on this mount have locked, by what they were told: who gives up a wait keeps that.

use crate::api::{LockKind, LockRequest};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use strake_types::Ino;

/// Whose locks, on which file, and whether they are flocks.
pub(super) type Holder = (Ino, u64, bool);

/// The holder that a request is of.
pub(super) fn holder(ino: Ino, lock: &LockRequest) -> Holder {
    (ino, lock.owner, lock.flock)
}

/// The locks of a holder by where they start. They do not overlap, and are one where they touch and are alike.
type Ranges = BTreeMap<u64, LockRequest>;

/// The locks of all holders.
#[derive(Default)]
pub(crate) struct Held {
    all: Mutex<HashMap<Holder, Ranges>>,
}

impl Held {
    /// An owner was granted a lock, or gives one back.
    pub(super) fn set(&self, ino: Ino, lock: &LockRequest) {
        let (mut all, holder) = (self.all.lock(), holder(ino, lock));
        let held = all.entry(holder).or_default();
        change(held, &ranged(lock));
        if held.is_empty() {
            all.remove(&holder);
        }
    }

    /// What leads back to what an owner has, where it was granted something else.
    pub(super) fn instead_of(&self, ino: Ino, granted: &LockRequest) -> Vec<LockRequest> {
        let granted = LockRequest { wait: false, ..ranged(granted) };
        let all = self.all.lock();
        let held = all.get(&holder(ino, &granted)).into_iter();
        let held = held.flat_map(|held| near(held, granted.start, granted.end));
        let held = held.filter(|own| granted.start <= own.end);
        let none = |start, end| LockRequest { start, end, kind: LockKind::Unlock, ..granted };
        let (mut asks, mut next) = (Vec::new(), Some(granted.start));
        for own in held {
            let (start, end) = (own.start.max(granted.start), own.end.min(granted.end));
            asks.extend(next.filter(|next| *next < start).map(|next| none(next, start - 1)));
            asks.push(LockRequest { start, end, wait: false, ..*own });
            next = end.checked_add(1);
        }
        asks.extend(next.filter(|next| *next <= granted.end).map(|next| none(next, granted.end)));
        asks
    }

    /// The session that had the locks on these files is over.
    pub(crate) fn lose(&self, is_lost: impl Fn(Ino) -> bool) {
        self.all.lock().retain(|(ino, ..), _| !is_lost(*ino));
    }
}

/// A flock is one on everything.
fn ranged(lock: &LockRequest) -> LockRequest {
    match lock.flock {
        true => LockRequest { start: 0, end: u64::MAX, ..*lock },
        false => *lock,
    }
}

/// The last of a holder's locks that starts before `start`, and those that start from there to `end`.
fn near(held: &Ranges, start: u64, end: u64) -> impl Iterator<Item = &LockRequest> {
    let from = held.range(start..).take_while(move |(own, _)| **own <= end);
    held.range(..start).next_back().into_iter().chain(from).map(|(_, own)| own)
}

/// Changes a holder's locks.
fn change(held: &mut Ranges, change: &LockRequest) {
    let end = change.end.saturating_add(1);
    let touches = |own: &&LockRequest| change.start <= own.end.saturating_add(1);
    let touched: Vec<LockRequest> =
        near(held, change.start, end).filter(touches).copied().collect();
    let mut new = *change;
    for own in touched {
        held.remove(&own.start);
        if own.kind == change.kind {
            (new.start, new.end) = (new.start.min(own.start), new.end.max(own.end));
            continue;
        }
        if own.start < change.start {
            let end = own.end.min(change.start - 1);
            held.insert(own.start, LockRequest { end, ..own });
        }
        if own.end > change.end {
            let start = own.start.max(change.end + 1);
            held.insert(start, LockRequest { start, ..own });
        }
    }
    if change.kind != LockKind::Unlock {
        held.insert(new.start, new);
    }
}

#[cfg(test)]
mod tests {
    use super::LockKind::{Exclusive, Shared, Unlock};
    use super::*;
    use strake_base::random::SplitMix64;

    const INO: Ino = Ino(2);

    fn lock(kind: LockKind, start: u64, end: u64) -> LockRequest {
        LockRequest { owner: 7, pid: 1, start, end, kind, flock: false, wait: true }
    }

    fn instead_of(held: &Held, granted: LockRequest) -> Vec<(LockKind, u64, u64)> {
        let asks = held.instead_of(INO, &granted);
        assert!(asks.iter().all(|ask| !ask.wait && ask.owner == granted.owner));
        asks.iter().map(|ask| (ask.kind, ask.start, ask.end)).collect()
    }

    #[test]
    fn what_was_held_is_led_back_to_and_the_rest_is_unlocked() {
        let held = Held::default();
        for (kind, start, end) in [(Exclusive, 10, 19), (Shared, 30, 39), (Shared, 40, u64::MAX)] {
            held.set(INO, &lock(kind, start, end));
        }
        let all = [(Unlock, 5, 9), (Exclusive, 10, 19), (Unlock, 20, 29), (Shared, 30, u64::MAX)];
        assert_eq!(instead_of(&held, lock(Exclusive, 5, u64::MAX)), all);
        let some = [(Exclusive, 15, 19), (Unlock, 20, 25)];
        assert_eq!(instead_of(&held, lock(Shared, 15, 25)), some);
        let other = LockRequest { owner: 8, ..lock(Shared, 15, 35) };
        assert_eq!(instead_of(&held, other), [(Unlock, 15, 35)]);
    }

    #[test]
    fn what_is_given_back_or_lost_with_its_session_is_not_held() {
        let held = Held::default();
        held.set(INO, &lock(Shared, 0, 9));
        held.set(INO, &lock(Unlock, 4, 5));
        held.set(INO, &lock(Exclusive, 8, 12));
        let all = [(Shared, 0, 3), (Unlock, 4, 5), (Shared, 6, 7), (Exclusive, 8, 12)];
        assert_eq!(instead_of(&held, lock(Exclusive, 0, 12)), all);
        held.lose(|ino| ino != INO);
        assert_eq!(instead_of(&held, lock(Exclusive, 0, 12)), all);
        held.lose(|ino| ino == INO);
        assert_eq!(instead_of(&held, lock(Exclusive, 0, 12)), [(Unlock, 0, 12)]);
        held.set(INO, &lock(Shared, 0, 9));
        held.set(INO, &lock(Unlock, 0, u64::MAX));
        assert!(held.all.lock().is_empty());
    }

    #[test]
    fn flocks_are_apart_and_on_everything() {
        let held = Held::default();
        let flock = |kind| LockRequest { flock: true, ..lock(kind, 0, 0) };
        held.set(INO, &flock(Shared));
        assert_eq!(instead_of(&held, flock(Exclusive)), [(Shared, 0, u64::MAX)]);
        assert_eq!(instead_of(&held, lock(Exclusive, 0, 0)), [(Unlock, 0, 0)]);
    }

    /// As it is meant, with all locks gone through and copied for each change.
    fn plainly(held: &[LockRequest], change: &LockRequest) -> Vec<LockRequest> {
        let (mut after, mut new) = (Vec::new(), *change);
        for own in held {
            let touches =
                own.start <= new.end.saturating_add(1) && new.start <= own.end.saturating_add(1);
            if own.kind == change.kind && touches {
                (new.start, new.end) = (new.start.min(own.start), new.end.max(own.end));
                continue;
            }
            if own.start < change.start {
                after.push(LockRequest { end: own.end.min(change.start - 1), ..*own });
            }
            if own.end > change.end {
                after.push(LockRequest { start: own.start.max(change.end + 1), ..*own });
            }
        }
        if change.kind != Unlock {
            after.push(new);
        }
        after.sort_by_key(|own| own.start);
        after
    }

    #[test]
    fn locks_that_are_changed_in_place_are_what_they_are_if_all_are_gone_through() {
        let mut random = SplitMix64::new(1);
        let mut roll = |sides: u64| random.below(sides);
        let (mut held, mut plain) = (Ranges::new(), Vec::new());
        for _ in 0..20_000 {
            let kind = [Unlock, Shared, Exclusive][roll(3) as usize];
            let start = roll(60);
            let end = if roll(20) == 0 { u64::MAX } else { start + roll(8) };
            let asked = LockRequest { pid: roll(9) as u32, ..lock(kind, start, end) };
            plain = plainly(&plain, &asked);
            change(&mut held, &asked);
            let shown = |own: &LockRequest| (own.kind, own.start, own.end, own.pid);
            let now: Vec<_> = held.values().map(shown).collect();
            assert_eq!(now, plain.iter().map(shown).collect::<Vec<_>>());
            assert!(held.iter().all(|(start, own)| *start == own.start));
        }
    }

    #[test]
    fn of_many_locks_only_those_are_looked_at_that_are_near() {
        let mut held = Ranges::new();
        for nth in 0..1000 {
            change(&mut held, &lock(Exclusive, 10 * nth, 10 * nth));
        }
        assert_eq!(held.len(), 1000);
        assert!(near(&held, 5_000, 5_001).count() <= 2);
        // One that ends before it starts, which nobody should ask for.
        change(&mut held, &lock(Unlock, 7, 3));
        assert_eq!(held.len(), 1000);
    }
}
