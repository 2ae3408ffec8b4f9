//! Data that is written and not yet sent: non-overlapping extents of a file.
//!
//! An extent never crosses the bounds of a *unit*, the largest part of a chunk that is sent at once.
//! A large write becomes an extent as it is, without a copy; small ones that follow each other are
//! gathered. Pure bookkeeping: nothing here waits or sends.

use crate::kept::EXTENT_BYTES;
use crate::room::{Room, join};
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Capacity that a gathered extent starts with; it doubles as it grows.
const GATHER_BYTES_MIN: usize = 16 << 10;
/// Parts of one request.
const JOBS_MAX: usize = 16_384;
/// A shorter write is copied, so that it does not keep a large buffer of its door alive.
const WHOLE_BYTES_MIN: usize = 64 << 10;
/// The same of a part of one, and of what is left of it: what else the buffer held may have been acknowledged long before.
pub(crate) const PART_BYTES_MIN: usize = 512 << 10;

/// Bytes of an extent.
enum Contents {
    /// As one write brought them.
    Whole(Bytes),
    /// Gathered from several writes.
    Gathered(BytesMut),
}

impl Contents {
    /// Bytes as they are, if they are so many; else a copy.
    fn new(data: Bytes, whole_min: usize) -> Self {
        match data.len() < whole_min {
            true => Contents::Gathered(BytesMut::from(&data[..])),
            false => Contents::Whole(data),
        }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Contents::Whole(bytes) => bytes,
            Contents::Gathered(bytes) => bytes,
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Contents::Whole(bytes) => bytes,
            Contents::Gathered(bytes) => bytes.freeze(),
        }
    }

    /// As bytes that more can be appended to; room for `limit` bytes at most will be needed.
    fn gather(&mut self, more: usize, limit: usize) -> &mut BytesMut {
        if let Contents::Whole(whole) = self {
            let wanted = ((whole.len() + more) * 2).clamp(GATHER_BYTES_MIN.min(limit), limit);
            let mut gathered = BytesMut::with_capacity(wanted.max(whole.len() + more));
            gathered.extend_from_slice(whole);
            *self = Contents::Gathered(gathered);
        }
        match self {
            Contents::Gathered(bytes) => {
                let needed = bytes.len() + more;
                if needed > bytes.capacity() {
                    let wanted = (needed * 2).min(limit.max(needed));
                    bytes.reserve(wanted - bytes.len());
                }
                bytes
            }
            Contents::Whole(_) => unreachable!("made a gathered extent just above"),
        }
    }
}

struct Extent {
    contents: Contents,
    room: Option<Room>,
    /// When its oldest byte was written (monotonic).
    born: Duration,
    /// Flush generation of its oldest byte.
    generation: u64,
    /// To be sent as soon as a sender is free.
    ready: bool,
    lane: Lane,
}

/// What can be sent together: extents of one group.
pub(crate) type Lane = u32;

impl Extent {
    fn len(&self) -> u64 {
        self.contents.as_slice().len() as u64
    }

    /// Adds the room of bytes that were gathered. Of many small writes each has brought room for an extent of its own: that is
    /// given back at times, not by each.
    fn add_room(&mut self, room: Option<Room>) {
        self.room = join(self.room.take(), room);
        let len = self.contents.as_slice().len();
        if let Some(room) = &mut self.room
            && room.bytes() > 2 * (len + GATHER_BYTES_MIN)
        {
            drop(room.split(room.bytes() - len - EXTENT_BYTES));
        }
    }
}

/// A part of a write that lies in one unit.
pub(crate) struct Fragment {
    /// Where in the file it begins.
    pub(crate) start: u64,
    /// Bounds of its unit in the file.
    pub(crate) unit: (u64, u64),
    /// Where its unit goes.
    pub(crate) lane: Lane,
    /// Its bytes, at least one.
    pub(crate) data: Bytes,
    /// Most of the write lies elsewhere.
    pub(crate) is_part: bool,
    /// The room they take.
    pub(crate) room: Option<Room>,
}

/// An extent on its way to a target.
pub(crate) struct Job {
    /// Where in the file it begins.
    pub(crate) start: u64,
    /// Its bytes, all in one unit.
    pub(crate) data: Bytes,
    /// The room they take, given back when dropped.
    pub(crate) room: Option<Room>,
    /// Flush generation, to be given back to [`Dirty::settle`].
    pub(crate) generation: u64,
    /// Where it goes.
    pub(crate) lane: Lane,
}

