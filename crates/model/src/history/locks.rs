//! Locks on the bytes of a file. A `flock` is one on a file of a single byte.

use super::{Object, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Most steps of a search. A step copies all locks: these take some seconds, and what needs more has many operations of
/// which nobody knows the end.
const STEPS_MAX: u64 = 300_000;

/// What is asked for on a range of bytes, from the first up to and without the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A lock that others may share.
    Share(u8, u8),
    /// A lock that nobody else has.
    Exclude(u8, u8),
    /// No lock.
    Unlock(u8, u8),
    /// Who has a lock in the way of one that nobody else has (`true`), or of one that others may share?
    Look(u8, u8, bool),
    /// A flock that nobody else has (`true`), or that others may share, however long that takes: what its owner has may go
    /// before it is granted.
    Await(u8, u8, bool),
}

impl Ask {
    /// The bytes, and which lock on them others may stand in the way of.
    fn parts(self) -> (Range<u8>, Option<bool>) {
        match self {
            Ask::Share(from, to) => (from..to, Some(false)),
            Ask::Exclude(from, to) => (from..to, Some(true)),
            Ask::Unlock(from, to) => (from..to, None),
            Ask::Look(from, to, exclusive) | Ask::Await(from, to, exclusive) => {
                (from..to, Some(exclusive))
            }
        }
    }

    fn takes(self) -> bool {
        matches!(self, Ask::Share(..) | Ask::Exclude(..) | Ask::Await(..))
    }

    /// The same as a flock that is waited for.
    pub fn awaited(self) -> Self {
        match self {
            Ask::Share(from, to) => Ask::Await(from, to, false),
            Ask::Exclude(from, to) => Ask::Await(from, to, true),
            other => other,
        }
    }
}

/// Who asks, and for what.
pub type Asked = (u32, Ask);

/// What an owner was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is done.
    Done,
    /// Another holds a lock in the way. The owner keeps those that it had.
    Refused,
    /// The same, and to wait for it would close a circle of waits.
    Deadlock,
    /// It waits no more. If it is granted all the same, what its owner had comes back before that is told of the next one.
    GaveUp,
    /// Nobody has a lock in the way.
    Free,
    /// An owner that has one, and whether nobody else can have one beside it.
    Held(u32, bool),
    /// Nothing, or that nobody knows.
    Unknown,
}

/// What an owner has on each of some bytes.
type Had = Vec<(u8, Option<bool>)>;

/// How far an operation has come that is not one of a moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// What its owner had is gone, and it waits.
    Waits,
    /// It was granted what is to be given back: what its owner had instead.
    GivesBack(Had),
}

/// Locks by byte and owner; true: nobody else has one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Locks(BTreeMap<(u8, u32), bool>);

/// An operation on locks: the owner is a process.
pub type Operation = super::Operation<Locks>;

/// Whether a history of a file that nobody has locked at first can have happened.
pub fn judge(history: &[Operation]) -> Verdict {
    super::judge_within(STEPS_MAX, Locks::default(), history)
}

impl Locks {
    /// Owners that have a lock in the way, and whether nobody else can have one beside it.
    fn in_the_way(&self, owner: u32, ask: Ask) -> impl Iterator<Item = (u32, bool)> + '_ {
        let (bytes, wanted) = ask.parts();
        let conflicts = move |byte: u8, other: u32, held: bool| {
            let both = wanted.is_some_and(|exclusive| exclusive || held);
            bytes.contains(&byte) && other != owner && both
        };
        let held = self.0.iter().map(|(&(byte, other), &held)| (byte, other, held));
        held.filter(move |&(byte, other, held)| conflicts(byte, other, held))
            .map(|(_, other, held)| (other, held))
    }

    /// What an owner has on some bytes.
    fn held(&self, owner: u32, bytes: Range<u8>) -> Had {
        bytes.map(|byte| (byte, self.0.get(&(byte, owner)).copied())).collect()
    }

    /// The locks when an owner has again what it had on the first bytes that were alike; and the other bytes, if there are
    /// any. What it has unlocked meanwhile does not come back, and what others share by now it has not alone.
    fn with_again(&self, owner: u32, had: &[(u8, Option<bool>)]) -> (Self, Option<Had>) {
        let lock = had.first().and_then(|(_, lock)| *lock);
        let alike = had.iter().take_while(|(_, other)| *other == lock).count();
        let (bytes, rest) = had.split_at(alike);
        let mut next = self.clone();
        let is_shared = |byte| self.0.keys().any(|&(at, other)| at == byte && other != owner);
        if lock != Some(true) || !bytes.iter().any(|(byte, _)| is_shared(*byte)) {
            for (byte, _) in bytes {
                if next.0.remove(&(*byte, owner)).is_some() {
                    next.0.extend(lock.map(|lock| ((*byte, owner), lock)));
                }
            }
        }
        (next, (!rest.is_empty()).then(|| rest.to_vec()))
    }

    /// The locks when an owner has this one, or none, on some bytes.
    fn with(&self, owner: u32, bytes: Range<u8>, lock: Option<bool>) -> Self {
        let mut next = self.clone();
        next.0.retain(|(byte, other), _| *other != owner || !bytes.contains(byte));
        next.0.extend(bytes.filter_map(|byte| Some(((byte, owner), lock?))));
        next
    }
}

