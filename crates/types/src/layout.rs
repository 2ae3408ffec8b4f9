//! Placement is arithmetic: which chunk holds a byte, and which group holds a chunk.
//!
//! A [`Layout`] is stored once per file. It never lists chunks: a [`Distribution`] turns a chunk's
//! index into a *slot* (0..width), and a seeded permutation of the group table (or an explicit list)
//! turns the slot into a group. `docs/FORMATS.md` specifies both, so that any implementation
//! computes the same places. [`Placement`] is a layout with its slots resolved, for the data path.

use crate::consistency::Consistency;
use crate::limits::{
    CHUNK_BYTES_DEFAULT, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, COPIES_MAX, FILE_BYTES_MAX,
    FILE_CHUNKS_MAX, STRIP_BYTES_MIN, STRIPE_WIDTH_MAX,
};
use crate::safety::{Ack, Safety};
use crate::{ChunkIndex, Error, ErrorKind, GroupId, Result};
use std::collections::{BTreeMap, BTreeSet};

/// Chunks that each slot takes in one stage of the progressive distribution.
const PROGRESSIVE_CHUNKS_PER_SLOT: u64 = 8;
/// Of so many chunks it is looked at where each lies.
const CHUNKS_LOOKED_AT_MAX: u64 = 1_024;
/// How much wider each stage of the progressive distribution is than the one before.
const PROGRESSIVE_GROWTH: u64 = 4;

/// How chunks follow each other over the slots of a stripe. The names are those of PVFS2.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// Round robin: chunk i on slot i mod width.
    SimpleStripe,
    /// The whole file on slot 0.
    Basic,
    /// A repeated list of strips, each with its own slot and length in bytes.
    Varstrip(Vec<Strip>),
    /// Slots are divided into `groups` runs; `factor` rounds go to one run before the next is
    /// used. Limits how many servers answer one client at once (incast).
    TwodStripe {
        /// Runs of slots.
        groups: u32,
        /// Rounds on one run before the next.
        factor: u32,
    },
    /// Widens as the file grows: 8 chunks on one slot, then 8 each on four, on sixteen, ...
    Progressive,
}

/// One strip of [`Distribution::Varstrip`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Strip {
    /// The slot it lies on.
    pub slot: u32,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The groups a file's slots are taken from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Groups {
    /// The first groups of those that keep so many copies, in the order that the layout's seed gives.
    Table {
        /// Copies of every chunk, at least 1.
        copies: u32,
        /// Size of the table of such groups when the file was made.
        size: u32,
    },
    /// Exactly these, in this order ("this file on these servers").
    List(Vec<GroupId>),
}

/// Where a file's contents lie.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Length of a chunk in bytes (the stripe unit). Varstrip gives each strip its own.
    pub chunk_size: u64,
    /// How chunks follow each other over the slots.
    pub distribution: Distribution,
    /// Stripe width: number of slots, at least 1.
    pub width: u32,
    /// Chooses the permutation of the group table.
    pub seed: u64,
    /// What the slots are taken from.
    pub groups: Groups,
    /// Nobody has chosen the list: it is what targets that were nearly full had left of a table when the file was made, and
    /// it was to have this width.
    pub around_full: Option<u32>,
    /// What writes ask of the copies.
    pub safety: Safety,
    /// What clients see of each other's work.
    pub consistency: Consistency,
}

/// What a volume or directory hands down to files made below it; `None` leaves it to the parent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutTemplate {
    /// Length of a chunk in bytes.
    pub chunk_size: Option<u64>,
    /// How chunks follow each other.
    pub distribution: Option<Distribution>,
    /// Stripe width; 0 means every group there is.
    pub width: Option<u32>,
    /// An explicit list of groups. They say themselves how many copies they keep.
    pub groups: Option<Vec<GroupId>>,
    /// Copies of every chunk.
    pub copies: Option<u32>,
    /// Which copies must have a change before it is acknowledged.
    pub ack: Option<Ack>,
    /// Copies that must be in sync for a change to be acknowledged; more than there are count as all.
    pub min_copies: Option<u32>,
    /// What clients see of each other's work.
    pub consistency: Option<Consistency>,
}

