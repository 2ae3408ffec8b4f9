//! How the locks of a session on a file lie in the store: in one record, as long as they are few, and else in pages, so that
//! one more does not write all of them.
//!
//! Locks are in order of owner and first byte. A page has those from its beginning up to the beginning of the next; the first one begins
//! before all. One that becomes too long is cut into several, and one that becomes empty goes.

use crate::records::HeldLock;
use std::collections::{BTreeMap, BTreeSet};

/// So many locks may lie in one record that has no other pages beside it: a release that knows of no pages reads it.
const ALONE_MAX: usize = 512;
/// So many may lie in a page.
const PAGE_MAX: usize = 128;
/// So many are put into a new page.
const PAGE: usize = 64;

/// Where a page begins: at an owner and a byte. `None`: the first.
pub(crate) type Page = Option<(u64, u64)>;

/// Pages of a session's locks on a file, with those that are in each.
pub(crate) type Filled = Vec<(Page, Vec<HeldLock>)>;

/// The pages of a session's locks on a file: where those behind the first one begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pages(BTreeSet<(u64, u64)>);

fn place(lock: &HeldLock) -> (u64, u64) {
    (lock.owner, lock.start)
}

impl Pages {
    /// True if there is but the first.
    pub fn is_one(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in order.
    pub fn all(&self) -> impl Iterator<Item = Page> {
        std::iter::once(None).chain(self.0.iter().copied().map(Some))
    }

    /// There is this one, too.
    pub fn add(&mut self, page: Page) {
        self.0.extend(page);
    }

    /// The page of a lock.
    pub fn of(&self, lock: &HeldLock) -> Page {
        self.0.range(..=place(lock)).next_back().copied()
    }

    /// Those of some locks that lie in these pages.
    pub fn contents<'a>(
        &self,
        pages: impl IntoIterator<Item = Page>,
        locks: impl Iterator<Item = &'a HeldLock>,
    ) -> BTreeMap<Page, Vec<HeldLock>> {
        let mut contents: BTreeMap<Page, Vec<HeldLock>> =
            pages.into_iter().map(|page| (page, Vec::new())).collect();
        for lock in locks {
            if let Some(page) = contents.get_mut(&self.of(lock)) {
                page.push(*lock);
            }
        }
        contents
    }

    /// A page has these locks from now on: what is to be stored for that, in order. A page without any is to be deleted.
    pub fn fill(&mut self, page: Page, mut locks: Vec<HeldLock>) -> Filled {
        let most = if self.is_one() { ALONE_MAX } else { PAGE_MAX };
        if let (Some(begin), true) = (page, locks.is_empty()) {
            self.0.remove(&begin);
        }
        if locks.len() <= most {
            return vec![(page, locks)];
        }
        locks.sort_unstable_by_key(place);
        let mut filled = Filled::with_capacity(locks.len() / PAGE + 1);
        // A change that was stored in part may have left several of one place: a page begins in front of all of them, by which
        // they are found.
        for alike in locks.chunk_by(|one, other| place(one) == place(other)) {
            match filled.last_mut().filter(|(_, some)| some.len() < PAGE) {
                Some((_, some)) => some.extend_from_slice(alike),
                None => {
                    let page = if filled.is_empty() { page } else { alike.first().map(place) };
                    self.add(page);
                    filled.push((page, alike.to_vec()));
                }
            }
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(owner: u64, start: u64) -> HeldLock {
        HeldLock { owner, pid: 1, start, end: start, exclusive: true }
    }

    #[test]
    fn few_locks_lie_in_one_record_and_many_in_pages_by_owner_and_byte() {
        let mut pages = Pages::default();
        let few: Vec<_> = (0..ALONE_MAX as u64).map(|nth| lock(nth % 2, nth)).collect();
        assert_eq!(pages.fill(None, few.clone()), [(None, few.clone())]);
        assert!(pages.is_one());
        let many = [few, vec![lock(1, 9_999)]].concat();
        let filled = pages.fill(None, many.clone());
        assert_eq!(filled.len(), ALONE_MAX / PAGE + 1);
        assert_eq!(filled.iter().map(|(_, locks)| locks.len()).sum::<usize>(), many.len());
        assert!(pages.all().eq(filled.iter().map(|(page, _)| *page)));
        for (page, locks) in &filled {
            assert!(locks.iter().all(|lock| pages.of(lock) == *page));
        }
        let contents = pages.contents(pages.all(), many.iter());
        assert_eq!(contents.len(), filled.len());
        assert_eq!(contents.values().map(Vec::len).sum::<usize>(), many.len());
    }

    /// One of them lay in a page in which nobody looked for it: it went when that was stored, or came back when it had been given
    /// back.
    #[test]
    fn locks_of_an_owner_that_begin_at_the_same_byte_lie_in_one_page() {
        let mut pages = Pages::default();
        pages.add(Some((1, 0)));
        let mut long: Vec<_> = (0..PAGE_MAX as u64).map(|nth| lock(1, nth)).collect();
        long.push(HeldLock { end: 9_999, ..lock(1, PAGE as u64 - 1) });
        let filled = pages.fill(Some((1, 0)), long.clone());
        assert_eq!(filled.iter().map(|(_, locks)| locks.len()).sum::<usize>(), long.len());
        for (page, locks) in &filled {
            assert!(locks.iter().all(|lock| pages.of(lock) == *page), "{page:?}: {locks:?}");
        }
    }

    #[test]
    fn a_page_that_is_too_long_is_cut_and_one_that_is_empty_goes() {
        let mut pages = Pages::default();
        pages.add(Some((1, 100)));
        let long: Vec<_> = (0..=PAGE_MAX as u64).map(|nth| lock(1, 100 + nth)).collect();
        let filled = pages.fill(Some((1, 100)), long);
        let begins: Vec<_> = filled.iter().map(|(page, _)| *page).collect();
        assert_eq!(begins, [Some((1, 100)), Some((1, 164)), Some((1, 228))]);
        assert_eq!((pages.of(&lock(1, 99)), pages.of(&lock(2, 0))), (None, Some((1, 228))));
        assert_eq!(pages.fill(Some((1, 164)), Vec::new()), [(Some((1, 164)), Vec::new())]);
        assert_eq!(pages.of(&lock(1, 170)), Some((1, 100)));
        assert_eq!(pages.all().count(), 3);
    }
}
