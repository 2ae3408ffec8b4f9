//! Disks that do not answer: looked at with every heartbeat, told to the manager, and left out where others go on.

use super::StorageServer;
use crate::target::Target;
use std::sync::Arc;
use std::time::Duration;
use strake_base::task;
use strake_types::TargetId;

/// Time between two looks at a disk that no heartbeat looks at.
const LOOK: Duration = Duration::from_millis(200);

impl StorageServer {
    /// Looks whether the disks of all targets answer; members on one that has not for a while take themselves out of their groups. Call
    /// it several times a second.
    pub fn watch_disks(&self) {
        self.targets().iter().for_each(|target| target.watch_disk());
        let given_up: Vec<_> = {
            let replicas = self.replicas.lock();
            replicas.values().filter(|replica| replica.must_give_up()).cloned().collect()
        };
        for replica in given_up {
            task::spawn(async move { replica.give_up().await });
        }
    }

    /// For how many ms the disk of a target has answered nothing, if it hangs.
    pub fn silent_ms(&self, target: TargetId) -> Option<u64> {
        let silent = self.local(target)?.watch.silent()?;
        u64::try_from(silent.as_millis()).ok()
    }
}

/// Looks at the disk of a target that is served no more as long as somebody uses it: who waits for it is to hear if it hangs.
pub(super) fn go_on_watching(target: &Arc<Target>) {
    let target = Arc::downgrade(target);
    task::spawn(async move {
        while let Some(target) = target.upgrade() {
            target.watch_disk();
            drop(target);
            tokio::time::sleep(LOOK).await;
        }
    });
}
