//! The bound on what a volume holds in memory.
//!
//! Half is for data that is written and not yet acknowledged by a target, half for data read ahead.
//! A writer that finds its half full waits in line (first come, first served) until a target has
//! acknowledged enough; an eighth of it is left to those whose targets hold little of it ([`crate::room`]).
//! A reader that finds its half full reads no further ahead. What neither needs holds [`Listings`],
//! an eighth of the bound at most, and [`Kept`] bytes. Both give way at once, the bytes first.

use crate::kept::{EXTENT_BYTES, Kept};
use crate::listings::Listings;
use crate::room::{Reserve, Room};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use strake_types::GroupId;
use tokio::sync::Semaphore;

/// The least of which some requests can have a part each. Doors give a volume more ([`crate::api::MEMORY_BYTES_MIN`]): there
/// each part of a write gets all the room that it takes.
const HALF_BYTES_MIN: usize = 128 << 10;
/// Listings take at most this part of the bound.
const LISTINGS_SHARE: usize = 8;
/// This part of the half for writes is left to groups that hold little.
const RESERVE_SHARE: usize = 8;
/// How often who waits for room looks whether he can get it in another way.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(10);
/// To look through all files for something to send takes one part in so many of the time,
const LOOKS_SHARE: u32 = 8;
/// and is done so often at least: it may also have stood still meanwhile.
const LOOK_EVERY_MAX: Duration = Duration::from_millis(250);

/// When so much has been freed, it is worth while to give it back to the machine.
const FREED_BYTES_MIN: usize = 32 << 20;

/// It must have stayed free for so many looks: what is freed between two files is soon needed again.
const FREED_LOOKS_MIN: usize = 5;

/// The bound of one volume.
pub(crate) struct Memory {
    dirty: Arc<Semaphore>,
    reserve: Reserve,
    /// How often somebody in line was given room.
    given: AtomicU64,
    /// From when on files may be looked through again for something to send, in nanoseconds.
    look_at_ns: AtomicU64,
    ahead: Arc<Semaphore>,
    kept: Arc<Kept>,
    listings: Listings,
    half_bytes: usize,
    /// The most that was held since memory was last given back to the machine.
    most_held: AtomicUsize,
    /// Looks in a row that found much less held.
    low_looks: AtomicUsize,
}

impl Memory {
    /// A bound of `bytes` in all.
    pub(crate) fn new(bytes: u64) -> Self {
        let half_bytes = usize::try_from(bytes / 2).unwrap_or(usize::MAX);
        let half_bytes = half_bytes.clamp(HALF_BYTES_MIN, Semaphore::MAX_PERMITS);
        Self {
            dirty: Arc::new(Semaphore::new(half_bytes - half_bytes / RESERVE_SHARE)),
            reserve: Reserve::new(half_bytes / RESERVE_SHARE),
            given: AtomicU64::new(0),
            look_at_ns: AtomicU64::new(0),
            ahead: Arc::new(Semaphore::new(half_bytes)),
            kept: Arc::default(),
            listings: Listings::new(2 * half_bytes / LISTINGS_SHARE),
            half_bytes,
            most_held: AtomicUsize::new(0),
            low_looks: AtomicUsize::new(0),
        }
    }

    /// Room for a write, if there is some at once.
    pub(crate) fn try_dirty(&self, bytes: usize) -> Option<Room> {
        let permits = self.share(bytes.max(EXTENT_BYTES));
        let permit = Arc::clone(&self.dirty).try_acquire_many_owned(permits).ok();
        self.made_way(permit.map(Room::from))
    }

    /// Room for a write; waits in line.
    pub(crate) async fn dirty(&self, bytes: usize) -> Option<Room> {
        let permits = self.share(bytes.max(EXTENT_BYTES));
        let permit = Arc::clone(&self.dirty).acquire_many_owned(permits).await.ok();
        self.given.fetch_add(1, Ordering::Relaxed);
        self.made_way(permit.map(Room::from))
    }

    /// Room for a write to these groups, although there is none for others: if each of them holds little.
    pub(crate) fn try_reserved(&self, bytes: usize, groups: &[GroupId]) -> Option<Room> {
        self.made_way(self.reserve.take(bytes.max(EXTENT_BYTES), groups))
    }

