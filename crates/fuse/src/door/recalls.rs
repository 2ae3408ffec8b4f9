//! What the kernel believes of a volume whose leases this mount keeps, and how it is taken back.
//!
//! Attributes are believed for as long as the lease on their inode lasts. A recall invalidates them, which waits
//! for no lock of the kernel. Names could only be taken back under the lock of their directory, which an
//! operation may hold that waits for a server: they are believed for a moment, which a recall waits for.

use super::FuseDoor;
use super::contested::{Contested, What};
use super::held_up::MoreThreads;
use super::pages::{Asked, Dropping, Drops, InTurn, Turn, Writing};
use crate::abi;
use crate::device::Device;
use crate::errno::Errno;
use crate::reply::{Reply, Shown};
use futures::future::BoxFuture;
use parking_lot::RwLock;
use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use strake_client::Believer;
use strake_types::{FileKind, Ino};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout_at;

/// When inodes are invalidated once more that the kernel did not know. It may look later at an answer that makes an inode known to
/// it than at a recall that was written after that answer.
const ONCE_MORE: Duration = Duration::from_millis(20);
/// So much later it has been told.
const MARGIN: Duration = Duration::from_millis(5);
/// How often attributes are asked for that others change meanwhile: a kernel takes an old answer for new if that comes first.
const ASK_TRIES: u32 = 3;
/// Slots for when inodes were made known last.
const SLOTS: usize = 1024;
/// Of so many inodes that were recalled last it is known when.
const LATEST_MAX: usize = 16 << 10;
/// So much is written out first, and then more and more at a time.
const FIRST_PIECE_BYTES: u64 = 1 << 20;

/// The recalls of one mount.
pub(super) struct Recalls {
    /// Since when times are counted.
    began: Instant,
    /// When an answer last made an inode known, for all that share a slot: ms.
    known: [AtomicU64; SLOTS],
    /// The same of answers that the kernel takes for new however old they are (LINK, CREATE).
    unguarded: [AtomicU64; SLOTS],
    /// What the kernel has of inodes that were recalled lately.
    pub contested: Contested,
    /// What there was. Held shared while an answer is sent, so that each is either sent before
    /// a recall or known to be older.
    told: RwLock<Told>,
    device: OnceLock<Device>,
    /// What cannot be dropped now.
    pub writing: Writing,
    /// What is being dropped.
    pub dropping: Arc<Dropping>,
    /// What is dropped to be written out, also when nobody waits for that any more.
    pub writing_out: Arc<Dropping>,
    /// What reads, ends of writes and failures have dropped.
    in_turn: Arc<InTurn>,
    /// By which recalls go on past files of which some page is busy.
    more_threads: MoreThreads,
}

/// Which inodes were recalled.
#[derive(Default)]
struct Told {
    /// How many recalls there were.
    count: u64,
    /// The inodes of the latest, in their order.
    latest: VecDeque<Vec<Ino>>,
    /// Inodes in these.
    inodes: usize,
}

impl Told {
    fn note(&mut self, inodes: &[Ino]) {
        self.count += 1;
        self.inodes += inodes.len();
        self.latest.push_back(inodes.to_vec());
        while self.inodes > LATEST_MAX || self.latest.len() > LATEST_MAX {
            let Some(oldest) = self.latest.pop_front() else { break };
            self.inodes -= oldest.len();
        }
    }

    /// What was recalled since there had been so many recalls; `None`: too much.
    fn since(&self, count: u64) -> Option<HashSet<Ino>> {
        let recalls = usize::try_from(self.count.checked_sub(count)?).ok()?;
        let first = self.latest.len().checked_sub(recalls)?;
        Some(self.latest.range(first..).flatten().copied().collect())
    }
}

impl Default for Recalls {
    fn default() -> Self {
        let [known, unguarded] = [(); 2].map(|()| std::array::from_fn(|_| AtomicU64::new(0)));
        Recalls {
            began: Instant::now(),
            known,
            unguarded,
            contested: Contested::default(),
            told: RwLock::default(),
            device: OnceLock::new(),
            writing: Writing::default(),
            dropping: Arc::default(),
            writing_out: Arc::default(),
            in_turn: Arc::default(),
            more_threads: MoreThreads::default(),
        }
    }
}

impl Recalls {
    pub fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// An answer makes an inode known to the kernel.
    fn note_known(&self, ino: Ino) {
        self.note(&self.known, ino);
    }

    /// An answer is on its way that the kernel takes for new, although it may know the inode.
    pub fn note_unguarded(&self, ino: Ino) {
        self.note(&self.unguarded, ino);
    }

