//! Grants ranges of a file of which one client alone may hold back what it writes ([`crate::claims`]).

use super::open_file::check_writer;
use crate::borrow::lock_here;
use crate::contents;
use crate::ctx::Ctx;
use crate::session::Session;
use crate::sharing::{HeldBack, settle};
use crate::view::Tx;
use strake_base::is_broken;
use strake_types::{Consistency, Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{Claim, Claimed, MetaAnswer};

/// Who is refused a range may write through for so long, at least.
const PAUSE_MS: u64 = 1_000;
/// How often it is tried that nobody has a claim any more.
const TRIES: usize = 3;

/// Grants a range; or has all claims on the file called back, and says for how long none are granted.
pub(crate) async fn claim(ctx: &Ctx, op: &Claim) -> Result<MetaAnswer> {
    let session = ctx.need_session()?;
    let inode = Tx::reader(ctx).inode(Ino(op.ino)).await?;
    check_writer(ctx, &inode)?;
    // Who has not said yet that he tells each write may hold it back without a claim.
    settle(ctx, &inode, HeldBack::UnaskedSince).await?;
    if ctx.volume.sessions.is_asked(session, inode.id()) {
        let detail = "what the caller has written before is still to be told";
        return Err(Error::with(ErrorKind::HeldBack, detail));
    }
    if !op.through
        && let Some(end) = grant(ctx, session, op).await?
    {
        return Ok(MetaAnswer::Claimed(Claimed { end, through_ms: 0 }));
    }
    // A range that is free soon is asked for soon: only who writes through makes the pause longer.
    let least_ms = if op.through { PAUSE_MS } else { 0 };
    for _ in 0..TRIES {
        settle(ctx, &inode, HeldBack::ByAnybody).await?;
        let claims = &ctx.volume.sessions.claims;
        let least_ms = match ctx.volume.sessions.may_be_claimed(inode.id()) {
            true => least_ms,
            false => PAUSE_MS,
        };
        let now_ms = ctx.core.monotonic_ms();
        if let Some(through_ms) = claims.pause(inode.id(), least_ms, now_ms) {
            return Ok(MetaAnswer::Claimed(Claimed { end: 0, through_ms }));
        }
    }
    let detail = format!("others claim ranges of inode {} all the time", inode.id());
    Err(Error::with(ErrorKind::HeldBack, detail))
}

/// Where what is granted ends; `None`: nothing is.
async fn grant(ctx: &Ctx, session: &Session, op: &Claim) -> Result<Option<u64>> {
    let (ino, volume) = (Ino(op.ino), &ctx.volume);
    // Whoever cuts the file has it from when he finds that nobody holds anything back until all is cut.
    let _held = lock_here(ctx, &[ino]).await?;
    let inode = Tx::reader(ctx).inode(ino).await?;
    let fits = inode.consistency() == Consistency::Strict && !inode.inline && inode.nlink > 0;
    let is_paused = || volume.sessions.claims.is_paused(ino, ctx.core.monotonic_ms());
    let may_be = volume.sessions.writes(session, ino) && volume.sessions.may_be_claimed(ino);
    if !fits || !may_be || is_paused() {
        return Ok(None);
    }
    // What is written by a claim must not be cut: where a server died in the middle of a cut, that is done again.
    if contents::finish_cut_at_once(ctx, ino).await.is_err() {
        return Ok(None);
    }
    if !session.may_have_claims() {
        volume.note_claims(session.id).await?;
        session.note_claims();
    }
    // Nobody believes what he knows of the file any more; and nobody is leased it while something is claimed ([`Ctx::lease`]).
    let holders = || volume.sessions.holders();
    let recalled = if is_broken("claims-recall-leases") { Vec::new() } else { vec![ino] };
    let _recalled = volume.leases.change(None, recalled, holders, &*ctx.core.clock).await;
    let range = (ino, op.start..op.end, op.wanted_end);
    let now_ms = ctx.core.monotonic_ms();
    let end = volume.sessions.grant(session, ctx.incarnation, range, now_ms);
    // Whoever has opened the file since then is found here, or finds that something is claimed.
    Ok(end.filter(|_| volume.sessions.may_be_claimed(ino)))
}

#[cfg(test)]
mod tests;
