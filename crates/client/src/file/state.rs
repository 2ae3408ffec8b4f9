//! What all handles of one file in this mount share.

use super::ahead::Ahead;
use super::claims::Claims;
use super::dirty::Dirty;
use super::failure::Failure;
use super::handles::Handles;
use super::in_vain::{InVain, OrderInVain};
use super::inline::Inline;
use super::parts::Parts;
use super::unpublished::Unpublished;
use crate::contents::Contents;
use crate::kept::{Kept, KeptFile};
use crate::pace::Paces;
use crate::room::Room;
use crate::unsynced::Unsynced;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use strake_types::access::written_by_user;
use strake_types::layout::Placement;
use strake_types::limits::FILE_BYTES_MAX;
use strake_types::{Attr, Consistency, Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::Opened;
use tokio::sync::Notify;

/// Where the contents of a file are.
pub(crate) enum Body {
    /// Inside the inode.
    Inline(Inline),
    /// In chunks on targets.
    Chunks,
}

/// Bytes on their way to a target.
pub(crate) struct InFlight {
    pub(crate) data: Bytes,
    /// In which it was written ([`super::Life`]): over, it is given up.
    pub(crate) life: u64,
    /// See [`KeptFile::mark`].
    pub(crate) kept_mark: u64,
    /// Given back when the entry is dropped.
    pub(crate) _room: Option<Room>,
}

/// The part of [`FileState`] under its lock.
pub(crate) struct Core {
    /// As the server said last.
    pub(crate) attr: Arc<Attr>,
    /// When it said so (monotonic).
    pub(crate) learned: Duration,
    /// Length as this mount knows it.
    pub(crate) length: u64,
    pub(crate) body: Body,
    pub(crate) placement: Option<Arc<Placement>>,
    /// Newest right to read and to write.
    pub(crate) capability: [Bytes; 2],
    /// The metadata server may be about to cut what is written from then on, for a length that this mount has given up to set, or
    /// that another one has set: that is over when it was asked after that for the right to write, was told of all that was given
    /// up, and has given it.
    pub(crate) cut_in_doubt: Option<Duration>,
    /// How often somebody here has given it setuid or setgid.
    pub(super) given_setid: u64,
    /// See [`super::Life`].
    pub(crate) life: u64,
    /// Open handles of this mount.
    pub(crate) handles: usize,
    /// Those of some kinds.
    pub(crate) open: Handles,
    /// Opens that the server counts for us, in this incarnation of the session.
    pub(crate) registered: usize,
    pub(crate) incarnation: u64,
    /// The incarnation in which the server knows that this mount may be writing to it; 0: it asks before it does.
    pub(crate) awake: u64,
    /// When it last said so.
    pub(crate) rested: Option<Duration>,
    pub(crate) dirty: Dirty,
    pub(crate) parts: Parts,
    /// What is being sent, by where it starts. Entries never overlap.
    pub(crate) in_flight: BTreeMap<u64, InFlight>,
    /// Tasks that send extents.
    pub(crate) senders: usize,
    /// Contents or length are being changed otherwise than by writing: writes wait.
    pub(crate) exclusive: bool,
    /// Chunks were changed otherwise than by writing, and nobody knows whether that is over.
    pub(crate) change_in_doubt: bool,
    pub(crate) unpublished: Unpublished,
    /// It has no `security.capability`, unless somebody else has set one since and nobody has told of that yet: a write need not
    /// take it away.
    pub(crate) no_capability: bool,
    pub(crate) unsynced: Unsynced,
    /// Syncs that are under way.
    pub(crate) syncing: usize,
    pub(crate) failure: Failure,
    pub(crate) ahead: Ahead,
    pub(crate) in_vain: InVain,
    /// How the metadata server was told of the file last, by who had its order.
    pub(crate) told_in_vain: OrderInVain,
    /// The same of targets that were to sync it.
    pub(crate) synced_in_vain: OrderInVain,
    /// What targets have acknowledged.
    pub(crate) kept: KeptFile,
    /// Something was read through those that are paged since the kernel dropped the file's pages last: it may keep what that was.
    pub(crate) paged_reads: bool,
    /// Length and mtime at the server after the last change known to be ours, with the version up to which all changes are;
    /// `None` if somebody else has changed the file beside us, so that nothing cached can be told to be true.
    pub(crate) ours: Option<Contents>,
    /// Handles at whose opening the kernel was to drop its pages, and may not have done so yet.
    pub(crate) dropping: usize,
    /// A kernel may have pages of before a change of somebody else, and no recall will tell it.
    pub(crate) stale_pages: bool,
    /// Others have it open: each write is told before it returns.
    pub(crate) shared: bool,
    /// Those may hold back what they have written.
    pub(crate) unsettled: bool,
    /// What of it may be held back all the same.
    pub(crate) claims: Claims,
    /// Appends that are to give back the end of the file.
    pub(crate) ending: usize,
    /// The background task is at work on it.
    pub(crate) ticking: bool,
    /// The background task knows of it.
    pub(crate) busy: bool,
    /// Another mount may have changed the inline contents: to be asked for before they are used.
    pub(crate) inline_stale: bool,
    /// Since when its close is deferred ([`super::deferred`]).
    pub(crate) deferred: Option<Duration>,
}

/// A file that has handles open or something unsent.
pub struct FileState {
    ino: Ino,
    core: Mutex<Core>,
    /// Held while the length, the place of the contents or what is published changes: one at a time.
    pub(crate) order: tokio::sync::Mutex<()>,
    /// Held by who makes the file durable, and taken before its order: that is let go before the disks of targets are
    /// waited for.
    pub(crate) sync_turn: tokio::sync::Mutex<()>,
    /// Held by who appends while others may: one of this mount at a time. The session in which the end may still be
    /// locked for one of before, who is to give it back.
    pub(crate) appending: tokio::sync::Mutex<Option<u64>>,
    /// Held by who asks for a right to the contents anew.
    pub(crate) renewing: tokio::sync::Mutex<()>,
    /// Something was answered, or writes may go on.
    pub(crate) progress: Notify,
}

impl Core {
    /// True if a part of a range is being sent.
    pub(crate) fn is_in_flight(&self, from: u64, to: u64) -> bool {
        overlaps(&self.in_flight, from, to)
    }

    /// What is being sent, but for what is given up: nobody sees that, although it is under way.
    fn flying(&self) -> impl DoubleEndedIterator<Item = (&u64, &InFlight)> {
        let life = self.life;
        self.in_flight.iter().filter(move |(_, flying)| flying.life == life)
    }

    /// True if something of the contents or lengths is unknown to the servers.
    pub(crate) fn is_unsent(&self) -> bool {
        let inline = matches!(&self.body, Body::Inline(inline) if inline.is_dirty());
        inline || !self.dirty.is_empty() || self.flying().next().is_some()
    }

    /// True if the metadata server must be told something about chunks.
    pub(crate) fn is_unpublished(&self) -> bool {
        let unpublished = &self.unpublished;
        unpublished.times.is_some()
            || unpublished.occupied != 0
            || unpublished.end() > self.attr.length
    }

    /// True if others that have the file open are told of each change, or asked.
    pub(crate) fn is_strict(&self) -> bool {
        self.attr.consistency() == Consistency::Strict
    }

    /// True if it is of those that are leased.
    pub(crate) fn is_leasable(&self) -> bool {
        self.attr.nlink > 0 && self.attr.consistency() != Consistency::Parallel
    }

    /// True if the contents lie inside the inode.
    pub(crate) fn is_inline(&self) -> bool {
        matches!(self.body, Body::Inline(_))
    }

    /// True if the servers know everything.
    pub(crate) fn is_told(&self) -> bool {
        !self.is_unsent() && !self.is_unpublished()
    }

    /// The same, and nothing is under way to them.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_told() && self.in_flight.is_empty()
    }

    /// As [`FileState::fail`].
    pub(crate) fn fail(&mut self, error: &Error) {
        self.failure.count += 1;
        self.failure.error = Some(error.clone());
        self.failure.untold = true;
        self.failure.of_last_life = false;
        self.kept.clear();
        self.ahead.clear();
        // Length and time may be those of what is lost: until it is opened anew nobody can tell whose the contents are, and what
        // is kept of it goes with each answer, as where somebody else changes it. That costs, and is rare.
        self.ours = None;
    }

    /// The server refuses to be told: the file is as the server has it.
    pub(crate) fn forget_unpublished(&mut self) {
        if let Body::Inline(inline) = &mut self.body {
            self.inline_stale |= inline.is_dirty();
            inline.forget_unsent();
        }
        if !self.is_unsent() {
            self.unpublished = Unpublished::default();
            self.length = self.attr.length;
        }
        self.kept.clear();
    }

    /// True if the server is to count the file as open: it has handles, or something is unsent or being changed, which
    /// would go where the file was before, or its end is locked, which who opens it next must not unlock.
    pub(crate) fn is_used(&self) -> bool {
        self.handles > 0 || self.ending > 0 || self.exclusive || !self.is_idle()
    }

    /// True if the server is to count it as open, also because its close is deferred.
    pub(crate) fn counts_as_open(&self) -> bool {
        self.is_used() || self.deferred.is_some()
    }

    /// The opens that the server need not count any more: all, unless it is to count the file as open.
    pub(crate) fn give_up_opens(&mut self) -> usize {
        if self.counts_as_open() {
            return 0;
        }
        self.claims.give_up();
        self.awake = 0;
        std::mem::take(&mut self.registered)
    }

    /// The server counts one more open in this incarnation of the session. What was counted in an earlier one
    /// is over.
    pub(crate) fn register(&mut self, incarnation: u64) {
        if incarnation > self.incarnation {
            (self.registered, self.incarnation) = (0, incarnation);
        }
        self.registered += usize::from(incarnation == self.incarnation);
    }

    pub(crate) fn placement(&self) -> Result<Arc<Placement>> {
        let missing = || Error::with(ErrorKind::Io, "a regular file without a layout");
        self.placement.clone().ok_or_else(missing)
    }

    /// The longest that it may get.
    pub(crate) fn length_max(&self) -> u64 {
        let placement = self.placement.as_ref();
        placement.map_or(FILE_BYTES_MAX, |placement| placement.layout().length_max())
    }

    /// The end of a range of it. An error where it may not get as long as that.
    pub(crate) fn end_of(&self, offset: u64, len: u64) -> Result<u64> {
        let end = offset.checked_add(len).filter(|&end| end <= self.length_max());
        end.ok_or(Error::new(ErrorKind::FileTooBig))
    }

    /// The metadata server has had chunks changed, and does not wait until that is on disk.
    pub(crate) fn changed_elsewhere(&mut self) {
        for &group in self.placement.iter().flat_map(|placement| placement.slots()) {
            // It comes from no boot that could show a loss.
            let _never = self.unsynced.add(group, None);
        }
    }

    /// Attributes from the server with what this mount knows better.
    pub(crate) fn merged(&self, attr: &Attr) -> Attr {
        let mut merged = attr.clone();
        let unpublished = &self.unpublished;
        if let Some(times) = unpublished.times {
            merged.length = merged.length.max(self.length);
            merged.mtime = times.mtime;
            merged.ctime = merged.ctime.max(times.ctime);
            merged.atime = times.atime.unwrap_or(merged.atime);
            merged.occupied = merged.occupied.saturating_add_signed(unpublished.occupied);
        }
        if unpublished.drop_setid {
            merged.mode = written_by_user(merged.mode);
        }
        merged
    }

    /// Takes newer attributes from the server. Older ones (answers overtake each other) are ignored.
    pub(crate) fn learn(&mut self, attr: &Arc<Attr>, now: Duration) {
        self.learn_after(0, attr, now);
    }

    /// As [`Core::learn`], of an answer to a change of something else than contents that this mount
    /// has made.
    pub(crate) fn learn_changed(&mut self, attr: &Arc<Attr>, now: Duration) {
        self.learn_after(1, attr, now);
    }

    /// As [`Core::learn`], after so many changes of our own.
    fn learn_after(&mut self, own: u64, attr: &Arc<Attr>, now: Duration) {
        if attr.version < self.attr.version {
            return;
        }
        let foreign = !self.ours.is_some_and(|ours| ours.look_like(attr));
        // Whoever writes may set the old mtime again afterwards. Each change is one step of the version.
        let others = attr.version > self.attr.version + own;
        if others || foreign && attr.version > self.attr.version {
            self.ahead.clear();
            self.inline_stale = true;
        }
        if others {
            // What they have written a sync covers as well. Not what is foreign only because nobody can tell any more whose
            // the contents were: then each sync would ask for them.
            self.unsynced.others_wrote(attr.length.max(self.attr.length));
        } else if let Some(ours) = &mut self.ours {
            ours.follow(self.attr.version, attr.version);
        }
        if others || foreign {
            self.kept.clear();
            self.stale_pages |= attr.consistency() == Consistency::Parallel;
        }
        if attr.layout.is_some() && attr.layout != self.attr.layout {
            self.placement = attr.layout.clone().map(|layout| Arc::new(Placement::new(layout)));
        }
        self.learn_capability(attr, others);
        let is_cut = attr.length < self.attr.length;
        self.attr = Arc::clone(attr);
        self.learned = now;
        if !attr.inline && matches!(&self.body, Body::Inline(inline) if !inline.is_dirty()) {
            self.body = Body::Chunks;
        }
        if self.knows_no_better() && !self.exclusive {
            self.length = attr.length;
        } else if is_cut && !self.exclusive {
            // What is left of it, and what this mount has written beyond that.
            self.length = attr.length.max(self.end_of_unpublished());
        } else {
            self.length = self.length.max(attr.length);
        }
    }

    /// A write has failed: the next append is not to leave a gap where that would have been.
    pub(crate) fn forget_failed_length(&mut self) {
        self.length = self.attr.length.max(self.end_of_unpublished());
    }

    /// End of what was written here and the metadata server may not know of.
    fn end_of_unpublished(&self) -> u64 {
        let inline = match &self.body {
            Body::Inline(inline) if inline.is_dirty() => inline.as_slice().len() as u64,
            _ => 0,
        };
        let last = self.flying().next_back();
        let in_flight = last.map_or(0, |(start, flying)| start + flying.data.len() as u64);
        inline.max(in_flight).max(self.dirty.end()).max(self.unpublished.end())
    }

    /// True if inline contents are to be asked for before they are used. Of a relaxed file also where some are unsent: others may
    /// have changed what lies around those since, and the next write would have it sent as it was.
    pub(crate) fn is_inline_stale(&self) -> bool {
        self.inline_stale && self.is_inline() && (!self.is_strict() || self.knows_no_better())
    }

    /// True if the server knows everything that was written.
    pub(crate) fn knows_no_better(&self) -> bool {
        self.unpublished.times.is_none() && !self.is_unsent()
    }

    /// As [`Core::learn`], of an answer to a change of contents that this mount has made.
    pub(crate) fn learn_own(&mut self, attr: &Arc<Attr>, now: Duration) {
        // Each change is one step of the version: with more than one, our length and time hide
        // those of somebody else. So they do where somebody else's were learned before.
        let known = self.ours.filter(|ours| ours.look_like(&self.attr));
        let alone = known.filter(|_| attr.version <= self.attr.version + 1);
        self.ours = alone.map(|ours| ours.written(attr));
        self.learn_after(1, attr, now);
    }
}