    /// True if the kernel may still have before it an answer that makes an inode known.
    fn is_fresh(&self, ino: Ino) -> bool {
        self.is_recent(&self.known, ino)
    }

    /// True if it may still have one before it that it takes for new.
    fn is_unguarded(&self, ino: Ino) -> bool {
        self.is_recent(&self.unguarded, ino)
    }

    fn note(&self, slots: &[AtomicU64; SLOTS], ino: Ino) {
        slots[ino.0 as usize % SLOTS].store(self.now_ms() + 1, Ordering::Relaxed);
    }

    fn is_recent(&self, slots: &[AtomicU64; SLOTS], ino: Ino) -> bool {
        let at = slots[ino.0 as usize % SLOTS].load(Ordering::Relaxed);
        at > 0 && self.now_ms().saturating_sub(at) <= ONCE_MORE.as_millis() as u64
    }

    /// True if an inode was recalled since there had been so many recalls.
    pub fn was_recalled(&self, ino: Ino, since: u64) -> bool {
        let told = self.told.read();
        told.count != since && told.since(since).is_none_or(|recalled| recalled.contains(&ino))
    }

    /// From now on the kernel can be told.
    pub fn mounted(&self, device: Device) {
        // A door is mounted once.
        let _again = self.device.set(device);
    }

    /// How many there were so far.
    pub fn count(&self) -> u64 {
        self.told.read().count
    }

    /// The kernel believes no attributes of an inode any more; false if it does not know it.
    fn tell(&self, node: u64) -> bool {
        self.device.get().is_none_or(|device| device.forget_attributes(node))
    }

    /// The kernel drops these ranges, and waits for pages that are being read or written.
    fn drop_ranges(&self, node: u64, ranges: &[(u64, u64)]) {
        for &(from, len) in ranges {
            self.device.get().iter().for_each(|device| device.forget_contents(node, from, len));
        }
    }

    /// The same of all of an inode, by the number that the kernel knows, on a thread and in turn: while it waits for a page that
    /// some server is slow to send, any number of reads of others may ask for this.
    fn drop_in_turn(self: &Arc<Self>, runtime: &Handle, (ino, node): (Ino, u64), asked: Asked) {
        if let Some(turn) = self.in_turn.ask(ino, asked) {
            let recalls = Arc::clone(self);
            runtime.spawn_blocking(move || recalls.take_turn(node, turn));
        }
    }

    /// As [`Recalls::drop_in_turn`], and before that, at once, the range of the request that asks for it: what it brought is not
    /// to stay until others' pages have come. This waits for no pages but its own, which are answered the next moment: no more
    /// threads wait so than requests are being answered.
    fn drop_own_and_in_turn(
        self: &Arc<Self>,
        runtime: &Handle,
        (ino, node): (Ino, u64),
        own: (u64, u64),
        asked: Asked,
    ) {
        let recalls = Arc::clone(self);
        runtime.spawn_blocking(move || {
            recalls.drop_ranges(node, &[own]);
            if let Some(turn) = recalls.in_turn.ask(ino, asked) {
                recalls.take_turn(node, turn);
            }
        });
    }

    /// Drops what is asked for of an inode until that is nothing, but for what is being written when it begins.
    fn take_turn(&self, node: u64, turn: Turn) {
        let ino = turn.ino();
        for asked in turn {
            let ranges = match asked.leaves_out {
                true => self.writing.leave_out(ino),
                false => self.writing.free(ino),
            };
            self.drop_ranges(node, &ranges);
        }
    }
}

impl FuseDoor {
    /// Sends an answer that was made since there had been so many recalls. What it lets the kernel believe is
    /// computed now.
    pub(super) fn send_leased(
        &self,
        mark: u64,
        mut answer: Result<Reply, Errno>,
        send: impl FnOnce(&Result<Reply, Errno>),
    ) {
        let Some(reply) = answer.as_mut().ok().filter(|reply| reply.shows()) else {
            return send(&answer);
        };
        let told = self.recalls.told.read();
        let recalled = told.since(mark);
        let lasts = |ino: &Ino| recalled.as_ref().is_some_and(|recalled| !recalled.contains(ino));
        let introduces = !matches!(reply, Reply::Attr(_) | Reply::Statx(_));
        reply.each_shown(|shown| {
            (shown.valid, shown.name_valid) = Default::default();
            if lasts(&shown.real) {
                if introduces {
                    self.recalls.note_known(shown.real);
                }
                // Not while the kernel may have contents that it got without a lease.
                if !self.recalls.dropping.has(shown.real) && !self.is_contested(shown) {
                    shown.valid = self.volume.believable(shown.real, &shown.attr);
                    if !shown.valid.is_zero() {
                        self.recalls.contested.note_given(shown.real, What::Attributes);
                    }
                }
            }
            if let Some((dir, name)) = shown.name.as_ref().filter(|(dir, _)| lasts(dir)) {
                shown.name_valid = self.volume.believable_name(*dir, name, shown.real);
            }
        });
        send(&answer);
    }

