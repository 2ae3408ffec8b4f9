//! Telling the manager that this server lives, and what the manager's map means for its targets.

use super::stores::Target;
use async_trait::async_trait;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use strake_types::{Error, Result, ServerId, VolumeId};
use strake_wire::map::MapView;
use strake_wire::message::manager::{
    Heartbeat, ManagerAnswer, ManagerOp, ManagerReply, ManagerRequest,
};
use strake_wire::service::ManagerService;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Time between two heartbeats.
const BEAT_MS: u64 = 500;
/// Time between two looks for volumes that were deleted.
const SWEEP_MS: u64 = 2_000;

/// The manager, whichever the map says it is now.
pub struct ManagerOfMap(pub Arc<MapView>);

#[async_trait]
impl ManagerService for ManagerOfMap {
    async fn call(&self, request: ManagerRequest) -> Result<ManagerReply> {
        self.0.manager()?.call(request).await
    }
}

/// What beats.
pub struct Heart {
    tasks: Vec<JoinHandle<()>>,
}

impl Heart {
    /// Starts beating. Where the manager is in this process, `epochs` says at once that the map has
    /// changed; else the answer to each heartbeat does. So new targets are used from the first file
    /// on that is made after they came.
    pub fn start(
        server: ServerId,
        manager: Arc<dyn ManagerService>,
        targets: Arc<Vec<Target>>,
        map: &Arc<MapView>,
        epochs: Option<watch::Receiver<u64>>,
    ) -> Heart {
        let mut tasks = vec![
            tokio::spawn(beat(server, manager, targets.clone(), map.clone())),
            tokio::spawn(sweep(targets, map.clone())),
        ];
        tasks.extend(epochs.map(|epochs| tokio::spawn(follow(epochs, map.clone()))));
        Heart { tasks }
    }

    /// Stops beating.
    pub fn stop(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn follow(mut epochs: watch::Receiver<u64>, map: Arc<MapView>) {
    while epochs.changed().await.is_ok() {
        refresh(&map).await;
    }
}

async fn refresh(map: &MapView) {
    if let Err(error) = map.refresh().await {
        tracing::debug!("the map stays as it is: {error}");
    }
}

async fn beat(
    server: ServerId,
    manager: Arc<dyn ManagerService>,
    targets: Arc<Vec<Target>>,
    map: Arc<MapView>,
) {
    let mut last: Option<Error> = None;
    let mut ticks = tokio::time::interval(Duration::from_millis(BEAT_MS));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let specs = targets.iter().map(Target::spec).collect();
        let op = Some(ManagerOp::Heartbeat(Heartbeat { server: server.0, targets: specs }));
        let answered = manager.call(ManagerRequest { op }).await.map(|reply| reply.answer);
        if matches!(answered, Ok(Some(ManagerAnswer::Epoch(epoch))) if epoch > map.current().epoch)
        {
            refresh(&map).await;
        }
        let failed = answered.err();
        match (&failed, &last) {
            (Some(error), None) => tracing::warn!("the manager does not hear us: {error}"),
            (None, Some(_)) => tracing::info!("the manager hears us again"),
            _ => {}
        }
        last = failed;
    }
}

/// Drops what the targets hold of deleted volumes. Dropping twice is harmless, so nothing is
/// remembered over a restart.
async fn sweep(targets: Arc<Vec<Target>>, map: Arc<MapView>) {
    let mut done = HashSet::new();
    loop {
        tokio::time::sleep(Duration::from_millis(SWEEP_MS)).await;
        let current = map.current();
        let deleted = current.volumes.iter().filter(|v| v.deleting).map(|v| v.id);
        for volume in deleted.filter(|id| !done.contains(id)).collect::<Vec<_>>() {
            let targets = targets.clone();
            let dropped = tokio::task::spawn_blocking(move || drop_volume(&targets, volume)).await;
            if dropped.unwrap_or(false) {
                done.insert(volume);
            }
        }
    }
}

fn drop_volume(targets: &[Target], volume: u32) -> bool {
    let mut all = true;
    for target in targets {
        let Some(store) = &target.store else { continue };
        if let Err(error) = store.drop_volume(VolumeId(volume)) {
            tracing::warn!("volume {volume} stays on {}: {error}", target.path.display());
            all = false;
        }
    }
    all
}
