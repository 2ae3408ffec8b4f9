//! Which places of the data files are free.
//!
//! One bit per block: set means it can be given out. Disk space is got and given back in granules
//! of 256 blocks (1 MiB). Nothing of this is stored: at open it is put together from the extent
//! map, which is also where reference counts come from (a place that two chunks name is shared).
//!
//! A place that is given up becomes free only when the checkpoint that forgets it is durable: until
//! then the durable map may still name it, and a power loss would bring that map back. The exception
//! is a place taken since the last checkpoint began, which no durable map can name; and where a mark of
//! the log vouches for it, the mark brings back what was there.

use super::{BLOCK_BYTES, SEGMENT_BLOCKS};
use std::collections::HashMap;
use std::io;

/// Blocks in a granule: the unit in which disk space is got and given back.
pub(super) const GRANULE_BLOCKS: u64 = 256;
/// Granules got at once, if the disk has them.
const GROW_GRANULES: u64 = 32;
/// Most free granules kept for the next writes when others are given back to the disk.
const KEEP_GRANULES_MAX: u64 = 64;
/// Of a disk with little room, they are kept as far as they are this part of it: who shares the disk
/// (another target, the metadata) needs them more.
const KEEP_PART: u64 = 16;
/// Blocks that only cutting a chunk may take: it needs one or two to make room.
const CUT_BLOCKS: u64 = 64;
/// Granules looked through for a contiguous run before new ones are got.
const SEARCH_GRANULES_MAX: u64 = 2048;

/// A run of places: the first, and how many.
pub(super) type Places = (u64, u32);

