//! Senders: tasks that carry unsent extents to their targets.
//!
//! A file has as many as its targets can keep busy. Each takes what can go to one target together,
//! one large extent or many small ones, and then the next. What overlaps with something still under
//! way is left until that has been answered.

use super::Life;
use super::dirty::{Job, Lane};
use super::state::{Core, FileState, InFlight, overlaps};
use crate::pace::Way;
use crate::unsynced::is_durable;
use crate::volume::Volume;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::time::Duration;
use strake_base::task;
use strake_types::layout::Placement;
use strake_types::{Error, ErrorKind, GroupId, Piece, Result};
use strake_wire::frame::crc32c;
use strake_wire::message::storage::{StorageOp, Write, WriteMany};

/// Groups of a file that count for it; more take turns.
const UNDER_WAY_GROUPS_MAX: usize = 16;
/// Small extents are sent together up to this many bytes, or what else is sent at once.
const TOGETHER_BYTES_MAX: u64 = 512 << 10;
/// Most that is synced by the very request that writes it.
const DURABLE_BYTES_MAX: u64 = 32 << 10;

/// What a sender has in hand. If it is dropped without an answer (a panic below), the file does not
/// wait for it for ever.
struct Sending<'a> {
    volume: &'a Volume,
    file: &'a FileState,
    life: Life<'a>,
    group: Option<GroupId>,
    /// Of which it was taken.
    lane: Option<Lane>,
    /// Start and flush generation of each extent.
    extents: Vec<(u64, u64)>,
    result: Option<Result<()>>,
    end: u64,
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        let lost = || Err(Error::with(ErrorKind::Io, "a write was given up inside the client"));
        let result = self.result.take().unwrap_or_else(lost);
        // A sync that finds everything settled answers, so that it has failed is noted before. A life that is over has told already.
        if let Err(error) = &result
            && self.life.lasts()
        {
            self.volume.lost_of(self.file, error);
        }
        {
            let now = self.volume.now();
            let mut core = self.file.core();
            if let Err(error) = &result
                && self.life.is_that_of(&core)
            {
                core.fail(error);
            }
            let counts = result.is_ok() && self.life.is_that_of(&core);
            if let Some(lane) = self.lane {
                core.dirty.answered(lane);
            }
            for (start, generation) in &self.extents {
                let sent = core.in_flight.remove(start);
                core.dirty.settle(*generation);
                if let Some(sent) = sent.filter(|_| counts && self.volume.keeps()) {
                    core.keep(*start, sent, now);
                }
            }
            if let Err(error) = &result
                && self.life.is_that_of(&core)
            {
                core.write_failed(self.group, error);
            }
            if counts {
                let acknowledged = &mut core.unpublished.acknowledged;
                *acknowledged = (*acknowledged).max(self.end);
            }
        }
        if result.is_err() {
            // Now that no read finds it among what is being sent, and takes it there again.
            self.volume.drop_lost(self.file.ino());
        }
        self.volume.memory().make_way();
        self.file.progress.notify_waiters();
    }
}

impl Volume {
    /// True if what was sent is kept. A mount alone leaves that to the kernel, which holds back all
    /// writes itself.
    fn keeps(&self) -> bool {
        !self.options().exclusive
    }

    /// Sees to it that everything ready is being sent.
    pub(crate) fn start_senders(self: &Arc<Self>, file: &Arc<FileState>, core: &mut Core) {
        let Some(placement) = &core.placement else { return };
        let wanted = core.dirty.senders_wanted(|lane| core.parts.sent_together(GroupId(lane)));
        if core.senders >= wanted {
            return;
        }
        let wanted = wanted.min(core.senders_max(placement));
        while core.senders < wanted {
            core.senders += 1;
            task::spawn(send_all(Arc::clone(self), Arc::clone(file)));
        }
    }

    /// Sends extents of one group. What is `durably` sent is one.
    async fn send(
        &self,
        life: Life<'_>,
        placement: &Placement,
        jobs: &[Job],
        durably: bool,
    ) -> Result<()> {
        let file = life.file();
        let piece = |job: &Job| {
            let piece = placement.pieces(job.start, job.data.len() as u64).next();
            piece.ok_or_else(|| Error::with(ErrorKind::Io, "an empty extent"))
        };
        let pieces: Vec<Piece> = jobs.iter().map(piece).collect::<Result<_>>()?;
        let Some(group) = pieces.first().map(|piece| piece.group) else { return Ok(()) };
        debug_assert!(pieces.iter().all(|p| p.group == group), "extents of one group");
        let bytes = jobs.iter().map(|job| job.data.len() as u64).sum();
        let (op, payload) = match (jobs, &pieces[..]) {
            ([job], [piece]) => self.write_one(file, job, piece, durably),
            _ => self.write_many(file, jobs, &pieces),
        };
        let answered = file.core().unsynced.answered();
        let passage = self.paces().begin(group, Way::Sent, bytes, self.now());
        let sent = self.change(life, group, op, payload).await;
        // Only now: a sync that ran meanwhile may have come too early for this write. And even if it
        // failed: the target may have done it and only the answer was lost.
        match &sent {
            Ok((answer, _)) if durably && is_durable(answer) => {
                self.made_durable(file, group, answer, answered);
            }
            sent => self.acknowledged(file, group, sent.as_ref().ok().map(|(answer, _)| answer)),
        }
        sent?;
        passage.answered(self.now());
        self.metrics().bytes_written.increment(bytes);
        Ok(())
    }

