//! The first change ever of a group of one copy. The manager gives up, without being asked, what nobody has
//! ever put anything into; so it is told, and has answered, before that is not so any more. Until then the target
//! answers for such a group by its lease only, as members of several copies do.

use super::StorageServer;
use crate::gate::Gate;
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
        if gate.used.initialized() || strake_base::is_broken("first-changes-are-told") {
            return Ok(());
        }
        let told = gate.used.get_or_try_init(|| self.tell_used(target, group));
        let late = |_| untold(target, group, "it does not answer");
        timeout(MANAGER_WAIT, told).await.map_err(late)?.map(drop)
    }

    /// Fails if the manager may have given to another, unknown to us, a group of one copy that its map here calls
    /// never used: that is as long as this server has no lease. Call it after what is answered was read or done.
    pub(crate) fn check_unused(
        &self,
        gate: Option<&Gate>,
        target: TargetId,
        group: GroupId,
    ) -> Result<()> {
        let used = gate.is_none_or(|gate| gate.used.initialized());
        if group.copies() > 1 || used || !self.map().standing(group, target).never_used {
            return Ok(());
        }
        match self.common.lease.holds() {
            true => Ok(()),
            false => Err(Error::with(
                ErrorKind::NotCurrent,
                format!(
                    "nothing was ever put into group {group} at target {target}, and another target may have it \
                     since: this server has no lease"
                ),
            )),
        }
    }

    async fn tell_used(&self, target: TargetId, group: GroupId) -> Result<()> {
        if !self.map().standing(group, target).never_used {
            return Ok(());
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
