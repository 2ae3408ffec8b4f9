//! What the metadata server has leased to this mount, and so need not be asked for again.
//!
//! Whatever an answer says is leased is believed until it is recalled, as long as the leases of the session
//! last: [`LEASE_MS`] from when the last request for recalls was *sent* that has been answered.
//! [`Leases::learn`] takes note of every answer; [`follow_recalls`] takes back what
//! is recalled. docs/design/0050-leases.md has the races.

mod recalls;

pub(crate) use recalls::follow_recalls;

use crate::behind::Behind;
use crate::file::OpenFile;
use crate::moments::{MOMENT, Moments};
use crate::names::{Known, Names, thin};
use crate::notes::{ANSWER_AGE_MAX, Notes};
use crate::share::Share;
use crate::told::{self, Told};
use crate::volume::Volume;
use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use strake_types::limits::{LEASE_MS, LEASE_MS_AT_SERVER};
use strake_types::{Attr, Error, FileKind, Ino, Shares, VolumeId, name};
use strake_wire::message::common::Attributes;
use strake_wire::message::meta::{self, MetaAnswer, MetaOp, Page};

const SHARDS: usize = 16;
/// Most inodes believed per shard.
const INODES_PER_SHARD_MAX: usize = 4_096;
/// What the clocks of kernels may be coarser than ours.
const TICKS: Duration = Duration::from_millis(20);
/// How much longer than it was told a kernel may believe: it counts from when it looks at an answer, by its own clock.
/// Servers grant as much to leases.
const KERNEL_MARGIN: Duration = Duration::from_millis(LEASE_MS_AT_SERVER - LEASE_MS);

/// Who keeps what this mount tells and has to be told when it is no longer so: a kernel.
pub trait Believer: Send + Sync + 'static {
    /// The attributes of these inodes are not to be believed any more. Whatever is told after this, of any inode, was
    /// computed after it. Must not wait for anything that waits for a server. For how long they may still be believed: where
    /// an answer of before is on its way.
    fn recall(&self, inodes: &[Ino]) -> Duration;

    /// The contents of these inodes may not be what they were any more. As [`Believer::recall`], returns at once;
    /// what comes back ends when nobody is shown those of before. False if somebody still may be: it is to be said again.
    fn forget_contents(&self, inodes: &[Ino]) -> BoxFuture<'static, bool>;

    /// The same of one inode, for whose end nobody waits: it may be said any number of times while a kernel is busy with it.
    fn forget_soon(&self, ino: Ino);
}

/// What is leased.
pub(crate) struct Leases {
    on: bool,
    /// Inodes of this share of the volume are leased here, and no others.
    shares: Shares,
    id: VolumeId,
    /// What requests to all shares are made under; grows when the end of a change is not known.
    number: Arc<AtomicU64>,
    /// How many sessions have begun or been taken up again.
    sessions: AtomicU64,
    /// Until when, in nanoseconds; 0: nothing is.
    until: AtomicU64,
    /// Until when a believer may believe what it was told last.
    told_until: AtomicU64,
    shards: [Mutex<Shard>; SHARDS],
    names: Names,
    /// What is leased exclusively, and changed by that.
    pub behind: Arc<Behind>,
    believer: RwLock<Option<Weak<dyn Believer>>>,
}

#[derive(Default)]
struct Shard {
    leased: HashMap<Ino, Leased>,
    notes: Notes,
    moments: Moments,
}

/// What is believed of one inode.
struct Leased {
    /// What was asked for since is true.
    since: Duration,
    /// When it was asked for last.
    asked: Duration,
    /// When a change by this mount last ended.
    changed: Duration,
    /// Attributes from this version on are true; `None`: nothing is known of them.
    version: Option<u64>,
    /// Of a directory: what [`Names::thinned`] was when all its names were known. As long as that is so, what is not among
    /// the names is not there.
    whole: Option<u64>,
    /// A listing that has not come to its end.
    listing: Option<Box<Listing>>,
}

/// The first pages of a directory, one after the other.
struct Listing {
    /// When the first was asked for.
    asked: Duration,
    /// What [`Names::thinned`] was then.
    thinned: u64,
    /// The cookie that the next page follows.
    next: u64,
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

impl Leases {
    /// `on`: the mount keeps leases. Those that this share of the volume gives; `number` is that of all shares.
    pub fn new(on: bool, shares: Shares, id: VolumeId, number: Arc<AtomicU64>) -> Self {
        Leases {
            on,
            shares,
            id,
            number,
            sessions: AtomicU64::new(0),
            until: AtomicU64::new(0),
            told_until: AtomicU64::new(0),
            shards: std::array::from_fn(|_| Mutex::default()),
            names: Names::default(),
            behind: Arc::default(),
            believer: RwLock::default(),
        }
    }

