//! The first change ever of a group of one copy. The manager gives up, without being asked, what nobody has
//! ever put anything into; so it is told, and has answered, before that is not so any more. Until then the target
//! answers for such a group by its lease only, as members of several copies do.

use super::StorageServer;
use crate::gate::{Gate, no_member};
use crate::target::Target;
use std::time::Duration;
use strake_types::{Error, ErrorKind, GroupId, Result, TargetId};
use strake_wire::message::manager::{ManagerOp, Used};
use strake_wire::message::storage::StorageOp;
use tokio::time::timeout;

/// How long a change waits for the manager.
const MANAGER_WAIT: Duration = Duration::from_secs(10);

/// True for a change by which there may be something where nothing was.
pub(super) fn puts_something(op: &StorageOp) -> bool {
    !matches!(op, StorageOp::Truncate(_) | StorageOp::Punch(_))
}

impl StorageServer {
    /// Sees to it that the manager knows that a group is used, before something is put there. Fails with
    /// `Unavailable` while it cannot be told, and with `StaleMap` if the target does not have the group.
    pub(crate) async fn begin_use(
        &self,
        gate: &Gate,
        target: TargetId,
        group: GroupId,
    ) -> Result<()> {
        gate.fill();
        if gate.used.initialized() || strake_base::is_broken("first-changes-are-told") {
            return Ok(());
        }
        let told = gate.used.get_or_try_init(|| self.tell_used(target, group));
        let late = |_| untold(target, group, "it does not answer");
        timeout(MANAGER_WAIT, told).await.map_err(late)?.map(drop)
    }

    /// Fails if a group of one copy is another target's, or may be, unknown to us: that is as long as this server has no
    /// lease of a group that its map calls never used. Call it after what is answered was read or done.
    pub(crate) fn check_unused(
        &self,
        gate: Option<&Gate>,
        target: &Target,
        group: GroupId,
    ) -> Result<()> {
        if group.copies() > 1 {
            return Ok(());
        }
        // First: a newer map comes before a newer lease. A target that is poisoned counts as gone while the lease lasts.
        let holds = self.common.lease.holds() && !target.store.is_poisoned();
        let standing = self.map().standing(group, target.id);
        if standing.epoch.0 != 0 && !standing.member {
            return Err(no_member(target.id, group));
        }
        let used = gate.is_none_or(|gate| gate.used.initialized());
        if used || !standing.never_used || holds {
            return Ok(());
        }
        let detail = format!(
            "nothing was ever put into group {group} at target {}, and another target may have it since: this \
             server has no lease",
            target.id
        );
        Err(Error::with(ErrorKind::NotCurrent, detail))
    }

    async fn tell_used(&self, target: TargetId, group: GroupId) -> Result<()> {
        let standing = self.map().standing(group, target);
        if !standing.never_used {
            // By somebody else, if it was given to another.
            return if standing.member { Ok(()) } else { Err(no_member(target, group)) };
        }
        let op = ManagerOp::Used(Used { group: group.0, target: target.0 });
        match self.map().ask_manager(op).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind == ErrorKind::StaleMap => {
                self.map().hurry();
                Err(error)
            }
            Err(error) => Err(untold(target, group, &error.to_string())),
        }
    }
}

fn untold(target: TargetId, group: GroupId, why: &str) -> Error {
    let detail = format!(
        "the first change of group {group} at target {target} waits until the manager knows of it: {why}"
    );
    Error::with(ErrorKind::Unavailable, detail)
}
