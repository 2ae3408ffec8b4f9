//! Directories.
//!
//! A kernel asks for a few entries at a time. We ask the server for many, and answer what follows
//! from memory, as long as nothing was changed in the directory through this mount and the page is
//! no older than attributes may be. Where leases say when it is, the next page is fetched while this one is read.

use super::unexpected;
use crate::api::{Entry, Page};
use crate::metrics::Op;
use crate::route::Said;
use crate::volume::Volume;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strake_base::task::{self, Owned};
use strake_types::{Credentials, Error, ErrorKind, FileKind, Ino, Result};
use strake_wire::message::meta::{self, MetaAnswer, MetaOp};

/// Entries asked for at once.
const FETCH_ENTRIES: u32 = 2_048;
/// Directories whose last page is kept, and in which a next one is fetched ahead.
const DIRECTORIES_MAX: usize = 64;

/// A page as the server sent it, and when it was asked for.
struct Kept {
    page: Page,
    after: u64,
    plus: bool,
    asked: Duration,
}

/// A page, and when it was asked for.
type Fetched = Result<(Page, Duration)>;

/// A page that is being fetched before anybody asks for it. Dropped, it is fetched no more.
struct Ahead {
    after: u64,
    plus: bool,
    page: Owned<Fetched>,
}

/// What is found of a page that is kept.
struct Found {
    part: Page,
    asked: Duration,
    /// After which cookie the next page begins, if there is one.
    next: Option<u64>,
}

/// The last page of each directory that is being listed.
#[derive(Default)]
pub(crate) struct Pages {
    kept: Mutex<HashMap<Ino, Kept>>,
    ahead: Mutex<HashMap<Ino, Ahead>>,
    /// Nothing is fetched ahead any more.
    closed: AtomicBool,
}

impl Pages {
    /// The directory has changed.
    pub(crate) fn forget(&self, ino: Ino) {
        let mut kept = self.kept.lock();
        if !kept.is_empty() {
            kept.remove(&ino);
        }
        drop(kept);
        let mut ahead = self.ahead.lock();
        if !ahead.is_empty() {
            ahead.remove(&ino);
        }
    }

    /// The volume is about to be closed: what would be fetched now would need a session again.
    pub(crate) fn close(&self) {
        let mut ahead = self.ahead.lock();
        self.closed.store(true, Ordering::Release);
        ahead.clear();
    }

    /// Fetches the page after a cookie, unless that is under way.
    fn fetch_ahead(
        &self,
        ino: Ino,
        after: u64,
        plus: bool,
        fetch: impl FnOnce() -> Owned<Fetched>,
    ) {
        let mut ahead = self.ahead.lock();
        let under_way = |one: &Ahead| (one.after, one.plus) == (after, plus);
        if ahead.get(&ino).is_some_and(under_way) || self.closed.load(Ordering::Acquire) {
            return;
        }
        if ahead.len() >= DIRECTORIES_MAX
            && let Some(any) = ahead.keys().next().copied()
        {
            ahead.remove(&any);
        }
        ahead.insert(ino, Ahead { after, plus, page: fetch() });
    }

    /// The page after a cookie, if it is being fetched. What was fetched of another place goes.
    fn take_ahead(&self, ino: Ino, after: u64, plus: bool) -> Option<Owned<Fetched>> {
        let one = self.ahead.lock().remove(&ino)?;
        ((one.after, one.plus) == (after, plus)).then_some(one.page)
    }

    /// Keeps a page, unless `changed` says that the directory has been changed since. That is asked
    /// under the lock: a change forgets the page after it has been noted.
    fn keep(&self, ino: Ino, page: Kept, changed: impl FnOnce() -> bool) {
        let mut kept = self.kept.lock();
        if changed() {
            return;
        }
        if kept.len() >= DIRECTORIES_MAX {
            kept.clear();
        }
        kept.insert(ino, page);
    }

    /// The entries that follow a cookie, if they are here and what was asked for then `is_true`.
    fn find(
        &self,
        ino: Ino,
        after: u64,
        limit: u32,
        plus: bool,
        is_true: impl FnOnce(Duration) -> bool,
    ) -> Option<Found> {
        let mut kept = self.kept.lock();
        let found = kept.get(&ino)?;
        if !is_true(found.asked) {
            kept.remove(&ino);
            return None;
        }
        if after < found.after || plus && !found.plus {
            return None;
        }
        let last = found.page.entries.last().filter(|_| !found.page.end);
        let next = last.map(|entry| entry.cookie);
        Some(Found { part: found.page.part(after, limit)?, asked: found.asked, next })
    }
}

impl Page {
    /// At most `limit` entries after a cookie; none if what follows is on another page.
    fn part(&self, after: u64, limit: u32) -> Option<Page> {
        let first = self.entries.partition_point(|entry| entry.cookie <= after);
        let last = (first + limit as usize).min(self.entries.len());
        if first == self.entries.len() && !self.end {
            return None;
        }
        let entries = self.entries[first..last].to_vec();
        let end = self.end && last == self.entries.len();
        Some(Page { entries, end, parent: self.parent })
    }
}

