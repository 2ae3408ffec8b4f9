//! Directories.
//!
//! A kernel asks for a few entries at a time. We ask the server for many, keep them ([`crate::listings`]), and
//! answer what follows from memory: as long as nothing was changed in the directory through this mount and the
//! page is no older than attributes may be, or where leases say that it is still true, also from the start. There
//! the next page is fetched while this one is read.

use super::unexpected;
use crate::api::{Entry, Page};
use crate::listings::{Found, KeptPage};
use crate::metrics::Op;
use crate::route::Said;
use crate::volume::Volume;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strake_base::task::{self, Owned};
use strake_types::{Credentials, FileKind, Ino, Result};
use strake_wire::message::meta::{self, MetaAnswer, MetaOp};

/// Entries asked for at once.
const FETCH_ENTRIES: u32 = 2_048;
/// Directories in which a next page is fetched ahead.
const AHEAD_MAX: usize = 64;

/// A page as a server has sent it.
struct Fetched {
    page: Page,
    /// When it was asked for.
    asked: Duration,
    /// The names are leased: told when they change.
    leased: bool,
}

/// A page that is being fetched before anybody asks for it; `None`: it is not leased. Dropped, it is fetched no more.
struct Ahead {
    after: u64,
    plus: bool,
    page: Owned<Result<Option<KeptPage>>>,
}

/// The next pages of directories that are being listed.
#[derive(Default)]
pub(crate) struct PagesAhead {
    pages: Mutex<HashMap<Ino, Ahead>>,
    /// Nothing is fetched ahead any more.
    closed: AtomicBool,
}

impl PagesAhead {
    /// The directory has changed.
    fn forget(&self, ino: Ino) {
        let mut pages = self.pages.lock();
        if !pages.is_empty() {
            pages.remove(&ino);
        }
    }

    /// The volume is about to be closed: what would be fetched now would need a session again.
    pub(crate) fn close(&self) {
        let mut pages = self.pages.lock();
        self.closed.store(true, Ordering::Release);
        pages.clear();
    }

    /// Fetches the page after a cookie, unless that is under way.
    fn fetch(
        &self,
        ino: Ino,
        after: u64,
        plus: bool,
        fetch: impl FnOnce() -> Owned<Result<Option<KeptPage>>>,
    ) {
        let mut pages = self.pages.lock();
        let under_way = |one: &Ahead| (one.after, one.plus) == (after, plus);
        if pages.get(&ino).is_some_and(under_way) || self.closed.load(Ordering::Acquire) {
            return;
        }
        if pages.len() >= AHEAD_MAX
            && let Some(any) = pages.keys().next().copied()
        {
            pages.remove(&any);
        }
        pages.insert(ino, Ahead { after, plus, page: fetch() });
    }

    /// The page after a cookie, if it is being fetched. What was fetched of another place goes.
    fn take(&self, ino: Ino, after: u64, plus: bool) -> Option<Owned<Result<Option<KeptPage>>>> {
        let one = self.pages.lock().remove(&ino)?;
        ((one.after, one.plus) == (after, plus)).then_some(one.page)
    }
}

impl Page {
    /// Its first entries, at most `limit`.
    fn first(mut self, limit: u32) -> Page {
        self.end &= self.entries.len() <= limit as usize;
        self.entries.truncate(limit as usize);
        self
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
        if let Some(part) = self.kept_part(cred, ino, after, limit, plus) {
            return Ok(part);
        }
        let leases = self.keeps_leases();
        let (kept, part) = match self.fetched_ahead(cred, ino, after, plus).await {
            Some(kept) => {
                let part = self.part(&kept, after, limit, plus);
                (kept, part)
            }
            None => {
                let limit_asked = if cred.checked { limit.max(FETCH_ENTRIES) } else { limit };
                let fetched = self.fetch_page(cred, ino, after, limit_asked, plus).await?;
                let Fetched { page, asked, leased } = fetched;
                if !cred.checked || page.entries.len() <= limit as usize && !leases {
                    return Ok(page);
                }
                if leases && !leased {
                    // It may be of before a change under way, which nobody will tell us of.
                    return Ok(page.first(limit));
                }
                (KeptPage::new(&page, after, plus, asked, !leases), page.first(limit))
            }
        };
        self.keep_page(ino, kept);
        Ok(part)
    }

    /// The directory has changed.
    pub(crate) fn forget_listing(&self, ino: Ino) {
        self.memory().listings().forget(ino);
        self.pages_ahead.forget(ino);
    }

