//! SPRITE's rule for write sharing: while several clients have a file open and one of them writes, nobody holds
//! back what he has written.
//!
//! Who opens a file that others have open is told so, and tells each of his writes before it returns. Of those
//! others who writes may still hold something back: he is asked to tell it, by his next request for recalls, and
//! whoever opens waits until he has. (M. Nelson, B. Welch, J. Ousterhout, "Caching in the Sprite Network File
//! System", 1988; there the file is not cached any more, here what others believe is recalled with each write.)
//!
//! As long as several only write, each may hold back what it writes to a range that it has [claimed](crate::claims). Who
//! reads, cuts the file or writes to such a range has all claims called back, in the same way. Who only asks how long it is,
//! or gives it a time, has what is held back told once: the claims stay. Nobody waits for what is held back elsewhere than
//! where he reads or writes ([`settle_around`]): its storage servers may be lost.

use crate::ctx::Ctx;
use crate::records::Inode;
use crate::session::Session;
use crate::view::Tx;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use strake_base::{count_case, is_broken};
use strake_types::{Consistency, Error, ErrorKind, Ino, Result};
use tokio::time::{Instant, timeout_at};

/// How long one request waits; its client asks again.
const WAIT: Duration = Duration::from_secs(2);
/// How often those who are waited for are asked: an answer may be lost on its way to them.
const ASK: Duration = Duration::from_millis(250);

/// What is not to be held back any more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldBack {
    /// What others write who have opened the file and have not said that they tell each write.
    Unasked,
    /// The same for who has had the file open for long: who was there before a restart, and has not come back, counts only if
    /// he may have had claims. All others had said so then.
    UnaskedSince,
    /// [`HeldBack::Unasked`], and what others have claimed.
    ByOthers,
    /// [`HeldBack::UnaskedSince`], and what others have claimed.
    ByOthersSince,
    /// All that anybody has claimed, also of who has not come back after a restart and may have claims.
    ByAnybody,
}

impl HeldBack {
    /// True if claims are part of it.
    fn is_claimed(self) -> bool {
        matches!(self, HeldBack::ByOthers | HeldBack::ByOthersSince | HeldBack::ByAnybody)
    }

    /// True if of those who have not come back after a restart only claims count.
    fn is_known(self) -> bool {
        matches!(self, HeldBack::UnaskedSince | HeldBack::ByOthersSince)
    }
}

/// True if nobody but the caller may hold back what he has written to a file, or if it is one of which that is
/// allowed.
pub(crate) fn is_settled(ctx: &Ctx, inode: &Inode) -> bool {
    inode.consistency() != Consistency::Strict || !is_held_back(ctx, inode.id(), HeldBack::ByOthers)
}

/// True if somebody may hold back such things of a file.
pub(crate) fn is_held_back(ctx: &Ctx, ino: Ino, what: HeldBack) -> bool {
    !holding_back(ctx, ino, what).is_empty()
}

fn holding_back(ctx: &Ctx, ino: Ino, what: HeldBack) -> Vec<Arc<Session>> {
    let (now_ms, sessions) = (ctx.core.monotonic_ms(), &ctx.volume.sessions);
    let own = ctx.session.as_deref();
    let mut held = match what {
        HeldBack::ByAnybody => sessions.absent_claimants(now_ms),
        _ => sessions.holding_back(ino, own, what.is_known(), now_ms),
    };
    if !what.is_claimed() {
        return held;
    }
    let own = own.filter(|_| what != HeldBack::ByAnybody).map(|own| own.id);
    for claimant in sessions.claimants(ino).into_iter().filter(|one| Some(one.id) != own) {
        if held.iter().all(|other| other.id != claimant.id) {
            held.push(claimant);
        }
    }
    held
}

/// As [`settle`], before a file is cut. Who may not do that learns it later, and nobody is asked for him.
pub(crate) async fn settle_to_cut(
    ctx: &Ctx,
    ino: Ino,
    may: impl FnOnce(&Inode) -> Result<()>,
) -> Result<()> {
    match held_back_file(ctx, ino, HeldBack::ByOthers, may).await {
        Some(inode) => settle(ctx, &inode, HeldBack::ByOthers).await,
        None => Ok(()),
    }
}

/// The same before a file is only given a time, which what was written before is not to set its own over: who holds back
/// something tells it once, and goes on to hold back what he writes, as where somebody looks ([`show`]).
pub(crate) async fn show_to_set_time(
    ctx: &Ctx,
    ino: Ino,
    may: impl FnOnce(&Inode) -> Result<()>,
) -> Result<()> {
    let what = HeldBack::ByOthersSince;
    match held_back_file(ctx, ino, what, may).await {
        Some(_) => until_shown(ctx, ino, || holding_back(ctx, ino, what)).await,
        None => Ok(()),
    }
}

/// A file of which others hold back such things that are to be told, if the caller may do to it what he is about to.
async fn held_back_file(
    ctx: &Ctx,
    ino: Ino,
    what: HeldBack,
    may: impl FnOnce(&Inode) -> Result<()>,
) -> Option<Arc<Inode>> {
    if !is_held_back(ctx, ino, what) {
        return None;
    }
    // Nothing of the store is kept while others are waited for.
    let inode = Tx::reader(ctx).inode(ino).await.ok()?;
    let waits = inode.is_file() && inode.consistency() == Consistency::Strict;
    (waits && may(&inode).is_ok()).then_some(inode)
}

