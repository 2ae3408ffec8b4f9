//! A file on its way from one place to another: what of it there is to copy, how that is asked for, and the transaction
//! after which it lies at the new place.

use super::pace::Pace;
use crate::contents::{Part, right_to};
use crate::ctx::Ctx;
use crate::keys;
use crate::records::{Inode, Spare};
use crate::txn::Mutation;
use crate::view::Tx;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use strake_types::{ChunkId, ChunkIndex, Error, ErrorKind, GroupId, Ino, Layout, Result};
use strake_wire::message::meta::{MetaAnswer, Nothing};
use strake_wire::message::storage::{Copy, Range, StorageOp};

/// Bytes of one request to copy: few, so that none is under way for long.
const PIECE_BYTES: u64 = 4 << 20;
/// Requests under way for one file.
pub(super) const REQUESTS_MAX: usize = 4;

/// What a file is to become.
pub(super) struct Wanted<'a> {
    /// The file.
    pub ino: Ino,
    /// Copies that it is to have.
    pub copies: u32,
    /// How fast, and how long.
    pub pace: &'a Pace,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It has as many copies as wanted.
    Done,
    /// It had before, or has no contents anywhere.
    Unchanged,
    /// It is as it was; why.
    Waits(String),
}

/// A file that may be copied.
pub(super) struct Begun {
    /// As it was then.
    pub inode: Arc<Inode>,
    /// Where it lies.
    pub old: Layout,
    /// Where it is to lie.
    pub new: Layout,
}

/// A part of a chunk that has contents.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub index: ChunkIndex,
    pub offset: u64,
    pub len: u64,
}

impl Piece {
    /// The pieces of so many bytes of a chunk.
    pub fn of_chunk(index: ChunkIndex, bytes: u64) -> impl Iterator<Item = Piece> {
        let offsets = (0..bytes).step_by(PIECE_BYTES as usize);
        offsets.map(move |offset| Piece { index, offset, len: PIECE_BYTES.min(bytes - offset) })
    }
}

pub(super) fn part(ctx: &Ctx, begun: &Begun, group: GroupId) -> Part {
    let min_copies = begun.new.safety.min_copies;
    Part { reign: ctx.volume.reign(), ino: begun.inode.id(), group, min_copies }
}

pub(super) fn copy_op(ctx: &Ctx, ino: Ino, piece: Piece, from: GroupId) -> StorageOp {
    let chunk = ChunkId { volume: ctx.volume.id, ino, index: piece.index };
    let range = Range { chunk: chunk.into(), offset: piece.offset, len: piece.len };
    StorageOp::Copy(Copy {
        to: range,
        from: range,
        // Looked up whenever it is sent.
        from_target: 0,
        from_group: from.0,
        from_capability: right_to(&ctx.core, ctx.volume.reign(), ino),
    })
}

/// From which boots each group has answered. A second one of a group says that what the first has
/// taken may be lost.
#[derive(Default)]
pub(super) struct Boots(Mutex<BTreeMap<GroupId, Vec<u64>>>);

impl Boots {
    pub fn heard(&self, group: GroupId, boot: u64) {
        let mut all = self.0.lock();
        let known = all.entry(group).or_default();
        // 0: it does not say.
        if boot != 0 && !known.contains(&boot) {
            known.push(boot);
        }
    }

    pub fn groups(&self) -> Vec<GroupId> {
        self.0.lock().keys().copied().collect()
    }

    pub fn at_most_one_each(&self) -> bool {
        self.0.lock().values().all(|boots| boots.len() <= 1)
    }
}

/// The file lies elsewhere from now on; where it was goes.
pub(super) struct Switch<'a> {
    /// The file.
    pub begun: &'a Begun,
    /// Only if it is of this version still.
    pub version: u64,
}

impl Mutation for Switch<'_> {
    async fn scope(&self, _ctx: &Ctx) -> Result<Vec<Ino>> {
        Ok(vec![self.begun.inode.id()])
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let Begun { inode: known, old, new } = self.begun;
        let found = tx.find_inode(known.id()).await?;
        let same = found.as_ref().is_some_and(|inode| {
            let is_as_known = (inode.version, inode.inline) == (self.version, known.inline);
            is_as_known && inode.nlink > 0 && inode.cut_from.is_none()
        });
        let Some(inode) = found.filter(|_| same) else {
            return Err(Error::with(ErrorKind::Conflict, "it was changed while it was copied"));
        };
        let mut moved = (*inode).clone();
        moved.layout = Some(new.into());
        if !moved.inline {
            let spare = Spare { layout: old.into(), settled: true, again_ms: 0 };
            tx.put(keys::spare(tx.ctx.volume.id, known.id()), &spare).await?;
        }
        tx.put_inode(moved).await?;
        Ok(MetaAnswer::Done(Nothing {}))
    }
}
