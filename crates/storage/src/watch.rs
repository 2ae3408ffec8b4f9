//! Whether the disk of a target still answers.
//!
//! A disk whose cable, controller or host has gone gives no error: what is asked of it just never ends, and whoever waits
//! holds a thread, a lock, room for a payload. A disk that is only busy ends one thing after the other, however late. So what
//! tells them apart is progress, and of reads only: nobody waits for bytes behind the cache of a disk, and kernels let them pass
//! what is written, while a write or a sync may well wait for tens of seconds on a slow disk on which much was
//! written, and nothing else ends meanwhile.
//!
//! * A disk **hangs** when a read waits for [`SILENCE_MAX`] and no other one has ended meanwhile.
//! * As soon as anything has waited for [`PROBE_AFTER`] the disk is **probed**, by a read of a block past all memory. That counts as a
//!   read: it tells what hangs where nobody else reads, and where one read takes long because of a bad sector.
//! * One change that takes longer than [`SHORT_MAX`], or a sync longer than [`SYNC_MAX`], says the same even if reads go on: a file
//!   system that is frozen, or has no room left below, takes no writes. By then nobody waits for them any more.
//! * What takes as long as there is to do (deletions of whole files, walks, scrubs) says nothing.
//!
//! Time in which this process did not look (it was stopped, or its host slept) does not count.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// So long a read waits on no disk that ends others meanwhile, or could.
const SILENCE_MAX: Duration = Duration::from_secs(8);
/// What has waited so long without an answer of the disk has it probed.
const PROBE_AFTER: Duration = Duration::from_secs(2);
/// A change takes no longer, nor a single read, whatever else the disk does.
const SHORT_MAX: Duration = Duration::from_secs(60);
/// A sync takes no longer: its callers wait for 100 s.
const SYNC_MAX: Duration = Duration::from_secs(100);
/// The manager has heard that a disk hangs after so long: there are some heartbeats in it.
const SAID_AFTER: Duration = Duration::from_secs(2);
/// Who has not looked for so long stood still.
const STOOD_STILL: Duration = Duration::from_secs(1);

/// What is under way, as far as it says something of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Bytes that were in no memory.
    Read,
    /// What ends soon on a disk that is well.
    Short,
    /// Whatever was written is made durable.
    Sync,
    /// It takes as long as there is to do.
    Walk,
    /// A read of which nobody needs the bytes.
    Probe,
}

/// How long what may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub silence: Duration,
    pub probe_after: Duration,
    pub said_after: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { silence: SILENCE_MAX, probe_after: PROBE_AFTER, said_after: SAID_AFTER }
    }
}

/// What is known of one disk.
pub(crate) struct Watch {
    /// For how many ms it has answered nothing, if it hangs, else 0: whoever begins something looks here.
    silent_ms: AtomicU64,
    state: Mutex<State>,
}

struct State {
    limits: Limits,
    next: u64,
    under_way: BTreeMap<u64, (Work, Instant)>,
    /// When a read ended last, or a probe that the disk has answered.
    answered: Instant,
    /// When a probe ended last, be it in vain.
    probed: Instant,
    /// When it was looked at last,
    looked: Instant,
    /// and since when that was often enough.
    watched: Instant,
    /// Since when it hangs.
    hangs: Option<Instant>,
}

/// Under way while it lives.
pub(crate) struct UnderWay {
    watch: Arc<Watch>,
    id: u64,
    /// Its end says that the disk answers, if it is a read.
    answers: bool,
}

impl UnderWay {
    /// It has ended, and says nothing of the disk.
    pub fn end_in_vain(mut self) {
        self.answers = false;
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::since(Instant::now())
    }
}

impl Watch {
    fn since(now: Instant) -> Self {
        let state = State {
            limits: Limits::default(),
            next: 0,
            under_way: BTreeMap::new(),
            answered: now,
            probed: now,
            looked: now,
            watched: now,
            hangs: None,
        };
        Self { silent_ms: AtomicU64::new(0), state: Mutex::new(state) }
    }

    /// Something is asked of the disk, until what is returned is dropped.
    pub fn begin(self: &Arc<Self>, work: Work) -> UnderWay {
        self.begin_at(work, Instant::now())
    }

    fn begin_at(self: &Arc<Self>, work: Work, now: Instant) -> UnderWay {
        let mut state = self.state.lock();
        let id = state.next;
        state.next += 1;
        state.under_way.insert(id, (work, now));
        UnderWay { watch: self.clone(), id, answers: true }
    }

    fn end_at(&self, id: u64, answers: bool, now: Instant) {
        let mut state = self.state.lock();
        let Some((work, _)) = state.under_way.remove(&id) else { return };
        if work == Work::Probe {
            state.probed = now;
        }
        if answers && matches!(work, Work::Read | Work::Probe) {
            state.answered = now;
        }
    }

    /// Looks how the disk is; to be called several times a second. True if it should be probed.
    pub fn look(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        if now.saturating_duration_since(state.looked) > STOOD_STILL {
            state.watched = now;
        }
        state.looked = now;
        let silent = state.under_way.values().filter_map(|op| state.silence(*op, now)).max();
        state.hangs = silent.map(|_| state.hangs.unwrap_or(now));
        let ms = |silent: Duration| u64::try_from(silent.as_millis()).unwrap_or(u64::MAX).max(1);
        self.silent_ms.store(silent.map_or(0, ms), Ordering::Relaxed);
        state.wants_probe(now)
    }

    /// For how long the disk has answered nothing, if it hangs.
    pub fn silent(&self) -> Option<Duration> {
        let ms = self.silent_ms.load(Ordering::Relaxed);
        (ms > 0).then(|| Duration::from_millis(ms))
    }

    /// True if it has hung for so long that the manager has heard of it, if it hears anything.
    pub fn has_hung(&self, now: Instant) -> bool {
        let state = self.state.lock();
        let said_after = state.limits.said_after;
        state.hangs.is_some_and(|since| now.saturating_duration_since(since) >= said_after)
    }

    #[cfg(test)]
    pub fn set_limits(&self, limits: Limits) {
        self.state.lock().limits = limits;
    }
}

impl State {
    /// For how long something has waited, if it would not on a disk that answers.
    fn silence(&self, (work, begun): (Work, Instant), now: Instant) -> Option<Duration> {
        let begun = begun.max(self.watched);
        let (passed, silent) = (
            now.saturating_duration_since(begun),
            now.saturating_duration_since(begun.max(self.answered)),
        );
        let hangs = match work {
            Work::Read | Work::Probe => silent > self.limits.silence || passed > SHORT_MAX,
            Work::Short => passed > SHORT_MAX,
            Work::Sync => passed > SYNC_MAX,
            Work::Walk => false,
        };
        hangs.then_some(passed)
    }

    fn wants_probe(&self, now: Instant) -> bool {
        let last = self.answered.max(self.probed).max(self.watched);
        let long = |begun: Instant| {
            now.saturating_duration_since(begun.max(last)) > self.limits.probe_after
        };
        let mut under_way = self.under_way.values();
        !under_way.clone().any(|(work, _)| *work == Work::Probe)
            && under_way.any(|(_, begun)| long(*begun))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.watch.end_at(self.id, self.answers, Instant::now());
    }
}

#[cfg(test)]
mod tests;
