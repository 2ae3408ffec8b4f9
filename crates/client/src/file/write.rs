//! Writing: into the inline contents, or into extents that senders carry away.

use super::Life;
use super::claims::{CLAIMS_MAX, no_claim};
use super::dirty::{Fragment, PART_BYTES_MIN};
use super::open::{OpenFile, TellBy};
use super::state::{Body, Core, FileState};
use crate::api::Written;
use crate::memory::{LOOK_EVERY, Memory};
use crate::metrics::Op;
use crate::patience::Patience;
use crate::room::{Room, in_inodes};
use crate::volume::Volume;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use strake_base::is_broken;
use strake_types::{Consistency, GroupId, Ino, Result, Timestamp};

/// A longer write is taken in parts of this many bytes.
const PART_BYTES_MAX: usize = 8 << 20;

/// Where a write goes.
#[derive(Clone, Copy)]
pub(super) enum At {
    Offset(u64),
    /// At the end, unless others may append as well.
    End,
    /// At the end, which is locked.
    LockedEnd,
}

/// How an attempt to take a write ended.
enum Taken {
    /// It is taken, at this offset; and whether it is held back, or to be told before it is answered.
    At(u64, bool),
    /// The length is being set.
    Wait,
    /// It is to be asked first where the file lies.
    Wake,
    /// It does not fit into the inode.
    MoveOut,
    /// What is in the inode must be asked for first.
    Refresh,
    /// The end must be locked first.
    Lock,
    /// The range at this offset must be claimed first.
    Claim(u64),
}

impl Volume {
    /// Writes bytes; at the end of the file where it was opened to append. Returns when they are
    /// taken, not when targets have them: see [`Volume::flush`] and [`Volume::fsync`].
    pub async fn write(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        offset: u64,
        data: Bytes,
    ) -> Result<Written> {
        self.write_as(file, file.flags().append, offset, data).await
    }

    /// As [`Volume::write`]; at the end if `append`, however the file was opened: `fcntl` changes that.
    pub async fn write_as(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        append: bool,
        offset: u64,
        data: Bytes,
    ) -> Result<Written> {
        file.take_failure(TellBy::Write)?;
        let at = if append { At::End } else { At::Offset(offset) };
        self.write_told(file, at, offset, data).await
    }

    /// As [`Volume::write`], at the offset also where the handle was opened to append: pages of a map. They are taken also where
    /// an earlier write has failed, as `fsync` and `close` tell: a kernel that is told so of pages drops them. Those that come
    /// first after a session was lost are dropped: they may have been written in it.
    pub async fn write_pages(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        offset: u64,
        data: Bytes,
    ) -> Result<Written> {
        if file.state.core().failure.of_last_life {
            file.take_failure(TellBy::Write)?;
        }
        self.write_told(file, At::Offset(offset), offset, data).await
    }

    async fn write_told(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        at: At,
        offset: u64,
        data: Bytes,
    ) -> Result<Written> {
        let _timer = self.count(Op::Write);
        file.heard_of();
        file.check_writable()?;
        let len = data.len() as u64;
        file.state.core().end_of(offset, len)?;
        let life = file.state.life();
        self.settle_again(&file.state).await?;
        let asks = matches!(at, At::End) && {
            let core = file.state.core();
            // Who has something untold of a strict file has it alone.
            (core.is_told() || !core.is_strict()) && !core.shared
        };
        if asks {
            // Others may have appended since, or the session was lost.
            self.refresh_attr(&file.state, &(0..0)).await?;
        }
        if matches!(at, At::End) && data.len() > PART_BYTES_MAX {
            // The file may get shared between two parts.
            return self.append_shared(file, life, data).await;
        }
        match self.write_parts(file, life, at, data.clone()).await? {
            Some((written, true)) => Ok(written),
            Some((written, false)) => self.tell_shared(file).await.map(|()| written),
            None => self.append_shared(file, life, data).await,
        }
    }

    /// Writes at an offset, also where the handle was opened to append.
    pub(crate) async fn write_at(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        offset: u64,
        data: Bytes,
    ) -> Result<Option<Written>> {
        let written = self.write_parts(file, file.state.life(), At::Offset(offset), data).await?;
        Ok(written.map(|(written, _)| written))
    }

