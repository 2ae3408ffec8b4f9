//! Whether what several clients were told can have happened one after the other.
//!
//! The search of Wing and Gong ("Testing and Verifying Concurrent Objects", 1993) with the memory of
//! Lowe ("Testing for linearizability", 2017): take any operation that began before the first of the
//! others had ended, see whether the plain object would have answered so, and go on; remember which
//! sets of operations have led to which object. An operation without an answer may have happened at
//! any time since it began, or never. An operation may also consist of several steps, each at a moment of
//! its own between its beginning and its end: a kernel looks names up before it asks to rename them.
//!
//! * [`names`] — directories, as a client's operations on them are; [`paths`] — as a kernel's are.
//! * [`contents`] — what is in a file, as a whole and block by block.
//! * [`locks`] — locks, asked for with and without waiting.
//!
//! Histories of several objects that are independent of each other are judged one object at a time: all of
//! them fit if each does.

pub mod contents;
pub mod locks;
pub mod names;
pub mod paths;

use std::collections::HashSet;
use std::fmt::{Debug, Write};
use std::hash::Hash;

/// What is operated on, as nobody doubts that it should behave.
pub trait Object: Clone + Debug + Eq + Hash {
    /// What a client asks for.
    type Ask: Clone + Debug;
    /// What it is told.
    type Told: Clone + Debug;
    /// What an operation of several steps knows of those that it has taken.
    type Step: Clone + Debug + Eq + Hash;

    /// All that the object may be after the next step of an operation that is told this, and what the
    /// operation knows then; `None`: that was its last step. Nothing if it would not be told this.
    fn after(
        &self,
        ask: &Self::Ask,
        told: &Self::Told,
        step: Option<&Self::Step>,
    ) -> Vec<(Self, Option<Self::Step>)>;

    /// True if an operation that is told this leaves the object as it is, whatever it is.
    fn only_looks(ask: &Self::Ask, told: &Self::Told) -> bool;
}

/// An operation.
#[derive(Clone, Debug)]
pub struct Operation<O: Object> {
    /// Who.
    pub client: u32,
    /// What it asked for.
    pub ask: O::Ask,
    /// What it was told.
    pub told: O::Told,
    /// When it began: in events, or nanoseconds.
    pub began: u64,
    /// When it ended; `u64::MAX`: never.
    pub ended: u64,
}

/// Most steps of a search; a history that needs more is not judged.
const STEPS_MAX: u64 = 3_000_000;

/// What a search has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It can have happened so.
    Fits,
    /// It cannot: the longest beginning that can, and the operations of which none fits then.
    Impossible(String),
    /// Too much to look through.
    TooLong,
}

impl Verdict {
    /// The verdict on two histories.
    pub fn and(self, other: impl FnOnce() -> Verdict) -> Verdict {
        if self == Verdict::Fits { other() } else { self }
    }
}

/// What has happened, and what has come of it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Moment<O: Object> {
    /// A bit for each operation that is over.
    done: Vec<u64>,
    /// Operations that have taken some of their steps, by number.
    under_way: Vec<(usize, O::Step)>,
    object: O,
}

impl<O: Object> Moment<O> {
    fn is_done(&self, nth: usize) -> bool {
        self.done[nth / 64] >> (nth % 64) & 1 == 1
    }