    /// The room is for what goes to this group.
    pub(crate) fn charge(&self, room: &mut Option<Room>, group: GroupId) {
        if let Some(room) = room {
            self.reserve.charge(room, group);
        }
    }

    /// How often somebody in line was given room so far.
    pub(crate) fn given(&self) -> u64 {
        self.given.load(Ordering::Relaxed)
    }

    /// True if it is time to look through all files for something to send, and nobody is at it. [`Memory::end_look`] says that it
    /// was done.
    pub(crate) fn begin_look(&self, now: Duration) -> bool {
        let due = self.look_at_ns.load(Ordering::Relaxed);
        let next = (now + LOOK_EVERY_MAX).as_nanos() as u64;
        let (at, relaxed) = (&self.look_at_ns, Ordering::Relaxed);
        now.as_nanos() as u64 >= due && at.compare_exchange(due, next, relaxed, relaxed).is_ok()
    }

    /// They were looked through: the longer that took, the later it is done again.
    pub(crate) fn end_look(&self, began: Duration, now: Duration) {
        let took = now.saturating_sub(began).min(LOOK_EVERY_MAX);
        let pause = (took * LOOKS_SHARE).clamp(LOOK_EVERY, LOOK_EVERY_MAX);
        self.look_at_ns.store((now + pause).as_nanos() as u64, Ordering::Relaxed);
    }

    /// Room for reading ahead, if there is some.
    pub(crate) fn try_ahead(&self, bytes: usize) -> Option<Room> {
        let permit = Arc::clone(&self.ahead).try_acquire_many_owned(self.share(bytes)).ok();
        self.made_way(permit.map(Room::from))
    }

    /// Acknowledged bytes of all files.
    pub(crate) fn kept(&self) -> &Arc<Kept> {
        &self.kept
    }

    /// Listings of directories.
    pub(crate) fn listings(&self) -> &Listings {
        &self.listings
    }

    /// Kept bytes and listings shrink to what is left of the bound.
    pub(crate) fn make_way(&self) {
        let free = self.free();
        self.listings.shrink_to(free);
        self.kept.shrink_to(free.saturating_sub(self.listings.bytes()));
    }

    /// True if much less has been held for a while than before: what was freed is to be given back.
    /// To be asked at regular times.
    pub(crate) fn has_freed_much(&self) -> bool {
        let taken = (2 * self.half_bytes).saturating_sub(self.free());
        let held = taken + self.kept.bytes() + self.listings.bytes();
        let most = self.most_held.fetch_max(held, Ordering::Relaxed);
        if most < held + FREED_BYTES_MIN {
            self.low_looks.store(0, Ordering::Relaxed);
            return false;
        }
        let much = self.low_looks.fetch_add(1, Ordering::Relaxed) + 1 >= FREED_LOOKS_MIN;
        if much {
            self.low_looks.store(0, Ordering::Relaxed);
            self.most_held.store(held, Ordering::Relaxed);
        }
        much
    }

    /// Neither written nor read ahead.
    fn free(&self) -> usize {
        self.free_for_writes() + self.ahead.available_permits()
    }

    fn free_for_writes(&self) -> usize {
        self.dirty.available_permits() + self.reserve.free()
    }

    fn made_way(&self, room: Option<Room>) -> Option<Room> {
        self.make_way();
        room
    }

    /// Unsent and unacknowledged bytes now.
    pub(crate) fn dirty_bytes(&self) -> usize {
        self.half_bytes.saturating_sub(self.free_for_writes())
    }

    /// No request may ask for more than there is, or it would wait for ever.
    fn share(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.min(self.half_bytes / 2)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Entry, Page};
    use crate::listings::KeptPage;
    use bytes::Bytes;
    use strake_types::{Attr, FileKind, Ino};
    use strake_wire::message::common::Attributes;

    const MIB: usize = 1 << 20;

