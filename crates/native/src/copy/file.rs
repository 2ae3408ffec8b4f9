//! Copying one file.

use super::attributes::Copied;
use super::growing::Growing;
use super::partial::{PARTIAL_BYTES_MIN, aside_name};
use super::{Job, Task, onto_itself};
use crate::attributes::Inode;
use crate::contents::{Contents, Pool, Written, read_small, replaced};
use crate::failures::is_denied;
use crate::info::Info;
use crate::place::Name;
use bytes::Bytes;
use futures::stream::FuturesOrdered;
use futures::{Stream, StreamExt};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strake_base::task::spawn_owned;
use strake_client::SeekTo;
use strake_types::{Error, ErrorKind, FileKind, Result};
use tokio::sync::OwnedSemaphorePermit;

/// Up to this length a file is one block, read in one go.
const SMALL_BYTES_MAX: u64 = 1 << 20;
/// Blocks of one file under way at once.
const BLOCKS_MAX: usize = 16;

/// True if a file was copied from another one, by its length and times.
fn is_copy(there: &Info, info: &Info) -> bool {
    (there.kind, there.length, there.mtime) == (info.kind, info.length, info.mtime)
}

/// A source that was opened before anything at its target is touched: what cannot be opened takes nothing away.
pub(super) struct Source {
    contents: Contents,
    /// All of a small file of this machine.
    whole: Option<Bytes>,
}

impl Source {
    /// Opens it; it is still what was listed.
    pub(super) async fn open(task: &Task, pool: &Arc<Pool>) -> Result<Self> {
        let (name, info) = (&task.from, &task.info);
        if info.length <= SMALL_BYTES_MAX
            && let Some((contents, bytes)) = read_small(name, info, pool).await?
        {
            if (bytes.len() as u64) < info.length {
                // What the kernel shows as files may have less than their length.
                was_cut(task, contents.length().await.map_err(|error| name.about(error))?)?;
            }
            return Ok(Self { contents, whole: Some(bytes) });
        }
        let contents = Contents::open(name, info, pool).await?;
        Ok(Self { contents, whole: None })
    }
}

impl Job {
    /// Refuses to copy a file onto itself, which would empty it first, and onto what is no file, which would be replaced.
    async fn check_target(&self, task: &Task, there: &Info) -> Result<()> {
        if self.mounts.are_same((&task.to, there), (&task.from, &task.info)).await? {
            return Err(onto_itself(&task.to));
        }
        match there.kind {
            FileKind::File | FileKind::Symlink => Ok(()),
            FileKind::Directory => Err(task.to.about(ErrorKind::IsDirectory.into())),
            _ => {
                let detail = format!(
                    "{} is no regular file; choose another target, or write to it with strake cat",
                    task.to.shown()
                );
                Err(Error::with(ErrorKind::Invalid, detail))
            }
        }
    }

    /// What has the name of the copy, if anything. Refuses as above.
    pub(super) async fn target(&self, task: &Task) -> Result<Option<Info>> {
        let there = task.to.info().await?;
        if let Some(there) = &there {
            self.check_target(task, there).await?;
        }
        Ok(there)
    }

    /// Copies a regular file, or finds that it is there. False: it is passed over.
    pub(super) async fn copy_file(self: &Arc<Self>, task: &Task) -> Result<bool> {
        let there = self.target(task).await?;
        if let Some(there) = &there
            && self.options.resume
            && is_copy(there, &task.info)
        {
            return self.keep(task, there).await;
        }
        let from = match Source::open(task, &self.pool).await {
            Ok(from) => from,
            Err(error) => return self.pass_over(task, error).await,
        };
        let copied = self.copy_opened(task, &from, there).await;
        let closed = from.contents.close().await.map_err(|error| task.from.about(error));
        copied.and(closed).map(|()| true)
    }

