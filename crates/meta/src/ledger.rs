//! The result ledger of a session: a mutation that is sent again is answered, not repeated.
//!
//! The reply to a numbered mutation is stored under `R` in the mutation's own transaction. This is
//! the part in memory: which numbers have a reply there, and which are being worked on, so that a
//! repeat waits for the first instead of racing it.

use parking_lot::Mutex;
use std::collections::{BTreeSet, HashSet};
use tokio::sync::Notify;

/// Most replies forgotten by one transaction.
const FORGET_MAX: usize = 64;

#[derive(Default)]
struct State {
    /// Numbers whose reply is stored.
    stored: BTreeSet<u64>,
    /// Numbers being worked on.
    running: HashSet<u64>,
    /// Everything up to this number has been answered.
    answered: u64,
}

/// The ledger of one session.
#[derive(Default)]
pub(crate) struct Ledger {
    state: Mutex<State>,
    ended: Notify,
}

/// What a number turned out to be.
pub(crate) enum Begin<'a> {
    /// A mutation not seen before; whoever holds this works on it.
    New(Running<'a>),
    /// Its reply is stored.
    Repeat,
    /// Its reply has reached the client already: a late copy of the message.
    Late,
}

/// Marks a number as being worked on.
pub(crate) struct Running<'a> {
    ledger: &'a Ledger,
    seq: u64,
}

impl Ledger {
    /// A ledger whose stored replies have these numbers.
    pub fn with(stored: impl IntoIterator<Item = u64>) -> Self {
        let stored = stored.into_iter().collect();
        Ledger { state: Mutex::new(State { stored, ..State::default() }), ended: Notify::new() }
    }

    /// Begins on a number; waits while another works on the same.
    pub async fn begin(&self, seq: u64) -> Begin<'_> {
        loop {
            let ended = self.ended.notified();
            {
                let mut state = self.state.lock();
                if state.stored.contains(&seq) {
                    return Begin::Repeat;
                }
                if seq <= state.answered {
                    return Begin::Late;
                }
                if state.running.insert(seq) {
                    return Begin::New(Running { ledger: self, seq });
                }
            }
            ended.await;
        }
    }

    /// The reply to this number is stored now.
    pub fn stored(&self, seq: u64) {
        self.state.lock().stored.insert(seq);
    }

    /// Numbers up to `answered` whose replies may be deleted, a bounded number of them. They count
    /// as forgotten; [`Ledger::keep`] takes that back.
    pub fn forget(&self, answered: u64) -> Vec<u64> {
        let mut state = self.state.lock();
        state.answered = state.answered.max(answered);
        let old: Vec<u64> = state.stored.range(..=answered).take(FORGET_MAX).copied().collect();
        for seq in &old {
            state.stored.remove(seq);
        }
        old
    }

    /// These replies could not be deleted.
    pub fn keep(&self, seqs: &[u64]) {
        self.state.lock().stored.extend(seqs);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.ledger.state.lock().running.remove(&self.seq);
        self.ledger.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_repeat_waits_for_the_first() {
        let ledger = Ledger::default();
        let Begin::New(first) = ledger.begin(1).await else { panic!("new") };
        {
            let second = ledger.begin(1);
            futures::pin_mut!(second);
            assert!(futures::poll!(second.as_mut()).is_pending());
            ledger.stored(1);
            drop(first);
            assert!(matches!(second.await, Begin::Repeat));
        }
        assert_eq!(ledger.forget(1), [1]);
        assert!(matches!(ledger.begin(1).await, Begin::Late));
        ledger.keep(&[1]);
        assert!(matches!(ledger.begin(1).await, Begin::Repeat));
    }

    #[tokio::test]
    async fn a_failed_mutation_may_be_tried_again() {
        let ledger = Ledger::with([5]);
        drop(ledger.begin(6).await);
        assert!(matches!(ledger.begin(6).await, Begin::New(_)));
        assert!(matches!(ledger.begin(5).await, Begin::Repeat));
    }
}
