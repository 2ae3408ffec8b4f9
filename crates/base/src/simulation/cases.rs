//! How often something has happened in a run: a simulation that never meets a case shows nothing of it.

use std::cell::RefCell;
use std::collections::BTreeMap;

thread_local! {
    static MET: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// It has happened once more in this thread.
pub fn count(case: &'static str) {
    MET.with_borrow_mut(|met| *met.entry(case).or_default() += 1);
}

/// How often each has happened in this thread; none has from now on.
pub fn take() -> BTreeMap<&'static str, u64> {
    MET.take()
}