    /// The answer to a question about an inode (`of`, if it is of one), which is asked anew where that was recalled meanwhile.
    pub(super) async fn asked_anew<T, F: Future<Output = T>>(
        &self,
        ask: impl Fn() -> F,
        of: impl Fn(&T) -> Option<Ino>,
    ) -> T {
        for _ in 1..ASK_TRIES {
            let since = self.recalls.count();
            let found = ask().await;
            if !of(&found).is_some_and(|ino| self.recalls.was_recalled(ino, since)) {
                return found;
            }
        }
        ask().await
    }

    /// True if the kernel is to believe nothing of an inode, because other mounts use it by turns with this one. A directory many
    /// look at that is changed all the time.
    fn is_contested(&self, shown: &Shown) -> bool {
        let is_directory = shown.attr.kind == FileKind::Directory;
        !is_directory && self.recalls.contested.has(shown.real, self.recalls.now_ms())
    }
}

impl FuseDoor {
    /// Has the kernel drop what was left out when a file was recalled, or what it was given without a lease (`own`: first byte
    /// and length, if that is in its pages), and all else that is not being written. Being told makes it ignore the answer
    /// about attributes that is on its way, by which it would have dropped the rest itself: those answers wait for this
    /// ([`Dropping`]).
    pub(super) fn forget_again(&self, ino: Ino, own: Option<(u64, u64)>, drops: Drops) {
        self.prefetch.cancel(ino);
        let inode = (ino, self.node(ino));
        let asked = Asked { leaves_out: false, drops: Some(drops) };
        match own {
            Some(own) => self.recalls.drop_own_and_in_turn(&self.runtime, inode, own, asked),
            None => self.recalls.drop_in_turn(&self.runtime, inode, asked),
        }
    }

    /// Has the kernel drop a file of which it was told that a change has failed, which may be made, or half of it: it has
    /// dropped nothing for that. Who asks for attributes from now on waits for the pages.
    pub(super) fn forget_changed(&self, ino: Ino) {
        let drops = self.recalls.dropping.begin(ino);
        let _soon = self.take_back(&[ino], false);
        self.drop_soon(ino, Some(drops));
    }

    /// The kernel is given nothing ahead of an inode any more, and drops what it has, in turn; but what is being written then later.
    fn drop_soon(&self, ino: Ino, drops: Option<Drops>) {
        self.prefetch.cancel(ino);
        let asked = Asked { leaves_out: true, drops };
        self.recalls.drop_in_turn(&self.runtime, (ino, self.node(ino)), asked);
    }

    /// Has the kernel write what programs have stored there into maps, by dropping it. False if some of the file may not be
    /// written until then: pages may be busy for long.
    pub(super) async fn write_out(
        &self,
        ino: Ino,
        range: Range<u64>,
        until: tokio::time::Instant,
    ) -> bool {
        // The last piece of before: whoever asks again and again would have more and more threads wait for it.
        if self.recalls.writing_out.has(ino) {
            return false;
        }
        self.prefetch.cancel(ino);
        // For as long as this only: what is dropped here is not old, and the kernel ignores answers of before it began.
        let _drops = self.recalls.dropping.begin(ino);
        // In pieces, so that little is left when nobody waits any more: until that is written, readers of it wait.
        let in_pieces = async {
            let (mut at, mut len) = (range.start, FIRST_PIECE_BYTES);
            while at < range.end {
                let goes_on = self.recalls.writing_out.begin(ino);
                let piece = (at, len.min(range.end - at));
                let dropped = self.drop_pages(vec![(self.node(ino), vec![piece])]);
                let ended = self.runtime.spawn(async move {
                    let _goes_on = goes_on;
                    dropped.await
                });
                if !matches!(ended.await, Ok(Ok(true))) {
                    return false;
                }
                at = at.saturating_add(len);
                len = len.saturating_mul(4);
            }
            true
        };
        // Older kernels do not wait for pages that are on their way to us already.
        timeout_at(until, in_pieces).await == Ok(true) && !self.recalls.writing.has(ino)
    }