/// How many groups a cluster has of each number of copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupTables {
    sizes: [u32; COPIES_MAX as usize],
}

/// A part of a byte range that lies in one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The chunk.
    pub index: ChunkIndex,
    /// The group that holds it.
    pub group: GroupId,
    /// Where in the chunk the part begins.
    pub chunk_offset: u64,
    /// Where in the file it begins.
    pub file_offset: u64,
    /// Its length in bytes, at least 1.
    pub len: u64,
}

impl LayoutTemplate {
    /// This template with the gaps filled from the one it inherits from. Where it wants other copies than groups have that
    /// are listed there, `on_same_targets` says which groups of so many lie where those do
    /// ([`SameTargets`](crate::same_targets::SameTargets)); if none do, nothing is listed.
    pub fn or(
        &self,
        parent: &LayoutTemplate,
        on_same_targets: impl FnOnce(&[GroupId], u32) -> Result<Vec<GroupId>>,
    ) -> Result<LayoutTemplate> {
        let groups = match (&self.groups, &parent.groups, self.copies) {
            (None, Some(list), Some(copies)) if list.iter().any(|g| g.copies() != copies) => {
                Some(on_same_targets(list, copies)?).filter(|list| !list.is_empty())
            }
            (own, inherited, _) => own.clone().or_else(|| inherited.clone()),
        };
        let listed = groups.iter().flatten().next().map(|group| group.copies());
        Ok(LayoutTemplate {
            chunk_size: self.chunk_size.or(parent.chunk_size),
            distribution: self.distribution.clone().or_else(|| parent.distribution.clone()),
            // Who lists groups means all of them: that is what no width leads to.
            width: self.width.or(parent.width.filter(|_| self.groups.is_none())),
            groups,
            copies: listed.or(self.copies).or(parent.copies),
            ack: self.ack.or(parent.ack),
            min_copies: self.min_copies.or(parent.min_copies),
            consistency: self.consistency.or(parent.consistency),
        })
    }

