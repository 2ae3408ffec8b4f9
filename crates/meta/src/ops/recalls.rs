//! What a client is to believe no longer.

use crate::ctx::Ctx;
use crate::leases::FETCH;
use std::time::Duration;
use strake_base::task;
use strake_types::Result;
use strake_wire::message::meta::{MetaAnswer, Recalls, Wait};

/// How long one waits of which others wait to hear.
const SOON: Duration = Duration::from_millis(20);
/// Waits of a client that are told.
const WAITS_MAX: usize = 8;
/// Characters of each.
const WORDS_MAX: usize = 200;

/// Answers when there is something to recall, or after a while.
pub(crate) async fn recalls(ctx: &Ctx, op: &Recalls) -> Result<MetaAnswer> {
    let session = ctx.need_session()?;
    *session.waits.lock() = told(&op.waits);
    *session.waited.lock() = told(&op.waited);
    let holder = &session.holder;
    for number in &op.given_back {
        ctx.volume.leases.take_exclusive(holder, *number);
    }
    if !op.given_back.is_empty() {
        ctx.volume.sessions.told.notify_waiters();
    }
    if !op.behind {
        ctx.volume.sessions.is_sure(session);
    }
    if session.begins_to_note_none(ctx.core.monotonic_ms()) {
        let (session, volume) = (session.clone(), ctx.volume.clone());
        task::spawn(async move {
            if let Err(error) = volume.note_behind(session.id, false).await {
                tracing::debug!(
                    "session {} counts as one with exclusive leases: {error}",
                    session.id
                );
            }
            // Whatever the store says, it is told anew before some are given.
            session.note_behind(false);
        });
    }
    let (followed, forgotten) = (op.followed, op.forgotten);
    let begin = ctx.volume.leases.renew(holder, followed, forgotten, &*ctx.core.clock);
    let patience = match () {
        // The client believes nothing before the first answer.
        () if begin => Duration::ZERO,
        // Others wait until it says that nothing is under way.
        () if session.is_unsure() => SOON,
        () => FETCH,
    };
    Ok(MetaAnswer::Recalled(holder.fetch(patience).await))
}

/// What a client waits for, in few words: the list of all clients is one message.
fn told(waits: &[Wait]) -> Vec<Wait> {
    let short = |wait: &Wait| {
        let what = wait.what.chars().take(WORDS_MAX).collect();
        Wait { what, ..wait.clone() }
    };
    waits.iter().take(WAITS_MAX).map(short).collect()
}

#[cfg(test)]
mod tests;
