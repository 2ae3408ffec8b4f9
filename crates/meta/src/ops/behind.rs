//! Changes of names that a client has answered already (docs/design/0053-names-behind.md).

use crate::ctx::{self, Ctx};
use crate::merge;
use crate::merge_queue::Change;
use crate::txn::mutate;
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{
    Behind, ChangeBehind, Made, MetaAnswer, NameChange, Named, Renamed,
};

/// Makes them in their order, each once, up to the first that is refused: those of one directory that follow each other in
/// one transaction, as far as that is possible.
pub(crate) async fn make(ctx: &Ctx, op: &Behind) -> Result<MetaAnswer> {
    let _making = ctx.need_session()?.begins_to_make();
    let mut made = Made::default();
    while let Some(next) = op.changes.get(made.changes.len()) {
        let together = of_one_directory(ctx, &op.changes[made.changes.len()..]);
        let answers = merge::in_order(&together).await;
        if !answers.is_empty() {
            made.changes.extend(answers.into_iter().filter_map(changed));
            continue;
        }
        match make_one(ctx, next).await {
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

/// The first of these that change names of the same directory, and of no other; none if that is but one.
fn of_one_directory(ctx: &Ctx, changes: &[ChangeBehind]) -> Vec<(Ctx, Change)> {
    let mut only = None;
    let mut is_within = |(ctx, _): &(Ctx, Change)| {
        ctx.behind.is_some_and(|ctx::Behind { dirs: [dir, other], .. }| {
            dir == other && *only.get_or_insert(dir) == dir
        })
    };
    let requests = changes.iter().map_while(|change| request(ctx, change).ok());
    let within: Vec<_> = requests.take_while(|one| is_within(one)).collect();
    if within.len() > 1 { within } else { Vec::new() }
}

/// A change as a request of its own.
fn request(ctx: &Ctx, change: &ChangeBehind) -> Result<(Ctx, Change)> {
    let none =
        || Error::with(ErrorKind::Malformed, "no change of a name, or one of a newer release");
    let op = match change.change.as_ref().ok_or_else(none)? {
        NameChange::Unlink(unlink) => Change::Unlink(unlink.clone()),
        NameChange::Rename(rename) => Change::Rename(rename.clone()),
    };
    let dirs = match &op {
        Change::Rename(rename) => [Ino(rename.from.parent), Ino(rename.to.parent)],
        Change::Unlink(unlink) => [Ino(unlink.at.parent); 2],
        Change::Create(_) | Change::Link(_) => return Err(none()),
    };
    let behind =
        ctx::Behind { dirs, ino: Ino(change.ino), other: Ino(change.other), at: change.at.into() };
    if change.seq == 0 || dirs.iter().any(|dir| !ctx.is_here(*dir)) {
        return Err(none());
    }
    Ok((Ctx { seq: change.seq, behind: Some(behind), ..ctx.clone() }, op))
}

async fn make_one(ctx: &Ctx, change: &ChangeBehind) -> Result<Renamed> {
    let (ctx, op) = request(ctx, change)?;
    let answer = match &op {
        Change::Unlink(op) => mutate(&ctx, op).await?,
        Change::Rename(op) => mutate(&ctx, op).await?,
        Change::Create(_) | Change::Link(_) => return Err(Error::new(ErrorKind::Malformed)),
    };
    changed(answer)
        .ok_or_else(|| Error::with(ErrorKind::Io, "a change of a name with another answer"))
}

/// What a change has led to.
fn changed(answer: MetaAnswer) -> Option<Renamed> {
    match answer {
        MetaAnswer::Renamed(renamed) => Some(renamed),
        MetaAnswer::Named(Named { attr: moved, parent }) => {
            Some(Renamed { moved, parent, ..Renamed::default() })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