    /// Also whether all of it is held back, or has to be told. `None`: the end must be locked first.
    pub(super) async fn write_parts(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        life: Life<'_>,
        at: At,
        data: Bytes,
    ) -> Result<Option<(Written, bool)>> {
        let len = data.len() as u64;
        let locked = matches!(at, At::LockedEnd);
        let part = data.slice(..data.len().min(PART_BYTES_MAX));
        let part = self.write_part(file, life, (at, locked), part).await?;
        let Some((first, mut held)) = part else { return Ok(None) };
        let mut done = data.len().min(PART_BYTES_MAX);
        while done < data.len() {
            let part = data.slice(done..data.len().min(done + PART_BYTES_MAX));
            let part_len = part.len();
            let next = At::Offset(first + done as u64);
            let part = self.write_part(file, life, (next, locked), part).await?;
            held &= part.is_some_and(|(_, held)| held);
            done += part_len;
        }
        Ok(Some((Written { offset: first, len }, held)))
    }

    /// What began in one life of the file is not taken in the next: somebody else may have its locks. `locked`: the file's end
    /// is.
    async fn write_part(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        life: Life<'_>,
        (at, locked): (At, bool),
        data: Bytes,
    ) -> Result<Option<(u64, bool)>> {
        if data.is_empty() {
            let length = file.state.core().length;
            return Ok(Some((if let At::Offset(offset) = at { offset } else { length }, true)));
        }
        let (state, mut claims, mut once) = (&file.state, 0, false);
        let mut room = None;
        loop {
            if room.is_none() {
                room = self.memory().try_dirty(data.len());
            }
            // Other mounts wait for the end as long, and what was said of a claim would be over by the time there is memory: what
            // has to do with either is taken without room, where there is none. It is told before its caller, who keeps the
            // bytes until then, is answered. Not so of a file that nobody shares: its bytes stay here, and without room there
            // would be no bound to them.
            if room.is_none() && claims == 0 && !(locked && state.core().shared) {
                room = Box::pin(self.room_in_line(state, (at, locked), data.len())).await?;
            }
            let progress = state.progress.notified();
            let taken = {
                let mut core = state.core();
                life.check_in(&core)?;
                // While this waits for anything else, others may claim the range.
                let once = std::mem::take(&mut once);
                let taken = self.take(&mut core, file, (at, once), &data, &mut room);
                if core.dirty.ready_len() > 0 {
                    self.start_senders(state, &mut core);
                }
                taken?
            };
            if !matches!(taken, Taken::At(..)) {
                // While this waits for others, the room is everybody's.
                room = None;
            }
            match taken {
                Taken::At(offset, held) => {
                    self.mark_busy(state);
                    return Ok(Some((offset, held)));
                }
                Taken::Claim(_) if claims >= CLAIMS_MAX => return Err(no_claim()),
                Taken::Claim(offset) => {
                    claims += 1;
                    once = self.claim_for(file, at, offset..offset + data.len() as u64).await?;
                }
                Taken::Lock => return Ok(None),
                Taken::Wait => progress.await,
                Taken::Wake => self.wake(state).await?,
                Taken::Refresh => self.refresh_inline(state).await?,
                Taken::MoveOut => {
                    let _order = self.in_order(state).await?;
                    self.move_out(state).await?;
                }
            }
        }
    }

    /// Asks for a claim on a range that is to be written. True if that may be done now, once. Also where it may be for a while, or
    /// the claim is granted, even if that is over a moment later: the write has begun and not returned, so either order may be seen.
    async fn claim_for(&self, file: &OpenFile, at: At, range: Range<u64>) -> Result<bool> {
        // Who appends tells it before he gives the end back, and has to know where that is.
        let placed = !matches!(at, At::LockedEnd);
        let wish = placed.then(|| file.runs.lock().wish(&range));
        let once = self.claim(&file.state, wish).await?;
        Ok(once || self.may_hold_back(file.ino(), &file.state.core(), &range).is_some())
    }

