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

/// Drops that wait for pages which are being read, and may be asked for by each of many reads: of each file one is under way,
/// and all that is asked for meanwhile is one, the next. Each takes a thread.
#[derive(Default)]
pub(super) struct InTurn {
    files: Mutex<HashMap<Ino, Next>>,
}

/// What is dropped next of a file.
#[derive(Default)]
pub(super) struct Next {
    /// As [`Writing::leave_out`] says them.
    pub ranges: Vec<(u64, u64)>,
    /// For all who have asked.
    drops: Option<Drops>,
}

impl InTurn {
    /// These ranges of a file are to be dropped. True if the caller has to begin, with [`InTurn::next`] until there is nothing.
    pub fn ask(&self, ino: Ino, ranges: &[(u64, u64)], drops: Option<Drops>) -> bool {
        let mut files = self.files.lock();
        let begins = !files.contains_key(&ino);
        let next = files.entry(ino).or_default();
        next.ranges.extend(ranges);
        join(&mut next.ranges);
        next.drops = next.drops.take().or(drops);
        begins
    }

    /// What is dropped now of a file, until it is given back. None: nothing, and who asks from now on has to begin.
    pub fn next(&self, ino: Ino) -> Option<Next> {
        let mut files = self.files.lock();
        let next = files.get_mut(&ino).map(std::mem::take)?;
        if next.ranges.is_empty() && next.drops.is_none() {
            files.remove(&ino);
            return None;
        }
        Some(next)
    }
}

/// Makes one of ranges that overlap or touch.
fn join(ranges: &mut Vec<(u64, u64)>) {
    let end = |(from, len): (u64, u64)| if len == 0 { u64::MAX } else { from.saturating_add(len) };
    ranges.sort_unstable();
    ranges.dedup_by(|later, earlier| {
        let joins = later.0 <= end(*earlier);
        if joins {
            let to = end(*earlier).max(end(*later));
            earlier.1 = if to == u64::MAX { 0 } else { to - earlier.0 };
        }
        joins
    });
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

    #[test]
    fn what_is_to_be_dropped_while_that_is_under_way_is_dropped_together_after_it() {
        let (in_turn, dropping, ino) = (InTurn::default(), Arc::new(Dropping::default()), Ino(7));
        assert!(in_turn.next(ino).is_none());
        assert!(in_turn.ask(ino, &[(0, 0)], Some(dropping.begin(ino))));
        let first = in_turn.next(ino).unwrap();
        assert_eq!(first.ranges, [(0, 0)]);
        assert!(!in_turn.ask(ino, &[(PAGE, PAGE), (9 * PAGE, PAGE)], None));
        assert!(in_turn.ask(Ino(8), &[(0, 0)], None), "another file");
        assert!(!in_turn.ask(ino, &[(0, PAGE), (5 * PAGE, PAGE)], Some(dropping.begin(ino))));
        drop(first);
        assert!(dropping.has(ino), "until that of the next is dropped");
        let second = in_turn.next(ino).unwrap();
        assert_eq!(second.ranges, [(0, 2 * PAGE), (5 * PAGE, PAGE), (9 * PAGE, PAGE)]);
        assert!(!in_turn.ask(ino, &[(5 * PAGE, PAGE), (3 * PAGE, 0)], None), "it is under way");
        drop(second);
        assert!(!dropping.has(ino));
        assert_eq!(in_turn.next(ino).unwrap().ranges, [(3 * PAGE, 0)]);
        assert!(in_turn.next(ino).is_none());
        assert!(in_turn.ask(ino, &[(0, 0)], None), "it is over");
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