    /// True if nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == LayoutTemplate::default()
    }

    /// The layout of a new file in a cluster with such groups. It does not [`Layout::validate`] where
    /// there are none of the kind.
    pub fn resolve(&self, seed: u64, tables: &GroupTables) -> Layout {
        let copies = self.copies.unwrap_or(1);
        let groups = match &self.groups {
            Some(list) if !list.is_empty() => Groups::List(list.clone()),
            // A cluster without targets can keep small files, inside their inodes.
            _ => Groups::Table { copies, size: tables.size(copies).max(u32::from(copies == 1)) },
        };
        let available = groups.len();
        let width = match self.width.unwrap_or(0) {
            0 => available,
            wanted => wanted.min(available),
        };
        let distribution = self.distribution.clone().unwrap_or(Distribution::SimpleStripe);
        let min_copies = self.min_copies.unwrap_or(1).clamp(1, copies.max(1));
        Layout {
            chunk_size: self.chunk_size.unwrap_or(CHUNK_BYTES_DEFAULT),
            width: width.min(STRIPE_WIDTH_MAX as u32),
            distribution,
            seed,
            groups,
            around_full: None,
            safety: Safety { ack: self.ack.unwrap_or_default(), min_copies },
            consistency: self.consistency.unwrap_or_default(),
        }
    }

    /// Refuses a list that names a group twice, or groups of other copies than are wanted. Such lists may be stored already,
    /// and go on to be read: so this is no part of [`LayoutTemplate::validate`].
    pub fn check_list(&self) -> Result<()> {
        let mut named = BTreeSet::new();
        let listed = || self.groups.iter().flatten();
        if let Some(group) = listed().find(|group| !named.insert(**group)) {
            return Err(invalid(format!("group {group} is named twice")));
        }
        let copies = self.copies.or(listed().next().map(|group| group.copies()));
        match listed().find(|group| Some(group.copies()) != copies) {
            None => Ok(()),
            Some(group) => Err(invalid(format!(
                "group {group} keeps {} copies, and {} are wanted; name groups of the same kind",
                group.copies(),
                copies.unwrap_or(1)
            ))),
        }
    }

    /// Checks what a user asked for; the error names the value and its bounds.
    pub fn validate(&self) -> Result<()> {
        if let Some(bytes) = self.chunk_size {
            check_chunk_size(bytes)?;
        }
        if self.width.is_some_and(|w| w as usize > STRIPE_WIDTH_MAX) {
            return Err(invalid(format!("stripe width must be 0 (all) to {STRIPE_WIDTH_MAX}")));
        }
        if self.copies.is_some_and(|copies| !(1..=COPIES_MAX).contains(&copies)) {
            return Err(invalid(format!("copies must be 1 to {COPIES_MAX}")));
        }
        if let Some(min) = self.min_copies
            && !(1..=self.copies.unwrap_or(COPIES_MAX)).contains(&min)
        {
            let most = self.copies.unwrap_or(COPIES_MAX);
            return Err(invalid(format!(
                "at least {min} copies in sync; 1 to {most} are possible"
            )));
        }
        if self.groups.as_ref().is_some_and(|groups| groups.len() > STRIPE_WIDTH_MAX) {
            return Err(invalid(format!("a list has at most {STRIPE_WIDTH_MAX} targets")));
        }
        match &self.distribution {
            Some(Distribution::Varstrip(strips)) => {
                if strips.is_empty() || strips.len() > STRIPE_WIDTH_MAX {
                    return Err(invalid(format!("varstrip needs 1 to {STRIPE_WIDTH_MAX} strips")));
                }
                strips.iter().try_for_each(|s| check_strip_size(s.bytes))
            }
            Some(Distribution::TwodStripe { groups, factor }) if *groups == 0 || *factor == 0 => {
                Err(invalid("twod_stripe needs groups and factor of at least 1".into()))
            }
            _ => Ok(()),
        }
    }
}

fn invalid(detail: String) -> Error {
    Error::with(ErrorKind::Invalid, detail)
}

fn check_chunk_size(bytes: u64) -> Result<()> {
    let fits = (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&bytes) && bytes.is_power_of_two();
    if fits {
        return Ok(());
    }
    Err(invalid(format!("chunk size {bytes} must be a power of two from 64K to 64M")))
}

fn check_strip_size(bytes: u64) -> Result<()> {
    if (STRIP_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&bytes) && bytes.is_multiple_of(STRIP_BYTES_MIN)
    {
        return Ok(());
    }
    Err(invalid(format!("strip of {bytes} bytes must be a multiple of 4K up to 64M")))
}

impl Groups {
    fn len(&self) -> u32 {
        match self {
            Groups::Table { size, .. } => *size,
            Groups::List(list) => list.len() as u32,
        }
    }
}

impl Layout {
    /// Checks a layout that came from outside (a message, a stored value): no arithmetic below can
    /// then divide by zero or overflow.
    pub fn validate(&self) -> Result<()> {
        check_chunk_size(self.chunk_size)?;
        let available = self.groups.len();
        if !(1..=COPIES_MAX).contains(&self.copies()) {
            return Err(invalid(format!(
                "{} copies; 1 to {COPIES_MAX} are possible",
                self.copies()
            )));
        }
        if matches!(self.groups, Groups::Table { size, .. } if size > GroupId::ORDINALS_MAX) {
            return Err(invalid(format!("a table of {available} groups")));
        }
        if available == 0 {
            let detail = format!("the cluster has no groups of {} copies", self.copies());
            return Err(invalid(format!("{detail}; strake volume set --copies makes them")));
        }
        if self.width == 0 || self.width > available || self.width as usize > STRIPE_WIDTH_MAX {
            return Err(invalid(format!("stripe width {} of {available} groups", self.width)));
        }
        let template =
            LayoutTemplate { distribution: Some(self.distribution.clone()), ..Default::default() };
        template.validate()
    }

