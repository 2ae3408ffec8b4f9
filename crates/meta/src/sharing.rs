//! SPRITE's rule for write sharing: while several clients have a file open and one of them writes, nobody holds
//! back what he has written.
//!
//! Who opens a file that others have open is told so, and tells each of his writes before it returns. Of those
//! others who writes may still hold something back: he is asked to tell it, by his next request for recalls, and
//! whoever opens waits until he has. (M. Nelson, B. Welch, J. Ousterhout, "Caching in the Sprite Network File
//! System", 1988; there the file is not cached any more, here what others believe is recalled with each write.)

use crate::ctx::Ctx;
use crate::records::Inode;
use crate::session::Session;
use crate::view::Tx;
use std::sync::Arc;
use std::time::Duration;
use strake_types::{Consistency, Error, ErrorKind, Ino, Result};
use tokio::time::{Instant, timeout_at};

/// How long one request waits; its client asks again.
const WAIT: Duration = Duration::from_secs(2);
/// How often those who are waited for are asked: an answer may be lost on its way to them.
const ASK: Duration = Duration::from_millis(250);

/// True if nobody but the caller may hold back what he has written to a file, or if it is one of which that is
/// allowed.
pub(crate) fn is_settled(ctx: &Ctx, inode: &Inode) -> bool {
    inode.consistency() != Consistency::Strict || !is_held_back(ctx, inode.id())
}

/// True if somebody but the caller may hold back what he has written to a file.
pub(crate) fn is_held_back(ctx: &Ctx, ino: Ino) -> bool {
    !holding_back(ctx, ino).is_empty()
}

fn holding_back(ctx: &Ctx, ino: Ino) -> Vec<Arc<Session>> {
    let now_ms = ctx.core.monotonic_ms();
    ctx.volume.sessions.holding_back(ino, ctx.session.as_deref(), now_ms)
}

/// As [`settle`], before a file is cut. Who may not do that learns it later, and nobody is asked for him.
pub(crate) async fn settle_to_cut(
    ctx: &Ctx,
    ino: Ino,
    may: impl FnOnce(&Inode) -> Result<()>,
) -> Result<()> {
    if !is_held_back(ctx, ino) {
        return Ok(());
    }
    // Nothing of the store is kept while others are waited for.
    let inode = Tx::reader(ctx).inode(ino).await;
    match inode {
        Ok(inode) if may(&inode).is_ok() => settle(ctx, &inode).await,
        _ => Ok(()),
    }
}

/// Has everybody else tell what he has written to a file, and waits for that. No lock may be held: telling
/// takes them.
pub(crate) async fn settle(ctx: &Ctx, inode: &Inode) -> Result<()> {
    if inode.consistency() != Consistency::Strict {
        return Ok(());
    }
    let ino = inode.id();
    let until = Instant::now() + WAIT;
    let mut ask_at = Instant::now();
    loop {
        let told = ctx.volume.sessions.told.notified();
        let others = holding_back(ctx, ino);
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
            others.iter().for_each(|session| ctx.volume.sessions.ask_to_tell(session, ino));
            ask_at = now + ASK;
        }
        // Told or not: it is looked at again.
        let _ = timeout_at(ask_at.min(until), told).await;
    }
}