    /// A part of a directory from memory, if it is there and still true.
    fn kept_part(
        self: &Arc<Self>,
        cred: &Credentials,
        ino: Ino,
        after: u64,
        limit: u32,
        plus: bool,
    ) -> Option<Page> {
        let leases = self.keeps_leases();
        // Where the server checks permissions it is asked each time; nor is a listing from the start
        // ever answered from memory, unless it is leased.
        if !cred.checked || after == 0 && !leases {
            return None;
        }
        let now = self.now();
        let age_max = Duration::from_millis(self.options().attribute_age_ms);
        let is_true = |asked: Duration| match leases {
            true => self.leases(ino).are_names_of(ino, asked, now),
            false => asked >= now.saturating_sub(age_max),
        };
        let Found { page, next } = self.memory().listings().find(ino, after, plus, is_true)?;
        if let Some(next) = next.filter(|_| leases) {
            self.fetch_ahead(cred, ino, next, plus);
        }
        Some(self.part(&page, after, limit, plus))
    }

    /// Keeps a page for what is asked next, unless the directory has been changed since it was asked for.
    fn keep_page(&self, ino: Ino, page: KeptPage) {
        let (asked, leases) = (page.asked, self.keeps_leases());
        let is_true = || match leases {
            true => self.leases(ino).are_names_of(ino, asked, self.now()),
            false => !self.inodes().is_forgotten_since(ino, asked),
        };
        let listings = self.memory().listings();
        if !leases {
            // Whoever lists from the start is told nothing of before.
            listings.forget(ino);
        }
        listings.put(ino, page, is_true);
        self.memory().make_way();
    }

    /// Begins to fetch the page after a cookie.
    fn fetch_ahead(self: &Arc<Self>, cred: &Credentials, ino: Ino, after: u64, plus: bool) {
        self.pages_ahead.fetch(ino, after, plus, || {
            let (volume, cred) = (Arc::clone(self), cred.clone());
            task::spawn_owned(async move {
                let fetched = volume.fetch_page(&cred, ino, after, FETCH_ENTRIES, plus).await;
                fetched.map(|Fetched { page, asked, leased }| {
                    leased.then(|| KeptPage::new(&page, after, plus, asked, false))
                })
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
    ) -> Option<KeptPage> {
        if !cred.checked {
            return None;
        }
        let page = self.pages_ahead.take(ino, after, plus)?.await.ok()?.ok()??;
        self.leases(ino).are_names_of(ino, page.asked, self.now()).then_some(page)
    }

    /// A part of a page that was fetched before, with attributes as they are known by now.
    fn part(&self, kept: &KeptPage, after: u64, limit: u32, plus: bool) -> Page {
        let mut page = kept.part(after, limit);
        for entry in &mut page.entries {
            match plus {
                true => self.refresh_entry(entry, kept.asked),
                false => entry.attr = None,
            }
        }
        page
    }

    async fn fetch_page(
        &self,
        cred: &Credentials,
        ino: Ino,
        after: u64,
        limit: u32,
        plus: bool,
    ) -> Result<Fetched> {
        let op = MetaOp::ReadDir(meta::ReadDir { ino: ino.0, after, limit, plus });
        let Said { answer, asked, .. } = self.ask_about(cred, op).await?;
        let MetaAnswer::Page(page) = answer else { return Err(unexpected("readdir")) };
        // Whoever goes on where it ends would never come to the end.
        if !page.end && page.entries.last().is_none_or(|last| last.cookie <= after) {
            return Err(unexpected("readdir"));
        }
        let entries = page.entries.into_iter().map(|entry| self.dir_entry(entry, asked));
        let entries = entries.collect::<Result<_>>()?;
        let leased = page.leased;
        let page = Page { entries, end: page.end, parent: Ino(page.parent) };
        Ok(Fetched { page, asked, leased })
    }

    fn dir_entry(&self, entry: meta::DirEntry, asked: Duration) -> Result<Entry> {
        Ok(Entry {
            name: entry.name,
            ino: Ino(entry.ino),
            kind: FileKind::of_message(entry.kind)?,
            cookie: entry.cookie,
            attr: entry.attr.map(|attr| self.learn(attr, asked)).transpose()?,
        })
    }

    /// Gives a kept entry, `asked` for then, the attributes that are known by now. Where there are leases none
    /// were kept.
    fn refresh_entry(&self, entry: &mut Entry, asked: Duration) {
        if self.keeps_leases() {
            entry.attr = self.known_attr(entry.ino);
            return;
        }
        let Some(old) = entry.attr.take() else { return };
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
