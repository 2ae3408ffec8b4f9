//! Makes what has been acknowledged durable.

use crate::ctx::Ctx;
use strake_types::Result;
use strake_wire::message::meta::{MetaAnswer, Nothing};

/// The store has one journal, so whatever is asked for, all of it goes to disk; those who ask at
/// the same time share one flush.
pub(crate) async fn sync(ctx: &Ctx) -> Result<MetaAnswer> {
    if !strake_base::is_broken("fsync-reaches-journal") {
        ctx.volume.sync().await?;
    }
    Ok(MetaAnswer::Done(Nothing {}))
}
