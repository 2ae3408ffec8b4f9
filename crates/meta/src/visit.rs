//! Who comes to a directory on which another session has an exclusive lease waits, before he reads it or takes its lock,
//! until that one has told what it has changed there (docs/design/0053-names-behind.md).

use crate::borrow::lock_here;
use crate::ctx::Ctx;
use crate::leases::Visitors;
use std::time::Duration;
use strake_base::{count_case, is_broken};
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::MetaOp;
use tokio::time::{Instant, timeout_at};

/// How long one request waits; its client asks again, and those who are waited for are asked again with it: an answer may be
/// lost on its way to them. So soon that nobody takes this server for one that is gone.
const WAIT: Duration = Duration::from_millis(250);

/// The directories that a request names. One of which attributes are asked for is found to be one first.
pub(crate) fn named(op: &MetaOp) -> Vec<Ino> {
    let (first, second) = match op {
        MetaOp::Lookup(at) => (at.parent, None),
        MetaOp::ReadDir(read) => (read.ino, None),
        MetaOp::Create(create) => (create.at.parent, None),
        MetaOp::Link(link) => (link.to.parent, None),
        MetaOp::Unlink(unlink) => (unlink.at.parent, None),
        MetaOp::Rename(rename) => {
            let other = (rename.to.parent != rename.from.parent).then_some(rename.to.parent);
            (rename.from.parent, other)
        }
        _ => return Vec::new(),
    };
    [Some(first), second].into_iter().flatten().map(Ino).collect()
}

/// Enters the caller as a visitor of inodes, until what comes back is dropped, and waits until no other session has an
/// exclusive lease on any of them. No lock may be held.
pub(crate) async fn visit(ctx: &Ctx, inodes: Vec<Ino>) -> Result<Visitors> {
    let (own, clock) = (ctx.session_id(), &*ctx.core.clock);
    let (leases, sessions) = (&ctx.volume.leases, &ctx.volume.sessions);
    let visitors = leases.let_in(own, inodes, clock);
    if visitors.inodes().is_empty() || is_broken("visitors-wait") {
        return Ok(visitors);
    }
    let until = Instant::now() + WAIT;
    let mut waited = false;
    loop {
        let told = sessions.told.notified();
        let asked = leases.ask_back(own, visitors.inodes(), !waited, clock);
        waited |= asked.is_over;
        let unsure = || sessions.unsure(own, ctx.core.monotonic_ms());
        let Some(holder) = asked.waits_for.or_else(unsure) else { break };
        if Instant::now() >= until {
            let who = sessions.get(holder.id).map_or_else(String::new, |one| one.client.clone());
            let detail = format!(
                "{who} is still to tell which names it has changed (see: strake client list)"
            );
            return Err(Error::with(ErrorKind::HeldBack, detail));
        }
        waited = true;
        // Told or not: it is looked at again.
        let _ = timeout_at(until, told).await;
    }
    if waited {
        count_case("visitor-waited");
        go_in(ctx, &visitors).await?;
    }
    Ok(visitors)
}

/// After a wait: what has found under these locks that it still had an exclusive lease which is over is committed by now; and
/// another server may serve the volume.
async fn go_in(ctx: &Ctx, visitors: &Visitors) -> Result<()> {
    let here: Vec<Ino> =
        visitors.inodes().iter().copied().filter(|ino| ctx.is_here(*ino)).collect();
    drop(lock_here(ctx, &here).await?);
    ctx.volume.leases.take_what_is_over(visitors.inodes());
    ctx.core.check_tenure()?;
    if ctx.volume.kv.is_taken_over() {
        let detail = format!("volume {} is served by another server", ctx.volume.id);
        return Err(Error::with(ErrorKind::StaleMap, detail));
    }
    ctx.session.as_ref().map_or(Ok(()), |session| session.check())
}

#[cfg(test)]
mod tests;