    /// Waits in line for room for what goes there. What is unsent is sent on its way meanwhile. Whose groups hold little passes
    /// those whose groups do not answer. None: the file's end is `locked`, and others have it open by now.
    async fn room_in_line(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        (at, locked): (At, bool),
        bytes: usize,
    ) -> Result<Option<Room>> {
        strake_base::count_case("waited-for-room");
        let (memory, groups) = (self.memory(), self.groups_at(file, at, bytes));
        let what = || "room in the mount's memory, which waits for targets".to_owned();
        let mut patience = Patience::new(self).on(Some(file.ino()));
        let mut given = memory.given();
        let in_line = memory.dirty(bytes);
        tokio::pin!(in_line);
        loop {
            self.send_young();
            if locked && file.core().shared {
                return Ok(None);
            }
            if let Some(room) = memory.try_reserved(bytes, &groups) {
                return Ok(Some(room));
            }
            tokio::select! {
                biased;
                room = &mut in_line => return Ok(room),
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let given_before = std::mem::replace(&mut given, memory.given());
            patience.stand_in_line(what, given != given_before)?;
        }
    }

    /// The groups to which what is written there goes.
    fn groups_at(&self, file: &FileState, at: At, bytes: usize) -> Vec<GroupId> {
        let core = file.core();
        let start = if let At::Offset(offset) = at { offset } else { core.length };
        if core.is_inline() && self.stays_inline(&core, start + bytes as u64) {
            return vec![self.in_inodes(file.ino())];
        }
        let Some(placement) = &core.placement else { return Vec::new() };
        let pieces = placement.pieces(start, bytes as u64);
        let groups: BTreeSet<GroupId> = pieces.map(|piece| piece.group).collect();
        groups.into_iter().collect()
    }

    /// Whoever answers for what goes into this inode.
    pub(super) fn in_inodes(&self, ino: Ino) -> GroupId {
        in_inodes(self.shares().index_of(ino))
    }

    /// What is written up to there may stay inside the inode, if it is there. Of a small file the bytes between two writes are
    /// sent along, and may be somebody else's by then.
    fn stays_inline(&self, core: &Core, end: u64) -> bool {
        let alone = !core.shared && core.attr.consistency() != Consistency::Parallel;
        alone && end <= self.inline_bytes_max()
    }

    /// Sends on its way what is unsent of all files, unless that was done a moment ago: there may be many.
    fn send_young(self: &Arc<Self>) {
        let began = self.now();
        if !self.memory().begin_look(began) {
            return;
        }
        for file in self.busy_files() {
            let mut core = file.core();
            core.dirty.make_ready(Duration::MAX);
            self.start_senders(&file, &mut core);
            let is_inline = matches!(&core.body, Body::Inline(inline) if inline.is_dirty());
            drop(core);
            if is_inline {
                self.start_tick(file);
            }
        }
        self.memory().end_look(began, self.now());
    }

    /// `once`: it may go through to where it is written, if that is not claimed.
    fn take(
        &self,
        core: &mut Core,
        file: &OpenFile,
        (at, once): (At, bool),
        data: &Bytes,
        room: &mut Option<Room>,
    ) -> Result<Taken> {
        file.check_kept()?;
        if core.exclusive {
            return Ok(Taken::Wait);
        }
        // Also of what is inside the inode: it may move out with the file, unsent.
        if !core.is_awake() && !is_broken("resting-files-are-woken") {
            return Ok(Taken::Wake);
        }
        if core.is_inline_stale() {
            return Ok(Taken::Refresh);
        }
        let offset = match at {
            At::Offset(offset) => offset,
            // A long append is not torn by a short one of this mount either.
            At::End if core.shared || file.state.appending.try_lock().is_err() => {
                return Ok(Taken::Lock);
            }
            At::End | At::LockedEnd => core.length,
        };
        let end = core.end_of(offset, data.len() as u64)?;
        let stays = self.stays_inline(core, end);
        let held = match &mut core.body {
            Body::Inline(inline) if stays => {
                self.memory().charge(room, self.in_inodes(file.ino()));
                inline.write(offset as usize, data, room.take());
                true
            }
            Body::Inline(_) => return Ok(Taken::MoveOut),
            Body::Chunks => {
                let range = offset..end;
                let held = match self.may_hold_back(file.ino(), core, &range) {
                    // What has no room does not stay here, whatever is claimed.
                    Some(held) => held && room.is_some(),
                    None if once => false,
                    None => return Ok(Taken::Claim(offset)),
                };
                if core.shared {
                    file.runs.lock().note(&range);
                }
                let now = self.now();
                core.write_chunks(offset, data, (room.take(), self.memory()), now)?;
                held
            }
        };
        core.touch(offset, end, self.wall_time());
        self.note_change(file, core);
        Ok(Taken::At(offset, held))
    }

    pub(crate) fn wall_time(&self) -> Timestamp {
        let now = self.clock().wall();
        Timestamp { seconds: now.as_secs() as i64, nanos: now.subsec_nanos() }
    }

    /// Has the contents moved from the inode to chunks. What is unsent stays so, as extents. The
    /// caller holds the file's order.
    pub(crate) async fn move_out(self: &Arc<Self>, file: &Arc<FileState>) -> Result<()> {
        use strake_wire::message::meta::{Inode, MetaOp};
        if matches!(file.core().body, Body::Chunks) {
            return Ok(());
        }
        let op = MetaOp::MoveOut(Inode { ino: file.ino().0 });
        let answer = self.mutate(&self.root_cred(), op).await;
        file.core().told_in_vain.note(self.now(), answer.as_ref().err());
        let attr = self.own_entry(file, answer?, "move out")?;
        let now = self.now();
        self.inodes().learn(&attr, now);
        let mut core = file.core();
        if let Body::Inline(mut inline) = std::mem::replace(&mut core.body, Body::Chunks)
            && let Some(unsent) = inline.unsent()
        {
            core.changed_elsewhere();
            // What the server had it has counted.
            let end = unsent.offset + unsent.data.len() as u64;
            let grown = end.saturating_sub(unsent.offset.max(attr.length));
            core.unpublished.occupied += grown as i64;
            let room = (inline.take_room(), self.memory());
            core.write_chunks(unsent.offset, &unsent.data, room, now)?;
        }
        Ok(())
    }
}

impl Core {
    /// Puts bytes into extents, one per unit.
    fn write_chunks(
        &mut self,
        offset: u64,
        data: &Bytes,
        (mut room, memory): (Option<Room>, &Memory),
        now: Duration,
    ) -> Result<()> {
        let placement = self.placement()?;
        let end = offset + data.len() as u64;
        self.ahead.cut(offset, end);
        self.kept.cut(offset, end);
        let mut at = offset;
        while at < end {
            let unit = self.parts.sent_around(&placement, at);
            let stop = end.min(unit.1);
            let part = data.slice((at - offset) as usize..(stop - offset) as usize);
            let mut part_room = match stop == end {
                true => room.take(),
                false => room.as_mut().map(|room| room.split(part.len())),
            };
            let chunk = placement.layout().chunk_at(at);
            let group = placement.group_of(chunk);
            memory.charge(&mut part_room, group);
            let (start, bytes) = placement.layout().chunk_bounds(chunk);
            // A buffer is not to stay for what one slow target has not acknowledged of it: room was taken for that part only.
            let here = (end.min(start + bytes) - offset.max(start)) as usize;
            let is_part = here < PART_BYTES_MIN && here < data.len() / 2;
            let lane = group.0;
            let fragment = Fragment { start: at, unit, lane, data: part, is_part, room: part_room };
            self.dirty.insert(fragment, now);
            at = stop;
        }
        Ok(())
    }

    /// Notes that a range was written.
    pub(crate) fn touch(&mut self, offset: u64, end: u64, mtime: Timestamp) {
        let grown = end.saturating_sub(offset.max(self.length));
        if matches!(self.body, Body::Chunks) {
            self.unpublished.occupied += grown as i64;
        }
        self.length = self.length.max(end);
        self.unpublished.written(mtime);
    }
}