    /// Has the kernel drop these ranges of inodes. It waits for pages that are being read or written, and so may
    /// whoever waits for the end of this; other inodes do not. False if that is not known of all.
    fn drop_pages(&self, all: Vec<(u64, Vec<(u64, u64)>)>) -> JoinHandle<bool> {
        let recalls = self.recalls.clone();
        self.runtime.spawn(async move {
            let told = recalls.clone();
            let drop_one = move |(node, ranges): (u64, Vec<(u64, u64)>)| {
                told.drop_ranges(node, &ranges);
            };
            recalls.more_threads.work_through(all, drop_one).await
        })
    }
}

impl FuseDoor {
    /// The kernel believes nothing any more that it was told of these inodes: because of others, or of what was done here. For how long
    /// it may still.
    pub(super) fn take_back(&self, inodes: &[Ino], of_others: bool) -> Duration {
        let recalls = self.recalls.clone();
        {
            let mut told = recalls.told.write();
            told.note(inodes);
            // What a kernel is given to believe without leases nobody notes.
            if of_others && self.volume.keeps_leases() {
                recalls.contested.recall(inodes, recalls.now_ms());
            }
        }
        let mut again = Vec::new();
        for &ino in inodes {
            let Some(believed) = recalls.contested.left(ino, What::Attributes) else { continue };
            let (node, fresh) = (self.node(ino), recalls.is_fresh(ino));
            let is_known = recalls.tell(node);
            if !is_known && fresh || recalls.is_unguarded(ino) {
                again.push((ino, node, believed));
            } else {
                recalls.contested.note_dropped(ino, What::Attributes, believed);
            }
        }
        if again.is_empty() {
            return Duration::ZERO;
        }
        self.runtime.spawn(async move {
            tokio::time::sleep(ONCE_MORE).await;
            for (ino, node, believed) in again {
                let _is_known = recalls.tell(node);
                recalls.contested.note_dropped(ino, What::Attributes, believed);
            }
        });
        ONCE_MORE + MARGIN
    }
}

impl Believer for FuseDoor {
    fn recall(&self, inodes: &[Ino]) -> Duration {
        self.take_back(inodes, true)
    }

    fn forget_contents(&self, inodes: &[Ino]) -> BoxFuture<'static, bool> {
        inodes.iter().for_each(|ino| self.prefetch.cancel(*ino));
        let recalls = self.recalls.clone();
        let pages =
            |ino: &Ino| recalls.contested.left(*ino, What::Pages).map(|given| (*ino, given));
        let begun: Vec<(Ino, u64)> = inodes.iter().filter_map(pages).collect();
        if begun.is_empty() {
            return Box::pin(async { true });
        }
        let ranges = |ino: Ino| (self.node(ino), recalls.writing.leave_out(ino));
        let dropped = self.drop_pages(begun.iter().map(|(ino, _)| ranges(*ino)).collect());
        Box::pin(async move {
            let is_dropped = matches!(dropped.await, Ok(true));
            // Else nothing is known.
            if is_dropped {
                let contested = &recalls.contested;
                begun
                    .iter()
                    .for_each(|(ino, given)| contested.note_dropped(*ino, What::Pages, *given));
            }
            is_dropped
        })
    }

    fn forget_soon(&self, ino: Ino) {
        self.drop_soon(ino, None);
    }
}

impl Device {
    /// The kernel believes no attributes and ACLs of an inode any more; false if it does not know it.
    fn forget_attributes(&self, ino: u64) -> bool {
        // An offset below zero leaves the pages alone.
        self.notify(abi::NOTIFY_INVAL_INODE, &abi::InvalInodeOut { ino, off: -1, len: 0 })
    }

