//! Who asks for locks, and what they were told: the histories that [`strake_model::history::locks`] judges.
//!
//! Locks belong to a session, and a client is not told when one is lost that has nothing unwritten (S-109). So as soon
//! as its session may be over a client goes on as another owner, and the one that it was may lose all that it had, now,
//! later, or never: that is one more operation of its history, of which nobody knows when it happens.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use strake_model::history::locks::{Ask, Operation, Told, Wait};

/// Bytes of a file that are locked.
pub const BYTES: u8 = 6;
/// Time after which a client of which nobody has heard may have lost its session: that ends after 30 s by the server's
/// clock.
const LEASE: Duration = Duration::from_secs(25);

/// What is locked: the bytes of a file, or the file as a whole, by `flock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// The file.
    pub file: usize,
    /// As a whole.
    pub flock: bool,
}

impl Object {
    /// Its place among all.
    fn nth(self) -> usize {
        self.file * 2 + usize::from(self.flock)
    }

    fn at(nth: usize) -> Self {
        Self { file: nth / 2, flock: nth % 2 == 1 }
    }
}

/// An operation that is under way.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    client: u32,
    /// As whom it asks.
    pub owner: u32,
    /// On what.
    pub object: Object,
    /// For what.
    pub ask: Ask,
    /// When.
    asked: Duration,
    /// Which operation in the history of the object.
    nth: usize,
}

/// As whom a client asks.
#[derive(Debug, Default)]
struct Owner {
    number: u32,
    /// For each file: when the metadata server has surely heard of it last, as a time and as an event.
    heard: BTreeMap<usize, (Duration, u64)>,
    /// What it has asked to lock, and when first, as an event.
    asked: BTreeMap<Object, u64>,
    /// Its waits that were given up, and may be under way.
    given_up: Vec<(Object, usize)>,
}

/// All owners, and what has happened.
#[derive(Debug)]
pub struct Owners {
    histories: Vec<Vec<Operation>>,
    /// Waits for bytes: only those are looked at for circles.
    waits: Vec<Wait>,
    /// Beginnings and ends of operations so far.
    events: u64,
    /// Owners so far.
    count: u32,
    /// By client.
    owners: BTreeMap<u32, Owner>,
    /// Clients that are being evicted, and those of which nobody knows whether they are.
    evicting: BTreeSet<u32>,
}

impl Owners {
    /// Nobody has asked for anything, of so many files.
    pub fn new(files: usize) -> Self {
        let histories = vec![Vec::new(); files * 2];
        let (waits, owners, evicting) = Default::default();
        Self { histories, waits, events: 0, count: 0, owners, evicting }
    }

    /// What can be locked.
    pub fn objects(&self) -> impl Iterator<Item = Object> + use<> {
        (0..self.histories.len()).map(Object::at)
    }

