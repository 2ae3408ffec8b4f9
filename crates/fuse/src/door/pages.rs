//! Pages that the kernel holds locked while it waits for us to write them, and those around.
//!
//! Who drops the pages of a file waits for locked ones. That must not be a write that waits for the change of
//! another mount which waits for this one to drop its pages: so the pages of writes under way are left out, and
//! dropped when the write is answered.

use super::counted::Counted;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
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

/// Drops of whole files that wait for pages which are being read, and may be asked for by each of many reads: of each file one
/// is under way, and all that is asked for meanwhile is one, the next. Each takes a thread.
#[derive(Default)]
pub(super) struct InTurn {
    /// None: one is under way, and nothing was asked for since it began.
    files: Mutex<HashMap<Ino, Option<Asked>>>,
}

/// That a file is to be dropped. How much of it can be is known when that begins, which may be long after.
#[derive(Default)]
pub(super) struct Asked {
    /// What is being written then is to be dropped as well, in the end: [`Writing::leave_out`], else [`Writing::free`].
    pub leaves_out: bool,
    /// For all who have asked.
    pub drops: Option<Drops>,
}

impl InTurn {
    /// A file is to be dropped, by the caller if a turn is given back.
    pub fn ask(self: &Arc<Self>, ino: Ino, asked: Asked) -> Option<Turn> {
        match self.files.lock().entry(ino) {
            Entry::Vacant(entry) => {
                entry.insert(Some(asked));
                Some(Turn { of: Arc::clone(self), ino, ended: false })
            }
            Entry::Occupied(mut entry) => {
                let next = entry.get_mut().get_or_insert_default();
                next.leaves_out |= asked.leaves_out;
                next.drops = next.drops.take().or(asked.drops);
                None
            }
        }
    }
}

/// Whoever has this drops a file as often as it gives something, each of which lasts until that is dropped. After the last one,
/// or when this is gone, who asks has the next turn.
pub(super) struct Turn {
    of: Arc<InTurn>,
    ino: Ino,
    ended: bool,
}

impl Turn {
    /// The file.
    pub fn ino(&self) -> Ino {
        self.ino
    }
}

impl Iterator for Turn {
    type Item = Asked;

    fn next(&mut self) -> Option<Asked> {
        if self.ended {
            return None;
        }
        let mut files = self.of.files.lock();
        let asked = files.get_mut(&self.ino).and_then(Option::take);
        if asked.is_none() {
            files.remove(&self.ino);
            self.ended = true;
        }
        asked
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.ended {
            // Given up half-way, by a panic: others would ask in vain for ever.
            self.of.files.lock().remove(&self.ino);
        }
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

    #[test]
    fn what_is_to_be_dropped_while_that_is_under_way_is_dropped_together_after_it() {
        let (in_turn, dropping) = (Arc::new(InTurn::default()), Arc::new(Dropping::default()));
        let ino = Ino(7);
        let counts = || Asked { drops: Some(dropping.begin(ino)), ..Asked::default() };
        let mut turn = in_turn.ask(ino, counts()).unwrap();
        let first = turn.next().unwrap();
        assert!(!first.leaves_out);
        assert!(in_turn.ask(ino, Asked { leaves_out: true, drops: None }).is_none());
        assert!(in_turn.ask(Ino(8), Asked::default()).is_some(), "another file");
        assert!(in_turn.ask(ino, counts()).is_none());
        drop(first);
        assert!(dropping.has(ino), "until the next is dropped");
        let second = turn.next().unwrap();
        assert!(second.leaves_out, "one of those who asked for it needs that");
        assert!(in_turn.ask(ino, Asked::default()).is_none(), "it is under way");
        drop(second);
        assert!(!dropping.has(ino));
        assert!(!turn.next().unwrap().leaves_out);
        assert!(turn.next().is_none());
        let again = in_turn.ask(ino, Asked::default());
        drop(turn);
        assert!(in_turn.ask(ino, Asked::default()).is_none(), "another one has it");
        drop(again);
        assert!(in_turn.files.lock().is_empty());
    }

    /// Nobody would have dropped the file any more, and its attributes would not have been believed.
    #[test]
    fn a_turn_that_is_given_up_half_way_is_over() {
        let (in_turn, dropping) = (Arc::new(InTurn::default()), Arc::new(Dropping::default()));
        let counts = || Asked { drops: Some(dropping.begin(Ino(7))), ..Asked::default() };
        let mut turn = in_turn.ask(Ino(7), counts()).unwrap();
        let first = turn.next();
        assert!(in_turn.ask(Ino(7), counts()).is_none());
        drop((first, turn));
        assert!(!dropping.has(Ino(7)));
        assert!(in_turn.ask(Ino(7), counts()).is_some());
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
