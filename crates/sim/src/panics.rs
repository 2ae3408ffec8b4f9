//! Panics of simulated processes: a runtime keeps them to the task, a simulation must not.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on panics of any thread are remembered for it.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let _ending = FIRST.try_with(|first| {
                first.borrow_mut().get_or_insert_with(|| info.to_string());
            });
            usual(info);
        }));
    });
}

/// The first panic of this thread since the last call.
pub fn take() -> Option<String> {
    FIRST.take()
}
