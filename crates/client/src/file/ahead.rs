//! Reading ahead: which reads follow each other, and what was fetched before it was asked for.

use crate::room::Room;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use strake_types::Result;
use tokio::sync::Notify;

/// Least that is read ahead at first; the window doubles with every read that follows.
const WINDOW_BYTES_MIN: u64 = 2 << 20;
/// Most that is read ahead at first, however many targets there are.
const FIRST_WINDOW_BYTES_MAX: u64 = 8 << 20;
/// A first read this long, of a file's beginning, is taken for the first of many.
const EAGER_BYTES_MIN: u64 = 128 << 10;
/// Reads of at least this length may come out of order (a kernel sends several at once).
const REORDERED_BYTES_MIN: u64 = 64 << 10;
/// How far out of order they may come, in lengths of a read.
const REORDERED_READS_MAX: u64 = 4;
/// Reads that follow each other before anything is read ahead.
const FOLLOWING_MIN: u32 = 2;
/// More than a kernel reads ahead of a program.
const KERNEL_AHEAD_MAX: u64 = 8 << 20;
/// Handles of a file that are known to read at the same time.
const READERS_MAX: usize = 256;
/// A block that nobody has used for so long is dropped.
const BLOCK_AGE_MAX: Duration = Duration::from_secs(5);

/// How far to read ahead in a file.
#[derive(Clone, Copy)]
pub(crate) struct Reach {
    /// End of the first chunk.
    pub(crate) chunk: u64,
    /// Length of a stripe: a chunk on each target.
    pub(crate) stripe: u64,
    /// The most.
    pub(crate) most: u64,
}

impl Reach {
    /// What other targets can begin to fetch while the first one answers a first read.
    fn at_first(&self, offset: u64, len: u64) -> Option<(u64, u64)> {
        let (from, to) = (self.chunk.max(len), self.first_window());
        (offset == 0 && len >= EAGER_BYTES_MIN && from < to).then_some((from, to))
    }

    /// All targets are to have work from the beginning.
    fn first_window(&self) -> u64 {
        self.stripe.clamp(WINDOW_BYTES_MIN, FIRST_WINDOW_BYTES_MAX).min(self.most)
    }

    /// And after that, so that none has done its own while the reader still waits for the first: over slow links of four targets
    /// two stood still for 60 of 1,130 ms.
    fn next_window(&self) -> u64 {
        (2 * self.first_window()).min(self.most)
    }
}

/// The reads of one handle.
#[derive(Default)]
pub(crate) struct Sequence {
    /// Where the first of them began.
    start: u64,
    /// Where the next read is expected.
    next: u64,
    /// Reads so far that came as expected.
    following: u32,
    window: u64,
    /// Up to where has been read ahead.
    ahead_to: u64,
}

impl Sequence {
    /// Takes note of a read; the range to read ahead now, if any.
    pub(crate) fn read(&mut self, offset: u64, len: u64, reach: Reach) -> Option<(u64, u64)> {
        let slack = if len >= REORDERED_BYTES_MIN { len * REORDERED_READS_MAX } else { 0 };
        let follows = offset <= self.next + slack && offset + slack >= self.next;
        if !follows {
            *self = Sequence { start: offset, next: offset + len, ..Sequence::default() };
            return reach.at_first(offset, len);
        }
        self.start = if self.next == 0 { offset } else { self.start.min(offset) };
        self.following = self.following.saturating_add(1);
        self.next = self.next.max(offset + len);
        if self.following < FOLLOWING_MIN {
            return reach.at_first(offset, len);
        }
        self.window = (self.window * 2).clamp(reach.next_window(), reach.most);
        let from = self.ahead_to.max(self.next);
        let to = self.next + self.window;
        // In large steps: a trickle of small fetches would waste messages.
        if from > self.next && to < from + self.window / 4 {
            return None;
        }
        self.ahead_to = to;
        Some((from, to))
    }

    /// What was read so far: start and end in the file.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.start, self.next)
    }

    /// Less was read ahead than [`Sequence::read`] said.
    pub(crate) fn stopped_at(&mut self, at: u64) {
        self.ahead_to = self.ahead_to.min(at);
    }
}

/// A part of a file being fetched or fetched.
pub(crate) struct Block {
    pub(crate) start: u64,
    pub(crate) len: u64,
    done: OnceLock<Result<Bytes>>,
    fetched: Notify,
    _room: Room,
}

impl Block {
    pub(crate) fn new(start: u64, len: u64, room: Room) -> Arc<Self> {
        let (done, fetched) = (OnceLock::new(), Notify::new());
        Arc::new(Self { start, len, done, fetched, _room: room })
    }

