//! Cuts of many chunks in groups of one copy.

use super::{StorageServer, Way};
use crate::apply::{Shelf, rest_of};
use crate::order::Order;
use crate::replica::ranges::{Area, Held};
use crate::target::Target;
use bytes::Bytes;
use std::sync::Arc;
use strake_types::Result;
use strake_wire::message::storage as msg;
use strake_wire::message::storage::StorageOp;

impl StorageServer {
    /// Makes all parts of a cut but the last one, which is returned, with the turn that it holds: of two cuts of a file the second
    /// waits for the first, and its client may have given it up by then. The gate of the group is passed for each part: who moves
    /// the group, or fences a session, comes between two of them. What has a replica by then is left to it.
    pub(super) async fn cut_ahead(
        &self,
        target: &Arc<Target>,
        order: &Order,
        mut cut: msg::Truncate,
    ) -> Result<(msg::Truncate, Option<Held>)> {
        let Some(running) = target.begin(order.attempt, order.whose)? else {
            return Ok((cut, None));
        };
        let area = Area::checked(&StorageOp::Truncate(cut), 0)?;
        let cuts = self.cuts.lock().entry(target.id).or_default().clone();
        let turn = target.while_disk_answers(cuts.take(area, true)).await?;
        running.check()?;
        // What cannot be found out is one part: that meets the same error.
        let parts = Shelf::new(target, order.group).later_parts(cut).await.unwrap_or_default();
        for part in parts {
            let Way::Alone(shelf) = self.way(target, order.group, order.epoch).await? else {
                break;
            };
            self.check_fence(order.whose)?;
            let shelf = shelf.unless_given_up(running.attempt());
            shelf.change(StorageOp::Truncate(part), Bytes::new()).await?;
            cut = rest_of(cut, part);
        }
        Ok((cut, Some(turn)))
    }
}