    /// Copies a regular file in place of what is there, if anything.
    pub(super) async fn copy_opened(
        self: &Arc<Self>,
        task: &Task,
        from: &Source,
        there: Option<Info>,
    ) -> Result<()> {
        let what = Written::over(there.as_ref());
        match self.copy_to(task, from, what).await {
            // Somebody has made it since that was looked for, and may have it open: it is a file that was there.
            Err(error) if what == Written::New && error.kind == ErrorKind::Exists => {
                match Written::over(self.target(task).await?.as_ref()) {
                    // He would choose which file is written.
                    Written::LedTo => Err(task.to.about(replaced())),
                    what => self.copy_to(task, from, what).await,
                }
            }
            copied => copied,
        }
    }

    /// The same. An error if nothing was there, and something is by now.
    async fn copy_to(self: &Arc<Self>, task: &Task, from: &Source, what: Written) -> Result<()> {
        // What a link leads to is written, however long it is: another file in the place of the link is not what was asked for.
        if what != Written::LedTo && task.info.length >= PARTIAL_BYTES_MIN {
            let growing = self.grow(task).await?;
            let copied = self.copy_large(task, &from.contents, &growing).await;
            return self.grown(task, growing, copied).await;
        }
        // Who asks for the contents alone means this file, with its owner, its mode and all its names.
        if what == Written::Emptied && self.options.preserve {
            return self.copy_aside(task, from).await;
        }
        if what != Written::New {
            self.read_through(task, from).await?;
        }
        let to = self.create(task, &task.to, what).await?;
        self.copy_whole(task, from, &task.to, &to).await?;
        self.sync_led_to(task, what).await
    }

    /// Reads a small source once before what is there is emptied for it: it may have been opened, and not be readable.
    async fn read_through(&self, task: &Task, from: &Source) -> Result<()> {
        let length = task.info.length;
        if from.whole.is_some() || length >= PARTIAL_BYTES_MIN {
            return Ok(());
        }
        for at in (0..length).step_by(self.options.block_bytes) {
            let wanted = (length - at).min(self.options.block_bytes as u64);
            let _room = self.room(wanted).await?;
            let read = from.contents.read(at, wanted as usize).await;
            let read = read.map_err(|error| task.from.about(error))?;
            let got: u64 = read.iter().map(|part| part.len() as u64).sum();
            was_cut(task, length - wanted + got)?;
        }
        Ok(())
    }

    /// Copies a regular file in place of another one, which stays, with all its names, until all of the new one is there: a
    /// source may be opened, and not be read.
    async fn copy_aside(self: &Arc<Self>, task: &Task, from: &Source) -> Result<()> {
        let aside = task.to.directory.name(aside_name(&task.to.name));
        let to = match self.create(task, &aside, Written::New).await {
            // Whoever may write to the file and not to its directory has no other way.
            Err(error) if is_denied(error.kind) => {
                self.read_through(task, from).await?;
                let to = self.create(task, &task.to, Written::Emptied).await?;
                return self.copy_whole(task, from, &task.to, &to).await;
            }
            to => to?,
        };
        // Its name says when it began, by a clock that may be set. (In a volume this would be a message for each small file.)
        if to.is_local() {
            let _locked = to.lock(Duration::ZERO).await;
        }
        let placed = match self.copy_whole(task, from, &aside, &to).await {
            Ok(()) => aside.rename(&task.to.name).await,
            failed => failed,
        };
        match &placed {
            Ok(()) => self.place(&task.to),
            // The first error is the one to be told.
            Err(_) => drop(aside.remove(false).await),
        }
        placed
    }

    /// Mode of a new file before [`Job::finish`].
    pub(super) fn mode(&self, info: &Info) -> u32 {
        // Others, and setuid, only when the contents are whole and the owner is right.
        if self.options.preserve { 0o600 } else { info.mode & 0o777 }
    }

    async fn create(&self, task: &Task, name: &Name, what: Written) -> Result<Contents> {
        Contents::create(name, self.mode(&task.info), what, &self.pool).await
    }