/// The unsent extents of a file.
#[derive(Default)]
pub(crate) struct Dirty {
    extents: BTreeMap<u64, Extent>,
    /// When those that are not ready were born, with their starts.
    young: BTreeSet<(Duration, u64)>,
    /// Starts of extents that became ready, by lane; may name extents that are gone.
    ready: BTreeMap<Lane, VecDeque<u64>>,
    /// Entries in all lanes of `ready`.
    ready_len: usize,
    /// The lane served last.
    served: Lane,
    /// How often was taken of a lane what is not answered yet.
    under_way: BTreeMap<Lane, u64>,
    /// Generation of extents born now.
    generation: u64,
    /// Unsettled extents (unsent or being sent) per generation.
    unsettled: BTreeMap<u64, usize>,
}

impl Dirty {
    /// True if nothing is unsent.
    pub(crate) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// End of the last unsent byte.
    pub(crate) fn end(&self) -> u64 {
        self.extents.last_key_value().map_or(0, |(start, extent)| start + extent.len())
    }

    /// True if something may be sent.
    pub(crate) fn ready_len(&self) -> usize {
        self.ready_len
    }

    /// How many senders have something to do, where so many parts of a lane are sent at once at most: those that are at it, and
    /// further ones. In a lane of which as much is under way as is ready those that are at it go on with that: small extents
    /// gather meanwhile. Other lanes do not wait for them.
    pub(crate) fn senders_wanted(&self, parts_max: impl Fn(Lane) -> u64) -> usize {
        let more = |(&lane, queue): (&Lane, &VecDeque<u64>)| {
            let (ready, under_way) = (queue.len() as u64, self.under_way_to(lane));
            match ready > under_way {
                true => parts_max(lane).min(ready).saturating_sub(under_way),
                false => 0,
            }
        };
        let more: u64 = self.ready.iter().map(more).sum();
        (self.under_way.values().sum::<u64>() + more) as usize
    }

    /// How many senders there may be, where only these lanes count, and so many parts of a lane are sent at once at most. What a lane
    /// has under way beyond that, because more were thought to be of use when it was taken, is no other lane's loss.
    pub(crate) fn senders_max(
        &self,
        lanes: impl Iterator<Item = Lane>,
        parts_max: impl Fn(Lane) -> u64,
    ) -> usize {
        let beyond = |(&lane, &count): (&Lane, &u64)| count.saturating_sub(parts_max(lane));
        let beyond: u64 = self.under_way.iter().map(beyond).sum();
        (lanes.map(&parts_max).sum::<u64>() + beyond) as usize
    }

    fn under_way_to(&self, lane: Lane) -> u64 {
        self.under_way.get(&lane).copied().unwrap_or(0)
    }

    /// What was taken of a lane at once has been answered.
    pub(crate) fn answered(&mut self, lane: Lane) {
        if let Some(count) = self.under_way.get_mut(&lane) {
            *count -= 1;
            if *count == 0 {
                self.under_way.remove(&lane);
            }
        }
    }

    fn push_ready(&mut self, lane: Lane, start: u64) {
        self.ready.entry(lane).or_default().push_back(start);
        self.ready_len += 1;
    }

    fn enter(&mut self, start: u64, extent: Extent) {
        match extent.ready {
            true => self.push_ready(extent.lane, start),
            false => drop(self.young.insert((extent.born, start))),
        }
        self.extents.insert(start, extent);
    }

    fn leave(&mut self, start: u64) -> Option<Extent> {
        let extent = self.extents.remove(&start)?;
        if !extent.ready {
            self.young.remove(&(extent.born, start));
        }
        Some(extent)
    }

