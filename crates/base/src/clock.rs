//! Time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where time comes from.
pub trait Clock: Send + Sync + 'static {
    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
    /// Time since 1970-01-01 UTC; may jump.
    fn wall(&self) -> Duration;
}

/// The machine's clocks.
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn wall(&self) -> Duration {
        wall_time()
    }
}

/// Time since 1970-01-01 UTC by the machine's clock, for who has no [`Clock`] at hand; may jump.
pub fn wall_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The machine's clocks, of which the monotonic one goes on while the machine sleeps, as it does
/// elsewhere: for what others wait for.
pub struct WakingClock;

impl Clock for WakingClock {
    fn monotonic(&self) -> Duration {
        read(libc::CLOCK_BOOTTIME)
    }

    fn wall(&self) -> Duration {
        wall_time()
    }
}

/// Processor time that the calling thread has used, in the kernel and outside.
pub fn thread_processor_time() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Time on a clock that all processes of this machine share, and that never goes back.
pub fn machine_time() -> Duration {
    read(libc::CLOCK_MONOTONIC)
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time` and nothing else.
    #[allow(unsafe_code)]
    let _always_there = unsafe { libc::clock_gettime(clock, &mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
