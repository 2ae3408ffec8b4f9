//! Signals that arrive at a process while its request is under way.
//!
//! The kernel says INTERRUPT once for the first signal of any kind, and nothing at a later, fatal
//! one. A wait for a lock ends at any signal, as POSIX has it. Anything else ends only if the process
//! is being killed: reads and writes of files that fail with EINTR break programs. Writes and locks are
//! given up then. What else is under way goes on by itself, a copy or an `fallocate` with what of it has begun; only who closes
//! the file waits for it, with the locks that its process had.

use parking_lot::Mutex;
use rustix::io::Errno as OsError;
use rustix::process::{Pid, test_kill_process};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Interrupts kept whose request has not been seen to wait yet.
const EARLY_MAX: usize = 64;
/// How often a process that got a signal is looked at for a fatal one.
const FATAL_CHECK: Duration = Duration::from_millis(50);
/// SIGKILL in a signal mask. Every fatal signal turns into it for all threads of a process.
const SIGKILL_BIT: u64 = 1 << (libc::SIGKILL - 1);

/// The interrupts of one mount.
#[derive(Default)]
pub struct Interrupts {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    by_request: HashMap<u64, Arc<Flag>>,
    /// Requests whose interrupt overtook them: another thread read it first.
    early: VecDeque<u64>,
}

#[derive(Default)]
struct Flag {
    raised: AtomicBool,
    changed: Notify,
}

/// Where one request learns that it was interrupted.
#[derive(Clone)]
pub struct Interrupt {
    all: Arc<Interrupts>,
    unique: u64,
    pid: u32,
}

/// Removes the flag of a request when nobody looks at it any more.
struct Watch<'a> {
    interrupt: &'a Interrupt,
    flag: Arc<Flag>,
}

impl Interrupts {
    /// Where the request `unique` of thread `pid` learns of its interrupt.
    pub fn of(self: &Arc<Self>, unique: u64, pid: u32) -> Interrupt {
        Interrupt { all: self.clone(), unique, pid }
    }

    /// The kernel interrupts a request.
    pub fn raise(&self, unique: u64) {
        let mut waiting = self.waiting.lock();
        if let Some(flag) = waiting.by_request.get(&unique) {
            flag.raised.store(true, Ordering::Release);
            flag.changed.notify_waiters();
            return;
        }
        if waiting.early.len() == EARLY_MAX {
            waiting.early.pop_front();
        }
        waiting.early.push_back(unique);
    }
}

impl Interrupt {
    /// One that never comes.
    pub fn never() -> Self {
        Interrupts::of(&Arc::default(), 0, 0)
    }

    fn watch(&self) -> Watch<'_> {
        let mut waiting = self.all.waiting.lock();
        let early = waiting.early.iter().position(|&unique| unique == self.unique);
        let flag = waiting.by_request.entry(self.unique).or_default().clone();
        if let Some(at) = early {
            waiting.early.remove(at);
            flag.raised.store(true, Ordering::Release);
        }
        Watch { interrupt: self, flag }
    }

    /// Waits until the calling thread gets a signal.
    pub async fn requested(&self) {
        let watch = self.watch();
        loop {
            let changed = watch.flag.changed.notified();
            if watch.flag.raised.load(Ordering::Acquire) {
                return;
            }
            changed.await;
        }
    }

    /// Waits until the calling process is being killed.
    pub async fn fatal(&self) {
        self.requested().await;
        loop {
            if self.pid != 0 && is_dying(self.pid) {
                return;
            }
            tokio::time::sleep(FATAL_CHECK).await;
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut waiting = self.interrupt.all.waiting.lock();
        // The map's and ours: nobody else looks at it.
        if Arc::strong_count(&self.flag) == 2 {
            waiting.by_request.remove(&self.interrupt.unique);
        }
    }
}

/// True if a thread has a fatal signal waiting, or is gone.
fn is_dying(pid: u32) -> bool {
    has_fatal(pid, std::fs::read_to_string(format!("/proc/{pid}/status")))
}

/// Judges that from what `/proc` says of it. Where that says nothing, who is there lives: no file can be opened at the moment, or
/// processes of others are hidden from us (`hidepid`, where another user than root has mounted): they are dying when they are gone.
fn has_fatal(pid: u32, status: io::Result<String>) -> bool {
    let Ok(status) = status else { return is_gone(pid) };
    let masks = status.lines().filter_map(|line| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    masks.fold(0, |all, mask| all | mask) & SIGKILL_BIT != 0
}

fn is_gone(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| test_kill_process(pid) == Err(OsError::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn an_interrupt_reaches_its_request_whichever_comes_first() {
        let all = Arc::new(Interrupts::default());
        let (late, early) = (all.of(2, 0), all.of(4, 0));
        all.raise(4);
        assert!(early.requested().now_or_never().is_some());
        let mut wait = Box::pin(late.requested());
        assert!((&mut wait).now_or_never().is_none());
        all.raise(2);
        assert!((&mut wait).now_or_never().is_some());
        drop(wait);
        let left = all.waiting.lock();
        assert!(left.by_request.is_empty() && left.early.is_empty());
    }

    #[test]
    fn interrupts_of_requests_long_answered_are_forgotten() {
        let all = Interrupts::default();
        (0..1000).for_each(|unique| all.raise(unique));
        assert_eq!(all.waiting.lock().early.len(), EARLY_MAX);
    }

    #[test]
    fn this_process_is_not_dying_and_a_missing_one_is() {
        assert!(!is_dying(std::process::id()));
        assert!(is_dying(u32::MAX));
    }

    /// Its write was given up with EINTR when the mount had no descriptor left to look at it.
    #[test]
    fn a_process_that_cannot_be_looked_at_is_not_dying() {
        for number in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EACCES, libc::ENOENT] {
            let refused = || Err(io::Error::from_raw_os_error(number));
            assert!(!has_fatal(std::process::id(), refused()), "{number}");
            assert!(has_fatal(i32::MAX as u32, refused()), "{number}");
        }
    }
}
