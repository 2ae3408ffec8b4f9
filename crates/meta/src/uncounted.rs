//! Files of which clients' words do not say how much they occupy: they wait to be counted on their targets.

use crate::in_turn::InTurn;
use parking_lot::Mutex;
use strake_types::Ino;

/// Files that wait, at most. Of others only those that say that they occupy nothing are found, by `strake fsck`.
const FILES_MAX: usize = 65_536;
/// Files that an orderly stop leaves to the next start by their numbers, at most: they are in one value of the store.
const LEFT_MAX: usize = 16_384;
/// After how long one that could not be counted is tried again: the first time, and at most.
const PAUSE_MS: u64 = 1_000;
const PAUSE_MS_MAX: u64 = 128_000;

/// When a file is tried next.
#[derive(Default)]
struct Due {
    /// By the server's clock in milliseconds.
    at_ms: u64,
    /// How long it has waited for that.
    pause_ms: u64,
}

/// The files of a volume that wait.
#[derive(Default)]
pub(crate) struct Uncounted(Mutex<InTurn<Due>>);

impl Uncounted {
    /// A file is to be counted.
    pub fn note(&self, ino: Ino) {
        let mut waiting = self.0.lock();
        if waiting.files.len() < FILES_MAX {
            waiting.files.entry(ino).or_default();
        }
    }

    /// It is counted. The caller holds its lock, under which others note it.
    pub fn forget(&self, ino: Ino) {
        self.0.lock().files.remove(&ino);
    }

    /// It could not be counted: it is tried again ever later.
    pub fn failed(&self, ino: Ino, now_ms: u64) {
        if let Some(due) = self.0.lock().files.get_mut(&ino) {
            due.pause_ms = (due.pause_ms * 2).clamp(PAUSE_MS, PAUSE_MS_MAX);
            due.at_ms = now_ms + due.pause_ms;
        }
    }

    /// True if a file waits.
    pub fn has(&self, ino: Ino) -> bool {
        self.0.lock().files.contains_key(&ino)
    }

    /// All that wait, for the next start; `None`: there are too many.
    pub fn all(&self) -> Option<Vec<u64>> {
        let waiting = self.0.lock();
        let numbers = || waiting.files.keys().map(|ino| ino.0).collect();
        (waiting.files.len() <= LEFT_MAX).then(numbers)
    }

    /// The next ones whose time has come, so many at most.
    pub fn due(&self, now_ms: u64, files_max: usize) -> Vec<Ino> {
        self.0.lock().next(files_max, |due| due.at_ms <= now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every look began at the lowest number: files behind others that could not be counted never were.
    #[test]
    fn each_file_comes_to_its_turn_and_one_that_failed_ever_later() {
        let waiting = Uncounted::default();
        (1..=5).for_each(|ino| waiting.note(Ino(ino)));
        let due = |now_ms, max| -> Vec<u64> {
            waiting.due(now_ms, max).into_iter().map(|ino| ino.0).collect()
        };
        assert_eq!(due(0, 2), [1, 2]);
        assert_eq!(due(0, 2), [3, 4]);
        assert_eq!(due(0, 2), [5, 1]);
        waiting.failed(Ino(2), 0);
        waiting.forget(Ino(3));
        waiting.note(Ino(2));
        assert_eq!(due(PAUSE_MS - 1, 9), [4, 5, 1]);
        assert_eq!(due(PAUSE_MS, 9), [2, 4, 5, 1]);
        waiting.failed(Ino(2), PAUSE_MS);
        assert_eq!(due(2 * PAUSE_MS, 9), [4, 5, 1]);
        assert_eq!(due(3 * PAUSE_MS, 9), [2, 4, 5, 1]);
        (0..60).for_each(|_| waiting.failed(Ino(2), 0));
        assert!(waiting.has(Ino(2)) && due(PAUSE_MS_MAX, 9).contains(&2), "and never gives up");
    }

    #[test]
    fn more_than_fit_a_value_are_not_named() {
        let waiting = Uncounted::default();
        let numbers: Vec<u64> = (1..=LEFT_MAX as u64).collect();
        numbers.iter().for_each(|ino| waiting.note(Ino(*ino)));
        assert_eq!(waiting.all(), Some(numbers));
        waiting.note(Ino(u64::MAX));
        assert_eq!(waiting.all(), None);
    }
}
