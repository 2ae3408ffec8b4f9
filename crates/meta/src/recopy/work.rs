//! One file: begin, copy, give up; [`switch`] is the last step.

use super::moving::{Begun, Boots, Outcome, Piece, REQUESTS_MAX, Switch, Wanted, copy_op, part};
use super::spare::{Users, find, users};
use super::switch::switch;
use crate::contents::{self, Part, ask_group, layout_of, on_group};
use crate::ctx::Ctx;
use crate::keys;
use crate::ops::template::as_template;
use crate::recopies::UnderWay;
use crate::records::{self, Spare};
use crate::stored::store_error;
use crate::txn::{Mutation, under_locks};
use crate::view::Tx;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use strake_types::layout::{Groups, LayoutTemplate, Placement};
use strake_types::{ChunkIndex, Error, ErrorKind, GroupId, Ino, Layout, Result};
use strake_wire::message::meta::{MetaAnswer, Nothing};
use strake_wire::message::storage::{FileRef, StorageAnswer, StorageOp};

/// How copying ended.
enum Copied {
    /// All of it is there, and durable.
    All,
    /// It cannot be used, and nothing is under way any more.
    Void(String),
    /// A request to copy has failed, and may be carried out still.
    Unknown(Error),
}

/// Gives one file another number of copies.
pub(super) async fn run(ctx: &Ctx, wanted: &Wanted<'_>, file: &UnderWay) -> Result<Outcome> {
    let begun = match begin(ctx, wanted, file).await? {
        Ok(begun) => begun,
        Err(outcome) => return Ok(outcome),
    };
    // Nothing that writes to the new place is under way.
    let mut settled = true;
    let ended = match copy(ctx, wanted, file, &begun).await {
        Ok(Copied::All) => switch(ctx, wanted, file, &begun, &mut settled).await,
        Ok(Copied::Void(why)) => Ok(Outcome::Waits(why)),
        Ok(Copied::Unknown(error)) => {
            settled = false;
            Err(error)
        }
        Err(error) => Err(error),
    };
    if ended != Ok(Outcome::Done) {
        give_up(ctx, file, &begun, settled).await?;
    }
    ctx.core.work.notify_one();
    ended
}

/// Notes where the chunks will be, so that they are deleted whatever happens. Files without chunks
/// are ready then.
async fn begin(
    ctx: &Ctx,
    wanted: &Wanted<'_>,
    file: &UnderWay,
) -> Result<std::result::Result<Begun, Outcome>> {
    let (core, ino) = (&ctx.core, wanted.ino);
    let _held = core.locks.lock(ctx.volume.id, &[ino]).await;
    file.check()?;
    let inode = Tx::reader(ctx).inode(ino).await?;
    if !inode.is_file() || inode.nlink == 0 {
        return Ok(Err(Outcome::Unchanged));
    }
    let old = layout_of(&inode)?;
    if old.copies() == wanted.copies {
        return Ok(Err(Outcome::Unchanged));
    }
    let is_free = match users(ctx, ino).await? {
        Users::Unknown(why) => return Ok(Err(Outcome::Waits(why))),
        Users::Open(users) => users.is_empty(),
    };
    if find(ctx, ino).await?.is_some() {
        let why = "chunks that an earlier change has left are still being deleted";
        return Ok(Err(Outcome::Waits(why.to_owned())));
    }
    contents::finish_cut(ctx, ino).await?;
    let inode = Tx::reader(ctx).inode(ino).await?;
    let new = with_copies(&old, wanted.copies, ctx)?;
    let begun = Begun { inode, old, new };
    if begun.inode.inline && is_free {
        under_locks(ctx, &Switch { begun: &begun, version: begun.inode.version }).await?;
        return Ok(Err(Outcome::Done));
    }
    if begun.inode.inline {
        file.start();
        return Ok(Ok(begun));
    }
    let spare = Spare { layout: (&begun.new).into(), ..Spare::default() };
    ctx.volume.put(keys::spare(ctx.volume.id, ino), records::encode(&spare)).await?;
    ctx.volume.kv.sync().await.map_err(store_error)?;
    file.start();
    Ok(Ok(begun))
}

/// The same layout on groups of so many copies: the same bytes in the same chunks.
fn with_copies(old: &Layout, copies: u32, ctx: &Ctx) -> Result<Layout> {
    let groups = match &old.groups {
        Groups::Table { .. } => None,
        Groups::List(list) => {
            Some(list.iter().map(|group| GroupId::of_class(copies, group.ordinal())).collect())
        }
    };
    let template = LayoutTemplate { groups, copies: Some(copies), ..as_template(old) };
    let tables = &ctx.settings.tables;
    let new = template.resolve(old.seed, tables);
    new.validate()?;
    let (before, after) = (old.slots(), new.slots());
    if let Some(group) = after.iter().find(|group| !tables.has(**group) || before.contains(group)) {
        let detail = format!("group {group} cannot take the file; see strake status");
        return Err(Error::with(ErrorKind::Invalid, detail));
    }
    Ok(new)
}