    /// False where the map had no groups of so many copies when it was made: it does not [`Layout::validate`].
    pub fn has_groups(&self) -> bool {
        self.groups.len() > 0
    }

    /// Start and length in bytes of a chunk within the file.
    pub fn chunk_bounds(&self, index: ChunkIndex) -> (u64, u64) {
        let Distribution::Varstrip(strips) = &self.distribution else {
            return (index.0.saturating_mul(self.chunk_size), self.chunk_size);
        };
        let (cycle, nth) =
            (index.0 / strips.len() as u64, (index.0 % strips.len() as u64) as usize);
        let cycle_bytes: u64 = strips.iter().map(|s| s.bytes).sum();
        let before: u64 = strips[..nth].iter().map(|s| s.bytes).sum();
        (cycle.saturating_mul(cycle_bytes).saturating_add(before), strips[nth].bytes)
    }

    /// The longest that a file may be: chunks have so many numbers and no more.
    pub fn length_max(&self) -> u64 {
        let (beyond, _) = self.chunk_bounds(ChunkIndex(FILE_CHUNKS_MAX));
        beyond.min(FILE_BYTES_MAX)
    }

    /// The chunk that holds the byte at `offset`.
    pub fn chunk_at(&self, offset: u64) -> ChunkIndex {
        let Distribution::Varstrip(strips) = &self.distribution else {
            return ChunkIndex(offset / self.chunk_size);
        };
        let cycle_bytes: u64 = strips.iter().map(|s| s.bytes).sum();
        let mut rest = offset % cycle_bytes;
        let mut nth = 0;
        while rest >= strips[nth].bytes {
            rest -= strips[nth].bytes;
            nth += 1;
        }
        ChunkIndex(offset / cycle_bytes * strips.len() as u64 + nth as u64)
    }

    /// The slot (0..width) that a chunk lies on.
    pub fn slot_of(&self, index: ChunkIndex) -> u32 {
        let (i, width) = (index.0, u64::from(self.width));
        let slot = match &self.distribution {
            Distribution::SimpleStripe => i % width,
            Distribution::Basic => 0,
            Distribution::Varstrip(strips) => {
                u64::from(strips[(i % strips.len() as u64) as usize].slot) % width
            }
            Distribution::TwodStripe { groups, factor } => {
                twod_slot(i, width, u64::from(*groups).min(width), u64::from(*factor))
            }
            Distribution::Progressive => progressive_slot(i, width),
        };
        slot as u32
    }

    /// Chunks after which slots repeat; none: they do not.
    pub fn period(&self) -> Option<u64> {
        let width = u64::from(self.width);
        match &self.distribution {
            Distribution::SimpleStripe => Some(width),
            Distribution::Basic => Some(1),
            Distribution::Varstrip(strips) => Some(strips.len() as u64),
            Distribution::TwodStripe { factor, .. } => Some(width * u64::from(*factor)),
            Distribution::Progressive => None,
        }
    }

    /// The groups of slots 0..width, in order.
    ///
    /// For a table this is the first `width` steps of a Fisher-Yates shuffle of `0..size` driven by
    /// splitmix64 from the seed, so files spread evenly and widths nest.
    pub fn slots(&self) -> Vec<GroupId> {
        match &self.groups {
            Groups::List(list) => list.iter().take(self.width as usize).copied().collect(),
            Groups::Table { copies, size } => permutation(self.seed, *size, self.width)
                .into_iter()
                .map(|ordinal| GroupId::of_class(*copies, ordinal))
                .collect(),
        }
    }

    /// Copies of every chunk.
    pub fn copies(&self) -> u32 {
        match &self.groups {
            Groups::Table { copies, .. } => *copies,
            Groups::List(list) => list.first().map_or(1, |group| group.copies()),
        }
    }
}

impl GroupTables {
    /// The tables that these groups make up; every table is without gaps.
    pub fn of(groups: impl IntoIterator<Item = GroupId>) -> Self {
        let mut tables = Self::default();
        for group in groups {
            if let Some(size) = tables.sizes.get_mut(group.copies() as usize - 1) {
                *size = (*size).max(group.ordinal() + 1);
            }
        }
        tables
    }

