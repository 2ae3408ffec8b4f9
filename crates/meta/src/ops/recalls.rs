//! What a client is to believe no longer.

use crate::ctx::Ctx;
use crate::leases::FETCH;
use std::time::Duration;
use strake_types::Result;
use strake_wire::message::meta::{MetaAnswer, Recalls};

/// Answers when there is something to recall, or after a while.
pub(crate) async fn recalls(ctx: &Ctx, op: &Recalls) -> Result<MetaAnswer> {
    let session = ctx.need_session()?;
    session.waits.lock().clone_from(&op.waits);
    session.waited.lock().clone_from(&op.waited);
    let holder = &session.holder;
    let (followed, forgotten) = (op.followed, op.forgotten);
    let begin = ctx.volume.leases.renew(holder, followed, forgotten, &*ctx.core.clock);
    // The client believes nothing before the first answer.
    let patience = if begin { Duration::ZERO } else { FETCH };
    Ok(MetaAnswer::Recalled(holder.fetch(patience).await))
}

#[cfg(test)]
mod tests;
