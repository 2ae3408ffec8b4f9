//! Breaking production code on purpose, one rule at a time: a simulation that does not notice is no
//! proof of anything.

use std::cell::Cell;

thread_local! {
    static BROKEN: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// From now on this rule is broken in this thread; `None`: none is.
pub fn begin(rule: Option<&'static str>) {
    BROKEN.set(rule);
}

/// True while a rule is broken.
pub fn is_broken(rule: &str) -> bool {
    BROKEN.get() == Some(rule)
}
