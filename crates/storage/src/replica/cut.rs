//! A cut of many chunks goes in parts, from the end of the file on. Each is a change of its own, so a new epoch comes between
//! two of them, and all that is in doubt at a new primary is one part. The first of the file comes last and has the number of
//! the whole: if it is made, all are.

use super::ranges::Area;
use super::{Message, Replica};
use crate::apply::rest_of;
use strake_types::Result;
use strake_wire::message::storage as msg;
use strake_wire::message::storage::StorageOp;

impl Replica {
    /// Makes all parts of a cut but the last one, which is returned. The caller holds its area.
    pub(super) async fn cut_ahead(
        &self,
        reign: u64,
        mut cut: msg::Truncate,
    ) -> Result<msg::Truncate> {
        // What cannot be found out is one part: that meets the same error, which tells of our store.
        for part in self.shelf.later_parts(cut).await.unwrap_or_default() {
            let message = Message::of(StorageOp::Truncate(part));
            let area = Area::checked(&message.op, 0)?;
            let numbered = self.make(reign, area, &message).await?;
            self.spread(&numbered, &message).await?;
            self.settle(&numbered);
            cut = rest_of(cut, part);
        }
        Ok(cut)
    }
}
