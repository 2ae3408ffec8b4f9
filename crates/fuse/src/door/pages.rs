//! Pages that the kernel holds locked while it waits for us to write them, and those around.
//!
//! Who drops the pages of a file waits for locked ones. That must not be a write that waits for the change of
//! another mount which waits for this one to drop its pages: so the pages of writes under way are left out, and
//! dropped when the write is answered.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;
use strake_types::Ino;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// No page is smaller; of larger folios somebody waits a while.
const PAGE: u64 = 4096;

/// Longest wait for pages to be dropped: the kernel may wait for a request of its own.
pub(super) const DROP_WAIT: Duration = Duration::from_millis(200);

/// For how long after pages of a file were dropped those of each write of it are, too. The kernel puts what is written
/// into its pages before it sends it: if those are dropped in between, who reads there brings back what was before.
const FILLED_AGE_MAX: Duration = Duration::from_secs(1);
/// Of so many files it is remembered when pages were dropped, before it is looked whether that is long ago.
const DROPPED_MANY: usize = 256;

/// Writes from the page cache that are under way.
#[derive(Default)]
pub(super) struct Writing {
    files: Mutex<HashMap<Ino, Vec<Write>>>,
    dropped: Mutex<HashMap<Ino, Instant>>,
}

/// What becomes of pages when a write of them has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// They stay.
    Stay,
    /// They may be of before it, and go.
    Stale,
    /// All of the file go: some were left out when the others went.
    LeftOut,
}

struct Write {
    /// First byte and first byte after it, in whole pages.
    range: (u64, u64),
    /// It was left out.
    left_out: bool,
}

impl Writing {
    /// A write begins.
    pub fn begin(&self, ino: Ino, offset: u64, len: u64) -> (u64, u64) {
        let end = (offset.saturating_add(len)).checked_next_multiple_of(PAGE);
        let range = (offset / PAGE * PAGE, end.unwrap_or(u64::MAX));
        self.files.lock().entry(ino).or_default().push(Write { range, left_out: false });
        range
    }

    /// It ends.
    pub fn end(&self, ino: Ino, range: (u64, u64)) -> Ended {
        let mut files = self.files.lock();
        let Some(writes) = files.get_mut(&ino) else { return Ended::Stay };
        let found = writes.iter().position(|write| write.range == range);
        let left_out = found.is_some_and(|nth| writes.swap_remove(nth).left_out);
        if writes.is_empty() {
            files.remove(&ino);
        }
        match left_out {
            true => Ended::LeftOut,
            false if self.was_dropped_lately(ino) => Ended::Stale,
            false => Ended::Stay,
        }
    }

    fn note_dropped(&self, ino: Ino) {
        let mut dropped = self.dropped.lock();
        if dropped.len() >= DROPPED_MANY {
            dropped.retain(|_, at| at.elapsed() <= FILLED_AGE_MAX);
        }
        dropped.insert(ino, Instant::now());
    }

    fn was_dropped_lately(&self, ino: Ino) -> bool {
        self.dropped.lock().get(&ino).is_some_and(|at| at.elapsed() <= FILLED_AGE_MAX)
    }

    /// What of a file can be dropped now: ranges from their first byte, each with its length (0: to the end). The
    /// rest is to be dropped when its writes end.
    pub fn leave_out(&self, ino: Ino) -> Vec<(u64, u64)> {
        self.note_dropped(ino);
        let mut files = self.files.lock();
        let writes = files.get_mut(&ino).map_or(&mut [][..], Vec::as_mut_slice);
        writes.iter_mut().for_each(|write| write.left_out = true);
        between(writes)
    }

    /// What of a file is not being written, as above: it is about to be dropped.
    pub fn free(&self, ino: Ino) -> Vec<(u64, u64)> {
        self.note_dropped(ino);
        between(self.files.lock().get(&ino).map_or(&[], Vec::as_slice))
    }
}

fn between(writes: &[Write]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<_> = writes.iter().map(|write| write.range).collect();
    ranges.sort_unstable();
    let (mut free, mut at) = (Vec::new(), 0);
    for (from, to) in ranges {
        if from > at {
            free.push((at, from - at));
        }
        at = at.max(to);
    }
    if at < u64::MAX {
        free.push((at, 0));
    }
    free
}

