//! A client says that it holds a file still that is about to lie elsewhere (docs/design/0043).

use crate::ctx::Ctx;
use strake_types::{Ino, Result};
use strake_wire::message::meta::{Ask, MetaAnswer, Nothing};

/// Answers when the client need not hold the file still any more: where it lies then, it asks.
pub(crate) async fn held(ctx: &Ctx, op: &Ask) -> Result<MetaAnswer> {
    let session = ctx.need_session()?;
    if let Some(mut over) = ctx.volume.recopies.held(Ino(op.ino), op.number, session.id) {
        // Nothing is ever sent: it fails when it is over.
        let _over = over.changed().await;
    }
    Ok(MetaAnswer::Done(Nothing {}))
}
