//! The session: what makes the metadata server remember our open files, locks and mutations.

use parking_lot::Mutex;
use std::collections::BTreeSet;

/// The client's side of its session. Short sections only; nothing here waits.
pub(crate) struct Session {
    state: Mutex<State>,
    /// Held by the one who opens a new session, so that all others wait for that one.
    pub(crate) reopening: tokio::sync::Mutex<()>,
}

struct State {
    /// Its id; 0 before the first.
    id: u64,
    /// Number of the next mutation.
    next_seq: u64,
    /// Mutations without an answer so far.
    unanswered: BTreeSet<u64>,
    /// Files closed and not yet reported, with repeats.
    closed: Vec<u64>,
}

impl Session {
    pub(crate) fn new() -> Self {
        let state =
            State { id: 0, next_seq: 1, unanswered: BTreeSet::new(), closed: Vec::new() };
        Self { state: Mutex::new(state), reopening: tokio::sync::Mutex::new(()) }
    }

    /// Its id now.
    pub(crate) fn id(&self) -> u64 {
        self.state.lock().id
    }

    /// A new or resumed session takes effect.
    pub(crate) fn set(&self, id: u64) {
        self.state.lock().id = id;
    }

    /// A number for a mutation; [`Session::answered`] must follow.
    pub(crate) fn begin_mutation(&self) -> u64 {
        let mut state = self.state.lock();
        let seq = state.next_seq;
        state.next_seq += 1;
        state.unanswered.insert(seq);
        seq
    }

    /// The mutation is over, with whatever result.
    pub(crate) fn end_mutation(&self, seq: u64) {
        self.state.lock().unanswered.remove(&seq);
    }

    /// The id, and up to which number every mutation is over.
    pub(crate) fn stamp(&self) -> (u64, u64) {
        let state = self.state.lock();
        let oldest = state.unanswered.first().copied().unwrap_or(state.next_seq);
        (state.id, oldest - 1)
    }

    /// Files to report as closed.
    pub(crate) fn add_closed(&self, ino: u64, times: usize) {
        let mut state = self.state.lock();
        state.closed.extend(std::iter::repeat_n(ino, times));
    }

    /// Takes what is to be reported as closed.
    pub(crate) fn take_closed(&self) -> Vec<u64> {
        std::mem::take(&mut self.state.lock().closed)
    }

    /// A report did not arrive: keep it for the next.
    pub(crate) fn put_back_closed(&self, mut closed: Vec<u64>) {
        let mut state = self.state.lock();
        std::mem::swap(&mut state.closed, &mut closed);
        state.closed.append(&mut closed);
    }
}