    /// The kernel believes neither attributes nor these contents of an inode any more. Length 0: to the end.
    fn forget_contents(&self, ino: u64, from: u64, len: u64) {
        // Both are signed there, and no file is so long.
        let (off, len) = (from.min(i64::MAX as u64) as i64, len.min(i64::MAX as u64) as i64);
        let _is_known = self.notify(abi::NOTIFY_INVAL_INODE, &abi::InvalInodeOut { ino, off, len });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    /// Each read without a lease left a thread, and all waited for one page; with enough of them no recall was told any more.
    #[tokio::test]
    async fn however_often_a_file_is_to_be_dropped_one_thread_waits_for_its_pages() {
        let (mut kernel, ours) = UnixStream::pair().unwrap();
        let (recalls, ino) = (Arc::new(Recalls::default()), Ino(7));
        recalls.mounted(Device::from_session(ours.as_fd()).unwrap());
        // It takes nothing for a while.
        ours.set_nonblocking(true).unwrap();
        let mut before = 0;
        while let Ok(len) = (&ours).write(&[0; 4096]) {
            before += len;
        }
        ours.set_nonblocking(false).unwrap();
        for _ in 0..100 {
            let asked = Asked { leaves_out: false, drops: Some(recalls.dropping.begin(ino)) };
            recalls.drop_in_turn(&Handle::current(), (ino, ino.0), asked);
        }
        kernel.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (mut came, mut space) = (0, vec![0; 64 << 10]);
        for _ in 0..3_000 {
            let over = !recalls.dropping.has(ino);
            match kernel.read(&mut space) {
                Ok(len) => came += len,
                Err(_) if over => break,
                Err(_) => {}
            }
        }
        let one = size_of::<abi::OutHeader>() + size_of::<abi::InvalInodeOut>();
        let told = came - before;
        assert!(told == one || told == 2 * one, "{told} bytes, {one} for each time");
        assert!(!recalls.dropping.has(ino));
    }

    /// Recalls of a kernel, and the end by which that is told.
    fn told_by() -> (UnixStream, Arc<Recalls>) {
        let (kernel, ours) = UnixStream::pair().unwrap();
        kernel.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let recalls = Arc::new(Recalls::default());
        recalls.mounted(Device::from_session(ours.as_fd()).unwrap());
        (kernel, recalls)
    }

    /// First byte and length of what a kernel is to drop next.
    fn next_dropped(kernel: &mut UnixStream) -> (i64, i64) {
        let mut told = [0; size_of::<abi::OutHeader>() + size_of::<abi::InvalInodeOut>()];
        kernel.read_exact(&mut told).unwrap();
        let number = |at: usize| i64::from_ne_bytes(told[at..at + 8].try_into().unwrap());
        (number(told.len() - 16), number(told.len() - 8))
    }

    /// It waited for pages of others, and who looked into his map saw what another mount had written over since.
    #[tokio::test]
    async fn the_pages_of_a_read_without_a_lease_go_while_others_of_the_file_are_waited_for() {
        let ((mut kernel, recalls), ino) = (told_by(), Ino(7));
        let mut slow = recalls.in_turn.ask(ino, Asked::default()).unwrap();
        let waits = slow.next();
        for from in [0, 8192] {
            let asked = Asked { leaves_out: false, drops: Some(recalls.dropping.begin(ino)) };
            let own = (from, 4096);
            recalls.drop_own_and_in_turn(&Handle::current(), (ino, ino.0), own, asked);
            assert_eq!(next_dropped(&mut kernel), (from as i64, 4096));
            assert!(recalls.dropping.has(ino), "the rest is not dropped yet");
        }
        drop(waits);
        recalls.take_turn(ino.0, slow);
        assert_eq!(next_dropped(&mut kernel), (0, 0));
    }

    /// A drop that waits for its turn waited for writes that had begun since it was asked for, and left out those that had ended.
    #[test]
    fn what_is_being_written_when_a_drop_begins_is_left_out_and_dropped_at_its_end() {
        let ((mut kernel, recalls), ino) = (told_by(), Ino(7));
        let before = recalls.writing.begin(ino, 8192, 4096);
        let turn = recalls.in_turn.ask(ino, Asked { leaves_out: true, drops: None }).unwrap();
        assert!(!recalls.writing.end(ino, before), "it has not begun");
        let since = recalls.writing.begin(ino, 0, 4096);
        recalls.take_turn(ino.0, turn);
        assert_eq!(next_dropped(&mut kernel), (4096, 0));
        assert!(recalls.writing.end(ino, since));
    }

    #[test]
    fn an_answer_is_older_than_a_recall_only_of_what_was_recalled_since_it_was_asked_for() {
        let mut told = Told::default();
        told.note(&[Ino(1), Ino(2)]);
        let asked = told.count;
        assert_eq!(told.since(asked), Some(HashSet::new()));
        told.note(&[Ino(3)]);
        told.note(&[Ino(4)]);
        assert_eq!(told.since(asked), Some([Ino(3), Ino(4)].into()));
        assert_eq!(told.since(0), Some([Ino(1), Ino(2), Ino(3), Ino(4)].into()));
        assert_eq!(told.since(asked + 9), None, "of another mount");
        let many: Vec<Ino> = (0..LATEST_MAX as u64).map(Ino).collect();
        told.note(&many);
        assert_eq!(told.since(asked), None, "not all are known any more");
        assert_eq!(told.since(told.count - 1).map(|all| all.len()), Some(LATEST_MAX));
        told.note(&[many, vec![Ino(1 << 40)]].concat());
        assert_eq!(told.since(told.count - 1), None);
        assert_eq!((told.since(told.count), told.inodes), (Some(HashSet::new()), 0));
    }
}
