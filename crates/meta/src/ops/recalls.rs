//! What a client is to believe no longer.

use crate::ctx::Ctx;
use strake_types::Result;
use strake_wire::message::meta::{MetaAnswer, Recalls};

/// Answers when there is something to recall, or after a while.
pub(crate) async fn recalls(ctx: &Ctx, op: &Recalls) -> Result<MetaAnswer> {
    let holder = &ctx.need_session()?.holder;
    ctx.volume.leases.renew(holder, op.followed, &*ctx.core.clock);
    Ok(MetaAnswer::Recalled(holder.fetch().await))
}

#[cfg(test)]
mod tests;
