//! Copying ranges between files without moving the bytes through the client.

use super::allocate::REQUESTS_MAX;
use super::open::OpenFile;
use super::resize::Exclusive;
use super::state::FileState;
use super::{Life, Rights};
use crate::api::Wanted;
use crate::metrics::Op;
use crate::volume::Volume;
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use std::sync::Arc;
use std::time::Duration;
use strake_types::layout::Placement;
use strake_types::limits::COPY_BYTES_MAX;
use strake_types::{Error, ErrorKind, Piece, Result};
use strake_wire::message::storage::{Copy, Range, StorageOp};

/// Most bytes copied by one call on the servers; the caller asks again for the rest.
const SERVER_BYTES_MAX: u64 = 1 << 30;
/// Most bytes copied by one call through the client.
const CLIENT_BYTES_MAX: u64 = 4 << 20;
/// Where chunks of both files meet in shorter runs than this, copying through the client is quicker.
const RUN_BYTES_MIN: u64 = 32 << 10;

/// A part of the range that lies in one chunk of each file.
#[derive(Clone, Copy)]
struct Run {
    from: Piece,
    to: Piece,
    len: u64,
}

impl Volume {
    /// Copies a range between files (or within one) on the servers. How many bytes were copied;
    /// fewer than asked at the end of the source, or where the rest is to be asked for again.
    pub async fn copy_range(
        self: &Arc<Self>,
        source: &Arc<OpenFile>,
        source_offset: u64,
        target: &Arc<OpenFile>,
        target_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let ranges = (source_offset, target_offset, len);
        self.copy_range_while(source, target, ranges, &|| true).await
    }

    /// The same while it is wanted. When it is not any more nothing more of it is begun, and it ends with what has begun: fewer
    /// bytes are copied, or it fails with [`ErrorKind::Interrupted`].
    pub async fn copy_range_while(
        self: &Arc<Self>,
        source: &Arc<OpenFile>,
        target: &Arc<OpenFile>,
        (source_offset, target_offset, len): (u64, u64, u64),
        is_wanted: Wanted<'_>,
    ) -> Result<u64> {
        let _timer = self.count(Op::CopyRange);
        source.check_readable(self)?;
        target.check_writable()?;
        target.state.core().end_of(target_offset, len)?;
        let same = Arc::ptr_eq(&source.state, &target.state);
        if same && source_offset.abs_diff(target_offset) < len {
            return Err(Error::with(ErrorKind::Invalid, "source and target overlap"));
        }
        let began = (source.state.life(), self.now());
        self.refresh_attr(&source.state, &(0..0)).await?;
        self.claim_nothing(&target.state).await?;
        // Before all is sent: it may be moved out meanwhile, unsent.
        let is_inline = source.state.core().is_inline();
        self.drain(&source.state).await;
        let left = source.state.core().length.saturating_sub(source_offset);
        let len = len.min(left);
        if len == 0 {
            return Ok(0);
        }
        let ranges = (source_offset, target_offset, len.min(SERVER_BYTES_MAX));
        let on_servers = match is_inline {
            true => Ok(None),
            false => self.copy_on_servers(began, target, ranges, is_wanted).await,
        };
        let copied = match on_servers {
            Ok(Some(copied)) => Ok(copied),
            Ok(None) => self.copy_through(source, target, ranges, is_wanted).await,
            Err(error) if error.kind == ErrorKind::NotSupported => {
                self.copy_through(source, target, ranges, is_wanted).await
            }
            Err(error) => Err(error),
        };
        self.tell_shared(target).await.and(copied)
    }

    async fn copy_through(
        self: &Arc<Self>,
        source: &Arc<OpenFile>,
        target: &Arc<OpenFile>,
        (from, to, len): (u64, u64, u64),
        is_wanted: Wanted<'_>,
    ) -> Result<u64> {
        let data = self.read(source, from, len.min(CLIENT_BYTES_MAX) as u32).await?;
        let copied = data.len() as u64;
        let bytes = data.into_bytes();
        target.check_wanted(is_wanted)?;
        // Not at the end, whatever the handle says: the offset was given.
        let _taken = self.write_at(target, to, bytes).await?;
        Ok(copied)
    }

