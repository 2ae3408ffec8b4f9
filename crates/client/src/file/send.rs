//! Senders: tasks that carry unsent extents to their targets.
//!
//! A file has as many as its targets can keep busy. Each takes one extent after the other; one that
//! overlaps with something still under way is left until that has been answered.

use super::dirty::Job;
use super::state::{Core, FileState, InFlight};
use crate::volume::Volume;
use bytes::Bytes;
use std::sync::Arc;
use strake_types::layout::Placement;
use strake_types::{ChunkId, Error, ErrorKind, Result};
use strake_wire::frame::crc32c;
use strake_wire::message::storage::{StorageOp, Write};

/// Writes under way per target of a file.
const SENDERS_PER_TARGET: usize = 4;
/// Writes under way per file.
const SENDERS_MAX: usize = 64;

/// What a sender has in hand. If it is dropped without an answer (a panic below), the file does not
/// wait for it for ever.
struct Sending<'a> {
    volume: &'a Volume,
    file: &'a FileState,
    id: u64,
    generation: u64,
    result: Option<Result<()>>,
    end: u64,
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        let lost = || Err(Error::with(ErrorKind::Io, "a write was given up inside the client"));
        let result = self.result.take().unwrap_or_else(lost);
        {
            let mut core = self.file.core();
            core.in_flight.retain(|f| f.id != self.id);
            core.dirty.settle(self.generation);
            if result.is_ok() {
                let acknowledged = &mut core.unpublished.acknowledged;
                *acknowledged = (*acknowledged).max(self.end);
            }
        }
        if let Err(error) = result {
            self.volume.failed(self.file, &error);
        }
        self.file.progress.notify_waiters();
    }
}

impl Volume {
    /// Sees to it that everything ready is being sent.
    pub(crate) fn start_senders(self: &Arc<Self>, file: &Arc<FileState>, core: &mut Core) {
        let Some(placement) = &core.placement else { return };
        let most = (placement.groups().len() * SENDERS_PER_TARGET).min(SENDERS_MAX);
        let wanted = core.dirty.ready_len().min(most);
        while core.senders < wanted {
            core.senders += 1;
            tokio::spawn(send_all(Arc::clone(self), Arc::clone(file), Arc::clone(placement)));
        }
    }

    async fn send(
        &self,
        file: &FileState,
        placement: &Placement,
        start: u64,
        data: Bytes,
    ) -> Result<()> {
        let len = data.len() as u64;
        let Some(piece) = placement.pieces(start, len).next() else { return Ok(()) };
        debug_assert_eq!(piece.len, len, "an extent lies in one chunk");
        let chunk = ChunkId { volume: self.id(), ino: file.ino(), index: piece.index };
        let write = Write { chunk: chunk.into(), offset: piece.chunk_offset, crc: crc32c(&data) };
        let sent = self.storage(file, piece.group, true, StorageOp::Write(write), data).await;
        // Only now: a sync that ran meanwhile may have come too early for this write. And even if it
        // failed: the target may have done it and only the answer was lost.
        file.core().unsynced.groups.insert(piece.group);
        sent?;
        self.metrics().bytes_written.increment(len);
        Ok(())
    }
}

impl Core {
    /// Moves the next extent to what is being sent.
    fn take_job(&mut self, placement: &Placement) -> Option<(u64, Job)> {
        let in_flight = &self.in_flight;
        let blocked = |from: u64, to: u64| {
            in_flight.iter().any(|f| f.start < to && f.start + f.data.len() as u64 > from)
        };
        let mut job = self.dirty.take(|at| Core::unit_of(placement, at), blocked)?;
        let id = self.next_id;
        self.next_id += 1;
        let data = job.data.clone();
        self.in_flight.push(InFlight { id, start: job.start, data, _room: job.room.take() });
        Some((id, job))
    }
}

async fn send_all(volume: Arc<Volume>, file: Arc<FileState>, placement: Arc<Placement>) {
    loop {
        let (id, job) = {
            let mut core = file.core();
            match core.take_job(&placement) {
                Some(job) => job,
                None => {
                    core.senders -= 1;
                    return;
                }
            }
        };
        let end = job.start + job.data.len() as u64;
        let (volume, file) = (&*volume, &*file);
        let mut sending =
            Sending { volume, file, id, generation: job.generation, result: None, end };
        sending.result = Some(volume.send(file, &placement, job.start, job.data).await);
        drop(sending);
        // The target may answer at once, each time: let others run in between.
        tokio::task::consume_budget().await;
    }
}
