//! Who may hold locks that others may not share.
//!
//! Who shares what it had alone lets others read, as by an unlock: what killed processes had begun to change under the lock
//! is waited for first. Who had nothing alone waits for nothing.

use super::unlocking::Holder;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Holders that may have something alone, from when it is asked for until that is refused or given back.
#[derive(Default)]
pub(super) struct Alone(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// Locks that may have been granted, counted.
    granted: u64,
    holders: HashMap<Holder, Asked>,
}

#[derive(Default)]
struct Asked {
    /// How many locks it is asking for.
    under_way: u32,
    /// The number of the last that may have been granted; 0: it holds none.
    last: u64,
}

impl Alone {
    /// A lock is asked for.
    pub fn begin(&self, holder: Holder) -> Asking<'_> {
        self.0.lock().holders.entry(holder).or_default().under_way += 1;
        Asking { of: self, holder, refused: false }
    }

    /// True if a holder may have something alone, or may be getting it.
    pub fn has(&self, holder: Holder) -> bool {
        self.0.lock().holders.contains_key(&holder)
    }

    /// Before a holder gives everything back: for [`Alone::end`].
    pub fn last(&self, holder: Holder) -> u64 {
        self.0.lock().holders.get(&holder).map_or(0, |asked| asked.last)
    }

    /// A holder has given everything back, and may hold what was granted after the `last` before that.
    pub fn end(&self, holder: Holder, last: u64) {
        self.change(holder, |asked| {
            if asked.last == last {
                asked.last = 0;
            }
        });
    }

    /// A holder is gone.
    pub fn forget(&self, holders: &[Holder]) {
        if holders.is_empty() {
            return;
        }
        let mut table = self.0.lock();
        for holder in holders {
            table.holders.remove(holder);
        }
    }

    fn change(&self, holder: Holder, change: impl FnOnce(&mut Asked)) {
        let mut table = self.0.lock();
        let Some(asked) = table.holders.get_mut(&holder) else { return };
        change(asked);
        if asked.under_way == 0 && asked.last == 0 {
            table.holders.remove(&holder);
        }
    }
}

/// A lock is being asked for. Unless it was refused it may have been granted.
pub(super) struct Asking<'a> {
    of: &'a Alone,
    holder: Holder,
    refused: bool,
}

impl Asking<'_> {
    /// It was certainly not granted.
    pub fn refused(mut self) {
        self.refused = true;
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let granted = match self.refused {
            true => None,
            false => {
                let mut table = self.of.0.lock();
                table.granted += 1;
                Some(table.granted)
            }
        };
        self.of.change(self.holder, |asked| {
            asked.under_way = asked.under_way.saturating_sub(1);
            asked.last = granted.unwrap_or(asked.last);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_types::Ino;

    const OURS: Holder = (Ino(7), 1, false);

    /// Only a close took the mark away: who keeps a file open waited for changes of others at each lock that it shared.
    #[test]
    fn who_was_refused_or_has_given_all_back_has_nothing_alone() {
        let alone = Alone::default();
        alone.begin(OURS).refused();
        assert!(!alone.has(OURS));
        drop(alone.begin(OURS));
        alone.begin(OURS).refused();
        assert!(alone.has(OURS), "it has the first");
        alone.end(OURS, alone.last(OURS));
        assert!(!alone.has(OURS) && alone.0.lock().holders.is_empty());
    }

    #[test]
    fn what_is_asked_for_beside_an_unlock_may_be_held_after_it() {
        let alone = Alone::default();
        drop(alone.begin(OURS));
        let last = alone.last(OURS);
        let under_way = alone.begin(OURS);
        alone.end(OURS, last);
        assert!(alone.has(OURS), "it may be granted after that");
        drop(under_way);
        let last = alone.last(OURS);
        drop(alone.begin(OURS));
        alone.end(OURS, last);
        alone.end(OURS, last);
        assert!(alone.has(OURS), "it was granted meanwhile");
        alone.forget(&[OURS]);
        assert!(!alone.has(OURS));
    }
}