    fn count(&self) -> usize {
        self.done.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn step_of(&self, nth: usize) -> Option<&O::Step> {
        self.under_way.iter().find(|(other, _)| *other == nth).map(|(_, step)| step)
    }

    /// The operations that are not over and can take a step now; `None` if all that have an end are over.
    fn open(&self, all: &[Operation<O>]) -> Option<Vec<usize>> {
        let open = || (0..all.len()).filter(|&nth| !self.is_done(nth));
        let end = open().map(|nth| all[nth].ended).min().unwrap_or(u64::MAX);
        let begun = open().take_while(|&nth| all[nth].began < end);
        (end != u64::MAX).then(|| begun.collect())
    }

    /// The moment after a step of an operation.
    fn then(&self, nth: usize, object: O, step: Option<O::Step>) -> Self {
        let mut next = Self { object, ..self.clone() };
        next.under_way.retain(|(other, _)| *other != nth);
        match step {
            Some(step) => {
                next.under_way.push((nth, step));
                next.under_way.sort_by_key(|(nth, _)| *nth);
            }
            None => next.done[nth / 64] |= 1 << (nth % 64),
        }
        next
    }

    fn steps(&self, all: &[Operation<O>], nth: usize) -> Vec<(O, Option<O::Step>)> {
        let Operation { ask, told, ended, .. } = &all[nth];
        let mut steps = self.object.after(ask, told, self.step_of(nth));
        // What need not happen is left out where it would change nothing.
        steps.retain(|(object, step)| {
            *ended != u64::MAX || step.is_some() || *object != self.object
        });
        steps
    }

    /// An operation that only looks and can end now. Nothing is lost by ending it first.
    fn easy(&self, all: &[Operation<O>], open: &[usize]) -> Option<Self> {
        let looks = |nth: &&usize| O::only_looks(&all[**nth].ask, &all[**nth].told);
        let ends = |(object, step): &(O, Option<O::Step>)| step.is_none() && *object == self.object;
        let nth = *open.iter().filter(looks).find(|nth| self.steps(all, **nth).iter().any(ends))?;
        Some(self.then(nth, self.object.clone(), None))
    }
}

/// Whether a history of an object that begins so can have happened.
pub fn judge<O: Object>(start: O, history: &[Operation<O>]) -> Verdict {
    judge_within(STEPS_MAX, start, history)
}

fn judge_within<O: Object>(steps_max: u64, start: O, history: &[Operation<O>]) -> Verdict {
    let mut all = history.to_vec();
    all.sort_by_key(|operation| operation.began);
    let done = vec![0; all.len().div_ceil(64)];
    let mut stack = vec![Moment { done, under_way: Vec::new(), object: start }];
    let (mut seen, mut steps) = (HashSet::new(), 0);
    let mut best = (0, String::new());
    while let Some(mut moment) = stack.pop() {
        steps += 1;
        if steps > steps_max {
            return Verdict::TooLong;
        }
        let mut open = moment.open(&all);
        while let Some(next) = open.as_ref().and_then(|open| moment.easy(&all, open)) {
            moment = next;
            open = moment.open(&all);
        }
        // What is left need not have happened.
        let Some(open) = open else { return Verdict::Fits };
        if moment.count() >= best.0 {
            let left: Vec<_> = open.iter().map(|&nth| &all[nth]).collect();
            let (count, object) = (moment.count(), &moment.object);
            best = (count, format!("after {count} operations {object:?}, none of {left:?}"));
        }
        for nth in open.into_iter().rev() {
            for (object, step) in moment.steps(&all, nth) {
                let next = moment.then(nth, object, step);
                if seen.insert(next.clone()) {
                    stack.push(next);
                }
            }
        }
    }
    Verdict::Impossible(best.1)
}

/// A history for readers: a line for each operation, by when it began, in microseconds since the first.
pub fn lines<O: Object>(history: &[Operation<O>]) -> String {
    let mut all: Vec<_> = history.iter().collect();
    all.sort_by_key(|operation| operation.began);
    let first = all.first().map_or(0, |operation| operation.began);
    let mut text = String::new();
    for Operation { client, ask, told, began, ended } in all {
        let micros = |time: u64| (time - first) as f64 / 1000.0;
        let end = if *ended == u64::MAX { f64::INFINITY } else { micros(*ended) };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:12.1} {end:12.1}  client {client}: {ask:?} -> {told:?}",
            micros(*began)
        );
    }
    text
}

#[cfg(test)]
mod tests;
