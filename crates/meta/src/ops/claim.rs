//! Grants ranges of a file of which one client alone may hold back what it writes ([`crate::claims`]).

use super::open_file::check_writer;
use crate::borrow::lock_here;
use crate::contents;
use crate::ctx::Ctx;
use crate::session::Session;
use crate::sharing::{HeldBack, are_elsewhere, settle, settle_around};
use crate::view::Tx;
use strake_base::{count_case, is_broken};
use strake_types::{Consistency, Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{Claim, Claimed, MetaAnswer};

/// Who writes through does so for so long at least, and who can be granted nothing. It counts from when he asked: shorter than
/// an answer takes, with what others have to tell first, it would be over before he hears of it, each time.
const PAUSE_MS: u64 = 4_000;
/// How often it is tried that nobody has a claim any more.
const TRIES: usize = 3;

/// What becomes of a wish.
enum Outcome {
    /// Granted up to there.
    Granted(u64),
    /// Others are in the way, or were a moment ago.
    NotNow,
    /// Nobody may claim anything of such a file, as it is now.
    Never,
}

/// Grants a range; or has all claims on the file called back, and says for how long none are granted.
pub(crate) async fn claim(ctx: &Ctx, op: &Claim) -> Result<MetaAnswer> {
    let (ino, session) = (Ino(op.ino), ctx.need_session()?);
    let inode = Tx::reader(ctx).inode(ino).await?;
    check_writer(ctx, &inode)?;
    // Who has not said yet that he tells each write may hold it back without a claim.
    settle(ctx, &inode, HeldBack::UnaskedSince).await?;
    let sessions = &ctx.volume.sessions;
    if sessions.is_asked(session, ino) || sessions.claims.may_have(ino, session.id) {
        // The question may have been lost, and who asked have given up. What an earlier server has granted to one who has the
        // file alone nobody else asks for, and nothing is granted before it is given up.
        sessions.ask_to_tell(session, ino);
        let detail = "what the caller has written before is still to be told";
        return Err(Error::with(ErrorKind::HeldBack, detail));
    }
    let outcome = if op.through { Outcome::Never } else { grant(ctx, session, op).await? };
    let least_ms = match outcome {
        Outcome::Granted(end) => {
            return Ok(MetaAnswer::Claimed(Claimed { end, ..Claimed::default() }));
        }
        // It is free soon: who asks again does not put that off.
        Outcome::NotNow => 0,
        Outcome::Never => PAUSE_MS,
    };
    let range = if op.once { op.start..op.end } else { 0..0 };
    for _ in 0..TRIES {
        settle_around(ctx, &inode, &range).await?;
        let now_ms = ctx.core.monotonic_ms();
        if let Some(through_ms) = sessions.claims.pause(ino, least_ms, now_ms) {
            return Ok(MetaAnswer::Claimed(Claimed { through_ms, ..Claimed::default() }));
        }
        if are_elsewhere(ctx, ino, &range) {
            count_case("claim-elsewhere");
            return Ok(MetaAnswer::Claimed(Claimed { once: true, ..Claimed::default() }));
        }
    }
    let detail = format!("others claim ranges of inode {ino} all the time");
    Err(Error::with(ErrorKind::HeldBack, detail))
}

async fn grant(ctx: &Ctx, session: &Session, op: &Claim) -> Result<Outcome> {
    let (ino, volume) = (Ino(op.ino), &ctx.volume);
    let (sessions, claims) = (&volume.sessions, &volume.sessions.claims);
    // Whoever cuts the file has it from when he finds that nobody holds anything back until all is cut.
    let _held = lock_here(ctx, &[ino]).await?;
    let inode = Tx::reader(ctx).inode(ino).await?;
    let fits = inode.consistency() == Consistency::Strict && !inode.inline && inode.nlink > 0;
    if !fits || !sessions.writes(session, ino) || !sessions.may_claim(session, ino) {
        return Ok(Outcome::Never);
    }
    if claims.is_paused(ino, ctx.core.monotonic_ms()) {
        return Ok(Outcome::NotNow);
    }
    // What is written by a claim must not be cut: where a server died in the middle of a cut, that is done again.
    if contents::finish_cut_at_once(ctx, ino).await.is_err() {
        return Ok(Outcome::Never);
    }
    if !session.may_have_claims() {
        volume.note_claims(session.id).await?;
        session.note_claims();
    }
    // Nobody believes what he knows of the file any more; and nobody is leased it while something is claimed
    // (`Ctx::lease_to`).
    let holders = || sessions.holders();
    let recalled = if is_broken("claims-recall-leases") { Vec::new() } else { vec![ino] };
    let _recalled = volume.leases.change(None, recalled, holders, &*ctx.core.clock).await;
    let range = (ino, op.start..op.end, op.wanted_end);
    let now_ms = ctx.core.monotonic_ms();
    let Some(end) = sessions.grant(session, ctx.incarnation, range, now_ms) else {
        return Ok(Outcome::NotNow);
    };
    // Whoever has opened the file since then is found here, or finds that something is claimed.
    Ok(if sessions.may_be_claimed(ino) { Outcome::Granted(end) } else { Outcome::Never })
}

#[cfg(test)]
mod tests;
