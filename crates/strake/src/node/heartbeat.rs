//! Telling the manager that this server lives, and what the manager's map means for its targets.

use super::stores::Target;
use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use strake_storage::{Lease, StorageServer};
use strake_types::{Error, ErrorKind, Result, ServerId, VolumeId};
use strake_wire::map::MapView;
use strake_wire::message::manager::{
    Heartbeat, ManagerAnswer, ManagerOp, ManagerReply, ManagerRequest,
};
use strake_wire::service::ManagerService;
use tokio::sync::{Notify, watch};
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

/// What a heartbeat needs.
pub struct Pulse {
    /// This server.
    pub server: ServerId,
    /// Whom it tells.
    pub manager: Arc<dyn ManagerService>,
    /// Its targets.
    pub targets: Arc<Vec<Target>>,
    /// What the cluster looks like.
    pub map: Arc<MapView>,
    /// Whose replicas are to do their part.
    pub storage: Option<Arc<StorageServer>>,
    /// What an answer renews.
    pub lease: Arc<Lease>,
    /// How long an answer counts.
    pub lease_ms: u64,
}

impl Heart {
    /// Starts beating. Where the manager is in this process, `epochs` says at once that the map has
    /// changed; else the answer to each heartbeat does. So new targets are used from the first file
    /// on that is made after they came.
    pub fn start(pulse: Pulse, epochs: Option<watch::Receiver<u64>>) -> Heart {
        let news = Arc::new(Notify::new());
        let (targets, map) = (pulse.targets.clone(), pulse.map.clone());
        let mut tasks = vec![
            tokio::spawn(sweep(targets, map.clone())),
            tokio::spawn(look_again(news.clone(), map)),
            tokio::spawn(beat(pulse, news.clone())),
        ];
        tasks.extend(epochs.map(|epochs| tokio::spawn(follow(epochs, news))));
        Heart { tasks }
    }

    /// Stops beating.
    pub fn stop(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn follow(mut epochs: watch::Receiver<u64>, news: Arc<Notify>) {
    while epochs.changed().await.is_ok() {
        news.notify_one();
    }
}

/// Fetches the map whenever there is a newer one. No heartbeat waits for that.
async fn look_again(news: Arc<Notify>, map: Arc<MapView>) {
    loop {
        news.notified().await;
        if let Err(error) = map.refresh().await {
            tracing::debug!("the map stays as it is: {error}");
        }
    }
}

/// One heartbeat; the epoch of the manager's map.
async fn beat_once(pulse: &Pulse) -> Result<u64> {
    // The lease counts from before the question was sent.
    let sent = pulse.lease.now();
    let targets = pulse.targets.iter().map(Target::spec).collect();
    let op = Some(ManagerOp::Heartbeat(Heartbeat { server: pulse.server.0, targets }));
    let limit = Duration::from_millis(pulse.lease_ms / 2);
    let answer = tokio::time::timeout(limit, pulse.manager.call(ManagerRequest { op })).await;
    let late = |_| Error::with(ErrorKind::TimedOut, "it does not answer");
    match answer.map_err(late)??.answer {
        Some(ManagerAnswer::Epoch(epoch)) => {
            // Whoever was taken out of a group must know it before it has a lease again.
            if epoch <= pulse.map.current().epoch {
                pulse.lease.renew(sent, pulse.lease_ms);
            }
            Ok(epoch)
        }
        _ => Err(Error::with(ErrorKind::Malformed, "it answers a heartbeat with something else")),
    }
}

/// Beats in time, whether the last beat has been answered or not: each is bounded, so few are under
/// way at once.
async fn beat(pulse: Pulse, news: Arc<Notify>) {
    let mut heard = true;
    let mut under_way = FuturesUnordered::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(BEAT_MS));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let answered = tokio::select! {
            _ = ticks.tick() => {
                pulse.storage.iter().for_each(|storage| storage.wake_replicas());
                under_way.push(beat_once(&pulse));
                continue;
            }
            Some(answered) = under_way.next() => answered,
        };
        if answered.as_ref().is_ok_and(|epoch| *epoch > pulse.map.current().epoch) {
            news.notify_one();
        }
        match &answered {
            Err(error) if heard => tracing::warn!("the manager does not hear us: {error}"),
            Ok(_) if !heard => tracing::info!("the manager hears us again"),
            _ => {}
        }
        heard = answered.is_ok();
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