    /// The fetch is over.
    pub(crate) fn finish(&self, result: Result<Bytes>) {
        // Only the one task that fetches a block calls this, once.
        let _ = self.done.set(result);
        self.fetched.notify_waiters();
    }

    /// Its bytes; waits for them.
    pub(crate) async fn bytes(&self) -> Result<Bytes> {
        loop {
            let fetched = self.fetched.notified();
            if let Some(result) = self.done.get() {
                return result.clone();
            }
            fetched.await;
        }
    }
}

struct Entry {
    block: Arc<Block>,
    /// Bytes handed out so far.
    used: u64,
    /// When it was last of use (monotonic).
    touched: Duration,
}

/// What a handle has read in a row.
struct Reader {
    span: (u64, u64),
    /// When it last read (monotonic).
    touched: Duration,
}

/// What was read ahead of one file, by where it starts. Blocks do not overlap.
#[derive(Default)]
pub(crate) struct Ahead {
    blocks: BTreeMap<u64, Entry>,
    /// Who reads, where there are several handles; by anything that tells them apart.
    readers: BTreeMap<usize, Reader>,
    /// The background task looks after it.
    pub(crate) is_listed: bool,
}

impl Ahead {
    /// True if there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(crate) fn insert(&mut self, block: &Arc<Block>, now: Duration) {
        let entry = Entry { block: Arc::clone(block), used: 0, touched: now };
        self.blocks.insert(block.start, entry);
    }

    /// End of the block that covers a byte.
    pub(crate) fn covered_to(&self, at: u64) -> Option<u64> {
        let (start, entry) = self.blocks.range(..=at).next_back()?;
        let end = start + entry.block.len;
        (end > at).then_some(end)
    }

    /// A handle has read so far, of several.
    pub(crate) fn note_reader(&mut self, who: usize, span: (u64, u64), now: Duration) {
        if self.readers.len() < READERS_MAX || self.readers.contains_key(&who) {
            self.readers.insert(who, Reader { span, touched: now });
        }
    }

    /// Up to where another handle has read from a place on that lies before this one, or at it, and after the one where the reader
    /// `who` began. Each reads its own part of the file then: what others have read nobody will ask for again. Not so if he has read
    /// further into that part than a kernel does by itself at the end of his own.
    pub(crate) fn passed_by_others(&self, who: usize, at: u64) -> Option<u64> {
        let own = self.readers.get(&who)?.span;
        let passed = |(&other, reader): (&usize, &Reader)| {
            let (start, next) = reader.span;
            let own_part = start > own.0 && own.1 <= start + KERNEL_AHEAD_MAX;
            (other != who && own_part && start <= at && at < next).then_some(next)
        };
        self.readers.iter().filter_map(passed).max()
    }

    /// Start of the first block in a range.
    pub(crate) fn first_in(&self, from: u64, to: u64) -> Option<u64> {
        self.blocks.range(from..to).next().map(|(&at, _)| at)
    }

    /// The block that covers a byte, for reading up to `to`; dropped once all of it was read.
    pub(crate) fn use_block(&mut self, at: u64, to: u64, now: Duration) -> Option<Arc<Block>> {
        let (&start, entry) = self.blocks.range_mut(..=at).next_back()?;
        let end = start + entry.block.len;
        if end <= at {
            return None;
        }
        entry.used += end.min(to) - at;
        entry.touched = now;
        let block = Arc::clone(&entry.block);
        if entry.used >= block.len {
            self.blocks.remove(&start);
        }
        Some(block)
    }

    /// Forgets what touches a range: it has been written.
    pub(crate) fn cut(&mut self, from: u64, to: u64) {
        if self.blocks.is_empty() {
            return;
        }
        self.drop_where(|entry| {
            entry.block.start < to && entry.block.start + entry.block.len > from
        });
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.drop_where(|_| true);
    }

    /// Forgets what nobody has used for a while. False if nothing is left, and it need not be looked after.
    pub(crate) fn drop_old(&mut self, now: Duration) -> bool {
        self.drop_where(|entry| entry.touched + BLOCK_AGE_MAX < now);
        self.readers.retain(|_, reader| reader.touched + BLOCK_AGE_MAX >= now);
        self.is_listed = !self.blocks.is_empty() || !self.readers.is_empty();
        self.is_listed
    }

    fn drop_where(&mut self, dropped: impl Fn(&Entry) -> bool) {
        let mut wasted = 0;
        self.blocks.retain(|_, entry| {
            let drop = dropped(entry);
            if drop {
                wasted += entry.block.len.saturating_sub(entry.used);
            }
            !drop
        });
        if wasted > 0 {
            metrics::counter!("strake_client_read_ahead_wasted_bytes_total").increment(wasted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const FOUR_TARGETS: Reach = Reach { chunk: MIB, stripe: 4 * MIB, most: 8 * MIB };

    #[test]
    fn what_other_handles_have_read_of_their_parts_is_not_read_ahead() {
        let (a, b, now) = (1, 2, Duration::from_secs(1));
        let mut ahead = Ahead::default();
        assert_eq!(ahead.passed_by_others(a, 4 * MIB), None);
        ahead.note_reader(a, (0, MIB), now);
        assert_eq!(ahead.passed_by_others(a, MIB / 2), None, "its own");
        ahead.note_reader(b, (4 * MIB, 5 * MIB), now);
        let passed = [3, 4, 5].map(|mib| ahead.passed_by_others(a, mib * MIB));
        assert_eq!(passed, [None, Some(5 * MIB), None]);
        assert_eq!(ahead.passed_by_others(b, MIB / 2), None, "nobody reads backwards");
        // A kernel reads on a little at the end of its part.
        ahead.note_reader(b, (4 * MIB, 40 * MIB), now);
        ahead.note_reader(a, (0, 5 * MIB), now);
        assert_eq!(ahead.passed_by_others(a, 5 * MIB), Some(40 * MIB));
        // Who reads all of the file reads that part as well, whoever began in it.
        ahead.note_reader(a, (0, 13 * MIB), now);
        assert_eq!(ahead.passed_by_others(a, 13 * MIB), None);
        let c = 3;
        ahead.note_reader(c, (0, 20 * MIB), now);
        ahead.note_reader(a, (0, MIB), now);
        assert_eq!(ahead.passed_by_others(a, MIB), None, "both read all of it");
        ahead.drop_old(now + BLOCK_AGE_MAX * 2);
        assert_eq!(ahead.passed_by_others(a, 4 * MIB), None, "closed long ago");
    }

    #[test]
    fn a_sequence_knows_where_it_began() {
        let mut reads = Sequence::default();
        reads.read(2 * MIB, MIB / 16, FOUR_TARGETS);
        reads.read(2 * MIB + MIB / 16, MIB / 16, FOUR_TARGETS);
        assert_eq!(reads.span(), (2 * MIB, 2 * MIB + MIB / 8));
        let mut near = Sequence::default();
        near.read(MIB / 8, MIB / 16, FOUR_TARGETS);
        assert_eq!(near.span(), (MIB / 8, MIB / 8 + MIB / 16));
    }

    #[test]
    fn a_long_first_read_lets_the_other_targets_begin_at_once() {
        let mut reads = Sequence::default();
        assert_eq!(reads.read(0, MIB / 2, FOUR_TARGETS), Some((MIB, 4 * MIB)));
        // The rest of the first chunk is asked for by whoever reads it; then all targets go on.
        assert_eq!(reads.read(MIB / 2, MIB / 2, FOUR_TARGETS), Some((MIB, 9 * MIB)));
        assert_eq!(reads.read(MIB, MIB / 2, FOUR_TARGETS), None);
        assert_eq!(reads.read(3 * MIB / 2, 3 * MIB / 2, FOUR_TARGETS), Some((9 * MIB, 11 * MIB)));
        // From the beginning again, after a look elsewhere.
        assert_eq!(reads.read(50 * MIB, MIB / 2, FOUR_TARGETS), None);
        assert_eq!(reads.read(0, MIB / 2, FOUR_TARGETS), Some((MIB, 4 * MIB)));
    }

    #[test]
    fn a_look_at_a_files_head_or_middle_fetches_nothing_more() {
        assert_eq!(Sequence::default().read(0, 64 << 10, FOUR_TARGETS), None);
        assert_eq!(Sequence::default().read(9 * MIB, MIB, FOUR_TARGETS), None);
        let one_target = Reach { stripe: MIB, ..FOUR_TARGETS };
        assert_eq!(Sequence::default().read(0, 2 * MIB, one_target), None);
    }

    #[test]
    fn a_first_window_is_bounded_however_many_targets_there_are() {
        let many = Reach { stripe: 64 * MIB, most: 128 * MIB, ..FOUR_TARGETS };
        let mut reads = Sequence::default();
        assert_eq!(reads.read(0, MIB, many), Some((MIB, 8 * MIB)));
        assert_eq!(reads.read(MIB, MIB, many), Some((2 * MIB, 18 * MIB)));
        assert_eq!(reads.read(2 * MIB, MIB, many), Some((18 * MIB, 35 * MIB)));
    }
}