    /// True if this mount keeps leases.
    pub fn are_on(&self) -> bool {
        self.on
    }

    /// What requests are made under; 0: no leases are kept.
    pub fn number(&self) -> u64 {
        if self.on { self.number.load(Ordering::Acquire) } else { 0 }
    }

    fn shard(&self, ino: Ino) -> &Mutex<Shard> {
        &self.shards[(ino.0 % SHARDS as u64) as usize]
    }

    fn left(&self, now: Duration) -> Duration {
        Duration::from_nanos(self.until.load(Ordering::Acquire)).saturating_sub(now)
    }

    /// True if anything may be believed.
    pub fn last(&self, now: Duration) -> bool {
        !self.left(now).is_zero()
    }

    /// For how long one who is told attributes of this version now may believe them.
    pub fn time_for(&self, ino: Ino, version: u64, now: Duration) -> Duration {
        if !self.covers(ino, version, now) {
            return Duration::ZERO;
        }
        let left = self.left(now).saturating_sub(TICKS);
        self.told_until.fetch_max(nanos(now + left), Ordering::AcqRel);
        left
    }

    /// For how long one who is told now that a name leads to an inode may believe it.
    pub fn time_for_name(&self, dir: Ino, name: &[u8], leads: Ino, now: Duration) -> Duration {
        if self.name(dir, name, now) != Some(Some(leads)) {
            return Duration::ZERO;
        }
        let left = self.left(now).saturating_sub(TICKS);
        let time = self.shard(dir).lock().moments.begin(dir, left, now);
        self.told_until.fetch_max(nanos(now + time), Ordering::AcqRel);
        time
    }

    /// These inodes were recalled, and the believer knows. How long it may still believe names in them.
    fn end_moments(&self, inodes: &[Ino], now: Duration) -> Duration {
        let left = inodes.iter().map(|ino| self.shard(*ino).lock().moments.end(*ino, now));
        let longest = left.max().unwrap_or_default();
        if longest.is_zero() { longest } else { longest + TICKS }
    }

    /// True if attributes of this version are known to be true.
    pub fn covers(&self, ino: Ino, version: u64, now: Duration) -> bool {
        let known = |leased: &Leased| leased.version.is_some_and(|known| version >= known);
        !self.left(now).is_zero() && self.shard(ino).lock().leased.get(&ino).is_some_and(known)
    }

    /// What a name is known to stand for; the outer option says whether anything is known.
    pub fn name(&self, dir: Ino, name: &[u8], now: Duration) -> Option<Option<Ino>> {
        if self.left(now).is_zero() || name::is_dot(name) {
            return None;
        }
        // Held until the name is looked up: a listing that brings it may make the directory whole.
        let shard = self.shard(dir).lock();
        let leased = shard.leased.get(&dir)?;
        match self.names.get(dir, name) {
            Some(known) => (known.asked >= leased.since).then_some(known.leads),
            None => (leased.whole == Some(self.names.thinned())).then_some(None),
        }
    }

    /// True if the names of a directory are all as they were when they were `asked` for.
    pub fn are_names_of(&self, dir: Ino, asked: Duration, now: Duration) -> bool {
        let same = |leased: &Leased| asked >= leased.since && asked > leased.changed;
        !self.left(now).is_zero() && self.shard(dir).lock().leased.get(&dir).is_some_and(same)
    }

    /// Takes note of an answer to what was `asked`, which ends `now`.
    pub fn learn(&self, op: &MetaOp, answer: &MetaAnswer, asked: Duration, now: Duration) {
        let (change, times) = (told::is_change(op), (asked, now));
        told::each_attributes(answer, |attr| {
            self.learn_inode(attr, times, || self.behind.touches(Ino(attr.ino)));
        });
        if let (MetaOp::ReadDir(read), MetaAnswer::Page(page)) = (op, answer) {
            return self.learn_page(read, page, times);
        }
        let told: Vec<Told> = told::names(op, answer).into_iter().flatten().collect();
        for in_one in told.chunk_by(|one, other| one.dir == other.dir) {
            self.learn_names(in_one[0].dir, in_one, times, change);
        }
        if change {
            if let (MetaOp::Create(_), MetaAnswer::Created(created)) = (op, answer) {
                self.learn_new(created, times);
            }
            told::each_attributes(answer, |attr| self.note_change(Ino(attr.ino), now));
            // Such an answer does not tell what became of the inode.
            if let (Some(ino), MetaAnswer::Done(_)) = (told::inode(op), answer) {
                self.forget(&[ino], now);
            }
        }
    }