impl FileState {
    /// State of a file that was just opened; no handle is counted yet.
    pub(crate) fn new(
        attr: &Arc<Attr>,
        opened: &Opened,
        created: bool,
        kept: &Arc<Kept>,
        paces: &Arc<Paces>,
        now: Duration,
    ) -> Self {
        let placement = attr.layout.clone().map(|layout| Arc::new(Placement::new(layout)));
        let core = Core {
            attr: Arc::clone(attr),
            learned: now,
            length: attr.length,
            body: body_of(attr, opened),
            placement,
            capability: [Bytes::new(), Bytes::new()],
            cut_in_doubt: None,
            given_setid: 0,
            life: 0,
            handles: 0,
            registered: 0,
            incarnation: 0,
            awake: 0,
            rested: None,
            dirty: Dirty::default(),
            parts: Parts::new(paces),
            in_flight: BTreeMap::new(),
            senders: 0,
            exclusive: false,
            change_in_doubt: false,
            unpublished: Unpublished::default(),
            no_capability: created || attr.no_xattrs,
            unsynced: Unsynced::new((!created).then_some(attr.length), None),
            syncing: 0,
            failure: Failure::default(),
            ahead: Ahead::default(),
            in_vain: InVain::default(),
            told_in_vain: OrderInVain::default(),
            synced_in_vain: OrderInVain::default(),
            kept: kept.take_up(attr),
            open: Handles::default(),
            paged_reads: false,
            ours: Some(Contents::of(attr)),
            dropping: 0,
            stale_pages: false,
            shared: false,
            unsettled: false,
            claims: Claims::default(),
            ending: 0,
            ticking: false,
            busy: false,
            inline_stale: false,
            deferred: None,
        };
        Self {
            ino: attr.ino,
            core: Mutex::new(core),
            order: tokio::sync::Mutex::new(()),
            sync_turn: tokio::sync::Mutex::new(()),
            appending: tokio::sync::Mutex::new(None),
            renewing: tokio::sync::Mutex::new(()),
            progress: Notify::new(),
        }
    }