/// As [`settle_around`], before the caller reads what is in a file that he has open.
pub(crate) async fn settle_to_read(ctx: &Ctx, ino: Ino, range: Range<u64>) -> Result<()> {
    if !is_held_back(ctx, ino, HeldBack::ByAnybody) || is_broken("claims-are-called-back") {
        return Ok(());
    }
    let inode = Tx::reader(ctx).inode(ino).await?;
    // Where the file ends is not known as long as anything is held back behind that.
    let range = if range.end <= inode.length { range } else { 0..0 };
    settle_around(ctx, &inode, &range).await?;
    if are_elsewhere(ctx, ino, &range) {
        count_case("read-elsewhere");
    }
    Ok(())
}

/// As [`settle`], of what anybody has claimed: he is asked for all of it. Who has only claims elsewhere than in this range, which
/// is not empty, is waited for 0.25 s ([`ASK`]) at most, from when all are asked: nothing is held back there.
pub(crate) async fn settle_around(ctx: &Ctx, inode: &Inode, range: &Range<u64>) -> Result<()> {
    if inode.consistency() != Consistency::Strict {
        return Ok(());
    }
    let (ino, claims) = (inode.id(), &ctx.volume.sessions.claims);
    if are_elsewhere(ctx, ino, range) {
        if claims.is_time_to_ask(ino, ASK.as_millis() as u64, ctx.core.monotonic_ms()) {
            let others = holding_back(ctx, ino, HeldBack::ByAnybody);
            ask_to_tell(ctx, ino, HeldBack::ByAnybody, &others);
        }
        return Ok(());
    }
    let holding = || match are_elsewhere(ctx, ino, range) {
        true => Vec::new(),
        false => holding_back(ctx, ino, HeldBack::ByAnybody),
    };
    until_told(ctx, ino, holding, |others| ask_to_tell(ctx, ino, HeldBack::ByAnybody, others)).await
}

/// True if claims on a file are called back, and all that may be left are elsewhere.
pub(crate) fn are_elsewhere(ctx: &Ctx, ino: Ino, range: &Range<u64>) -> bool {
    let sessions = &ctx.volume.sessions;
    let own = ctx.session.as_ref().map_or(0, |own| own.id);
    let known = sessions.absent_claimants(ctx.core.monotonic_ms()).is_empty();
    known && sessions.claims.are_elsewhere(ino, own, range)
}

/// Before somebody who has a file open is shown how long it is: programs lock it, ask for that, and write at its end. Who
/// holds back something by his claims tells it once, and keeps them: who only looks is in nobody's way. What the caller
/// holds back he knows.
pub(crate) async fn show(ctx: &Ctx, ino: Ino) -> Result<()> {
    if is_broken("looks-are-told") {
        return Ok(());
    }
    let sessions = &ctx.volume.sessions;
    let own = ctx.session.as_ref().map(|own| own.id);
    let claiming = || {
        let absent = sessions.absent_claimants(ctx.core.monotonic_ms()).into_iter();
        let claimants = sessions.claimants(ino).into_iter();
        absent.chain(claimants.filter(|one| Some(one.id) != own)).collect::<Vec<_>>()
    };
    until_shown(ctx, ino, claiming).await
}

/// Has those who are `holding` something back of a file tell it once, and waits for that. Who has not come back has told nothing.
async fn until_shown(ctx: &Ctx, ino: Ino, holding: impl Fn() -> Vec<Arc<Session>>) -> Result<()> {
    let sessions = &ctx.volume.sessions;
    let question = sessions.next_question();
    let hiding = || {
        let mut hiding = holding();
        hiding.retain(|one| !sessions.has_shown(one, ino, question));
        hiding
    };
    let ask = |others: &[Arc<Session>]| {
        for session in others {
            match session.minds.is_so() {
                true => sessions.ask_to_show(session, ino, question),
                // One of an earlier release knows no such question.
                false => sessions.ask_to_tell(session, ino),
            }
        }
    };
    until_told(ctx, ino, hiding, ask).await
}

/// Has all who hold back such things of a file tell them, and waits for that. No lock may be held: telling
/// takes them.
pub(crate) async fn settle(ctx: &Ctx, inode: &Inode, what: HeldBack) -> Result<()> {
    if inode.consistency() != Consistency::Strict {
        return Ok(());
    }
    let ino = inode.id();
    let ask = |others: &[Arc<Session>]| ask_to_tell(ctx, ino, what, others);
    until_told(ctx, ino, || holding_back(ctx, ino, what), ask).await
}

fn ask_to_tell(ctx: &Ctx, ino: Ino, what: HeldBack, others: &[Arc<Session>]) {
    let sessions = &ctx.volume.sessions;
    if what.is_claimed() {
        sessions.claims.call_back(ino, ctx.core.monotonic_ms());
    }
    others.iter().for_each(|session| sessions.ask_to_tell(session, ino));
}

/// Asks those who are `holding` something back of a file, again and again, until nobody does.
async fn until_told(
    ctx: &Ctx,
    ino: Ino,
    holding: impl Fn() -> Vec<Arc<Session>>,
    ask: impl Fn(&[Arc<Session>]),
) -> Result<()> {
    let until = Instant::now() + WAIT;
    let mut ask_at = Instant::now();
    loop {
        let told = ctx.volume.sessions.told.notified();
        let others = holding();
        let Some(first) = others.first() else { return Ok(()) };
        let now = Instant::now();
        if now >= until {
            let who = &first.client;
            let detail = format!(
                "{who} holds back what it has written to inode {ino} (see: strake client list)"
            );
            return Err(Error::with(ErrorKind::HeldBack, detail));
        }
        if now >= ask_at {
            ask(&others);
            ask_at = now + ASK;
        }
        // Told or not: it is looked at again.
        let _ = timeout_at(ask_at.min(until), told).await;
    }
}
