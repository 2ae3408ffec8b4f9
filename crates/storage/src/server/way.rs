//! How an operation on a group goes: straight to the store, or through a replica.

use super::StorageServer;
use crate::apply::Shelf;
use crate::gate::Gate;
use crate::replica::Replica;
use crate::target::Target;
use std::sync::Arc;
use strake_types::{GroupId, Result, TargetId};
use strake_wire::map::Standing;

/// How an operation on a group goes.
pub(crate) enum Way {
    /// To the store.
    Alone(Shelf),
    /// Through a replica.
    Several(Arc<Replica>),
}

impl Way {
    /// The gate of the group.
    pub fn gate(&self) -> Option<&Gate> {
        match self {
            Way::Alone(shelf) => shelf.gate(),
            Way::Several(replica) => Some(replica.gate()),
        }
    }
}

impl StorageServer {
    /// How an operation on a group goes. A request of a newer epoch than that of our map makes us
    /// fetch the map first.
    pub(crate) async fn way(
        &self,
        target: &Arc<Target>,
        group: GroupId,
        epoch: u64,
    ) -> Result<Way> {
        let standing = self.standing(target, group, epoch).await;
        if group.copies() == 1 && is_alone(standing) && !self.has_replica(target.id, group) {
            let gate = self.gates.of(target.id, group);
            // Who waits to be alone inside may wait for what the disk does not end.
            let pass = target.while_disk_answers(gate.enter()).await?;
            // Once more: now no replica can begin.
            let standing = self.map().standing(group, target.id);
            if is_alone(standing) && !self.has_replica(target.id, group) {
                return Ok(Way::Alone(Shelf::new(target, group).with(pass)));
            }
        }
        self.replica(target, group, epoch).await.map(Way::Several)
    }

    /// What a target is to a group, by a map that knows the epoch of a request.
    pub(crate) async fn standing(
        &self,
        target: &Arc<Target>,
        group: GroupId,
        epoch: u64,
    ) -> Standing {
        let standing = self.map().standing(group, target.id);
        if standing.epoch.0 >= epoch {
            return standing;
        }
        if let Err(error) = self.map().refresh().await {
            tracing::debug!("group {group}: cannot fetch the map of epoch {epoch}: {error}");
        }
        self.map().standing(group, target.id)
    }

    /// True if what the target holds of a group is not its own any more. A group that the map does not
    /// know may be one that is new.
    pub(crate) fn is_foreign(&self, target: TargetId, group: GroupId) -> bool {
        let standing = self.map().standing(group, target);
        standing.epoch.0 != 0 && !standing.member && !self.has_replica(target, group)
    }
}

/// One that the map does not have yet was made a moment ago, and has not moved without us.
fn is_alone(standing: Standing) -> bool {
    standing.alone || standing.epoch.0 == 0
}
