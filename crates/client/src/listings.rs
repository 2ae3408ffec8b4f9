//! Listings of directories, kept for whoever lists one again through this mount.
//!
//! Pages are kept as the server sent them, by where they begin, so that those of one directory follow each
//! other. All of them together stay within a part of the volume's bound ([`crate::memory`]): the directory that
//! was used longest ago goes first. One directory has a share of that at most: the pages of its beginning stay,
//! and the one that came last, so that whoever lists it from the start finds as much as there is room for.
//!
//! Whether a page is still true is for who looks to say.

use crate::api::{Entry, Page};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use strake_types::{Attr, FileKind, Ino};

/// One directory takes at most this part of what all may.
const DIRECTORY_SHARE: usize = 4;
/// What the tables take for each page, roughly.
const PAGE_BYTES: usize = 512;

/// An entry but for its name.
struct Row {
    cookie: u64,
    ino: Ino,
    kind: FileKind,
    /// Where its name ends in those of its page; it begins where the one before ends.
    name_end: u32,
    attr: Option<Box<Attr>>,
}

/// A page in as little memory as it needs: names of an answer would hold all of the answer.
pub(crate) struct KeptPage {
    /// The cookie that it follows.
    after: u64,
    /// It was asked for with attributes.
    plus: bool,
    /// When it was asked for (monotonic).
    pub asked: Duration,
    /// The directory's parent.
    parent: Ino,
    /// No entry follows.
    end: bool,
    rows: Vec<Row>,
    /// The names of all rows, one after the other.
    names: Bytes,
    /// Bytes of memory that go when it goes.
    held: usize,
}

impl KeptPage {
    /// A page that follows a cookie, as it was `asked` for then. `attrs`: its attributes are kept, too.
    pub fn new(page: &Page, after: u64, plus: bool, asked: Duration, attrs: bool) -> Self {
        let mut names = Vec::with_capacity(page.entries.iter().map(|e| e.name.len()).sum());
        let mut rows = Vec::with_capacity(page.entries.len());
        for Entry { name, ino, kind, cookie, attr } in &page.entries {
            names.extend_from_slice(name);
            let attr = attr.as_ref().filter(|_| attrs).map(|attr| Box::new(attr.clone()));
            // All of them came in one message.
            let name_end = names.len() as u32;
            rows.push(Row { cookie: *cookie, ino: *ino, kind: *kind, name_end, attr });
        }
        let attrs = rows.iter().filter(|row| row.attr.is_some()).count();
        let rows_bytes = rows.len() * size_of::<Row>() + attrs * size_of::<Attr>();
        let held = PAGE_BYTES + names.len() + rows_bytes;
        let (parent, end) = (page.parent, page.end);
        Self { after, plus, asked, parent, end, rows, names: names.into(), held }
    }

    /// At most `limit` entries after a cookie.
    pub fn part(&self, after: u64, limit: u32) -> Page {
        let first = self.rows.partition_point(|row| row.cookie <= after);
        let last = first.saturating_add(limit as usize).min(self.rows.len());
        let entries = (first..last).map(|at| self.entry(at)).collect();
        Page { entries, end: self.end && last == self.rows.len(), parent: self.parent }
    }

    fn entry(&self, at: usize) -> Entry {
        let row = &self.rows[at];
        let begin = at.checked_sub(1).map_or(0, |before| self.rows[before].name_end);
        Entry {
            name: self.names.slice(begin as usize..row.name_end as usize),
            ino: row.ino,
            kind: row.kind,
            cookie: row.cookie,
            attr: row.attr.as_deref().cloned(),
        }
    }

    /// The cookie that the next page follows, if there is one.
    fn next(&self) -> Option<u64> {
        self.rows.last().filter(|_| !self.end).map(|row| row.cookie)
    }

    /// True if what follows a cookie, which is none of an earlier page, is here, or it is known that nothing does.
    fn has(&self, after: u64) -> bool {
        self.end || self.next().is_some_and(|next| after < next)
    }
}

/// What is found of a listing.
pub(crate) struct Found {
    /// What follows the cookie is in it.
    pub page: Arc<KeptPage>,
    /// The cookie that the next page follows, if there is one and it is not here.
    pub next: Option<u64>,
}

/// The pages of one directory.
#[derive(Default)]
struct Directory {
    /// By the cookies that they follow.
    pages: BTreeMap<u64, Arc<KeptPage>>,
    bytes: usize,
    /// Its place in the order of use.
    used: u64,
}

impl Directory {
    fn page(&self, after: u64, plus: bool) -> Option<&Arc<KeptPage>> {
        let (_, page) = self.pages.range(..=after).next_back()?;
        (page.has(after) && (page.plus || !plus)).then_some(page)
    }