/// Files whose pages the kernel may have through some open handle, with how many there are.
#[derive(Default)]
pub(super) struct Paged {
    handles: Mutex<HashMap<Ino, u32>>,
}

impl Paged {
    /// A handle that goes through the page cache is opened.
    pub fn opened(&self, ino: Ino) {
        *self.handles.lock().entry(ino).or_default() += 1;
    }

    /// It is closed.
    pub fn closed(&self, ino: Ino) {
        if let Entry::Occupied(mut count) = self.handles.lock().entry(ino) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// True if there is one.
    pub fn has(&self, ino: Ino) -> bool {
        self.handles.lock().contains_key(&ino)
    }
}

/// Files of which the kernel is dropping pages.
#[derive(Default)]
pub(super) struct Dropping {
    files: Mutex<HashMap<Ino, u32>>,
    ended: Notify,
}

impl Dropping {
    /// It begins; until what is given back is dropped.
    pub fn begin(self: &Arc<Self>, ino: Ino) -> Drops {
        *self.files.lock().entry(ino).or_default() += 1;
        Drops { of: Arc::clone(self), ino }
    }

    /// True if some of a file are.
    pub fn has(&self, ino: Ino) -> bool {
        self.files.lock().contains_key(&ino)
    }

    /// Waits until none of a file are being dropped, or for as long as that is waited for.
    pub async fn wait(&self, ino: Ino) {
        let end = Instant::now() + DROP_WAIT;
        loop {
            let ended = self.ended.notified();
            if !self.has(ino) || timeout_at(end, ended).await.is_err() {
                return;
            }
        }
    }
}

/// Pages of a file are being dropped.
pub(super) struct Drops {
    of: Arc<Dropping>,
    ino: Ino,
}

impl Drop for Drops {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = self.of.files.lock().entry(self.ino) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        self.of.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_written_is_left_out_and_dropped_at_its_end() {
        let (writing, ino) = (Writing::default(), Ino(7));
        assert_eq!(writing.leave_out(ino), [(0, 0)]);
        let one = writing.begin(ino, 5000, 10);
        let two = writing.begin(ino, 3 * PAGE, 2 * PAGE);
        assert_eq!(writing.leave_out(ino), [(0, PAGE), (2 * PAGE, PAGE), (5 * PAGE, 0)]);
        let late = writing.begin(ino, 0, PAGE);
        assert_eq!([one, two].map(|range| writing.end(ino, range)), [Ended::LeftOut; 2]);
        assert_eq!(writing.end(ino, late), Ended::Stale);
        assert_eq!(writing.leave_out(ino), [(0, 0)]);
    }

    #[test]
    fn what_is_written_soon_after_pages_were_dropped_may_have_been_filled_in_before() {
        let writing = Writing::default();
        let written = |ino| writing.end(ino, writing.begin(ino, 0, PAGE));
        assert_eq!(written(Ino(7)), Ended::Stay);
        writing.free(Ino(7));
        assert_eq!((written(Ino(7)), written(Ino(8))), (Ended::Stale, Ended::Stay));
        let long_ago = Instant::now().checked_sub(2 * FILLED_AGE_MAX).unwrap();
        writing.dropped.lock().insert(Ino(7), long_ago);
        assert_eq!(written(Ino(7)), Ended::Stay);
    }

    #[test]
    fn a_write_at_the_very_end_leaves_nothing_behind_it() {
        let writing = Writing::default();
        let last = writing.begin(Ino(7), u64::MAX - 10, 10);
        assert_eq!(writing.leave_out(Ino(7)), [(0, last.0)]);
    }

    #[tokio::test]
    async fn who_waits_for_pages_waits_for_those_of_his_file() {
        let dropping = Arc::new(Dropping::default());
        let (one, two) = (dropping.begin(Ino(7)), dropping.begin(Ino(7)));
        dropping.wait(Ino(8)).await;
        let waits = dropping.wait(Ino(7));
        futures::pin_mut!(waits);
        assert!(futures::poll!(waits.as_mut()).is_pending());
        drop(one);
        assert!(futures::poll!(waits.as_mut()).is_pending());
        drop(two);
        waits.await;
        assert!(dropping.files.lock().is_empty());
    }
}
