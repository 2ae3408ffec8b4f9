//! Which keys were written lately: as long as somebody looks at what was before.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

/// A commit on an older snapshot is refused.
pub const COMMIT_AGE_MAX: Duration = Duration::from_secs(300);
/// What was written since an older one is forgotten. In between a commit may wait for its turn.
const HOLD_AGE_MAX: Duration = Duration::from_secs(420);

/// The keys of one part that its writer has written, and the timestamps of those who may ask for them.
#[derive(Default)]
pub struct Horizon {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The latest timestamp that is known. Each that PD gives from now on is later.
    newest: u64,
    /// Those who look at something later than this timestamp, with a number that tells them apart.
    held: BTreeMap<(u64, u64), Instant>,
    next: u64,
    /// When a key was written last.
    written: HashMap<Vec<u8>, u64>,
    /// The same, in the order of time.
    order: VecDeque<(u64, Vec<Vec<u8>>)>,
}

/// Names one who looks.
#[derive(Clone, Copy)]
pub struct Hold(u64, u64);

impl Horizon {
    /// Remembers from now on what is written, for who then gets a timestamp.
    pub fn hold(&self) -> Hold {
        let mut state = self.state.lock();
        state.next += 1;
        let hold = (state.newest, state.next);
        state.held.insert(hold, Instant::now());
        Hold(hold.0, hold.1)
    }

    pub fn release(&self, hold: Hold) {
        self.state.lock().held.remove(&(hold.0, hold.1));
    }

    /// These keys have been written, not later than `at`.
    pub fn note(&self, keys: Vec<Vec<u8>>, at: u64) {
        let mut state = self.state.lock();
        state.newest = state.newest.max(at);
        for key in &keys {
            state.written.insert(key.clone(), at);
        }
        state.order.push_back((at, keys));
        state.forget();
    }

    /// True if a key was, or may have been, written after `at`.
    pub fn is_written_since(&self, key: &[u8], at: u64) -> bool {
        self.state.lock().written.get(key).is_some_and(|written| *written > at)
    }
}

impl State {
    fn forget(&mut self) {
        while let Some(first) = self.held.first_entry()
            && first.get().elapsed() > HOLD_AGE_MAX
        {
            first.remove();
        }
        let oldest = self.held.keys().next().map_or(self.newest, |(floor, _)| *floor);
        while let Some((at, _)) = self.order.front()
            && *at <= oldest
        {
            let Some((at, keys)) = self.order.pop_front() else { return };
            for key in keys {
                if self.written.get(&key) == Some(&at) {
                    self.written.remove(&key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_may_ask_for_is_remembered_and_nothing_else() {
        let horizon = Horizon::default();
        let key = |name: &str| vec![name.as_bytes().to_vec()];
        horizon.note(key("a"), 10);
        assert!(horizon.state.lock().written.is_empty());
        let hold = horizon.hold();
        horizon.note(key("b"), 20);
        horizon.note(key("a"), 30);
        assert!(horizon.is_written_since(b"b", 11) && !horizon.is_written_since(b"b", 20));
        let later = horizon.hold();
        horizon.release(hold);
        horizon.note(key("b"), 40);
        assert!(!horizon.is_written_since(b"a", 11), "nobody looks at what was before");
        assert!(horizon.is_written_since(b"b", 30));
        horizon.release(later);
        horizon.note(key("c"), 50);
        assert!(horizon.state.lock().written.is_empty() && horizon.state.lock().order.is_empty());
    }
}