    /// Copies all to what was created empty under a name.
    async fn copy_whole(
        self: &Arc<Self>,
        task: &Task,
        from: &Source,
        name: &Name,
        to: &Contents,
    ) -> Result<()> {
        let Source { contents: from, whole } = from;
        let copied = match whole {
            Some(bytes) => self.write_whole(task, bytes, to).await,
            None => match self.copy_from(task, from, to, 0).await {
                Ok(end) if end < task.info.length => Err(ErrorKind::Interrupted.into()),
                copied => copied.map(drop),
            },
        };
        self.finish(task, name, (from, to), copied).await
    }

    /// A link that led nowhere may lead to a new name now, which is synced if that is asked for.
    pub(super) async fn sync_led_to(&self, task: &Task, what: Written) -> Result<()> {
        match what == Written::LedTo && self.options.sync {
            true => task.to.sync_led_to().await,
            false => Ok(()),
        }
    }

    async fn write_whole(&self, task: &Task, bytes: &Bytes, to: &Contents) -> Result<()> {
        if !bytes.is_empty() {
            to.write(0, vec![bytes.clone()]).await.map_err(|error| task.to.about(error))?;
        }
        self.counters.bytes_done.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    async fn copy_large(
        self: &Arc<Self>,
        task: &Task,
        from: &Contents,
        growing: &Growing,
    ) -> Result<()> {
        let Growing { name, contents: to, in_order, .. } = growing;
        let copied = match self.good_part(task, (from, to), *in_order).await {
            Ok(start) => self.copy_from(task, from, to, start).await,
            Err(error) => Err(name.about(error)),
        };
        match copied {
            Ok(end) if end < task.info.length => self.leave(task, growing, end).await,
            copied => self.finish(task, name, (from, to), copied.map(drop)).await,
        }
    }

    /// Closes what there is of a copy that ends early. By the source's time of change the next one knows that all of it is good,
    /// also after a loss of power: it is synced before, or has no such mark.
    async fn leave(&self, task: &Task, growing: &Growing, end: u64) -> Result<()> {
        let Growing { name: partial, contents: to, is_kept, .. } = growing;
        self.close(partial, to, Ok(()), *is_kept).await?;
        if *is_kept && end > 0 {
            let left = Inode::of_contents(to).await.map_err(|error| partial.about(error))?;
            // Only its owner may. Where it is somebody else's, the end of it is not relied on.
            let _marked = left.set_mode_and_times(None, task.info.atime, task.info.mtime).await;
        }
        Err(ErrorKind::Interrupted.into())
    }

    /// Bytes at the start of a partial copy that need not be copied again; what is behind them goes: what is a hole in the source is
    /// not copied. `in_order`: it was closed when all of it was written and on disk, and has the source's time of change.
    async fn good_part(
        self: &Arc<Self>,
        task: &Task,
        (from, to): (&Contents, &Contents),
        in_order: bool,
    ) -> Result<u64> {
        let length = to.length().await?;
        let end = length.min(task.info.length);
        let good = match in_order {
            _ if !self.options.resume => 0,
            // It is to have another time of change before more is written, and gets that by being cut.
            true => {
                let block = self.options.block_bytes as u64;
                let last = (end / block).saturating_sub(1) * block;
                let same = self.is_same(from, to, last, block.min(end - last)).await?;
                let good = if same { last } else { 0 };
                self.counters.keep(good);
                good
            }
            // Of what was killed, or has met an error, targets may have lost anything that nobody had synced. What is
            // found there now is to stay.
            false if length > 0 => {
                to.sync().await?;
                self.same_part(from, to, end).await?
            }
            false => 0,
        };
        if good < length {
            to.set_length(good).await?;
        }
        Ok(good)
    }

    /// Whole blocks at the start of both that are the same, by looking at all that is no hole in both. It is counted on the way that
    /// they need not be copied: that may take as long as a copy.
    pub(super) async fn same_part(
        self: &Arc<Self>,
        from: &Contents,
        to: &Contents,
        end: u64,
    ) -> Result<u64> {
        let block = self.options.block_bytes as u64;
        let mut under_way = FuturesOrdered::new();
        let (mut at, mut kept) = (0, 0);
        // They are compared in order, so that this never goes back.
        let mut keep_until = |until: u64| {
            let good = until / block * block;
            self.counters.keep(good - kept);
            kept = good;
            good
        };
        while at < end {
            let (data, hole) = self.next_extent(from, at, end - at).await?;
            let theirs = match data > at {
                true => to.seek(at, SeekTo::Data).await?.unwrap_or(end),
                false => at,
            };
            let until = if theirs < data { data } else { hole };
            at = data.min(theirs);
            while at < until {
                self.go_on()?;
                let len = (until - at).min(block);
                let room = self.room(2 * len).await?;
                let compared = self.clone().compared((from.clone(), to.clone()), at, len, room);
                under_way.push_back(spawn_owned(compared));
                at += len;
                if under_way.len() >= BLOCKS_MAX {
                    let (until, are_same) = joined(under_way.next().await)?;
                    let good = keep_until(until);
                    if !are_same {
                        return Ok(good);
                    }
                }
            }
        }
        while let Some(done) = under_way.next().await {
            let (until, are_same) = joined(Some(done))?;
            let good = keep_until(until);
            if !are_same {
                return Ok(good);
            }
        }
        Ok(keep_until(end))
    }

    /// Until where both are the same, if that is so before this block, and whether it is the same in both.
    async fn compared(
        self: Arc<Self>,
        (from, to): (Contents, Contents),
        at: u64,
        len: u64,
        _room: OwnedSemaphorePermit,
    ) -> Result<(u64, bool)> {
        let are_same = self.is_same(&from, &to, at, len).await?;
        Ok((if are_same { at + len } else { at }, are_same))
    }

    async fn is_same(&self, from: &Contents, to: &Contents, at: u64, len: u64) -> Result<bool> {
        let len = len as usize;
        let (ours, theirs) = futures::try_join!(to.read(at, len), from.read(at, len))?;
        Ok(ours.concat() == theirs.concat())
    }

    /// Copies everything from an offset on, several blocks at once, begun in order. Where it ends, which is before the end of the
    /// source if the copy is stopped.
    async fn copy_from(
        self: &Arc<Self>,
        task: &Task,
        from: &Contents,
        to: &Contents,
        start: u64,
    ) -> Result<u64> {
        let end = self.copy_blocks(task, from, to, start).await?;
        was_cut(task, from.length().await.map_err(|error| task.from.about(error))?)?;
        // Shorter where the source ends with a hole, longer where an older copy was.
        if to.length().await.map_err(|error| task.to.about(error))? != end {
            to.set_length(end).await.map_err(|error| task.to.about(error))?;
        }
        Ok(end)
    }

    /// True if no further block of it is begun. What has no partial copy to go on with is rather finished.
    fn ends_early(&self, task: &Task) -> bool {
        task.info.length >= PARTIAL_BYTES_MIN && self.is_stopped()
    }

    async fn copy_blocks(
        self: &Arc<Self>,
        task: &Task,
        from: &Contents,
        to: &Contents,
        start: u64,
    ) -> Result<u64> {
        // A block knows contents and no names.
        let about = |error: Error| {
            let name = if error == cut() { &task.from } else { &task.to };
            name.about(error)
        };
        let mut under_way = FuturesOrdered::new();
        let mut at = start;
        while at < task.info.length && !self.ends_early(task) {
            let left = task.info.length - at;
            let (data, hole) =
                self.next_extent(from, at, left).await.map_err(|e| task.from.about(e))?;
            self.counters.bytes_done.fetch_add(data - at, Ordering::Relaxed);
            at = data;
            let extent_end = hole.min(task.info.length);
            while at < extent_end && !self.ends_early(task) {
                let len = (extent_end - at).min(self.options.block_bytes as u64);
                let room = self.room(len).await?;
                let block = self.clone().copy_block((from.clone(), to.clone()), at, len, room);
                // A task of its own, so that all processors take part.
                under_way.push_back(spawn_owned(block));
                at += len;
                if under_way.len() >= BLOCKS_MAX {
                    joined(under_way.next().await).map_err(about)?;
                }
            }
        }
        all_joined(&mut under_way).await.map_err(about)?;
        Ok(at)
    }

    /// Where the next data begins and ends. Holes are found only where they are to be kept.
    async fn next_extent(&self, from: &Contents, at: u64, left: u64) -> Result<(u64, u64)> {
        let end = at + left;
        if !self.options.sparse {
            return Ok((at, end));
        }
        let Some(data) = from.seek(at, SeekTo::Data).await? else { return Ok((end, end)) };
        let hole = from.seek(data, SeekTo::Hole).await?.unwrap_or(end);
        Ok((data.min(end), hole.min(end)))
    }

    async fn room(&self, len: u64) -> Result<OwnedSemaphorePermit> {
        let kib = u32::try_from(len >> 10).unwrap_or(u32::MAX);
        let most = (self.options.window_bytes >> 10).max(1 << 10) as u32;
        let room = self.room.clone().acquire_many_owned(kib.clamp(1, most)).await;
        room.map_err(|_| ErrorKind::Interrupted.into())
    }

    async fn copy_block(
        self: Arc<Self>,
        (from, to): (Contents, Contents),
        offset: u64,
        len: u64,
        _room: OwnedSemaphorePermit,
    ) -> Result<()> {
        let mut at = offset;
        let end = offset + len;
        while let Some(copied) = from.copy_on_servers(&to, at, end - at).await? {
            self.counters.bytes_done.fetch_add(copied, Ordering::Relaxed);
            at += copied;
            if at >= end {
                return Ok(());
            }
            if copied == 0 {
                return Err(cut());
            }
        }
        let parts = from.read(offset, len as usize).await?;
        let got: usize = parts.iter().map(bytes::Bytes::len).sum();
        if (got as u64) < len {
            return Err(cut());
        }
        to.write(offset, parts).await?;
        self.counters.bytes_done.fetch_add(len, Ordering::Relaxed);
        Ok(())
    }

    /// Closes what was written, `sync`ed before if it is whole. Why it is not says itself what it is about.
    pub(super) async fn close(
        &self,
        name: &Name,
        to: &Contents,
        copied: Result<()>,
        sync: bool,
    ) -> Result<()> {
        let synced = match (&copied, sync) {
            (Ok(()), true) => to.sync().await,
            _ => Ok(()),
        };
        let closed = to.close().await;
        copied.and(synced.and(closed).map_err(|error| name.about(error)))
    }

    /// Closes what was written; attributes come last, because a write changes the time of change.
    async fn finish(
        &self,
        task: &Task,
        name: &Name,
        (from, to): (&Contents, &Contents),
        copied: Result<()>,
    ) -> Result<()> {
        // Attributes in a volume become durable with the names, all at once; of a file of this machine, by its own sync.
        self.close(name, to, copied, self.options.sync && !to.is_local()).await?;
        self.take_back_rights(task, name, to).await?;
        self.finish_attributes(task, name, Copied::Written(from, to)).await?;
        match self.options.sync && to.is_local() {
            true => to.sync().await.map_err(|error| name.about(error)),
            false => Ok(()),
        }
    }
}

type Joined<T> = std::result::Result<Result<T>, tokio::task::JoinError>;

async fn all_joined(blocks: &mut (impl Stream<Item = Joined<()>> + Unpin)) -> Result<()> {
    while let Some(done) = blocks.next().await {
        joined(Some(done))?;
    }
    Ok(())
}

fn cut() -> Error {
    Error::with(ErrorKind::Stale, "the source became shorter while it was copied")
}

/// An error if a source is shorter now than it was found.
fn was_cut(task: &Task, length: u64) -> Result<()> {
    match length < task.info.length {
        true => Err(task.from.about(cut())),
        false => Ok(()),
    }
}

fn joined<T: Default>(done: Option<Joined<T>>) -> Result<T> {
    match done {
        None => Ok(T::default()),
        Some(Ok(result)) => result,
        Some(Err(_)) => Err(Error::with(ErrorKind::Io, "copying a block panicked")),
    }
}
