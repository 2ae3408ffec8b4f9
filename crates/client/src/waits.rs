//! What operations of this mount are waiting for, for people: the metadata server is told with each request for
//! recalls, and tells `strake status`.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use strake_types::Ino;
use strake_wire::message::meta;

/// A wait longer than this is logged, and told.
pub(crate) const SILENT_MS_MAX: u64 = 2_000;
/// Most waits that are told, the longest first.
const TOLD_MAX: usize = 8;

/// An operation that waits.
#[derive(Clone)]
pub(crate) struct Wait {
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
pub(crate) struct Waits {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    begun: u64,
    waits: BTreeMap<u64, Wait>,
}

/// Counts as waiting until it is dropped.
pub(crate) struct Waiting<'a> {
    all: &'a Waits,
    number: u64,
}

impl Waits {
    /// An operation has waited for so long that people should know.
    pub fn begin(&self, wait: Wait) -> Waiting<'_> {
        let mut state = self.state.lock();
        state.begun += 1;
        let number = state.begun;
        state.waits.insert(number, wait);
        Waiting { all: self, number }
    }

    /// Those that have waited longest; what many wait for, each for the same file, once.
    pub fn told(&self, now: Duration) -> Vec<meta::Wait> {
        let mut waits: Vec<Wait> = self.state.lock().waits.values().cloned().collect();
        waits.sort_by_key(|wait| wait.since);
        let mut told: Vec<meta::Wait> = Vec::new();
        for wait in waits {
            let ino = wait.file.map_or(0, |ino| ino.0);
            if told.len() < TOLD_MAX && !told.iter().any(|t| (t.ino, &t.what) == (ino, &wait.what))
            {
                let waited_ms = now.saturating_sub(wait.since).as_millis() as u64;
                told.push(meta::Wait { what: wait.what, ino, waited_ms, limit_ms: wait.limit_ms });
            }
        }
        told
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.all.state.lock().waits.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_waits_are_told_and_the_same_one_once() {
        let waits = Waits::default();
        let wait = |file, since| {
            let (what, since) = ("a target".to_owned(), Duration::from_secs(since));
            waits.begin(Wait { what, file: Some(Ino(file)), since, limit_ms: 30_000 })
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
}