    /// `is_later`: what is known of it is of later.
    fn learn_inode(
        &self,
        attr: &Attributes,
        (asked, now): (Duration, Duration),
        is_later: impl FnOnce() -> bool,
    ) {
        let ino = Ino(attr.ino);
        // Who serves another share says nothing of leases on it.
        if self.shares.of(ino) != self.id {
            return;
        }
        let mut shard = self.shard(ino).lock();
        if !attr.leased {
            return shard.take_back(ino, now);
        }
        let note = shard.notes.of(ino);
        let is_late = now.saturating_sub(asked) > ANSWER_AGE_MAX;
        if asked <= note.recalled || is_late || is_later() {
            if attr.exclusive != 0 {
                self.behind.disbelieve(ino, attr.exclusive);
            }
            return;
        }
        if attr.exclusive != 0 {
            self.behind.learn(ino, attr.exclusive, now);
        }
        match shard.leased.get_mut(&ino) {
            Some(leased) if leased.version.is_some_and(|known| attr.version < known) => {}
            Some(leased) if leased.version.is_some() || asked > note.changed => {
                leased.version = Some(attr.version);
                leased.asked = leased.asked.max(asked);
            }
            None if asked > note.changed => shard.enter(ino, asked, Some(attr.version)),
            // It may be of before a change by this mount.
            _ => {}
        }
    }

    fn learn_page(&self, read: &meta::ReadDir, page: &Page, times: (Duration, Duration)) {
        let (dir, asked) = (Ino(read.ino), times.0);
        let mut shard = self.shard(dir).lock();
        if !page.leased || !shard.believes_names(dir, times) {
            return;
        }
        shard.enter(dir, asked, None);
        let thinned = self.names.thinned();
        for entry in &page.entries {
            let known = Known { leads: Some(Ino(entry.ino)), asked };
            self.names.put(dir, &entry.name, known);
        }
        let Some(leased) = shard.leased.get_mut(&dir) else { return };
        let before = leased.listing.take().filter(|listing| listing.next == read.after);
        let begins = || Box::new(Listing { asked, thinned, next: 0 });
        let listing = if read.after == 0 { Some(begins()) } else { before };
        let Some(mut listing) = listing else { return };
        if listing.asked <= leased.changed || listing.asked < leased.since {
            return;
        }
        match page.entries.last() {
            _ if page.end => leased.whole = Some(listing.thinned),
            Some(last) => {
                listing.next = last.cookie;
                leased.listing = Some(listing);
            }
            None => {}
        }
    }

    /// A directory that was just made has no names, unless somebody has been at it since.
    fn learn_new(&self, created: &meta::Created, times: (Duration, Duration)) {
        let (ino, asked) = (Ino(created.attr.ino), times.0);
        if !created.created || created.attr.kind != FileKind::Directory as u32 {
            return;
        }
        let mut shard = self.shard(ino).lock();
        let believed = shard.believes_names(ino, times);
        if let Some(leased) = shard.leased.get_mut(&ino)
            && believed
            && asked > leased.changed
            && asked >= leased.since
        {
            leased.whole = Some(self.names.thinned());
        }
    }

    /// Names of a directory as an answer tells them. `change`: they were changed, and that ends now.
    fn learn_names(&self, dir: Ino, told: &[Told], times: (Duration, Duration), change: bool) {
        let (asked, now) = times;
        let mut shard = self.shard(dir).lock();
        let believed = shard.believes_names(dir, times);
        if believed && told.iter().any(|told| told.leads.is_some()) {
            shard.enter(dir, asked, None);
        }
        let whole = shard.leased.get(&dir).and_then(|leased| leased.whole);
        let whole = whole == Some(self.names.thinned());
        for Told { name, leads, .. } in told {
            match leads.filter(|_| believed) {
                Some(None) if whole => self.names.forget(dir, name),
                Some(leads) => self.names.put(dir, name, Known { leads, asked }),
                None if change && whole => self.names.put(dir, name, Known::UNSURE),
                None if change => self.names.forget(dir, name),
                None => {}
            }
        }
        if change {
            // Before anything else is learnt of the directory: it may have been asked for before the change.
            shard.note_change(dir, now);
        }
    }

