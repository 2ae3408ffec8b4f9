//! Changes of names that a client has answered already (docs/design/0053-names-behind.md).

use crate::ctx::{self, Ctx};
use crate::txn::mutate;
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{
    Behind, ChangeBehind, Made, MetaAnswer, NameChange, Named, Renamed,
};

/// Makes them in their order, each once, up to the first that is refused.
pub(crate) async fn make(ctx: &Ctx, op: &Behind) -> Result<MetaAnswer> {
    ctx.need_session()?;
    let mut made = Made::default();
    for change in &op.changes {
        match make_one(ctx, change).await {
            Ok(changed) => made.changes.push(changed),
            // The rest is sent again; all of it, if nothing was made.
            Err(error) if error.is_passing() && made.changes.is_empty() => return Err(error),
            Err(error) if error.is_passing() => break,
            Err(error) => {
                (made.refused, made.why) = (error.kind as u32, error.to_string());
                break;
            }
        }
    }
    Ok(MetaAnswer::Made(made))
}

async fn make_one(ctx: &Ctx, change: &ChangeBehind) -> Result<Renamed> {
    let none =
        || Error::with(ErrorKind::Malformed, "no change of a name, or one of a newer release");
    let op = change.change.as_ref().ok_or_else(none)?;
    let (from, to) = match op {
        NameChange::Unlink(unlink) => (unlink.at.parent, unlink.at.parent),
        NameChange::Rename(rename) => (rename.from.parent, rename.to.parent),
    };
    let dirs = [Ino(from), Ino(to)];
    let behind =
        ctx::Behind { dirs, ino: Ino(change.ino), other: Ino(change.other), at: change.at.into() };
    if change.seq == 0 || dirs.iter().any(|dir| !ctx.is_here(*dir)) {
        return Err(none());
    }
    let _making = ctx.need_session()?.begins_to_make();
    let ctx = &Ctx { seq: change.seq, behind: Some(behind), ..ctx.clone() };
    let answer = match op {
        NameChange::Unlink(op) => mutate(ctx, op).await?,
        NameChange::Rename(op) => mutate(ctx, op).await?,
    };
    match answer {
        MetaAnswer::Renamed(renamed) => Ok(renamed),
        MetaAnswer::Named(Named { attr: moved, parent }) => {
            Ok(Renamed { moved, parent, ..Renamed::default() })
        }
        _ => Err(none()),
    }
}

#[cfg(test)]
mod tests;
