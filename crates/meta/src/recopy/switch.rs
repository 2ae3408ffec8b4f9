//! The last step: a file that was copied lies elsewhere from one moment to the next.
//!
//! Nobody may use the old place after that. Where nobody has the file open, and it was not changed while it was copied, that
//! is one transaction. Else what differs in both places by now is copied, most of it while the file is in use; then
//! those who have it open hold it still ([`super::hold`]), and what differs then is copied, too.

use super::hold::{Still, hold_still};
use super::moving::{Begun, Boots, Outcome, Piece, REQUESTS_MAX, Switch, Wanted, copy_op, part};
use super::spare::{Users, users};
use crate::contents::{self, ask_group, on_group};
use crate::ctx::Ctx;
use crate::recopies::UnderWay;
use crate::records::Inode;
use crate::txn::under_locks;
use crate::view::Tx;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use strake_types::layout::Placement;
use strake_types::{ChunkId, ChunkIndex, Error, ErrorKind, GroupId, Result};
use strake_wire::message::storage::{Cut, DigestPage, FileRef, StorageAnswer, StorageOp};
use tokio::time::timeout;

/// How often it is tried.
const TRIES_MAX: u32 = 5;
/// The pause between that.
const PAUSE: Duration = Duration::from_secs(1);
/// How often what differs is copied while the file is in use.
const ROUNDS_MAX: u32 = 8;
/// Most bytes that are copied while it is held still,
const HELD_BYTES_MAX: u64 = 64 << 20;
/// or so many chunks, where those are large.
const HELD_CHUNKS_MAX: u64 = 4;
/// Longest time that it is held still when all have said so.
const HELD_MAX: Duration = Duration::from_secs(4);

/// A chunk that is not the same in both places.
#[derive(Clone, Copy)]
struct Differing {
    index: ChunkIndex,
    /// Its bytes where the file lies; 0: it is not there.
    bytes: u64,
    /// It is there where the file is to lie.
    is_there: bool,
}

/// One file that was copied.
struct Step<'a> {
    ctx: &'a Ctx,
    wanted: &'a Wanted<'a>,
    file: &'a UnderWay,
    begun: &'a Begun,
    old: Placement,
    new: Placement,
}

