//! Pages that the kernel holds locked while it waits for us to write them, and those around.
//!
//! Who drops the pages of a file waits for locked ones. That must not be a write that waits for the change of
//! another mount which waits for this one to drop its pages: so the pages of writes under way are left out, and
//! dropped when the write is answered.

use super::counted::Counted;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use strake_types::Ino;
use tokio::time::timeout;

/// No page is smaller; of larger folios somebody waits a while.
const PAGE: u64 = 4096;

/// Longest wait for pages to be dropped: the kernel may wait for a request of its own.
pub(super) const DROP_WAIT: Duration = Duration::from_millis(200);

/// Writes from the page cache that are under way.
#[derive(Default)]
pub(super) struct Writing {
    files: Mutex<HashMap<Ino, Vec<Write>>>,
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

    /// It ends. True if its pages are to be dropped now.
    pub fn end(&self, ino: Ino, range: (u64, u64)) -> bool {
        let mut files = self.files.lock();
        let Some(writes) = files.get_mut(&ino) else { return false };
        let found = writes.iter().position(|write| write.range == range);
        let left_out = found.is_some_and(|nth| writes.swap_remove(nth).left_out);
        if writes.is_empty() {
            files.remove(&ino);
        }
        left_out
    }

    /// What of a file can be dropped now: ranges from their first byte, each with its length (0: to the end). The
    /// rest is to be dropped when its writes end.
    pub fn leave_out(&self, ino: Ino) -> Vec<(u64, u64)> {
        let mut files = self.files.lock();
        let writes = files.get_mut(&ino).map_or(&mut [][..], Vec::as_mut_slice);
        writes.iter_mut().for_each(|write| write.left_out = true);
        between(writes)
    }

    /// True if some of a file is being written.
    pub fn has(&self, ino: Ino) -> bool {
        self.files.lock().contains_key(&ino)
    }

    /// What of a file is not being written, as above.
    pub fn free(&self, ino: Ino) -> Vec<(u64, u64)> {
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

/// Files of which the kernel is dropping pages.
#[derive(Default)]
pub(super) struct Dropping(Counted<Ino>);

impl Dropping {
    /// It begins; until what is given back is dropped.
    pub fn begin(self: &Arc<Self>, ino: Ino) -> Drops {
        self.0.begin(&[ino]);
        Drops { of: Arc::clone(self), ino }
    }

    /// True if some of a file are.
    pub fn has(&self, ino: Ino) -> bool {
        self.0.has(ino)
    }

    /// Waits until none of a file are being dropped, or for as long as that is waited for.
    pub async fn wait(&self, ino: Ino) {
        let _in_time = timeout(DROP_WAIT, self.0.wait(ino)).await;
    }
}

/// Pages of a file are being dropped.
pub(super) struct Drops {
    of: Arc<Dropping>,
    ino: Ino,
}

impl Drop for Drops {
    fn drop(&mut self) {
        self.of.0.end(&[self.ino]);
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
        assert!(writing.end(ino, one) && writing.end(ino, two) && !writing.end(ino, late));
        assert_eq!(writing.leave_out(ino), [(0, 0)]);
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
        assert!(dropping.0.is_empty());
    }
}