    /// Groups that keep so many copies.
    pub fn size(&self, copies: u32) -> u32 {
        let at = (copies as usize).checked_sub(1);
        at.and_then(|at| self.sizes.get(at)).copied().unwrap_or(0)
    }

    /// True if a group is among them.
    pub fn has(&self, group: GroupId) -> bool {
        group.ordinal() < self.size(group.copies())
    }
}

fn twod_slot(i: u64, width: u64, runs: u64, factor: u64) -> u64 {
    let at = i % (width * factor);
    let run = (0..runs).rev().find(|run| run * width / runs * factor <= at).unwrap_or(0);
    let first = run * width / runs;
    let size = (run + 1) * width / runs - first;
    first + (at - first * factor) % size
}

fn progressive_slot(i: u64, width: u64) -> u64 {
    let (mut stage_width, mut start) = (1, 0);
    while stage_width < width && i >= start + stage_width * PROGRESSIVE_CHUNKS_PER_SLOT {
        start += stage_width * PROGRESSIVE_CHUNKS_PER_SLOT;
        stage_width = (stage_width * PROGRESSIVE_GROWTH).min(width);
    }
    (i - start) % stage_width
}

/// Sebastiano Vigna's splitmix64.
fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Keeps only what the shuffle has moved: a table may claim to have any size.
fn permutation(seed: u64, size: u32, width: u32) -> Vec<u32> {
    let mut moved = BTreeMap::new();
    let mut state = seed;
    let step = |at| {
        let left = u64::from(size - at);
        let pick = at + (splitmix64(&mut state) % left) as u32;
        let here = moved.remove(&at).unwrap_or(at);
        let picked = if pick == at { Some(here) } else { moved.insert(pick, here) };
        picked.unwrap_or(pick)
    };
    (0..width.min(size)).map(step).collect()
}

/// A layout with its slots resolved: what the data path keeps for an open file.
#[derive(Clone, Debug)]
pub struct Placement {
    layout: Layout,
    slots: Vec<GroupId>,
}

impl Placement {
    /// Resolves the slots of a layout that has passed [`Layout::validate`].
    pub fn new(layout: Layout) -> Self {
        let slots = layout.slots();
        Self { layout, slots }
    }

    /// The layout itself.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The groups of its slots, in order: a list may name one more than once.
    pub fn slots(&self) -> &[GroupId] {
        &self.slots
    }

    /// The groups that the file may have chunks in, each once.
    pub fn groups(&self) -> BTreeSet<GroupId> {
        self.slots.iter().copied().collect()
    }

    /// The groups that chunks below a length lie in, each once. Of very many chunks that do not repeat soon: all.
    pub fn groups_below(&self, length: u64) -> BTreeSet<GroupId> {
        let chunks = length.checked_sub(1).map_or(0, |last| self.layout.chunk_at(last).0 + 1);
        let chunks = self.layout.period().map_or(chunks, |period| chunks.min(period));
        if chunks > CHUNKS_LOOKED_AT_MAX {
            return self.groups();
        }
        (0..chunks).map(|index| self.group_of(ChunkIndex(index))).collect()
    }

    /// The group that holds a chunk.
    pub fn group_of(&self, index: ChunkIndex) -> GroupId {
        self.slots[self.layout.slot_of(index) as usize % self.slots.len()]
    }

    /// The pieces of a byte range, in file order.
    pub fn pieces(&self, offset: u64, len: u64) -> impl Iterator<Item = Piece> + '_ {
        let end = offset.saturating_add(len);
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let index = self.layout.chunk_at(at);
            let (start, bytes) = self.layout.chunk_bounds(index);
            let stop = end.min(start.saturating_add(bytes));
            let piece = Piece {
                index,
                group: self.group_of(index),
                chunk_offset: at - start,
                file_offset: at,
                len: stop - at,
            };
            at = stop;
            Some(piece)
        })
    }
}

#[cfg(test)]
mod tests;