/// Has a file that was copied lie at its new place. `settled` becomes false if something may be written there still.
pub(super) async fn switch(
    ctx: &Ctx,
    wanted: &Wanted<'_>,
    file: &UnderWay,
    begun: &Begun,
    settled: &mut bool,
) -> Result<Outcome> {
    let (old, new) = (Placement::new(begun.old.clone()), Placement::new(begun.new.clone()));
    let step = Step { ctx, wanted, file, begun, old, new };
    let mut waits = String::new();
    for _ in 0..TRIES_MAX {
        match step.attempt(settled).await? {
            Outcome::Waits(why) => waits = why,
            ended => return Ok(ended),
        }
        if wanted.pace.is_over() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(Outcome::Waits(waits))
}

impl Step<'_> {
    async fn attempt(&self, settled: &mut bool) -> Result<Outcome> {
        let (ctx, ino) = (self.ctx, self.begun.inode.id());
        {
            let _held = ctx.core.locks.lock(ctx.volume.id, &[ino]).await;
            self.file.check()?;
            let is_free = match users(ctx, ino).await? {
                Users::Unknown(why) => return Ok(Outcome::Waits(why)),
                Users::Open(users) => users.is_empty(),
            };
            let Some(inode) = Tx::reader(ctx).find_inode(ino).await?.filter(|i| i.nlink > 0) else {
                return Ok(Outcome::Unchanged);
            };
            let is_same = inode.version == self.begun.inode.version;
            if is_free && is_same && !self.file.is_touched() {
                return self.switch(self.begun.inode.version).await;
            }
        }
        for _ in 0..ROUNDS_MAX {
            let left = self.differing().await?;
            if self.wanted.pace.is_over() {
                return Ok(Outcome::Waits("the job has ended".to_owned()));
            }
            if self.are_few(&left) {
                break;
            }
            *settled = false;
            self.equalise(left, true, &Boots::default()).await?;
            *settled = true;
        }
        let still = match hold_still(ctx, ino, self.file).await? {
            Ok(still) => still,
            Err(why) => return Ok(Outcome::Waits(why)),
        };
        self.switch_held(&still, settled).await
    }

    /// The same while the file is held still.
    async fn switch_held(&self, still: &Still<'_>, settled: &mut bool) -> Result<Outcome> {
        let (ctx, ino) = (self.ctx, self.begun.inode.id());
        let inode = {
            let _held = ctx.core.locks.lock(ctx.volume.id, &[ino]).await;
            self.file.check()?;
            self.file.start();
            // Whoever has opened it just before is not forgotten with that.
            if let Some(why) = still.hindrance().await? {
                return Ok(Outcome::Waits(why));
            }
            contents::finish_cut(ctx, ino).await?;
            Tx::reader(ctx).find_inode(ino).await?
        };
        let Some(inode) = inode.filter(|inode| self.is_as_begun(inode)) else {
            return Ok(Outcome::Waits("it was changed while it was copied".to_owned()));
        };
        *settled = false;
        // Not what follows: a commit that nobody waits for might come when the file is in use again.
        let equal = timeout(HELD_MAX, self.made_equal()).await.map_err(|_| {
            let detail = "storage servers take too long to copy what was changed meanwhile";
            Error::with(ErrorKind::TimedOut, detail)
        })?;
        let equal = equal?;
        *settled = true;
        if let Err(why) = equal {
            return Ok(Outcome::Waits(why));
        }
        let _held = ctx.core.locks.lock(ctx.volume.id, &[ino]).await;
        self.file.check()?;
        if let Some(why) = still.hindrance().await? {
            return Ok(Outcome::Waits(why));
        }
        if self.file.is_opened() {
            return Ok(Outcome::Waits("it was opened while it was to move".to_owned()));
        }
        self.switch(inode.version).await
    }

    /// True if it lies where it lay, and is no smaller thing than a file with a name.
    fn is_as_begun(&self, inode: &Arc<Inode>) -> bool {
        let begun = &self.begun.inode;
        inode.nlink > 0 && inode.inline == begun.inline && inode.layout == begun.layout
    }

    /// The caller holds the inode's lock.
    async fn switch(&self, version: u64) -> Result<Outcome> {
        match under_locks(self.ctx, &Switch { begun: self.begun, version }).await {
            Ok(()) => Ok(Outcome::Done),
            Err(error) if error.kind == ErrorKind::Conflict => {
                Ok(Outcome::Waits(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    fn are_few(&self, left: &[Differing]) -> bool {
        let chunks = HELD_CHUNKS_MAX * self.begun.old.chunk_size;
        left.iter().map(|chunk| chunk.bytes).sum::<u64>() <= HELD_BYTES_MAX.max(chunks)
    }

    /// Makes both places equal, and the new one durable, of a file that nobody changes; or why that cannot be had.
    async fn made_equal(&self) -> Result<std::result::Result<(), String>> {
        if self.begun.inode.inline {
            return Ok(Ok(()));
        }
        // What is found equal must not be lost after that: a loss shows by the boots.
        let boots = Boots::default();
        self.sync(&boots).await?;
        let left = self.differing().await?;
        if !self.are_few(&left) {
            return Ok(Err("it is written to faster than it is copied".to_owned()));
        }
        self.equalise(left, false, &boots).await?;
        self.sync(&boots).await?;
        Ok(match boots.at_most_one_each() {
            true => Ok(()),
            false => Err("a storage server lost power while it was copied".to_owned()),
        })
    }

    /// Copies chunks anew; `paced`: as the job is to.
    async fn equalise(&self, left: Vec<Differing>, paced: bool, boots: &Boots) -> Result<()> {
        let each = left.into_iter().map(|chunk| self.copy_anew(chunk, paced, boots));
        // To the end, also after a failure.
        let results: Vec<Result<()>> =
            stream::iter(each).buffer_unordered(REQUESTS_MAX).collect().await;
        results.into_iter().collect()
    }

    async fn copy_anew(&self, chunk: Differing, paced: bool, boots: &Boots) -> Result<()> {
        let (ctx, ino, index) = (self.ctx, self.begun.inode.id(), chunk.index);
        let group = self.new.group_of(index);
        let at = || part(ctx, self.begun, group);
        if paced {
            self.wanted.pace.wait(chunk.bytes, Some(self.file)).await;
        }
        self.file.check()?;
        if paced && self.wanted.pace.is_over() {
            return Ok(());
        }
        if chunk.is_there {
            // There may be bytes where the file has a hole by now.
            let chunk = ChunkId { volume: ctx.volume.id, ino, index };
            let cut = StorageOp::Cut(Cut { chunk: chunk.into(), length: None });
            boots.heard(group, on_group(&ctx.core, at(), cut, Bytes::new()).await?);
        }
        for piece in Piece::of_chunk(index, chunk.bytes) {
            let copy = copy_op(ctx, ino, piece, self.old.group_of(index));
            boots.heard(group, on_group(&ctx.core, at(), copy, Bytes::new()).await?);
        }
        Ok(())
    }

    /// Makes durable what was copied.
    async fn sync(&self, boots: &Boots) -> Result<()> {
        let sync =
            StorageOp::Sync(FileRef { volume: self.ctx.volume.id.0, ino: self.begun.inode.ino });
        for group in groups_of(&self.new) {
            let at = part(self.ctx, self.begun, group);
            boots.heard(group, on_group(&self.ctx.core, at, sync.clone(), Bytes::new()).await?);
        }
        Ok(())
    }

    /// The chunks that are not the same in both places.
    async fn differing(&self) -> Result<Vec<Differing>> {
        if self.begun.inode.inline {
            return Ok(Vec::new());
        }
        let (here, there) = (self.digests(&self.old).await?, self.digests(&self.new).await?);
        let all: BTreeSet<ChunkIndex> = here.keys().chain(there.keys()).copied().collect();
        let differ = all.into_iter().filter(|index| here.get(index) != there.get(index));
        let chunk = |index| Differing {
            index,
            bytes: here.get(&index).map_or(0, |(_, bytes)| *bytes),
            is_there: there.contains_key(&index),
        };
        Ok(differ.map(chunk).collect())
    }

    /// Digest and length of each chunk of the file in one of the two places.
    async fn digests(&self, place: &Placement) -> Result<BTreeMap<ChunkIndex, (u64, u64)>> {
        let op = StorageOp::FileDigests(FileRef {
            volume: self.ctx.volume.id.0,
            ino: self.begun.inode.ino,
        });
        let mut all = BTreeMap::new();
        for group in groups_of(place) {
            let at = part(self.ctx, self.begun, group);
            let answer = ask_group(&self.ctx.core, at, op.clone(), Bytes::new()).await?;
            let Some(StorageAnswer::Digests(DigestPage { chunks, digests, lens, .. })) = answer
            else {
                let detail = format!("group {group} does not say what its chunks are like");
                return Err(Error::with(ErrorKind::Malformed, detail));
            };
            for (chunk, of) in chunks.iter().zip(digests.into_iter().zip(lens)) {
                let index = ChunkIndex(chunk.index);
                if place.group_of(index) == group {
                    all.insert(index, of);
                }
            }
        }
        Ok(all)
    }
}

/// The groups of a place, each once.
fn groups_of(place: &Placement) -> BTreeSet<GroupId> {
    place.groups().iter().copied().collect()
}
