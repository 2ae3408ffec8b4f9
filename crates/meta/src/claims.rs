//! Claims: ranges of files that others have open as well, of which one session alone may hold back what it writes.
//!
//! As the byte-range tokens of GPFS (F. Schmuck, R. Haskin, "GPFS: A Shared-Disk File System for Large Computing
//! Clusters", 2002), but nobody negotiates: as soon as somebody reads the file, or gets in the way of a claim, all claims
//! on it are called back ([`crate::sharing`]), and then none are granted for a while. So long those who write tell each write, and need not
//! ask. docs/design/0052-sharing.md has the races.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use strake_base::{count_case, is_broken};
use strake_types::Ino;

/// None are granted for so long after a call-back,
const PAUSE_MS_MIN: u64 = 1_000;
/// and for twice as long after the next, up to this.
const PAUSE_MS_MAX: u64 = 16_000;
/// After so long without one a pause is a short one again.
const QUIET_MS: u64 = 60_000;
/// A pause is a part in so many longer here than its clients are told: clocks differ.
const DRIFT: u64 = 10;
/// So long after the first claim on a file nobody is granted more than he needs: of those who begin to write it at the
/// same time one may be ahead of all, and would have claimed where others are about to begin.
const AHEAD_AFTER_MS: u64 = 500;
/// Ranges of one file: records of a unit by turns are as many as that in 64 GiB.
const RANGES_MAX: usize = 65_536;
/// Before so many files those that nobody needs to know of are not looked for.
const FILES_MIN: usize = 256;

/// Whether a client asks before it reads or writes what others may have claimed.
#[derive(Default)]
pub(crate) struct Minds(AtomicU8);

impl Minds {
    /// It does not know of claims,
    const NOT: u8 = 0;
    /// or has said so, and may not have heard yet that they are granted,
    const SAYS: u8 = 1;
    /// or does.
    const DOES: u8 = 2;

    /// It says so, or not, when it opens its session.
    pub fn says(&self, minds: bool) -> bool {
        match minds {
            // What it has heard of this server before holds.
            true => self.0.fetch_max(Self::SAYS, Ordering::AcqRel),
            false => self.0.swap(Self::NOT, Ordering::AcqRel),
        };
        minds
    }