impl Volume {
    /// A part of a directory after a cookie (0: from the start), at most `limit` entries, with
    /// attributes if `plus`.
    pub async fn readdir(
        self: &Arc<Self>,
        cred: &Credentials,
        ino: Ino,
        after: u64,
        limit: u32,
        plus: bool,
    ) -> Result<Page> {
        let _timer = self.count(Op::ReadDir);
        let leases = self.keeps_leases();
        // Where the server checks permissions it is asked each time; nor is a listing from the start
        // ever answered from memory, unless it is leased.
        if cred.checked && (after != 0 || leases) {
            let now = self.now();
            let age_max = Duration::from_millis(self.options().attribute_age_ms);
            let is_true = |asked: Duration| match leases {
                true => self.leases(ino).are_names_of(ino, asked, now),
                false => asked >= now.saturating_sub(age_max),
            };
            if let Some(found) = self.pages.find(ino, after, limit, plus, is_true) {
                if let Some(next) = found.next.filter(|_| leases) {
                    self.fetch_ahead(cred, ino, next, plus);
                }
                return Ok(self.refreshed(found.part, found.asked));
            }
        }
        let limit_asked = if cred.checked { limit.max(FETCH_ENTRIES) } else { limit };
        let (page, asked) = match self.fetched_ahead(cred, ino, after, plus).await {
            Some(fetched) => fetched,
            None => self.fetch_page(cred, ino, after, limit_asked, plus).await?,
        };
        if !cred.checked || page.entries.len() <= limit as usize && !leases {
            return Ok(page);
        }
        let part = page.part(after, limit).ok_or_else(|| unexpected("readdir"))?;
        let changed = || match leases {
            true => !self.leases(ino).are_names_of(ino, asked, self.now()),
            false => self.inodes().is_forgotten_since(ino, asked),
        };
        self.pages.keep(ino, Kept { page, after, plus, asked }, changed);
        Ok(part)
    }

    /// Begins to fetch the page after a cookie.
    fn fetch_ahead(self: &Arc<Self>, cred: &Credentials, ino: Ino, after: u64, plus: bool) {
        self.pages.fetch_ahead(ino, after, plus, || {
            let (volume, cred) = (Arc::clone(self), cred.clone());
            task::spawn_owned(async move {
                volume.fetch_page(&cred, ino, after, FETCH_ENTRIES, plus).await
            })
        });
    }

    /// The page after a cookie, if it was fetched ahead and is still true.
    async fn fetched_ahead(
        &self,
        cred: &Credentials,
        ino: Ino,
        after: u64,
        plus: bool,
    ) -> Option<(Page, Duration)> {
        if !cred.checked {
            return None;
        }
        let (page, asked) = self.pages.take_ahead(ino, after, plus)?.await.ok()?.ok()?;
        let is_true = self.leases(ino).are_names_of(ino, asked, self.now());
        is_true.then(|| (self.refreshed(page, asked), asked))
    }

    /// A page that was `asked` for then, with what is known by now.
    fn refreshed(&self, mut page: Page, asked: Duration) -> Page {
        page.entries.iter_mut().for_each(|entry| self.refresh_entry(entry, asked));
        page
    }

    async fn fetch_page(
        &self,
        cred: &Credentials,
        ino: Ino,
        after: u64,
        limit: u32,
        plus: bool,
    ) -> Result<(Page, Duration)> {
        let op = MetaOp::ReadDir(meta::ReadDir { ino: ino.0, after, limit, plus });
        let Said { answer, asked, .. } = self.ask_about(cred, op).await?;
        let MetaAnswer::Page(page) = answer else { return Err(unexpected("readdir")) };
        let entries = page.entries.into_iter().map(|entry| self.dir_entry(entry, asked));
        let entries = entries.collect::<Result<_>>()?;
        Ok((Page { entries, end: page.end, parent: Ino(page.parent) }, asked))
    }

    fn dir_entry(&self, entry: meta::DirEntry, asked: Duration) -> Result<Entry> {
        let kind = u8::try_from(entry.kind).ok().and_then(FileKind::from_code);
        let unknown = || Error::with(ErrorKind::Malformed, format!("file kind {}", entry.kind));
        Ok(Entry {
            name: entry.name,
            ino: Ino(entry.ino),
            kind: kind.ok_or_else(unknown)?,
            cookie: entry.cookie,
            attr: entry.attr.map(|attr| self.learn(attr, asked)).transpose()?,
        })
    }

    /// Replaces attributes of a kept entry, `asked` for then, by what is known by now.
    fn refresh_entry(&self, entry: &mut Entry, asked: Duration) {
        let Some(old) = entry.attr.take() else { return };
        if self.keeps_leases() {
            entry.attr = self.known_attr(entry.ino);
            return;
        }
        entry.attr = match self.inodes().get(entry.ino) {
            (Some((attr, _)), Some(file)) => Some(file.merge(&attr)),
            (Some((attr, _)), None) => Some(Arc::unwrap_or_clone(attr)),
            // Changed by this mount since: rather none than old ones.
            (None, Some(_)) => None,
            (None, None) if self.inodes().is_forgotten_since(entry.ino, asked) => None,
            // Only the table had no room for it.
            (None, None) => Some(old),
        };
    }
}
