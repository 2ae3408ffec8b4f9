//! How a server ends: in good order, when it is told to or another process has its number.

use super::Node;
use super::stores::Target;
use crate::failure::{Context, Failure, Outcome};
use std::sync::Arc;
use std::time::Duration;
use strake_types::Error;
use strake_wire::message::manager::{Leave, ManagerOp};

/// How long a stop may take to say good-bye.
const LEAVE_MS_MAX: u64 = 1_000;
/// How long a stop may take in all.
const STOP_MS_MAX: u64 = 60_000;

impl Node {
    /// Waits until another process has the number of this server; what was said of that. Then it is to be stopped.
    pub async fn overtaken(&self) -> &Error {
        let by_own_manager = async {
            match &self.own_manager {
                Some(manager) => manager.overtaken().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            why = self.heart.overtaken() => why,
            why = by_own_manager => why,
        }
    }

    /// Stops serving, makes everything durable, and closes the stores. Fails where that takes too long; what was
    /// acknowledged is found by the next start all the same.
    pub async fn stop(self) -> Outcome {
        // In a task of its own: also to drop what waits for a disk may have to wait for it.
        let stopped = tokio::spawn(self.stop_in_order());
        let late = |_| {
            let cause = format!("the server did not stop in good order within {STOP_MS_MAX} ms");
            Failure::new(cause).next("does one of its disks hang? The kernel's log says so")
        };
        let stopped = tokio::time::timeout(Duration::from_millis(STOP_MS_MAX), stopped).await;
        stopped.map_err(late)?.context(|| "stopping".into())?
    }

    async fn stop_in_order(self) -> Outcome {
        self.patrol.stop();
        self.scrubs.stop();
        self.generations.abort();
        self.give_up().await;
        self.leave().await;
        self.front.stop().await;
        let mut result = Ok(());
        if let Some(meta) = &self.meta {
            result = meta.stop().await.context(|| "metadata server".into());
        }
        let synced = sync_all(&self.targets.all()).await;
        // Last: until here it was asked. Who follows it need not wait for it then, be it this server at another address.
        if let Some(manager) = &self.own_manager {
            let limit = Duration::from_millis(LEAVE_MS_MAX);
            let _told = tokio::time::timeout(limit, manager.end()).await;
        }
        self.map.callers().close();
        result.and(synced)
    }

    /// From now on it serves and leads nothing that another may: from when the manager hears it, others may go on without this server.
    /// What has much to do before it stops does this first.
    pub async fn give_up(&self) {
        self.heart.stop();
        self.lease.give_up();
        self.meta.iter().for_each(|meta| meta.leave());
        let Some(manager) = &self.own_manager else { return };
        let resigned = async {
            tokio::select! {
                biased;
                _why = self.overtaken() => manager.end().await,
                () = std::future::ready(()) => manager.resign().await,
            }
        };
        let _told = tokio::time::timeout(Duration::from_millis(LEAVE_MS_MAX), resigned).await;
    }

    /// Says good-bye, unless another process has the number of this server: that one goes on.
    async fn leave(&self) {
        let leave = Leave { server: self.server.0, life: self.life };
        let leaving = self.map.ask_manager(ManagerOp::Leave(leave));
        tokio::select! {
            biased;
            _why = self.overtaken() => {}
            // Whoever does not hear it finds out by the lease.
            _told = tokio::time::timeout(Duration::from_millis(LEAVE_MS_MAX), leaving) => {}
        }
    }
}

/// Makes durable what all targets have, side by side: one whose disk hangs holds up no other.
async fn sync_all(targets: &[Arc<Target>]) -> Outcome {
    let stores = targets.iter().filter_map(|target| target.store.clone());
    let syncs = stores.map(|store| tokio::task::spawn_blocking(move || store.sync()));
    let mut result = Ok(());
    for sync in syncs.collect::<Vec<_>>() {
        let synced = sync.await.context(|| "targets".into())?;
        result = result.and(synced.map_err(|error| Failure::new(error.to_string())));
    }
    result
}