    /// A listing of a few hundred KiB.
    fn listing() -> KeptPage {
        let entry = |cookie| Entry {
            name: Bytes::from(vec![b'n'; 255]),
            ino: Ino(cookie),
            kind: FileKind::File,
            cookie,
            attr: None,
        };
        let page = Page { entries: (1..=3_000).map(entry).collect(), end: true, parent: Ino(1) };
        KeptPage::new(&page, 0, true, Duration::ZERO, false)
    }

    #[test]
    fn kept_bytes_give_way_to_listings_and_both_to_what_is_read_and_written() {
        let memory = Memory::new(32 << 20);
        let attributes = Attributes { ino: 7, kind: 1, ..Attributes::default() };
        let attr: Attr = attributes.try_into().unwrap();
        let file = memory.kept().take_up(&attr);
        for nth in 0..2 {
            let data = Bytes::from(vec![1_u8; MIB]);
            file.put((nth * MIB) as u64, data, file.mark(), Duration::ZERO);
        }
        let both = memory.kept().bytes();
        memory.listings().put(Ino(5), listing(), || true);
        let listings = memory.listings().bytes();
        assert!(listings > MIB / 2);
        let mut written = vec![memory.try_dirty(8 * MIB), memory.try_dirty(6 * MIB)];
        written.extend([MIB, MIB / 2].map(|bytes| memory.try_reserved(bytes, &[])));
        let mut ahead = vec![memory.try_ahead(8 * MIB)];
        assert_eq!((memory.kept().bytes(), memory.listings().bytes()), (both, listings));
        // There would be room for each of the two alone.
        ahead.push(memory.try_ahead(6 * MIB));
        assert_eq!((memory.kept().bytes(), memory.listings().bytes()), (both / 2, listings));
        ahead.push(memory.try_ahead(2 * MIB));
        assert_eq!((memory.kept().bytes(), memory.listings().bytes()), (0, 0));
        assert!(written.iter().chain(&ahead).all(Option::is_some));
    }

    /// Whoever asked for less than 32 MiB got so much, and tests that were to meet the bound did not.
    #[test]
    fn a_small_bound_is_kept_and_a_write_that_is_larger_gets_as_much_as_one_may_take() {
        let memory = Memory::new(512 << 10);
        let room = memory.try_dirty(8 * MIB).unwrap();
        assert_eq!(room.bytes(), 128 << 10);
        assert!(memory.try_dirty(128 << 10).is_none());
        let rest = memory.try_dirty(96 << 10);
        assert!(rest.is_some() && memory.try_dirty(1).is_none());
        drop(room);
        assert!(memory.try_dirty(128 << 10).is_some());
    }

    /// Each write that found no room looked through all files.
    #[test]
    fn files_are_looked_through_now_and_then_and_seldom_where_that_takes_long() {
        let memory = Memory::new(32 << 20);
        let ms = Duration::from_millis;
        assert!(memory.begin_look(ms(100)));
        assert!(!memory.begin_look(ms(100)), "one at a time");
        memory.end_look(ms(100), ms(100));
        assert!(!memory.begin_look(ms(109)));
        assert!(memory.begin_look(ms(110)));
        assert!(!memory.begin_look(ms(125)), "the other one is still at it");
        memory.end_look(ms(110), ms(120));
        assert!(!memory.begin_look(ms(199)));
        assert!(memory.begin_look(ms(200)));
        memory.end_look(ms(200), ms(60_000));
        assert!(memory.begin_look(ms(60_250)), "it stood still");
    }

    #[test]
    fn memory_is_given_back_once_when_much_of_it_has_been_free_for_a_while() {
        let memory = Memory::new(256 << 20);
        let looks = |count: usize| (0..count).filter(|_| memory.has_freed_much()).count();
        let room = memory.try_dirty(40 << 20);
        assert_eq!(looks(10), 0, "nothing is free");
        drop(room);
        assert_eq!(looks(FREED_LOOKS_MIN - 1), 0, "not long enough");
        let room = memory.try_dirty(40 << 20);
        assert_eq!(looks(1), 0);
        drop(room);
        assert_eq!(looks(FREED_LOOKS_MIN), 1);
        assert_eq!(looks(10), 0, "given back already");
        drop(memory.try_dirty(1 << 20));
        assert_eq!(looks(10), 0, "too little");
    }
}