    /// Names as they are from now on, by a change that is still to be sent: whatever was asked for before says nothing of them,
    /// nor of what they stand for.
    pub fn change_behind(
        &self,
        names: &[(Ino, Bytes, Option<Ino>)],
        inodes: &[Ino],
        now: Duration,
    ) {
        inodes.iter().for_each(|ino| self.note_change(*ino, now));
        for (dir, name, leads) in names {
            let mut shard = self.shard(*dir).lock();
            shard.note_change(*dir, now);
            let whole = shard.leased.get(dir).and_then(|leased| leased.whole);
            match leads {
                None if whole == Some(self.names.thinned()) => self.names.forget(*dir, name),
                leads => self.names.put(*dir, name, Known { leads: *leads, asked: now }),
            }
        }
    }

    /// What an answer to such a change says of an inode; `is_later`: another one touches it after that.
    pub fn learn_made(&self, attr: &Attributes, times: (Duration, Duration), is_later: bool) {
        self.learn_inode(attr, times, || is_later);
    }

    /// A change of an inode by this mount has ended.
    fn note_change(&self, ino: Ino, now: Duration) {
        self.shard(ino).lock().note_change(ino, now);
    }

    /// Nothing is believed of these inodes that was asked for before.
    pub fn forget(&self, inodes: &[Ino], now: Duration) {
        for &ino in inodes {
            self.shard(ino).lock().take_back(ino, now);
        }
    }

    /// Nothing is believed at all that was asked for before.
    pub fn forget_all(&self, now: Duration) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.leased.clear();
            shard.notes.note_all(now);
        }
        self.names.clear();
        // Last: an answer of before that was learnt meanwhile, in a part whose turn was still to come, may have brought one.
        self.behind.forget_leases();
    }

    fn believer(&self) -> Option<Arc<dyn Believer>> {
        self.believer.read().as_ref().and_then(Weak::upgrade)
    }

    /// Tells the believer, if there is one. For how long it may still believe them.
    fn tell(&self, inodes: &[Ino]) -> Duration {
        let believer = self.believer().filter(|_| !inodes.is_empty());
        believer.map_or(Duration::ZERO, |believer| believer.recall(inodes))
    }

    /// The leases last so long from now on, at least.
    fn extend(&self, until: Duration) {
        self.until.fetch_max(nanos(until), Ordering::AcqRel);
    }

    /// The leases are over. For how long a believer may still believe what it was told, of names that came from other shares
    /// as well.
    fn end(&self, now: Duration) -> Duration {
        self.until.store(0, Ordering::Release);
        self.forget_all(now);
        let Some(believer) = self.believer() else { return Duration::ZERO };
        // What is just being told was computed before, and counts.
        let _none = believer.recall(&[]);
        let told = Duration::from_nanos(self.told_until.load(Ordering::Acquire));
        (told + KERNEL_MARGIN).saturating_sub(now).max(MOMENT + TICKS)
    }
}

impl Shard {
    /// True if names of a directory may be learnt that were `asked` for: neither a recall nor a change by this mount has
    /// ended meanwhile, else nobody knows which was first.
    fn believes_names(&self, dir: Ino, (asked, now): (Duration, Duration)) -> bool {
        let note = self.notes.of(dir);
        let late = now.saturating_sub(asked) > ANSWER_AGE_MAX;
        !late && asked > note.recalled && asked > note.changed
    }

    fn note_change(&mut self, ino: Ino, now: Duration) {
        self.notes.note(ino, now, |note| note.changed = note.changed.max(now));
        if let Some(leased) = self.leased.get_mut(&ino) {
            leased.changed = now;
        }
    }

    /// Nothing is believed of an inode that was asked for before.
    fn take_back(&mut self, ino: Ino, now: Duration) {
        self.leased.remove(&ino);
        self.notes.note(ino, now, |note| note.recalled = note.recalled.max(now));
    }

    /// Enters an inode; of one that is here, that it was asked for again.
    fn enter(&mut self, ino: Ino, asked: Duration, version: Option<u64>) {
        if self.leased.len() >= INODES_PER_SHARD_MAX && !self.leased.contains_key(&ino) {
            thin(&mut self.leased, |leased| Some(leased.asked));
        }
        let changed = self.notes.of(ino).changed;
        let told =
            self.leased.entry(ino).and_modify(|leased| leased.asked = leased.asked.max(asked));
        let (whole, listing) = (None, None);
        told.or_insert(Leased { since: asked, asked, changed, version, whole, listing });
    }
}

/// A change under way. Unless its end is known, nothing that it may have touched is believed.
pub(crate) struct Doubt<'a> {
    volume: &'a Volume,
    inode: Option<Ino>,
    touched: Vec<Ino>,
    over: bool,
}

impl<'a> Doubt<'a> {
    /// Before it is sent. It touches these ([`Volume::touched`]).
    pub fn new(volume: &'a Volume, op: &MetaOp, touched: Vec<Ino>) -> Self {
        Doubt { volume, inode: told::inode(op), touched, over: false }
    }