    /// Ends a flush generation: everything written before has at most the number returned.
    pub(crate) fn end_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation - 1
    }

    /// True if everything up to a generation has been sent and answered.
    pub(crate) fn is_settled(&self, generation: u64) -> bool {
        self.unsettled.first_key_value().is_none_or(|(&oldest, _)| oldest > generation)
    }

    /// An extent that was taken has been answered.
    pub(crate) fn settle(&mut self, generation: u64) {
        if let Some(count) = self.unsettled.get_mut(&generation) {
            *count -= 1;
            if *count == 0 {
                self.unsettled.remove(&generation);
            }
        }
    }

    fn count(&mut self, generation: u64) {
        *self.unsettled.entry(generation).or_insert(0) += 1;
    }

    /// Adds newly written bytes over what is there.
    pub(crate) fn insert(&mut self, fragment: Fragment, now: Duration) {
        let Fragment { start, unit, lane, data, is_part, room } = fragment;
        let end = start + data.len() as u64;
        debug_assert!(unit.0 <= start && end <= unit.1 && !data.is_empty());
        if self.overwrite(start, &data) {
            return;
        }
        self.cut(start, end);
        let full = end == unit.1;
        if let Some((&at, extent)) = self.extents.range_mut(..start).next_back()
            && at >= unit.0
            && at + extent.len() == start
        {
            let limit = (unit.1 - at) as usize;
            extent.contents.gather(data.len(), limit).extend_from_slice(&data);
            extent.add_room(room);
            if full && !std::mem::replace(&mut extent.ready, true) {
                self.young.remove(&(extent.born, at));
                self.push_ready(lane, at);
            }
            return;
        }
        let generation = self.generation;
        let contents = Contents::new(data, if is_part { PART_BYTES_MIN } else { WHOLE_BYTES_MIN });
        self.count(generation);
        let extent = Extent { contents, room, born: now, generation, ready: full, lane };
        self.enter(start, extent);
    }

    /// Overwrites in place, where one gathered extent covers the whole write.
    fn overwrite(&mut self, start: u64, data: &Bytes) -> bool {
        let Some((&at, extent)) = self.extents.range_mut(..=start).next_back() else {
            return false;
        };
        let from = (start - at) as usize;
        match &mut extent.contents {
            Contents::Gathered(bytes) if from + data.len() <= bytes.len() => {
                bytes[from..from + data.len()].copy_from_slice(data);
                true
            }
            _ => false,
        }
    }

    /// Forgets what was written to a range.
    pub(crate) fn cut(&mut self, from: u64, to: u64) {
        let first = self.extents.range(..from).next_back();
        let begin = first.filter(|(at, e)| *at + e.len() > from).map_or(from, |(&at, _)| at);
        let starts: Vec<u64> = self.extents.range(begin..to).map(|(&at, _)| at).collect();
        for at in starts {
            if let Some(extent) = self.leave(at) {
                self.cut_extent(at, extent, from, to);
            }
        }
    }

    /// Forgets everything of a lane.
    pub(crate) fn give_up(&mut self, lane: Lane) {
        let of_lane = self.extents.iter().filter(|(_, extent)| extent.lane == lane);
        let starts: Vec<u64> = of_lane.map(|(&at, _)| at).collect();
        for at in starts {
            if let Some(extent) = self.leave(at) {
                self.settle(extent.generation);
            }
        }
        self.ready_len -= self.ready.remove(&lane).map_or(0, |queue| queue.len());
    }

    fn cut_extent(&mut self, at: u64, extent: Extent, from: u64, to: u64) {
        let Extent { contents, mut room, born, generation, ready, lane } = extent;
        let mark = (born, generation, ready, lane);
        let bytes = contents.into_bytes();
        let end = at + bytes.len() as u64;
        let head = from.saturating_sub(at) as usize;
        let tail_at = to.max(at);
        let mut kept = 0;
        if head > 0 {
            let part = (at, bytes.slice(..head));
            kept += self.put_back(part, &mut room, mark);
        }
        if end > tail_at {
            let part = (tail_at, bytes.slice((tail_at - at) as usize..));
            kept += self.put_back(part, &mut room, mark);
        }
        match kept {
            0 => self.settle(generation),
            1 => {}
            _ => self.count(generation),
        }
    }

    fn put_back(
        &mut self,
        (start, data): (u64, Bytes),
        room: &mut Option<Room>,
        (born, generation, ready, lane): (Duration, u64, bool, Lane),
    ) -> usize {
        let room = room.as_mut().map(|room| room.split(data.len().max(EXTENT_BYTES)));
        let contents = Contents::new(data, PART_BYTES_MIN);
        self.enter(start, Extent { contents, room, born, generation, ready, lane });
        1
    }

    /// Makes extents ready that were born before a time, in the order in which they lie in the file.
    pub(crate) fn make_ready(&mut self, born_before: Duration) {
        let younger = self.young.split_off(&(born_before, 0));
        let due = std::mem::replace(&mut self.young, younger);
        let mut due: Vec<u64> = due.into_iter().map(|(_, at)| at).collect();
        due.sort_unstable();
        for at in due {
            if let Some(extent) = self.extents.get_mut(&at) {
                extent.ready = true;
                let lane = extent.lane;
                self.push_ready(lane, at);
            }
        }
    }

    /// Takes what is to be sent next to one target: an extent with those of the same unit that follow
    /// it without a gap, and further small ones of the same lane, `bytes_max` of it in all (but the
    /// first). Extents that `blocked` names stay, and those of lanes of which as many parts as may be are under way: until
    /// [`Dirty::answered`]. The lanes take turns.
    pub(crate) fn take(
        &mut self,
        unit_of: impl Fn(u64) -> (u64, u64),
        blocked: impl Fn(u64, u64) -> bool,
        bytes_max: impl Fn(Lane) -> usize,
        parts_max: impl Fn(Lane) -> u64,
    ) -> Vec<Job> {
        let after = self.ready.range(self.served.saturating_add(1)..).map(|(&lane, _)| lane);
        let before = self.ready.range(..=self.served).map(|(&lane, _)| lane);
        let lanes: Vec<Lane> = after.chain(before).collect();
        for lane in lanes {
            if self.under_way_to(lane) >= parts_max(lane) {
                continue;
            }
            let jobs = self.take_from(lane, &unit_of, &blocked, bytes_max(lane));
            if !jobs.is_empty() {
                self.served = lane;
                *self.under_way.entry(lane).or_default() += 1;
                return jobs;
            }
        }
        Vec::new()
    }

    fn take_from(
        &mut self,
        lane: Lane,
        unit_of: impl Fn(u64) -> (u64, u64),
        blocked: impl Fn(u64, u64) -> bool,
        bytes_max: usize,
    ) -> Vec<Job> {
        let Some(mut queue) = self.ready.remove(&lane) else { return Vec::new() };
        self.ready_len -= queue.len();
        let (mut jobs, mut bytes) = (Vec::new(), 0);
        let mut left = VecDeque::new();
        while let Some(at) = queue.pop_front() {
            // In the queue of another lane it may be since the file lay elsewhere.
            if !self.extents.get(&at).is_some_and(|extent| extent.ready && extent.lane == lane) {
                continue;
            }
            let run = self.run_of(at, unit_of(at));
            let end = run.last().map_or(at, |&(start, len)| start + len);
            let len = (end - at) as usize;
            if blocked(at, end) {
                left.push_back(at);
                continue;
            }
            if !jobs.is_empty() && bytes + len > bytes_max {
                queue.push_front(at);
                break;
            }
            bytes += len;
            jobs.extend(self.take_run(&run, len));
            if bytes >= bytes_max || jobs.len() >= JOBS_MAX {
                break;
            }
        }
        left.append(&mut queue);
        if !left.is_empty() {
            self.ready_len += left.len();
            self.ready.insert(lane, left);
        }
        jobs
    }

    /// The extents from `at` on that touch each other within a unit, with their lengths.
    fn run_of(&self, at: u64, unit: (u64, u64)) -> Vec<(u64, u64)> {
        let mut run = Vec::new();
        let mut next = at;
        for (&start, extent) in self.extents.range(at..unit.1) {
            if start != next {
                break;
            }
            next = start + extent.len();
            run.push((start, extent.len()));
        }
        run
    }

    fn take_run(&mut self, run: &[(u64, u64)], len: usize) -> Option<Job> {
        let start = run.first()?.0;
        let first = self.leave(start)?;
        let (mut room, mut generation, lane) = (first.room, first.generation, first.lane);
        if run.len() == 1 {
            return Some(Job { start, data: first.contents.into_bytes(), room, generation, lane });
        }
        let mut all = BytesMut::with_capacity(len);
        all.extend_from_slice(first.contents.as_slice());
        for (at, _) in &run[1..] {
            let next = self.leave(*at)?;
            all.extend_from_slice(next.contents.as_slice());
            room = join(room, next.room);
            self.settle(generation.max(next.generation));
            generation = generation.min(next.generation);
        }
        Some(Job { start, data: all.freeze(), room, generation, lane })
    }

    /// The unsent parts of a range, in order.
    pub(crate) fn overlay(&self, from: u64, to: u64) -> Vec<(u64, Bytes)> {
        let before = self.extents.range(..from).next_back();
        let begin = before.map_or(from, |(&at, _)| at);
        let mut parts = Vec::new();
        for (&at, extent) in self.extents.range(begin..to) {
            let (start, end) = (at.max(from), (at + extent.len()).min(to));
            if start >= end {
                continue;
            }
            let (a, b) = ((start - at) as usize, (end - at) as usize);
            let bytes = match &extent.contents {
                Contents::Whole(bytes) => bytes.slice(a..b),
                Contents::Gathered(bytes) => Bytes::copy_from_slice(&bytes[a..b]),
            };
            parts.push((start, bytes));
        }
        parts
    }

    /// True if a part of the range is unsent.
    pub(crate) fn touches(&self, from: u64, to: u64) -> bool {
        let before = self.extents.range(..to).next_back();
        before.is_some_and(|(&at, extent)| at + extent.len() > from)
    }
}

#[cfg(test)]
mod tests;
