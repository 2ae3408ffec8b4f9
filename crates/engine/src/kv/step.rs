//! Named steps at which a test kills the process.
//!
//! A build without tests has no trace of them. In a test build the environment variable
//! `STRAKE_KV_STEP=NAME:COUNT` names a step, and reaching it for the COUNT-th time is the end, at
//! once and without any clean-up, as by `kill -9`.

/// Passes a step.
#[cfg(not(test))]
#[inline(always)]
pub fn step(_name: &'static str) {}

/// True if the process is to die at this step, for steps that leave something half done first.
#[cfg(not(test))]
#[inline(always)]
pub fn is_last(_name: &'static str) -> bool {
    false
}

#[cfg(test)]
pub use armed::{die, is_last, step};

#[cfg(not(test))]
pub fn die() {}

#[cfg(test)]
mod armed {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static ARMED: LazyLock<Option<(String, AtomicU64)>> = LazyLock::new(|| {
        let value = std::env::var("STRAKE_KV_STEP").ok()?;
        let (name, count) = value.rsplit_once(':')?;
        Some((name.to_owned(), AtomicU64::new(count.parse().ok()?)))
    });

    pub fn is_last(name: &'static str) -> bool {
        match &*ARMED {
            Some((armed, left)) if armed == name => left.fetch_sub(1, Ordering::SeqCst) == 1,
            _ => false,
        }
    }

    pub fn die() {
        let _never_fails =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::thread::park();
    }

    pub fn step(name: &'static str) {
        if is_last(name) {
            die();
        }
    }
}
