//! Which versions somebody still looks at.

use parking_lot::Mutex;
use std::collections::BTreeMap;

/// The newest committed version and the versions of live snapshots.
#[derive(Default)]
pub struct Horizon {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    newest: u64,
    held: BTreeMap<u64, usize>,
}

impl Horizon {
    /// Holds the newest version until [`Self::release`].
    pub fn hold(&self) -> u64 {
        let mut state = self.state.lock();
        let newest = state.newest;
        *state.held.entry(newest).or_default() += 1;
        newest
    }

    pub fn release(&self, version: u64) {
        let mut state = self.state.lock();
        if let Some(count) = state.held.get_mut(&version) {
            *count -= 1;
            if *count == 0 {
                state.held.remove(&version);
            }
        }
    }

    /// Makes a version the newest; returns the oldest that is looked at.
    pub fn advance(&self, version: u64) -> u64 {
        let mut state = self.state.lock();
        state.newest = version;
        state.held.keys().next().copied().unwrap_or(version)
    }

    pub fn newest(&self) -> u64 {
        self.state.lock().newest
    }

    /// No snapshot is, or ever will be, older than this.
    pub fn oldest(&self) -> u64 {
        let state = self.state.lock();
        state.held.keys().next().copied().unwrap_or(state.newest)
    }
}
