//! Changes that go on although nobody waits for them any more: they keep their payloads, of which the bounds on
//! what is received know nothing. While members are silent and no manager takes them out, that may be for long.

use parking_lot::Mutex;
use std::sync::Arc;

/// Payloads that are left in one group, at most.
const BYTES_MAX: u64 = 64 << 20;
/// Changes that are.
const CHANGES_MAX: u64 = 4096;

/// Some changes.
#[derive(Clone, Copy, Default)]
struct Sum {
    changes: u64,
    bytes: u64,
}

/// What is under way in a group.
#[derive(Default)]
pub(super) struct Left {
    open: Arc<Mutex<Sum>>,
    /// What of that somebody waits for, or is bounded by something else.
    awaited: Arc<Mutex<Sum>>,
}

/// Counts one change while it lives.
pub(super) struct Counted {
    sum: Arc<Mutex<Sum>>,
    bytes: u64,
}

impl Left {
    /// A change with so many bytes is under way.
    pub(super) fn open(&self, bytes: u64) -> Counted {
        Counted::among(&self.open, bytes)
    }

    /// Somebody waits for it.
    pub(super) fn wait_for(&self, bytes: u64) -> Counted {
        Counted::among(&self.awaited, bytes)
    }

    /// How many changes nobody waits for, if that is too much.
    pub(super) fn too_many(&self) -> Option<u64> {
        let (open, awaited) = (*self.open.lock(), *self.awaited.lock());
        let changes = open.changes.saturating_sub(awaited.changes);
        let bytes = open.bytes.saturating_sub(awaited.bytes);
        (changes >= CHANGES_MAX || bytes >= BYTES_MAX).then_some(changes)
    }
}

impl Counted {
    fn among(sum: &Arc<Mutex<Sum>>, bytes: u64) -> Self {
        {
            let mut sum = sum.lock();
            sum.changes += 1;
            sum.bytes += bytes;
        }
        Self { sum: sum.clone(), bytes }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut sum = self.sum.lock();
        sum.changes -= 1;
        sum.bytes -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_waits_for_is_too_much() {
        let left = Left::default();
        let open: Vec<_> = (0..8).map(|_| left.open(BYTES_MAX / 4)).collect();
        let mut awaited: Vec<_> = (0..8).map(|_| left.wait_for(BYTES_MAX / 4)).collect();
        assert_eq!(left.too_many(), None);
        awaited.truncate(5);
        assert_eq!(left.too_many(), None);
        awaited.truncate(4);
        assert_eq!(left.too_many(), Some(4));
        drop(open);
        assert_eq!(left.too_many(), None, "they have ended, and their callers will hear it");
        drop(awaited);
        let small: Vec<_> = (0..CHANGES_MAX).map(|_| left.open(0)).collect();
        assert_eq!(left.too_many(), Some(CHANGES_MAX));
        drop(small);
        assert_eq!(left.too_many(), None);
    }
}