    /// None where it cannot or should not be done there. The source lay where it is known to lie after the copying `began`, in
    /// this life of it.
    async fn copy_on_servers(
        self: &Arc<Self>,
        (mut life_there, mut began): (Life<'_>, Duration),
        file: &Arc<OpenFile>,
        (from, to, len): (u64, u64, u64),
        is_wanted: Wanted<'_>,
    ) -> Result<Option<u64>> {
        let (source, target) = (life_there.file(), &file.state);
        if target.core().is_inline() && to + len <= self.inline_bytes_max() {
            return Ok(None);
        }
        let life = target.life();
        let _order = self.in_order(target).await?;
        let _exclusive = Exclusive::new(self, target);
        self.wake(target).await?;
        self.move_out(target).await?;
        self.drain(target).await;
        file.check_wanted(is_wanted)?;
        // Already now: nobody may see it again, not even if this is given up half-way.
        target.core().kept.cut(to, to + len);
        // One after the other: both may be the same file.
        let mut source_at = source.core().placement()?;
        let target_at = target.core().placement()?;
        let doubt = std::mem::replace(&mut target.core().change_in_doubt, true);
        let copied = loop {
            let runs = runs(&source_at, from, &target_at, to, len);
            if len / (runs.len() as u64).max(1) < RUN_BYTES_MIN {
                target.core().change_in_doubt = doubt;
                return Ok(None);
            }
            let copied = self.copy_runs(source, life, runs, is_wanted).await;
            let (living, looked) = (source.life(), self.now());
            // Once in many minutes at most: so long nobody moves it again.
            let moved = self.has_moved(life_there, Some(&source_at), began).await;
            match moved.and_then(|moved| moved.then(|| source.core().placement()).transpose()) {
                Ok(Some(now_at)) => (source_at, life_there, began) = (now_at, living, looked),
                Ok(None) => break copied,
                Err(error) => break copied.and(Err(error)),
            }
        };
        let len = *copied.as_ref().unwrap_or(&len);
        let mut core = target.core();
        core.ahead.cut(to, to + len);
        core.change_in_doubt = doubt || copied.is_err();
        let lasts = life.check_in(&core);
        // Half-way, too, some of what was there may be something else now.
        let end = if copied.is_ok() { to + len } else { core.length.min(to + len) };
        if lasts.is_ok() && to < end {
            core.touch(to, end, self.wall_time());
            self.note_change(file, &mut core);
        }
        if lasts.is_ok() && copied.is_ok() {
            core.unpublished.acknowledged = core.unpublished.acknowledged.max(end);
        }
        drop(core);
        self.mark_busy(target);
        copied.and(lasts)?;
        Ok(Some(len))
    }

    /// Copies these while that is wanted, and the first of them in any case: of nothing there is nothing to tell. Of what has
    /// begun the end is waited for, as nobody could say else what is to come yet. How many bytes these were.
    async fn copy_runs(
        &self,
        source: &FileState,
        life: Life<'_>,
        runs: Vec<Run>,
        is_wanted: Wanted<'_>,
    ) -> Result<u64> {
        let (mut runs, mut begun) = (runs.into_iter(), 0);
        let wanted = std::iter::from_fn(|| {
            let run = runs.next().filter(|_| begun == 0 || is_wanted())?;
            begun += run.len;
            Some(run)
        });
        let copied = stream::iter(wanted)
            .map(|run| self.copy_run(source, life, run))
            .buffer_unordered(REQUESTS_MAX)
            .try_collect::<Vec<()>>();
        copied.await.map(|_| begun)
    }

    async fn copy_run(&self, source: &FileState, life: Life<'_>, run: Run) -> Result<()> {
        let target = life.file();
        let range = |file: &FileState, piece: Piece| {
            let chunk = self.chunk(file.ino(), piece.index);
            Range { chunk: chunk.into(), offset: piece.chunk_offset, len: run.len }
        };
        let copy = |from_capability| {
            StorageOp::Copy(Copy {
                to: range(target, run.to),
                from: range(source, run.from),
                // Looked up whenever it is sent.
                from_target: 0,
                from_group: run.from.group.0,
                from_capability,
            })
        };
        let right = || Rights::of(source, false).capability();
        let group = run.to.group;
        // Before as well: it may be done although nobody waits for the answer any more.
        self.acknowledged(target, group, None);
        let sent = match self.change(life, group, copy(right()?), Bytes::new()).await {
            // That to the source was another session's.
            Err(error) if error.kind == ErrorKind::BadCapability => {
                self.renew_capability(source, false).await?;
                self.change(life, group, copy(right()?), Bytes::new()).await
            }
            sent => sent,
        };
        let (answer, _) = sent?;
        self.acknowledged(target, group, Some(&answer));
        Ok(())
    }
}

/// Each run is one change: of a longer one the next primary (or where the only copy moves to) does not know which parts were made, and
/// would make them again over what others have written since.
fn runs(source: &Placement, from: u64, target: &Placement, to: u64, len: u64) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut done = 0;
    while done < len {
        let from = source.pieces(from + done, len - done).next();
        let to = target.pieces(to + done, len - done).next();
        let (Some(from), Some(to)) = (from, to) else { break };
        let len = from.len.min(to.len).min(COPY_BYTES_MAX);
        runs.push(Run { from, to, len });
        done += len;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_types::GroupId;
    use strake_types::layout::{GroupTables, LayoutTemplate};

    /// The parts of a longer call had no numbers but the last: when the primary died, or the only copy moved, before that, the next one
    /// made all of them again, over what had been written to the first ones since.
    #[test]
    fn ranges_are_copied_in_calls_that_are_one_change_each() {
        let placement = |copies: u32| {
            let (chunk_size, copies) = (Some(16 << 20), Some(copies));
            let template = LayoutTemplate { chunk_size, copies, ..LayoutTemplate::default() };
            let groups = [1, 2].map(|copies| GroupId::of_class(copies, 3));
            Placement::new(template.resolve(7, &GroupTables::of(groups)))
        };
        let (once, twice) = (placement(1), placement(2));
        let lens = |target: &Placement| -> Vec<u64> {
            runs(&once, 1 << 20, target, 0, 20 << 20).iter().map(|run| run.len >> 20).collect()
        };
        for target in [&once, &twice] {
            assert_eq!(lens(target), [4, 4, 4, 3, 1, 4]);
        }
    }
}
