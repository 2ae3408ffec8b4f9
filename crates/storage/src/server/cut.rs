//! Cuts of many chunks in groups of one copy.

use super::{StorageServer, Way};
use crate::apply::{Shelf, rest_of};
use crate::order::Order;
use crate::target::Target;
use bytes::Bytes;
use std::sync::Arc;
use strake_types::Result;
use strake_wire::message::storage as msg;
use strake_wire::message::storage::StorageOp;

impl StorageServer {
    /// Makes all parts of a cut but the last one, which is returned. The gate of the group is passed for each: who moves the
    /// group, or fences a session, comes between two of them. What has a replica by then is left to it.
    pub(super) async fn cut_ahead(
        &self,
        target: &Arc<Target>,
        order: &Order,
        mut cut: msg::Truncate,
    ) -> Result<msg::Truncate> {
        let Some(running) = target.attempts.begin(order.attempt, order.whose)? else {
            return Ok(cut);
        };
        for part in Shelf::new(target, order.group).later_parts(cut).await? {
            let Way::Alone(shelf) = self.way(target, order.group, order.epoch).await? else {
                break;
            };
            self.check_fence(order.whose)?;
            let shelf = shelf.unless_given_up(running.attempt());
            shelf.change(StorageOp::Truncate(part), Bytes::new()).await?;
            cut = rest_of(cut, part);
        }
        Ok(cut)
    }
}
