//! Who comes to a directory on which another session has an exclusive lease waits, before he reads it or takes its lock,
//! until that one has told what it has changed there (docs/design/0053-names-behind.md).

use crate::borrow::lock_here;
use crate::ctx::Ctx;
use crate::leases::Visitors;
use std::time::Duration;
use strake_base::is_broken;
use strake_types::{Error, ErrorKind, FileKind, Ino, Result};
use strake_wire::message::common::Attributes;
use strake_wire::message::meta::{MetaAnswer, MetaOp};
use tokio::time::{Instant, timeout_at};

/// How long one request waits; its client asks again.
const WAIT: Duration = Duration::from_secs(2);
/// How often those who are waited for are asked: an answer may be lost on its way to them.
const ASK: Duration = Duration::from_millis(250);
/// How often a request is carried out again because it shows directories on which others have exclusive leases.
const TRIES_MAX: u32 = 8;

/// The directories that a request names, and other inodes of which it asks for attributes.
pub(crate) fn named(op: &MetaOp) -> Vec<Ino> {
    let (first, second) = match op {
        MetaOp::Lookup(at) => (at.parent, None),
        MetaOp::GetAttr(look) => (look.ino, None),
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
    let mut ask_at = Instant::now();
    loop {
        let told = sessions.told.notified();
        let now = Instant::now();
        let asks = now >= ask_at;
        let found = leases.ask_back(own, visitors.inodes(), asks, clock);
        if !found.taken.is_empty() {
            // What found, under this lock, that it still had the lease is committed by now.
            drop(lock_here(ctx, &found.taken).await?);
        }
        let waits_for = found.waits_for.or_else(|| sessions.unsure(own, ctx.core.monotonic_ms()));
        let Some(holder) = waits_for else { return Ok(visitors) };
        if now >= until {
            let who = sessions.get(holder.id).map_or_else(String::new, |one| one.client.clone());
            let detail = format!(
                "{who} is still to tell which names it has changed (see: strake client list)"
            );
            return Err(Error::with(ErrorKind::HeldBack, detail));
        }
        if asks {
            ask_at = now + ASK;
        }
        // Told or not: it is looked at again.
        let _ = timeout_at(ask_at.min(until), told).await;
    }
}

/// Looks at something for a visitor, once more as long as it shows directories that another session may be changing: their
/// names and times are not told yet.
pub(crate) async fn look<F>(ctx: &Ctx, look: impl Fn() -> F) -> Result<MetaAnswer>
where
    F: Future<Output = Result<MetaAnswer>>,
{
    let mut visitors = Vec::new();
    for _ in 0..TRIES_MAX {
        let answer = look().await?;
        let others = shown(&answer)
            .map(|attr| Ino(attr.ino))
            .filter(|ino| ctx.volume.leases.is_exclusive_to_others(ctx.session_id(), *ino));
        let others: Vec<Ino> = others.collect();
        if others.is_empty() || is_broken("visitors-wait") {
            return Ok(answer);
        }
        visitors.push(visit(ctx, others).await?);
    }
    Err(Error::with(ErrorKind::HeldBack, "others change these directories all the time"))
}

/// The directories that an answer shows.
fn shown(answer: &MetaAnswer) -> impl Iterator<Item = &Attributes> {
    let (entry, page) = match answer {
        MetaAnswer::Entry(attr) => (Some(attr), None),
        MetaAnswer::Page(page) => (None, Some(page)),
        _ => (None, None),
    };
    let entries = page.into_iter().flat_map(|page| &page.entries);
    let all = entry.into_iter().chain(entries.filter_map(|entry| entry.attr.as_ref()));
    all.filter(|attr| attr.kind == FileKind::Directory as u32)
}
