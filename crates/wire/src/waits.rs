//! What operations are waiting for, for people. A mount tells its metadata server with each request for recalls, and that tells
//! `strake status`, beside what it waits for itself. While operations of a mount wait for that server nobody can be told, so what
//! has waited is told for a while afterwards, too.

use crate::message::meta;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use strake_base::clock::Clock;
use strake_types::Ino;

/// A wait longer than this is logged, and told.
pub const SILENT_MS_MAX: u64 = 2_000;
/// Most waits that are told, the longest first.
const TOLD_MAX: usize = 8;
/// Most that have waited that are told, the last ones.
const OVER_MAX: usize = 4;
/// How long after their end.
const OVER_TOLD: Duration = Duration::from_secs(60);

/// An operation that waits.
#[derive(Clone)]
pub struct Wait {
    /// For what, and why.
    pub what: String,
    /// A file that it is about.
    pub file: Option<Ino>,
    /// Since when (monotonic).
    pub since: Duration,
    /// When it is given up, counted from then.
    pub limit_ms: u64,
}

/// All that wait.
#[derive(Default)]
pub struct Waits {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    begun: u64,
    /// By when they began, and in the order in which they were noted.
    waits: BTreeMap<(Duration, u64), Wait>,
    /// What has waited, and when that ended; the last one at the end.
    over: VecDeque<(Wait, Duration)>,
}

/// Counts as waiting until it is dropped, and then as having waited.
pub struct Waiting<'a> {
    all: &'a Waits,
    key: (Duration, u64),
    clock: &'a dyn Clock,
}

impl Waits {
    /// An operation has waited for so long that people should know.
    pub fn begin<'a>(&'a self, wait: Wait, clock: &'a dyn Clock) -> Waiting<'a> {
        let mut state = self.state.lock();
        state.begun += 1;
        let key = (wait.since, state.begun);
        state.waits.insert(key, wait);
        Waiting { all: self, key, clock }
    }

    /// Those that have waited longest; what many wait for, each for the same file, once.
    pub fn told(&self, now: Duration) -> Vec<meta::Wait> {
        let state = self.state.lock();
        let mut told: Vec<meta::Wait> = Vec::new();
        for wait in state.waits.values() {
            if told.len() >= TOLD_MAX {
                break;
            }
            let ino = wait.file.map_or(0, |ino| ino.0);
            if !told.iter().any(|t| (t.ino, &t.what) == (ino, &wait.what)) {
                let waited_ms = now.saturating_sub(wait.since).as_millis() as u64;
                told.push(message(wait.clone(), waited_ms, 0));
            }
        }
        told
    }

    /// Those that have waited lately, the last one first.
    pub fn over(&self, now: Duration) -> Vec<meta::Wait> {
        let mut state = self.state.lock();
        state.over.retain(|(_, ended)| now.saturating_sub(*ended) <= OVER_TOLD);
        let told = state.over.iter().rev().cloned().map(|(wait, ended)| {
            let waited_ms = ended.saturating_sub(wait.since).as_millis() as u64;
            message(wait, waited_ms, now.saturating_sub(ended).as_millis() as u64)
        });
        told.collect()
    }
}

impl Waiting<'_> {
    /// What it waits for now, or why, where that has become another.
    pub fn change(&self, what: String) {
        if let Some(wait) = self.all.state.lock().waits.get_mut(&self.key) {
            wait.what = what;
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.all.state.lock();
        let Some(wait) = state.waits.remove(&self.key) else { return };
        // Of what many waited for, each for the same file, the last one is told.
        state.over.retain(|(other, _)| (other.file, &other.what) != (wait.file, &wait.what));
        state.over.push_back((wait, self.clock.monotonic()));
        let more = state.over.len().saturating_sub(OVER_MAX);
        state.over.drain(..more);
    }
}

fn message(wait: Wait, waited_ms: u64, ended_ms: u64) -> meta::Wait {
    let ino = wait.file.map_or(0, |ino| ino.0);
    meta::Wait { what: wait.what, ino, waited_ms, limit_ms: wait.limit_ms, ended_ms }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It is always ten seconds.
    struct Stopped;
    const AT_TEN: Stopped = Stopped;

    impl Clock for Stopped {
        fn monotonic(&self) -> Duration {
            Duration::from_secs(10)
        }

        fn wall(&self) -> Duration {
            Duration::from_secs(10)
        }
    }

    #[test]
    fn the_longest_waits_are_told_and_the_same_one_once() {
        let waits = Waits::default();
        let wait = |file, since| {
            let (what, since) = ("a target".to_owned(), Duration::from_secs(since));
            waits.begin(Wait { what, file: Some(Ino(file)), since, limit_ms: 30_000 }, &AT_TEN)
        };
        let ended = wait(9, 0);
        let _held: Vec<_> = [wait(1, 4), wait(2, 3), wait(1, 5)].into();
        drop(ended);
        let told = waits.told(Duration::from_secs(10));
        let told: Vec<_> = told.iter().map(|wait| (wait.ino, wait.waited_ms)).collect();
        assert_eq!(told, [(2, 7_000), (1, 6_000)]);
        let _more: Vec<_> = (10..30).map(|file| wait(file, 6)).collect();
        assert_eq!(waits.told(Duration::from_secs(10)).len(), TOLD_MAX);
    }

    #[test]
    fn what_has_waited_is_told_for_a_minute_and_the_same_once() {
        let waits = Waits::default();
        for (file, since) in [(1, 1), (2, 2), (1, 4), (3, 4), (4, 4), (5, 4)] {
            let (what, since) = ("a server".to_owned(), Duration::from_secs(since));
            let wait = Wait { what, file: Some(Ino(file)), since, limit_ms: 30_000 };
            drop(waits.begin(wait, &AT_TEN));
        }
        let told = |at| {
            let over = waits.over(Duration::from_secs(at)).into_iter();
            over.map(|wait| (wait.ino, wait.waited_ms, wait.ended_ms)).collect::<Vec<_>>()
        };
        let last = [5, 4, 3, 1].map(|file| (file, 6_000, 60_000));
        assert_eq!(told(70), last);
        assert_eq!((told(71), waits.told(Duration::from_secs(71))), (Vec::new(), Vec::new()));
    }
}
