//! Locks that closes are giving back.
//!
//! The kernel names who locks by an address, and that is free before the close of the file is answered: whoever
//! gets it next must not lose what it locks to that close. So it waits for it.

use super::counted::Counted;
use strake_types::Ino;

/// Whose locks, on which file, and whether they are flocks.
pub(super) type Holder = (Ino, u64, bool);

/// Holders whose locks are being given back.
#[derive(Default)]
pub(super) struct Unlocking(Counted<Holder>);

impl Unlocking {
    /// It begins; until what is returned is dropped.
    pub fn begin(&self, holders: Vec<Holder>) -> Unlocks<'_> {
        self.0.begin(&holders);
        Unlocks { of: &self.0, holders }
    }

    /// Waits until no locks of a holder are being given back.
    pub async fn wait(&self, holder: Holder) {
        self.0.wait(holder).await;
    }
}

/// Locks of these holders are being given back.
pub(super) struct Unlocks<'a> {
    of: &'a Counted<Holder>,
    holders: Vec<Holder>,
}

impl Unlocks<'_> {
    /// Whose they are.
    pub fn holders(&self) -> &[Holder] {
        &self.holders
    }
}

impl Drop for Unlocks<'_> {
    fn drop(&mut self) {
        self.of.end(&self.holders);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_locks_waits_for_all_that_the_same_holder_gives_back() {
        let (unlocking, ours) = (Unlocking::default(), (Ino(7), 1, false));
        let one = unlocking.begin(vec![ours]);
        let two = unlocking.begin(vec![(Ino(8), 1, true), ours]);
        for other in [(Ino(7), 2, false), (Ino(7), 1, true), (Ino(8), 1, false)] {
            unlocking.wait(other).await;
        }
        let waits = unlocking.wait(ours);
        futures::pin_mut!(waits);
        assert!(futures::poll!(waits.as_mut()).is_pending());
        drop(one);
        assert!(futures::poll!(waits.as_mut()).is_pending());
        drop(two);
        waits.await;
        assert!(unlocking.0.is_empty());
    }

    #[test]
    fn a_close_without_locks_leaves_no_trace() {
        let unlocking = Unlocking::default();
        let none = unlocking.begin(Vec::new());
        assert!(none.holders().is_empty() && unlocking.0.is_empty());
    }
}
