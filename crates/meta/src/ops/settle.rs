//! What clients and server say to each other of files that several have open ([`crate::sharing`]).

use super::read_inline::read_inline;
use crate::ctx::Ctx;
use crate::session::Session;
use crate::sharing::{HeldBack, is_held_back, settle};
use crate::view::Tx;
use strake_types::{Consistency, Ino, Result};
use strake_wire::message::meta::{Inode, MetaAnswer, Nothing, Opened, Told};

/// Says in an answer that opens a file whether others have it open. After the open is counted, so that of two
/// who open at the same time one at least learns of the other.
pub(crate) fn note_others(ctx: &Ctx, answer: &mut MetaAnswer) {
    let (Some(session), Some(opened)) = (&ctx.session, opened_in(answer)) else { return };
    if opened.attr.consistency() != Consistency::Strict {
        return;
    }
    note_sharing(ctx, session, opened);
    let ino = Ino(opened.attr.ino);
    opened.unsettled = opened.shared || is_held_back(ctx, ino, held_of(ctx, session, ino));
}

/// What others may not hold back of a file from who has just opened it. Who may write, and asks before he reads what others
/// have claimed, need not have that called back: several who only write open it one after the other.
fn held_of(ctx: &Ctx, session: &Session, ino: Ino) -> HeldBack {
    match session.minds.is_so() && ctx.volume.sessions.writes(session, ino) {
        true => HeldBack::Unasked,
        false => HeldBack::ByOthers,
    }
}

fn note_sharing(ctx: &Ctx, session: &Session, opened: &mut Opened) {
    let (sessions, ino) = (&ctx.volume.sessions, Ino(opened.attr.ino));
    opened.shared = sessions.has_to_tell(session, ino);
    opened.others_write = sessions.others_write(session, ino);
}

fn opened_in(answer: &mut MetaAnswer) -> Option<&mut Opened> {
    match answer {
        MetaAnswer::Opened(opened) => Some(opened),
        MetaAnswer::Created(created) if !created.created => created.opened.as_mut(),
        _ => None,
    }
}

/// As [`settle`], and answers with the file as it is then; and whether others still have it open, when those have
/// closed it who only defer that.
pub(crate) async fn settled(ctx: &Ctx, op: &Inode) -> Result<MetaAnswer> {
    let (ino, session) = (Ino(op.ino), ctx.need_session()?);
    let (sessions, leases) = (&ctx.volume.sessions, &ctx.volume.leases);
    let inode = Tx::reader(ctx).inode(ino).await?;
    if inode.consistency() != Consistency::Strict {
        return read_inline(ctx, op).await;
    }
    if sessions.has_to_tell(session, ino) {
        let holders = || sessions.holders();
        drop(leases.change(ctx.keeper.as_ref(), vec![ino], holders, &*ctx.core.clock).await);
    }
    settle(ctx, &inode, held_of(ctx, session, ino)).await?;
    let mut answer = read_inline(ctx, op).await?;
    if let MetaAnswer::Opened(opened) = &mut answer {
        note_sharing(ctx, session, opened);
    }
    Ok(answer)
}

/// The caller has told what it had written, and holds nothing back from now on.
pub(crate) fn told(ctx: &Ctx, op: &Told) -> Result<MetaAnswer> {
    let (session, volume) = (ctx.need_session()?, &ctx.volume);
    match op.exclusive {
        0 => volume.sessions.tells(session, op, ctx.incarnation),
        number => {
            volume.leases.take_exclusive(&session.holder, number);
            volume.sessions.told.notify_waiters();
        }
    }
    Ok(MetaAnswer::Done(Nothing {}))
}

#[cfg(test)]
mod tests;