/// Copies all contents and makes them durable. What is changed meanwhile is seen to by [`switch`].
async fn copy(ctx: &Ctx, wanted: &Wanted<'_>, file: &UnderWay, begun: &Begun) -> Result<Copied> {
    if begun.inode.inline {
        return Ok(Copied::All);
    }
    let (old, new) = (Placement::new(begun.old.clone()), Placement::new(begun.new.clone()));
    let pieces = pieces(ctx, begun, &old).await?;
    file.set_bytes(pieces.iter().map(|piece| piece.len).sum());
    let boots = Boots::default();
    let pace = wanted.pace;
    let copies = pieces.into_iter().enumerate().map(|(nth, piece)| {
        let (boots, old, new) = (&boots, &old, &new);
        async move {
            if nth == 0 {
                // Who has begun gets on: a file of one piece comes to its end although it is paused now.
                pace.owe(piece.len);
            } else {
                pace.wait(piece.len, Some(file)).await;
            }
            file.check()?;
            if pace.is_over() {
                return Ok(());
            }
            let group = new.group_of(piece.index);
            let op = copy_op(ctx, begun.inode.id(), piece, old.group_of(piece.index));
            boots.heard(
                group,
                on_group(&ctx.core, part(ctx, begun, group), op, Bytes::new()).await?,
            );
            file.add_copied(piece.len);
            Ok(())
        }
    });
    // To the end, also after a failure: nothing must be under way when this returns.
    let results: Vec<Result<()>> =
        stream::iter(copies).buffer_unordered(REQUESTS_MAX).collect().await;
    if let Err(error) = results.into_iter().collect::<Result<()>>() {
        return Ok(Copied::Unknown(error));
    }
    if pace.is_over() {
        return Ok(Copied::Void("the job has ended".to_owned()));
    }
    for group in boots.groups() {
        let sync = StorageOp::Sync(FileRef { volume: ctx.volume.id.0, ino: begun.inode.ino });
        boots.heard(group, on_group(&ctx.core, part(ctx, begun, group), sync, Bytes::new()).await?);
    }
    match boots.at_most_one_each() {
        true => Ok(Copied::All),
        false => Ok(Copied::Void("a storage server lost power while it was copied".to_owned())),
    }
}

/// What of a file there is to copy. What lies behind its end is nobody's.
async fn pieces(ctx: &Ctx, begun: &Begun, old: &Placement) -> Result<Vec<Piece>> {
    let inode = &begun.inode;
    let mut groups = old.groups().to_vec();
    groups.sort_unstable();
    groups.dedup();
    let mut pieces = Vec::new();
    for group in groups {
        let op = StorageOp::Chunks(FileRef { volume: ctx.volume.id.0, ino: inode.ino });
        let part = Part { reign: ctx.volume.reign(), ino: inode.id(), group, min_copies: 0 };
        let Some(StorageAnswer::Chunks(list)) =
            ask_group(&ctx.core, part, op, Bytes::new()).await?
        else {
            let detail = format!("group {group} does not say which chunks it has");
            return Err(Error::with(ErrorKind::Malformed, detail));
        };
        for (index, len) in list.indices.iter().zip(&list.lens) {
            let index = ChunkIndex(*index);
            let (start, bytes) = begun.old.chunk_bounds(index);
            let len = (*len).min(bytes).min(inode.length.saturating_sub(start));
            if old.group_of(index) == group {
                pieces.extend(Piece::of_chunk(index, len));
            }
        }
    }
    Ok(pieces)
}

/// Has deleted what was copied, unless the file lies there now. `settled`: nothing that could write
/// there is under way.
async fn give_up(ctx: &Ctx, file: &UnderWay, begun: &Begun, settled: bool) -> Result<()> {
    let ino = begun.inode.id();
    let _held = ctx.core.locks.lock(ctx.volume.id, &[ino]).await;
    file.check()?;
    under_locks(ctx, &GiveUp { begun, settled }).await?;
    ctx.core.work.notify_one();
    Ok(())
}

struct GiveUp<'a> {
    begun: &'a Begun,
    settled: bool,
}

impl Mutation for GiveUp<'_> {
    async fn scope(&self, _ctx: &Ctx) -> Result<Vec<Ino>> {
        Ok(vec![self.begun.inode.id()])
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let key = keys::spare(tx.ctx.volume.id, self.begun.inode.id());
        let found: Option<Spare> = tx.get(&key).await?;
        if let Some(spare) = found.filter(|spare| spare.layout == (&self.begun.new).into()) {
            tx.put(key, &Spare { settled: self.settled, ..spare }).await?;
        }
        Ok(MetaAnswer::Done(Nothing {}))
    }
}