    /// It asks for something in the session, so it has heard the answer.
    pub fn has_heard(&self) {
        if self.0.load(Ordering::Acquire) == Self::SAYS {
            let (says, does) = (Self::SAYS, Self::DOES);
            // Or it says now that it does not.
            let _ = self.0.compare_exchange(says, does, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// True if it does.
    pub fn is_so(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::DOES
    }
}

/// The claims of a volume.
#[derive(Default)]
pub(crate) struct Claims {
    table: Mutex<Table>,
    /// Files with claims: mostly none, and quickly said.
    claimed: AtomicUsize,
}

#[derive(Default)]
struct Table {
    files: HashMap<Ino, File>,
    /// With so many, those that nobody needs to know of go.
    full_at: usize,
}

/// The claims on a file, and what became of earlier ones.
#[derive(Default)]
struct File {
    /// By where they begin. None overlap, and those of one session do not touch.
    ranges: BTreeMap<u64, Claim>,
    /// How many each session has.
    counts: BTreeMap<u64, usize>,
    /// Sessions that may have claims of an earlier server, nobody knows on what.
    unknown: BTreeSet<u64>,
    /// When the first of them was granted.
    since_ms: u64,
    /// They are called back: nothing is granted before all are given up.
    is_called: bool,
    /// Nothing is granted before this time.
    paused_until_ms: u64,
    /// How long the last pause was after a call-back.
    pause_ms: u64,
    /// When that was.
    called_ms: u64,
    /// When those who have claims were asked last by who does not wait for them.
    asked_ms: u64,
}

struct Claim {
    end: u64,
    session: u64,
}

impl Claims {
    /// True if something of a file is claimed.
    pub fn any(&self, ino: Ino) -> bool {
        if self.claimed.load(Ordering::Acquire) == 0 {
            return false;
        }
        self.table.lock().files.get(&ino).is_some_and(|file| !file.is_free())
    }

    /// The sessions that have claims on a file; true with those of which that is known.
    pub fn holders(&self, ino: Ino) -> Vec<(u64, bool)> {
        if self.claimed.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let table = self.table.lock();
        let Some(file) = table.files.get(&ino) else { return Vec::new() };
        let known = file.counts.keys().map(|session| (*session, true));
        let unknown = file.unknown.iter().filter(|session| !file.counts.contains_key(session));
        known.chain(unknown.map(|session| (*session, false))).collect()
    }

    /// True if a session has claims on a file.
    pub fn has(&self, ino: Ino, session: u64) -> bool {
        let table = self.table.lock();
        table.files.get(&ino).is_some_and(|file| file.counts.contains_key(&session))
    }

    /// True if a session may have been granted anything of a file by an earlier server, and has not given that up.
    pub fn may_have(&self, ino: Ino, session: u64) -> bool {
        let table = self.table.lock();
        table.files.get(&ino).is_some_and(|file| file.unknown.contains(&session))
    }

    /// A session may have been granted anything of a file by an earlier server, until it gives that up.
    pub fn may_have_been_granted(&self, ino: Ino, session: u64) {
        let mut table = self.table.lock();
        let file = table.files.entry(ino).or_default();
        if file.is_free() {
            self.claimed.fetch_add(1, Ordering::Release);
        }
        file.unknown.insert(session);
    }

    /// True if nothing of a file is granted now.
    pub fn is_paused(&self, ino: Ino, now_ms: u64) -> bool {
        self.table.lock().files.get(&ino).is_some_and(|file| file.is_paused(now_ms))
    }

    /// Grants a session a range, and what follows it up to `most` as far as nobody else has claimed it (and nothing of that
    /// as long as the claims on the file are young): where that ends.
    /// `None`: not now, or it is in the way of somebody.
    pub fn grant(
        &self,
        ino: Ino,
        session: u64,
        needed: Range<u64>,
        most: u64,
        now_ms: u64,
    ) -> Option<u64> {
        let mut table = self.table.lock();
        let file = table.file(ino, now_ms);
        let was_free = file.is_free();
        let end = file.grant(session, needed, most, now_ms)?;
        if was_free {
            self.claimed.fetch_add(1, Ordering::Release);
        }
        count_case("claim-granted");
        Some(end)
    }

    /// A session gives up what it has claimed of a file.
    pub fn give_up(&self, ino: Ino, session: u64) {
        if let Some(file) = self.table.lock().files.get_mut(&ino) {
            self.give_up_of(file, session);
        }
    }

    /// A session is over.
    pub fn end(&self, session: u64) {
        let mut table = self.table.lock();
        table.files.values_mut().for_each(|file| self.give_up_of(file, session));
    }

    fn give_up_of(&self, file: &mut File, session: u64) {
        let was_free = file.is_free();
        file.unknown.remove(&session);
        if file.counts.remove(&session).is_some() {
            file.ranges.retain(|_, claim| claim.session != session);
        }
        if file.is_free() && !was_free {
            file.is_called = false;
            self.claimed.fetch_sub(1, Ordering::Release);
        }
    }

    /// All claims on a file are called back, if there are any.
    pub fn call_back(&self, ino: Ino, now_ms: u64) {
        let mut table = self.table.lock();
        let called = table.files.get_mut(&ino).is_some_and(|file| file.call_back(now_ms));
        if called {
            count_case("claims-called-back");
        }
    }

    /// True if claims on a file are called back, and of those that are left there are none of anybody else in a range: what is
    /// read or written there nobody holds back, and nobody is granted it before all are given up.
    pub fn are_elsewhere(&self, ino: Ino, session: u64, range: &Range<u64>) -> bool {
        let table = self.table.lock();
        table.files.get(&ino).is_some_and(|file| file.are_elsewhere(session, range))
    }

    /// True once in so many milliseconds while claims on a file are called back: for who waits for nobody, and asks on.
    pub fn is_time_to_ask(&self, ino: Ino, every_ms: u64, now_ms: u64) -> bool {
        let mut table = self.table.lock();
        let called = table.files.get_mut(&ino).filter(|file| file.is_called);
        let Some(file) = called.filter(|file| now_ms >= file.asked_ms + every_ms) else {
            return false;
        };
        file.asked_ms = now_ms;
        true
    }

    /// Nobody is granted anything of a file for so many milliseconds at least. How long those may go by that who ask;
    /// `None`: something is claimed.
    pub fn pause(&self, ino: Ino, least_ms: u64, now_ms: u64) -> Option<u64> {
        let mut table = self.table.lock();
        let file = table.file(ino, now_ms);
        if !file.is_free() {
            return None;
        }
        file.pause_until(now_ms + least_ms, now_ms);
        Some((file.paused_until_ms - now_ms) * DRIFT / (DRIFT + 1))
    }
}

impl Table {
    fn file(&mut self, ino: Ino, now_ms: u64) -> &mut File {
        if self.files.len() >= self.full_at && !self.files.contains_key(&ino) {
            self.files.retain(|_, file| file.matters(now_ms));
            self.full_at = 2 * self.files.len() + FILES_MIN;
        }
        self.files.entry(ino).or_default()
    }
}

impl File {
    fn matters(&self, now_ms: u64) -> bool {
        let quiet_ms = self.called_ms.max(self.paused_until_ms) + QUIET_MS;
        !self.is_free() || now_ms < quiet_ms
    }

    /// Nobody has claimed anything.
    fn is_free(&self) -> bool {
        self.ranges.is_empty() && self.unknown.is_empty()
    }

    fn is_paused(&self, now_ms: u64) -> bool {
        self.is_called || now_ms < self.paused_until_ms
    }

    fn pause_until(&mut self, time_ms: u64, now_ms: u64) {
        let drift_ms = time_ms.saturating_sub(now_ms).div_ceil(DRIFT);
        self.paused_until_ms = self.paused_until_ms.max(time_ms + drift_ms).max(now_ms);
    }

    fn call_back(&mut self, now_ms: u64) -> bool {
        if self.is_free() || self.is_called {
            return false;
        }
        let is_again = self.pause_ms > 0 && now_ms < self.called_ms + QUIET_MS;
        self.pause_ms = if is_again { (2 * self.pause_ms).min(PAUSE_MS_MAX) } else { PAUSE_MS_MIN };
        (self.is_called, self.called_ms) = (true, now_ms);
        self.pause_until(now_ms + self.pause_ms, now_ms);
        true
    }

    fn grant(&mut self, session: u64, needed: Range<u64>, most: u64, now_ms: u64) -> Option<u64> {
        let full = self.ranges.len() >= RANGES_MAX;
        if self.is_paused(now_ms) || needed.is_empty() || full || !self.unknown.is_empty() {
            return None;
        }
        if self.is_free() {
            self.since_ms = now_ms;
        }
        let is_young = now_ms < self.since_ms + AHEAD_AFTER_MS;
        let most = if is_young { needed.end } else { most.max(needed.end) };
        let end = self.first_of_others(session, needed.start..most).unwrap_or(most);
        if end < needed.end {
            return None;
        }
        self.enter(session, needed.start..end);
        Some(end)
    }

    /// Where the first claim of somebody else begins that is in a range, which is not empty.
    fn first_of_others(&self, session: u64, range: Range<u64>) -> Option<u64> {
        let from = self.ranges.range(..=range.start).next_back().map_or(0, |(start, _)| *start);
        let others = self.ranges.range(from..range.end).filter(|(_, one)| one.session != session);
        let mut in_the_way = others.filter(|(_, claim)| claim.end > range.start);
        in_the_way.next().map(|(start, _)| *start)
    }

    fn are_elsewhere(&self, session: u64, range: &Range<u64>) -> bool {
        // Of what an earlier server has granted nobody knows where it is.
        let all_known = self.unknown.iter().all(|other| *other == session);
        let others_claim = || self.first_of_others(session, range.clone()).is_some();
        let is_free = || is_broken("claims-are-elsewhere") || !others_claim();
        self.is_called && all_known && !range.is_empty() && is_free()
    }

    /// Of a range in which nobody else has claims, and those of its own session that touch it, one is made.
    fn enter(&mut self, session: u64, range: Range<u64>) {
        let from = self.ranges.range(..=range.start).next_back().map_or(0, |(start, _)| *start);
        let near = self.ranges.range(from..=range.end);
        let own = near.filter(|(start, claim)| {
            claim.session == session && claim.end >= range.start && **start <= range.end
        });
        let own: Vec<(u64, u64)> = own.map(|(start, claim)| (*start, claim.end)).collect();
        let (mut first, mut last) = (range.start, range.end);
        let count = self.counts.entry(session).or_default();
        *count = *count + 1 - own.len();
        for (start, end) in own {
            self.ranges.remove(&start);
            (first, last) = (first.min(start), last.max(end));
        }
        self.ranges.insert(first, Claim { end: last, session });
    }
}

#[cfg(test)]
mod tests;