    pub(crate) fn ino(&self) -> Ino {
        self.ino
    }

    /// The state, for a short section.
    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
    }

    /// Counts one more handle, with what the server said about the file when it was opened: when it was asked and told of
    /// all cuts, if it was, and when that is learned.
    pub(crate) fn add_handle(
        &self,
        attr: &Arc<Attr>,
        opened: &Opened,
        rights: [bool; 2],
        incarnation: u64,
        (told, now): (Option<Duration>, Duration),
    ) {
        let mut core = self.core();
        core.handles += 1;
        core.register(incarnation);
        core.set_capability(rights, &opened.capability, told);
        // First of all, so that what was cached goes if somebody else has changed the file.
        core.learn(attr, now);
        core.take_body(attr, opened);
        core.ours = Some(Contents::of(attr));
    }

    /// Takes the inline contents that the server has just sent.
    pub(crate) fn refresh_body(&self, attr: &Arc<Attr>, opened: &Opened, now: Duration) {
        let mut core = self.core();
        core.learn(attr, now);
        core.take_body(attr, opened);
    }

    /// Another mount may have written since we last asked.
    pub(crate) fn distrust(&self) {
        let mut core = self.core();
        core.ahead.clear();
        core.kept.clear();
        core.inline_stale = true;
        core.learned = Duration::ZERO;
    }

    /// Takes attributes of the server, `changed` by this mount or only looked at; what a caller is
    /// to see.
    pub(crate) fn learn(&self, attr: &Arc<Attr>, changed: bool, now: Duration) -> Attr {
        let mut core = self.core();
        match changed {
            true => core.learn_changed(attr, now),
            false => core.learn(attr, now),
        }
        let newest = Arc::clone(&core.attr);
        core.merged(&newest)
    }

    /// Attributes with what this mount knows better.
    pub(crate) fn merge(&self, attr: &Attr) -> Attr {
        self.core().merged(attr)
    }

    /// True if the background task has nothing to do for it.
    pub(crate) fn is_idle(&self) -> bool {
        self.core().is_idle()
    }

    /// As [`FileState::is_idle`]; if so, the background task is about to forget it.
    pub(crate) fn rest_if_idle(&self) -> bool {
        let mut core = self.core();
        let idle = core.is_idle();
        core.busy &= !idle;
        idle
    }

    /// The last failure, if no sync has told of any yet. The handles report it nevertheless.
    pub(crate) fn tell_failure(&self) -> Result<()> {
        let failure = &mut self.core().failure;
        match (std::mem::take(&mut failure.untold), &failure.error) {
            (true, Some(error)) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Remembers a failure for every handle to report.
    pub(crate) fn fail(&self, error: &Error) {
        self.core().fail(error);
    }

    /// Nobody has the file open any more: what is kept of it waits for the next open.
    pub(crate) fn lay_down(&self) {
        let core = self.core();
        core.kept.lay_down(&core.attr);
    }
}

impl Core {
    fn take_body(&mut self, attr: &Attr, opened: &Opened) {
        if attr.version >= self.attr.version && self.knows_no_better() {
            self.body = body_of(attr, opened);
            self.inline_stale = false;
            self.ours = Some(Contents::of(attr));
        }
    }
}

/// True if a part of a range is being sent.
pub(crate) fn overlaps(in_flight: &BTreeMap<u64, InFlight>, from: u64, to: u64) -> bool {
    let before = in_flight.range(..to).next_back();
    before.is_some_and(|(start, flying)| start + flying.data.len() as u64 > from)
}

fn body_of(attr: &Attr, opened: &Opened) -> Body {
    match &opened.inline {
        Some(data) if attr.inline => Body::Inline(Inline::new(data)),
        None if attr.inline => Body::Inline(Inline::default()),
        _ => Body::Chunks,
    }
}