impl Object for Locks {
    type Ask = Asked;
    type Told = Told;
    type Step = Step;

    fn after(
        &self,
        &(owner, ask): &Asked,
        told: &Told,
        step: Option<&Step>,
    ) -> Vec<(Self, Option<Step>)> {
        if let Some(Step::GivesBack(had)) = step {
            let (next, rest) = self.with_again(owner, had);
            return vec![(next, rest.map(Step::GivesBack))];
        }
        let (bytes, wanted) = ask.parts();
        let blocked = self.in_the_way(owner, ask).next().is_some();
        let same = || (self.clone(), None);
        let with = |lock| self.with(owner, bytes.clone(), lock);
        let had = || self.held(owner, bytes.clone());
        let mut next = match *told {
            Told::GaveUp if blocked => vec![same()],
            Told::GaveUp => {
                vec![(with(wanted), Some(Step::GivesBack(had()))), same()]
            }
            Told::Unknown if !ask.takes() && wanted.is_some() => vec![same()],
            Told::Done | Told::Unknown if !blocked => vec![(with(wanted), None)],
            Told::Refused | Told::Deadlock if blocked => vec![same()],
            Told::Free if !blocked => vec![same()],
            Told::Held(other, exclusive) => {
                let is_so = self.in_the_way(owner, ask).any(|held| held == (other, exclusive));
                if is_so { vec![same()] } else { Vec::new() }
            }
            _ => Vec::new(),
        };
        if matches!(ask, Ask::Await(..)) && had().iter().any(|(_, lock)| lock.is_some()) {
            next.push((with(None), Some(Step::Waits)));
        }
        next
    }

    fn only_looks(_ask: &Asked, told: &Told) -> bool {
        matches!(told, Told::Refused | Told::Deadlock | Told::Free | Told::Held(..))
    }
}

/// A wait for a lock: on which of several files, and which operation of its history.
pub type Wait = (usize, usize);

/// Whether a wait can have been in a circle of waits: while it lasted each in that circle waited for what the next one
/// may have had. That is less than a circle at one moment, which nobody has seen.
pub fn may_be_in_circle(files: &[Vec<Operation>], waits: &[Wait], wait: Wait) -> bool {
    let one = &files[wait.0][wait.1];
    let meanwhile = |&&(file, nth): &&Wait| {
        let other = &files[file][nth];
        other.began < one.ended && one.began < other.ended
    };
    let others: Vec<&Wait> = waits.iter().filter(meanwhile).collect();
    let (mut open, mut seen) = (vec![wait], BTreeSet::new());
    while let Some((file, nth)) = open.pop() {
        for holder in holders(&files[file], &files[file][nth]) {
            if holder == one.ask.0 {
                return true;
            }
            if seen.insert(holder) {
                let of_holder = |&&&(file, nth): &&&Wait| files[file][nth].ask.0 == holder;
                open.extend(others.iter().filter(of_holder).copied());
            }
        }
    }
    false
}

/// Owners that may have had what a wait was for, while it lasted.
fn holders(history: &[Operation], wait: &Operation) -> BTreeSet<u32> {
    let (owner, ask) = wait.ask;
    let (wanted, exclusive) = ask.parts();
    let conflicts = |held: &&Operation| {
        let (_, other) = held.ask.1.parts();
        held.ask.0 != owner
            && held.ask.1.takes()
            && (exclusive == Some(true) || other == Some(true))
    };
    let may_be_granted = |held: &&Operation| match held.told {
        Told::Done | Told::Unknown => held.began < wait.ended,
        Told::GaveUp => held.began < wait.ended && wait.began < held.ended,
        _ => false,
    };
    let is_unlocked = |held: &Operation, byte: u8| {
        history.iter().any(|later| {
            let (who, what) = later.ask;
            matches!(what, Ask::Unlock(from, to) if (from..to).contains(&byte))
                && (who, later.told) == (held.ask.0, Told::Done)
                && held.ended < later.began
                && later.ended < wait.began
        })
    };
    let lasts = |held: &&Operation| {
        let (mut bytes, _) = held.ask.1.parts();
        bytes.any(|byte| wanted.contains(&byte) && !is_unlocked(held, byte))
    };
    let held = history.iter().filter(conflicts).filter(may_be_granted).filter(lasts);
    held.map(|held| held.ask.0).collect()
}