/// What gets disk space and gives it back: the data files.
pub(super) trait Ground {
    /// Sets disk space aside for granules within one segment.
    fn provision(&self, first_granule: u64, count: u64) -> io::Result<()>;
    /// True if the disk has so much that some of it may be taken although there are free places.
    fn has_plenty(&self) -> bool {
        true
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Granule {
    /// Occupies no disk space.
    #[default]
    Absent,
    Ready,
    /// Its disk space is being given back.
    Leaving,
}

/// Which places are free, and how often the others are used.
#[derive(Default)]
pub(super) struct Space {
    /// Bit set: can be given out.
    free: Vec<u64>,
    /// Set bits per granule.
    free_in: Vec<u16>,
    /// Granules of which all is free.
    whole_granules: u64,
    granules: Vec<Granule>,
    ready_granules: u64,
    free_blocks: u64,
    granules_max: u64,
    /// Taken since the last checkpoint began.
    fresh: Vec<u64>,
    fresh_places: Vec<Places>,
    /// Uses beyond the first of a place that has several.
    shared: HashMap<u64, u32>,
    /// Given up since the last checkpoint began.
    given_up: Vec<Places>,
    /// Given up, and not free before a checkpoint is durable.
    waiting_blocks: u64,
    /// Where the last place was taken.
    cursor: u64,
    /// No granule before this one is absent.
    absent_from: u64,
}

impl Space {
    /// Nothing is used; at most `capacity_bytes` may be.
    pub(super) fn new(capacity_bytes: u64) -> Self {
        let granules_max = (capacity_bytes / BLOCK_BYTES / GRANULE_BLOCKS).max(1);
        Self { granules_max, ..Self::default() }
    }

    /// Takes `count` places, in as few runs as possible. `None`: there are not that many (perhaps
    /// after a checkpoint). `cutting` may use the last ones.
    pub(super) fn take(
        &mut self,
        count: u64,
        cutting: bool,
        ground: &dyn Ground,
    ) -> io::Result<Option<Vec<Places>>> {
        let keep = if cutting { 0 } else { CUT_BLOCKS.min(self.granules_max * 16) };
        while self.free_blocks < count + keep {
            let missing = (count + keep - self.free_blocks).div_ceil(GRANULE_BLOCKS);
            if !self.grow(missing, ground)? {
                return Ok(None);
            }
        }
        let (mut taken, mut rest) = (Vec::new(), count);
        let mut in_rows = true;
        while rest > 0 {
            let wanted = rest.min(GRANULE_BLOCKS);
            let row = if in_rows { self.find_row(wanted, ground) } else { Ok(None) };
            let row = row.inspect_err(|_| self.untake(&taken))?;
            in_rows = row.is_some();
            // Fragments, then: there are enough of them.
            let Some(at) = row.or_else(|| self.find(1, u64::MAX)) else { return Ok(None) };
            let run = self.run_at(at, wanted);
            self.mark_taken(at, run);
            self.fresh_places.push((at, run as u32));
            set_bits(&mut self.fresh, at, run);
            push_places(&mut taken, at, run as u32);
            self.cursor = at + run;
            rest -= run;
        }
        Ok(Some(taken))
    }

    /// Where so many are free in a row, near enough or in new granules. The last room of a disk is left to the extent map, which can
    /// take nothing else.
    fn find_row(&mut self, wanted: u64, ground: &dyn Ground) -> io::Result<Option<u64>> {
        let mut found = self.find(wanted, SEARCH_GRANULES_MAX);
        if found.is_none() && ground.has_plenty() && self.grow(1, ground)? {
            found = self.find(wanted, SEARCH_GRANULES_MAX);
        }
        Ok(found)
    }

    /// Gives back what was taken and never came into any map.
    pub(super) fn untake(&mut self, places: &[Places]) {
        for &(at, count) in places {
            self.mark_free(at, u64::from(count));
        }
    }

    /// A map names a place: at open, or a clone.
    pub(super) fn name(&mut self, at: u64) {
        let granule = at / GRANULE_BLOCKS;
        self.reach(granule + 1);
        if self.granules[granule as usize] == Granule::Absent {
            self.make_ready(granule);
        }
        if get_bit(&self.free, at) {
            self.mark_taken(at, 1);
        } else {
            *self.shared.entry(at).or_default() += 1;
        }
    }

    /// As [`Space::name`], for an edit of the log that is carried out again.
    pub(super) fn name_again(&mut self, at: u64) {
        self.name(at);
        if !self.shared.contains_key(&at) {
            set_bits(&mut self.fresh, at, 1);
            self.fresh_places.push((at, 1));
        }
    }

    /// A place has one user more: a clone.
    pub(super) fn share(&mut self, at: u64) {
        *self.shared.entry(at).or_default() += 1;
    }

    /// A map names a place no more.
    pub(super) fn give_up(&mut self, at: u64) {
        if let Some(uses) = self.shared.get_mut(&at) {
            *uses -= 1;
            if *uses == 0 {
                self.shared.remove(&at);
            }
        } else if get_bit(&self.fresh, at) {
            self.mark_free(at, 1);
        } else {
            self.waiting_blocks += 1;
            push_places(&mut self.given_up, at, 1);
        }
    }

    /// A checkpoint begins: what is taken is fresh no more. Returns what it will set free.
    pub(super) fn begin_checkpoint(&mut self) -> Vec<Places> {
        for (at, count) in std::mem::take(&mut self.fresh_places) {
            clear_bits(&mut self.fresh, at, u64::from(count));
        }
        std::mem::take(&mut self.given_up)
    }

    /// The checkpoint is durable.
    pub(super) fn end_checkpoint(&mut self, given_up: &[Places]) {
        for &(at, count) in given_up {
            self.waiting_blocks -= u64::from(count);
            self.mark_free(at, u64::from(count));
        }
    }

    /// Bytes of memory that what was given up since the last checkpoint began takes.
    pub(super) fn given_up_weight(&self) -> u64 {
        (self.given_up.len() * size_of::<Places>()) as u64
    }

    /// Free granules that should go back to the disk, which has so many bytes of room, as (first,
    /// count) within one segment each. They cannot be taken until [`Space::left`] is told that they
    /// have gone.
    pub(super) fn leaving(&mut self, disk_bytes: u64) -> Vec<(u64, u64)> {
        let keep = (disk_bytes / KEEP_PART / GRANULE_BLOCKS / BLOCK_BYTES).min(KEEP_GRANULES_MAX);
        let (mut surplus, mut runs) = (self.whole_granules.saturating_sub(keep), Vec::new());
        for granule in (0..self.free_in.len() as u64).rev() {
            if surplus == 0 {
                break;
            }
            if self.is_whole(granule) {
                surplus -= 1;
                self.withdraw(granule);
                push_granule(&mut runs, granule);
            }
        }
        runs
    }

    /// Undoes [`Space::make_ready`] of a granule all of which is free; until [`Space::left`] is told it is not got again.
    fn withdraw(&mut self, granule: u64) {
        self.mark_taken(granule * GRANULE_BLOCKS, GRANULE_BLOCKS);
        self.granules[granule as usize] = Granule::Leaving;
        self.ready_granules -= 1;
    }

    /// Granules have gone back to the disk.
    pub(super) fn left(&mut self, first: u64, count: u64) {
        self.granules[first as usize..(first + count) as usize].fill(Granule::Absent);
        self.absent_from = self.absent_from.min(first);
    }

    /// Lets a granule go at open if all of it is free: it counts as one that occupies no disk space. False if it is in use.
    pub(super) fn let_go(&mut self, granule: u64) -> bool {
        let is_free =
            self.granules.get(granule as usize) == Some(&Granule::Ready) && self.is_whole(granule);
        if is_free {
            self.withdraw(granule);
            self.left(granule, 1);
        }
        is_free
    }

    /// Those of `count` granules that occupy no disk space as far as is known here, as (first,
    /// count).
    pub(super) fn absent(&self, first: u64, count: u64) -> Vec<(u64, u64)> {
        let mut runs = Vec::new();
        for granule in (first..first + count).rev() {
            let state = self.granules.get(granule as usize).copied().unwrap_or_default();
            if state == Granule::Absent {
                push_granule(&mut runs, granule);
            }
        }
        runs
    }

    /// Bytes that it may hold, that can be taken now, and that could be got from the disk.
    pub(super) fn bytes(&self) -> Amounts {
        let granule_bytes = GRANULE_BLOCKS * BLOCK_BYTES;
        Amounts {
            total: self.granules_max.saturating_mul(granule_bytes),
            free: (self.free_blocks + self.waiting_blocks) * BLOCK_BYTES,
            growable: self.granules_max.saturating_sub(self.ready_granules) * granule_bytes,
            used: self.ready_granules * granule_bytes
                - (self.free_blocks + self.waiting_blocks) * BLOCK_BYTES,
        }
    }

    /// True if a checkpoint would free something.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting_blocks > 0
    }

    /// Gets at least `wanted` granules from the disk; false if there are none.
    fn grow(&mut self, wanted: u64, ground: &dyn Ground) -> io::Result<bool> {
        let room = self.granules_max.saturating_sub(self.ready_granules);
        if room == 0 {
            return Ok(false);
        }
        let end = self.granules.len() as u64;
        let first = (self.absent_from..end).find(|granule| self.is_absent(*granule)).unwrap_or(end);
        self.absent_from = first;
        let segment_end = (first / SEGMENT_GRANULES + 1) * SEGMENT_GRANULES;
        self.reach(first + 1);
        let absent_end = (first..segment_end)
            .find(|g| self.granules.get(*g as usize).is_some_and(|s| *s != Granule::Absent))
            .unwrap_or(segment_end);
        let mut count = wanted.max(GROW_GRANULES).min(room).min(absent_end - first);
        loop {
            match ground.provision(first, count) {
                Ok(()) => break,
                Err(error) if crate::reserve::is_full(&error) && count > 1 => count /= 2,
                Err(error) if crate::reserve::is_full(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.reach(first + count);
        for granule in first..first + count {
            self.make_ready(granule);
        }
        Ok(true)
    }

    fn is_absent(&self, granule: u64) -> bool {
        #[cfg(test)]
        tests::note_look();
        self.granules.get(granule as usize) == Some(&Granule::Absent)
    }

    /// True if all of a granule is free.
    fn is_whole(&self, granule: u64) -> bool {
        is_whole(self.free_in[granule as usize])
    }

    fn make_ready(&mut self, granule: u64) {
        self.granules[granule as usize] = Granule::Ready;
        self.ready_granules += 1;
        self.mark_free(granule * GRANULE_BLOCKS, GRANULE_BLOCKS);
    }

    /// Makes the tables long enough for so many granules.
    fn reach(&mut self, granules: u64) {
        if granules > self.granules.len() as u64 {
            let words = granules * GRANULE_BLOCKS / 64;
            self.granules.resize(granules as usize, Granule::Absent);
            self.free_in.resize(granules as usize, 0);
            self.free.resize(words as usize, 0);
            self.fresh.resize(words as usize, 0);
        }
    }

    /// The first place at or after the cursor (then from the beginning) where `wanted` (at most a
    /// granule's worth) are free in a row.
    fn find(&self, wanted: u64, granules_max: u64) -> Option<u64> {
        let end = self.granules.len() as u64;
        let start = self.cursor.min(end * GRANULE_BLOCKS);
        if self.run_at(start, wanted) == wanted {
            return Some(start);
        }
        let first = start / GRANULE_BLOCKS;
        let search = (first..end).chain(0..first.min(end));
        search.take(granules_max.min(end) as usize).find_map(|g| self.find_in(g, wanted))
    }

    /// Where in a granule a run of `wanted` begins.
    fn find_in(&self, granule: u64, wanted: u64) -> Option<u64> {
        #[cfg(test)]
        tests::note_look();
        let free = u64::from(self.free_in[granule as usize]);
        // A run may reach into the next granule, but has to begin with a good part here.
        if free == 0 || free < wanted / 2 {
            return None;
        }
        let end = (granule + 1) * GRANULE_BLOCKS;
        let mut at = granule * GRANULE_BLOCKS;
        while at < end {
            at += self.taken_from(at).min(end - at);
            let run = if at < end { self.run_at(at, wanted) } else { 0 };
            if run == wanted {
                return Some(at);
            }
            at += run;
        }
        None
    }

    /// Free places in a row from `at`, at most `most`, within one segment.
    fn run_at(&self, at: u64, most: u64) -> u64 {
        let end = (at + most).min((at / SEGMENT_BLOCKS + 1) * SEGMENT_BLOCKS);
        let mut next = at;
        while next < end {
            let Some(word) = self.free.get((next / 64) as usize) else { break };
            let ones = u64::from((word >> (next % 64)).trailing_ones());
            next += ones;
            if ones == 0 || !next.is_multiple_of(64) {
                break;
            }
        }
        next.min(end) - at
    }

    /// Taken places in a row from `at`, at least up to the end of its word.
    fn taken_from(&self, at: u64) -> u64 {
        let word = self.free.get((at / 64) as usize).copied().unwrap_or_default();
        let zeros = u64::from((word >> (at % 64)).trailing_zeros());
        zeros.min(64 - at % 64)
    }

    fn mark_taken(&mut self, at: u64, count: u64) {
        clear_bits(&mut self.free, at, count);
        self.free_blocks -= count;
        for_granules(at, count, |granule, n| {
            self.whole_granules -= u64::from(is_whole(self.free_in[granule]));
            self.free_in[granule] -= n;
        });
    }

    fn mark_free(&mut self, at: u64, count: u64) {
        set_bits(&mut self.free, at, count);
        self.free_blocks += count;
        for_granules(at, count, |granule, n| {
            self.free_in[granule] += n;
            self.whole_granules += u64::from(is_whole(self.free_in[granule]));
        });
    }
}

const SEGMENT_GRANULES: u64 = SEGMENT_BLOCKS / GRANULE_BLOCKS;

/// See [`Space::bytes`].
#[derive(Clone, Copy, Default)]
pub(super) struct Amounts {
    pub(super) total: u64,
    pub(super) free: u64,
    pub(super) growable: u64,
    pub(super) used: u64,
}

/// Appends a run, joining it to the last one where they adjoin within a segment.
pub(super) fn push_places(places: &mut Vec<Places>, at: u64, count: u32) {
    match places.last_mut() {
        Some((last, n))
            if *last + u64::from(*n) == at && *last / SEGMENT_BLOCKS == at / SEGMENT_BLOCKS =>
        {
            *n += count;
        }
        _ => places.push((at, count)),
    }
}

/// Each place of some runs.
pub(super) fn each_place(runs: &[Places]) -> impl Iterator<Item = u64> + '_ {
    runs.iter().flat_map(|(at, count)| *at..*at + u64::from(*count))
}

/// Adds a granule below those already in `runs`.
fn push_granule(runs: &mut Vec<(u64, u64)>, granule: u64) {
    match runs.last_mut() {
        Some((first, count))
            if *first == granule + 1 && *first / SEGMENT_GRANULES == granule / SEGMENT_GRANULES =>
        {
            (*first, *count) = (granule, *count + 1);
        }
        _ => runs.push((granule, 1)),
    }
}

/// True if so many free blocks are all of a granule.
fn is_whole(free: u16) -> bool {
    u64::from(free) == GRANULE_BLOCKS
}

fn for_granules(at: u64, count: u64, mut each: impl FnMut(usize, u16)) {
    let (mut at, end) = (at, at + count);
    while at < end {
        let stop = ((at / GRANULE_BLOCKS + 1) * GRANULE_BLOCKS).min(end);
        each((at / GRANULE_BLOCKS) as usize, (stop - at) as u16);
        at = stop;
    }
}

fn get_bit(words: &[u64], at: u64) -> bool {
    words.get((at / 64) as usize).is_some_and(|word| word >> (at % 64) & 1 == 1)
}

fn set_bits(words: &mut [u64], at: u64, count: u64) {
    for_words(at, count, |word, mask| words[word] |= mask);
}

fn clear_bits(words: &mut [u64], at: u64, count: u64) {
    for_words(at, count, |word, mask| words[word] &= !mask);
}

fn for_words(at: u64, count: u64, mut each: impl FnMut(usize, u64)) {
    let (mut at, end) = (at, at + count);
    while at < end {
        let stop = ((at / 64 + 1) * 64).min(end);
        each((at / 64) as usize, (!0 >> (64 - (stop - at))) << (at % 64));
        at = stop;
    }
}

#[cfg(test)]
mod tests;