    /// It has ended so.
    pub fn end(mut self, error: Option<&Error>) {
        self.over = error.is_none_or(told::is_refusal);
        // The server may have moved contents before it refused.
        if let (Some(_), Some(ino)) = (error, self.inode) {
            self.volume.forget_attr(ino);
        }
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.volume.doubt(&self.touched);
        }
    }
}

impl Volume {
    /// From now on this one is told what is not to be believed any more.
    pub fn set_believer(&self, believer: &Arc<impl Believer>) {
        let weak: Weak<dyn Believer> = Arc::downgrade(believer) as _;
        for share in self.parts() {
            *share.leases.believer.write() = Some(weak.clone());
        }
    }

    /// Who was set by [`Volume::set_believer`].
    pub(crate) fn believer(&self) -> Option<Arc<dyn Believer>> {
        self.leases(Ino::ROOT).believer()
    }

    /// True if this mount keeps what is leased to it.
    pub fn keeps_leases(&self) -> bool {
        self.leases(Ino::ROOT).are_on()
    }

    /// True if what this mount knows of an open file is leased: who keeps its contents is told when they change.
    pub fn is_leased(&self, file: &OpenFile) -> bool {
        let version = file.state.core().attr.version;
        self.leases(file.ino()).covers(file.ino(), version, self.now())
    }

    /// For how long one who is told these attributes of an inode now may believe them.
    pub fn believable(&self, ino: Ino, told: &Attr) -> Duration {
        let leases = self.leases(ino);
        // A change that is answered and not made leaves the version as it is.
        let is_now = || self.inodes().get(ino).0.is_some_and(|(attr, _)| attr.ctime == told.ctime);
        match leases.behind.touches(ino) && !is_now() {
            true => Duration::ZERO,
            false => leases.time_for(ino, told.version, self.now()),
        }
    }

    /// For how long one who is told now that a name leads to an inode may believe it.
    pub fn believable_name(&self, dir: Ino, name: &[u8], leads: Ino) -> Duration {
        self.leases(dir).time_for_name(dir, name, leads, self.now())
    }

    /// A name is moved to another directory: a kernel takes what it believes of it along.
    pub(crate) fn carry_moments(&self, from: Ino, to: Ino) {
        if self.keeps_leases() && from != to {
            let now = self.now();
            let until = self.leases(from).shard(from).lock().moments.leave(from, now);
            self.leases(to).shard(to).lock().moments.arrive(to, until, now);
        }
    }

    /// Takes note of an answer of a share to what was `asked`, which ends now.
    pub(crate) fn learn_leases(
        &self,
        by: &Share,
        op: &MetaOp,
        answer: &MetaAnswer,
        asked: Duration,
    ) {
        let now = self.now();
        by.leases.learn(op, answer, asked, now);
        let believed = strake_base::is_broken("borrowers-tell");
        if told::is_change(op) && self.parts().len() > 1 && !believed {
            // Those were lent to be changed, and not recalled from us: this answer is all that we hear of it.
            told::each_attributes(answer, |attr| {
                let home = self.share_of(Ino(attr.ino));
                if home.id != by.id {
                    home.leases.forget(&[Ino(attr.ino)], now);
                }
            });
        }
    }

    /// The inodes that a change touches, as far as is known: what it names may lead to some.
    pub(crate) fn touched(&self, op: &MetaOp) -> Vec<Ino> {
        let leads = |at: &meta::Name| {
            let dir = Ino(at.parent);
            self.leases(dir).names.get(dir, &at.name).and_then(|known| known.leads)
        };
        let named = told::places(op).into_iter().flatten().filter_map(leads);
        told::touched(op).into_iter().chain(named).collect()
    }

    /// Nobody knows whether a change of these inodes was made: what is leased is believed no more.
    pub(crate) fn doubt(&self, touched: &[Ino]) {
        let leases = self.leases(Ino::ROOT);
        // It may still be carried out, in any share, and is somebody else's change then.
        leases.number.fetch_add(1, Ordering::AcqRel);
        let now = self.now();
        self.parts().iter().for_each(|share| share.leases.forget_all(now));
        leases.tell(touched);
    }

    /// Before a new session, or an old one of a server that has forgotten its leases.
    pub(crate) fn end_leases(&self, share: &Share) {
        share.leases.sessions.fetch_add(1, Ordering::AcqRel);
        share.leases.end(self.now());
        self.report_all_closes();
    }
}

#[cfg(test)]
mod tests;