    fn event(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    fn push(&mut self, object: Object, owner: u32, ask: Ask, began: u64) -> usize {
        let (told, ended) = (Told::Unknown, u64::MAX);
        let history = &mut self.histories[object.nth()];
        history.push(Operation { client: owner, ask: (owner, ask), told, began, ended });
        history.len() - 1
    }

    /// A client is about to ask, perhaps for as long as it takes (`waits`). `None`: it is being evicted.
    pub fn begin(
        &mut self,
        client: u32,
        object: Object,
        ask: Ask,
        waits: bool,
        now: Duration,
    ) -> Option<Attempt> {
        if self.evicting.contains(&client) {
            return None;
        }
        let began = self.event();
        let next = self.count + 1;
        let new = || Owner { number: next, ..Owner::default() };
        let owner = self.owners.entry(client).or_insert_with(new);
        if matches!(ask, Ask::Share(..) | Ask::Exclude(..)) {
            owner.asked.entry(object).or_insert(began);
        }
        let owner = owner.number;
        self.count = self.count.max(owner);
        let asked = if waits && object.flock { ask.awaited() } else { ask };
        let nth = self.push(object, owner, asked, began);
        if waits && !object.flock {
            self.waits.push((object.nth(), nth));
        }
        Some(Attempt { client, owner, object, ask, asked: now, nth })
    }

    /// It was told something. False if nobody knows any more what its owner has: then the outcome is left open, and the
    /// client is another owner from now on.
    pub fn ended(&mut self, attempt: &Attempt, told: Told, now: Duration) -> bool {
        let Attempt { client, object, nth, asked, .. } = *attempt;
        let ended = self.event();
        let operation = &mut self.histories[object.nth()][nth];
        if told == Told::GaveUp {
            operation.told = told;
        }
        let known = self.owners.get_mut(&client).filter(|owner| owner.number == attempt.owner);
        let Some(owner) = known else {
            if told == Told::GaveUp {
                self.may_be_unlocked(object, nth);
            }
            return false;
        };
        if told == Told::GaveUp {
            // The server may not have heard of it, and may hear of it later.
            owner.given_up.push((object, nth));
        }
        let heard = owner.heard.get(&object.file).map_or(asked, |(heard, _)| *heard);
        // Its own lock is in its way: that is one of a session which is over.
        let is_own = matches!(told, Told::Held(other, _) if other == attempt.owner);
        if told == Told::Unknown || is_own || now.saturating_sub(heard) >= LEASE {
            self.retire(client);
            return false;
        }
        if told == Told::GaveUp {
            return true;
        }
        operation.told = told;
        operation.ended = ended;
        owner.heard.insert(object.file, (asked, operation.began));
        if matches!(attempt.ask, Ask::Share(..) | Ask::Exclude(..)) {
            // What was given up before is over before its owner is told of the next one.
            let history = &mut self.histories[object.nth()];
            let over = owner.given_up.extract_if(.., |(other, _)| *other == object);
            over.for_each(|(_, nth)| history[nth].ended = ended);
        }
        true
    }

    /// An owner of which nobody knows what it has unlocked is about to unlock all of that.
    pub fn unlock_unheard(&mut self, owner: u32, object: Object) {
        let began = self.event();
        self.push(object, owner, Ask::Unlock(0, BYTES), began);
    }

    /// What a client may have locked.
    pub fn locked_by(&self, client: u32) -> Vec<Object> {
        let owner = self.owners.get(&client);
        owner.map_or_else(Vec::new, |owner| owner.asked.keys().copied().collect())
    }

    /// A client is another owner from now on, and what it was may lose what it had.
    pub fn retire(&mut self, client: u32) {
        let Some(owner) = self.owners.remove(&client) else { return };
        for (object, first) in owner.asked {
            let since = owner.heard.get(&object.file).map_or(first, |(_, event)| *event);
            self.push(object, owner.number, Ask::Unlock(0, BYTES), since);
        }
        for (object, nth) in owner.given_up {
            self.may_be_unlocked(object, nth);
        }
    }

    /// What a wait that was given up is granted may just be unlocked: who lets go of all that it may have has nothing that
    /// would come back instead.
    fn may_be_unlocked(&mut self, object: Object, nth: usize) {
        let Operation { client: owner, ask: (_, ask), began, .. } =
            self.histories[object.nth()][nth];
        if let Ask::Share(from, to) | Ask::Exclude(from, to) | Ask::Await(from, to, _) = ask {
            self.push(object, owner, Ask::Unlock(from, to), began);
        }
    }

    /// A client is about to be evicted.
    pub fn evict(&mut self, client: u32) {
        self.evicting.insert(client);
        self.retire(client);
    }

    /// That has happened: what the client asks for from now on it asks for in another session.
    pub fn evicted(&mut self, client: u32) {
        self.evicting.remove(&client);
    }

    /// What has happened to each object.
    pub fn histories(&self) -> &[Vec<Operation>] {
        &self.histories
    }

    /// All waits for bytes.
    pub fn waits(&self) -> &[Wait] {
        &self.waits
    }

    /// What was refused because of a circle.
    pub fn deadlocks(&self) -> Vec<Wait> {
        let mut all = Vec::new();
        for (object, history) in self.histories.iter().enumerate() {
            let refused = history.iter().enumerate().filter(|(_, one)| one.told == Told::Deadlock);
            all.extend(refused.map(|(nth, _)| (object, nth)));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_model::history::Verdict;
    use strake_model::history::locks::judge;

    const BYTES_OF_0: Object = Object { file: 0, flock: false };
    const LOCK: Ask = Ask::Exclude(0, 2);
    const NOW: Duration = Duration::from_secs(100);

    /// A client asks at a time, and is told at once.
    fn ask_at(owners: &mut Owners, client: u32, ask: Ask, told: Told, now: Duration) -> bool {
        let attempt = owners.begin(client, BYTES_OF_0, ask, false, now).unwrap();
        owners.ended(&attempt, told, now)
    }

    fn ask(owners: &mut Owners, client: u32, ask: Ask, told: Told) -> bool {
        ask_at(owners, client, ask, told, NOW)
    }

    fn fits(owners: &Owners) -> bool {
        owners.histories().iter().all(|history| judge(history) == Verdict::Fits)
    }

    fn held_by_1() -> Owners {
        let mut owners = Owners::new(1);
        assert!(ask(&mut owners, 1, LOCK, Told::Done));
        owners
    }

    #[test]
    fn what_a_client_has_locked_nobody_else_is_granted() {
        let mut owners = held_by_1();
        assert!(ask(&mut owners, 2, LOCK, Told::Refused) && fits(&owners));
        assert!(ask(&mut owners, 2, LOCK, Told::Done) && !fits(&owners));
    }

    #[test]
    fn who_died_or_is_evicted_may_have_lost_what_it_had() {
        for evicted in [false, true] {
            let mut owners = held_by_1();
            match evicted {
                true => owners.evict(1),
                false => owners.retire(1),
            }
            assert_eq!(owners.begin(1, BYTES_OF_0, LOCK, false, NOW).is_none(), evicted);
            owners.evicted(1);
            assert!(ask(&mut owners, 2, LOCK, Told::Refused) && fits(&owners));
            assert!(ask(&mut owners, 2, LOCK, Told::Done) && fits(&owners));
            assert!(ask(&mut owners, 1, LOCK, Told::Done) && !fits(&owners), "as another owner");
        }
    }

    #[test]
    fn who_was_not_heard_for_long_may_have_lost_what_it_had() {
        for (silent, is_known) in [(LEASE - Duration::from_millis(1), true), (LEASE, false)] {
            let mut owners = held_by_1();
            assert!(ask(&mut owners, 2, LOCK, Told::Refused));
            let known = ask_at(&mut owners, 1, Ask::Unlock(3, 4), Told::Done, NOW + silent);
            assert_eq!(known, is_known);
            assert!(ask(&mut owners, 2, LOCK, Told::Done));
            assert_eq!(fits(&owners), !is_known);
        }
    }

    #[test]
    fn of_an_answer_that_comes_after_that_nobody_knows_whose_it_is() {
        let mut owners = held_by_1();
        let late = owners.begin(1, BYTES_OF_0, Ask::Exclude(2, 4), false, NOW).unwrap();
        owners.evict(1);
        assert!(!owners.ended(&late, Told::Refused, NOW) && fits(&owners));
        owners.evicted(1);
        assert!(!ask(&mut owners, 1, Ask::Unlock(0, 1), Told::Unknown));
        assert!(!ask(&mut owners, 1, Ask::Look(0, 6, true), Told::Held(3, true)), "its own");
        assert!(fits(&owners));
    }

    #[test]
    fn a_wait_that_was_given_up_is_over_when_its_owner_is_told_of_the_next_one() {
        let mut owners = Owners::new(1);
        assert!(ask(&mut owners, 1, LOCK, Told::GaveUp));
        assert!(ask(&mut owners, 2, LOCK, Told::Refused) && fits(&owners));
        assert!(ask(&mut owners, 1, Ask::Share(4, 5), Told::Done) && fits(&owners));
        assert!(ask(&mut owners, 2, LOCK, Told::Refused) && !fits(&owners), "it was given back");
    }

    #[test]
    fn what_a_client_had_when_it_gave_up_a_wait_for_more_it_keeps() {
        let mut owners = Owners::new(1);
        assert!(ask(&mut owners, 1, Ask::Share(0, 2), Told::Done));
        assert!(ask(&mut owners, 1, LOCK, Told::GaveUp) && ask(&mut owners, 1, LOCK, Told::GaveUp));
        assert!(ask(&mut owners, 2, Ask::Share(0, 2), Told::Done) && fits(&owners));
        assert!(ask(&mut owners, 2, Ask::Unlock(0, 2), Told::Done) && fits(&owners));
        assert!(ask(&mut owners, 1, Ask::Share(4, 5), Told::Done) && fits(&owners));
        assert!(ask(&mut owners, 2, LOCK, Told::Done) && !fits(&owners));
    }

    #[test]
    fn what_a_wait_is_granted_that_an_owner_gave_up_who_lets_go_of_all_may_just_be_unlocked() {
        for evicted_first in [true, false] {
            let mut owners = Owners::new(1);
            assert!(ask(&mut owners, 1, Ask::Exclude(0, 4), Told::Done));
            let wait = owners.begin(1, BYTES_OF_0, Ask::Share(2, 4), true, NOW).unwrap();
            if evicted_first {
                owners.evict(1);
            }
            assert_eq!(owners.ended(&wait, Told::GaveUp, NOW), !evicted_first);
            owners.evict(1);
            assert!(ask(&mut owners, 2, Ask::Exclude(2, 4), Told::Done) && fits(&owners));
            assert!(ask(&mut owners, 2, Ask::Share(0, 1), Told::Refused) && fits(&owners));
            assert!(ask(&mut owners, 2, Ask::Share(0, 1), Told::Done) && fits(&owners));
        }
    }
}