    fn write_one(
        &self,
        file: &FileState,
        job: &Job,
        piece: &Piece,
        durable: bool,
    ) -> (StorageOp, Bytes) {
        let chunk = self.chunk(file.ino(), piece.index);
        let (offset, crc) = (piece.chunk_offset, crc32c(&job.data));
        let write = Write { chunk: chunk.into(), offset, crc, durable };
        (StorageOp::Write(write), job.data.clone())
    }

    fn write_many(&self, file: &FileState, jobs: &[Job], pieces: &[Piece]) -> (StorageOp, Bytes) {
        let mut payload = BytesMut::with_capacity(jobs.iter().map(|job| job.data.len()).sum());
        jobs.iter().for_each(|job| payload.extend_from_slice(&job.data));
        let many = WriteMany {
            volume: self.home(file.ino()).0,
            ino: file.ino().0,
            indices: pieces.iter().map(|piece| piece.index.0).collect(),
            offsets: pieces.iter().map(|piece| piece.chunk_offset).collect(),
            lens: pieces.iter().map(|piece| piece.len).collect(),
            crcs: jobs.iter().map(|job| crc32c(&job.data)).collect(),
        };
        (StorageOp::WriteMany(many), payload.freeze())
    }
}

impl Core {
    /// How many senders its groups can keep busy.
    fn senders_max(&self, placement: &Placement) -> usize {
        let lanes = placement.slots().iter().take(UNDER_WAY_GROUPS_MAX).map(|group| group.0);
        self.dirty.senders_max(lanes, |lane| self.parts.sent_together(GroupId(lane)))
    }

    /// A target has acknowledged this: a later reader need not ask for it.
    fn keep(&mut self, start: u64, sent: InFlight, now: Duration) {
        if self.open.direct == 0 {
            self.kept.put(start, sent.data, sent.kept_mark, now);
        }
    }

    /// What was sent to a group was not written.
    fn write_failed(&mut self, group: Option<GroupId>, error: &Error) {
        if let Some(group) = group.filter(|_| error.kind == ErrorKind::TimedOut) {
            // The file has failed: what is left would wait as long once more, one after the other, and keep the memory
            // of the whole mount meanwhile.
            self.dirty.give_up(group.0);
        }
        self.forget_failed_length();
    }

    /// True if extents that were just taken are all that a sync waits for: one that is small, so that it is worth to
    /// have it synced with the write.
    fn is_durably_sent(&self, jobs: &[Job]) -> bool {
        let [job] = jobs else { return false };
        self.syncing > 0
            && job.data.len() as u64 <= DURABLE_BYTES_MAX
            && self.dirty.is_empty()
            && self.in_flight.len() == 1
    }

    /// What a sender is to send next, and where that lies: in another life than that in which it began it may be elsewhere. None:
    /// it is not needed any more.
    fn next_jobs(&mut self) -> Option<(Vec<Job>, Arc<Placement>)> {
        let placement = self.placement.clone()?;
        let spare = self.senders > self.senders_max(&placement);
        let jobs = if spare { Vec::new() } else { self.take_jobs(&placement) };
        (!jobs.is_empty()).then_some((jobs, placement))
    }

    /// Moves the next extents to what is being sent.
    fn take_jobs(&mut self, placement: &Placement) -> Vec<Job> {
        let in_flight = &self.in_flight;
        let blocked = |from: u64, to: u64| overlaps(in_flight, from, to);
        let unit_of = |at| self.parts.sent_around(placement, at);
        let together = |lane| TOGETHER_BYTES_MAX.min(self.parts.sent_bytes(GroupId(lane))) as usize;
        let at_once = |lane| self.parts.sent_together(GroupId(lane));
        let mut jobs = self.dirty.take(unit_of, blocked, together, at_once);
        for job in &mut jobs {
            let (data, kept_mark) = (job.data.clone(), self.kept.mark());
            let (life, room) = (self.life, job.room.take());
            let flying = InFlight { data, life, kept_mark, _room: room };
            self.in_flight.insert(job.start, flying);
        }
        jobs
    }
}

async fn send_all(volume: Arc<Volume>, file: Arc<FileState>) {
    let (volume, file) = (&*volume, &*file);
    loop {
        let (jobs, placement, durably, life) = {
            let mut core = file.core();
            let Some((jobs, placement)) = core.next_jobs() else {
                core.senders -= 1;
                return;
            };
            let durably = core.is_durably_sent(&jobs);
            (jobs, placement, durably, Life::of(file, &core))
        };
        let first = jobs.first().map(|job| placement.layout().chunk_at(job.start));
        let mut sending = Sending {
            volume,
            file,
            life,
            group: first.map(|chunk| placement.group_of(chunk)),
            lane: jobs.first().map(|job| job.lane),
            extents: jobs.iter().map(|job| (job.start, job.generation)).collect(),
            result: None,
            end: jobs.iter().map(|job| job.start + job.data.len() as u64).max().unwrap_or(0),
        };
        sending.result = Some(volume.send(life, &placement, &jobs, durably).await);
        drop(sending);
        // The target may answer at once, each time: let others run in between.
        tokio::task::consume_budget().await;
    }
}