    fn find(
        &mut self,
        after: u64,
        plus: bool,
        is_true: impl Fn(Duration) -> bool,
    ) -> Option<Found> {
        let page = Arc::clone(self.page(after, plus)?);
        if !is_true(page.asked) {
            self.pages.retain(|_, page| is_true(page.asked));
            self.bytes = self.pages.values().map(|page| page.held).sum();
            return None;
        }
        let is_here = |next: u64| self.page(next, plus).is_some_and(|page| is_true(page.asked));
        let next = page.next().filter(|next| !is_here(*next));
        Some(Found { page, next })
    }

    fn put(&mut self, page: KeptPage, bytes_max: usize) {
        let at = page.after;
        self.bytes += page.held;
        if let Some(old) = self.pages.insert(at, Arc::new(page)) {
            self.bytes -= old.held;
        }
        while self.bytes > bytes_max && self.drop_last_but(at) {}
    }

    /// False if there is no other page than this.
    fn drop_last_but(&mut self, at: u64) -> bool {
        let last = self.pages.keys().rev().copied().find(|last| *last != at);
        let Some(page) = last.and_then(|last| self.pages.remove(&last)) else { return false };
        self.bytes -= page.held;
        true
    }
}

#[derive(Default)]
struct Shelf {
    directories: HashMap<Ino, Directory>,
    /// All directories, least recently used first.
    order: BTreeMap<u64, Ino>,
    /// Uses so far.
    uses: u64,
    bytes: usize,
}

impl Shelf {
    /// Takes a directory out of the tables.
    fn take(&mut self, ino: Ino) -> Option<Directory> {
        let directory = self.directories.remove(&ino)?;
        self.order.remove(&directory.used);
        self.bytes -= directory.bytes;
        Some(directory)
    }

    /// Puts it back as the one that was used last.
    fn put_back(&mut self, ino: Ino, mut directory: Directory) {
        if directory.pages.is_empty() {
            return;
        }
        self.uses += 1;
        directory.used = self.uses;
        self.bytes += directory.bytes;
        self.order.insert(directory.used, ino);
        self.directories.insert(ino, directory);
    }

    fn shrink_to(&mut self, bytes: usize) {
        while self.bytes > bytes {
            let Some((_, &oldest)) = self.order.first_key_value() else { return };
            self.take(oldest);
        }
    }
}

/// The kept listings of a volume.
pub(crate) struct Listings {
    shelf: Mutex<Shelf>,
    /// What the shelf holds, to be looked at without its lock.
    bytes: AtomicUsize,
    bytes_max: usize,
}

impl Listings {
    /// They hold at most `bytes_max`.
    pub fn new(bytes_max: usize) -> Self {
        Self { shelf: Mutex::default(), bytes: AtomicUsize::new(0), bytes_max }
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn with<T>(&self, work: impl FnOnce(&mut Shelf) -> T) -> T {
        let mut shelf = self.shelf.lock();
        let done = work(&mut shelf);
        self.bytes.store(shelf.bytes, Ordering::Relaxed);
        done
    }

    /// Drops what was used longest ago until no more than `bytes` are held.
    pub fn shrink_to(&self, bytes: usize) {
        if self.bytes() > bytes {
            self.with(|shelf| shelf.shrink_to(bytes));
        }
    }

    /// Drops all of a directory: it has changed.
    pub fn forget(&self, ino: Ino) {
        // Always under the lock: a page that is just being put must have gone, or not come yet.
        self.with(|shelf| drop(shelf.take(ino)));
    }

    /// Keeps a page if it is true. That is asked under the lock: a change forgets the directory after it has
    /// been noted.
    pub fn put(&self, ino: Ino, page: KeptPage, is_true: impl FnOnce() -> bool) {
        self.with(|shelf| {
            if is_true() {
                let mut directory = shelf.take(ino).unwrap_or_default();
                directory.put(page, self.bytes_max / DIRECTORY_SHARE);
                shelf.put_back(ino, directory);
                shelf.shrink_to(self.bytes_max);
            }
        });
    }

    /// The page with what follows a cookie, if it is here and what was asked for then `is_true`.
    pub fn find(
        &self,
        ino: Ino,
        after: u64,
        plus: bool,
        is_true: impl Fn(Duration) -> bool,
    ) -> Option<Found> {
        self.with(|shelf| {
            let mut directory = shelf.take(ino)?;
            let found = directory.find(after, plus, is_true);
            shelf.put_back(ino, directory);
            found
        })
    }
}

#[cfg(test)]
mod tests;
