//! What is looked after all the time, by one background task: volumes that this server serves from now on, sessions that
//! are over, and counts, which are stored now and then.
//!
//! What may wait for storage servers for long is done by another one ([`crate::reaper`]), so that what a lost client
//! held is given back whatever else there is to do.

use crate::core::Core;
use crate::keys;
use crate::lost_sessions;
use crate::records::{self, Stat};
use crate::stop::Stop;
use crate::volume::Volume;
use futures::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use strake_types::Result;

/// Turns after which changed counts are stored.
const STORE_TURNS: u64 = 10;

/// The background task.
pub(crate) async fn run(core: Arc<Core>, stop: Arc<Stop>) {
    let tick = Duration::from_millis(core.options.tick_ms);
    let mut epochs = core.map.watch();
    for turn in 1u64.. {
        tokio::select! {
            biased;
            () = core.attention.notified() => {}
            () = tokio::time::sleep(tick) => {}
            // One that ends with the map is over with this, too.
            _ = epochs.changed() => {}
            () = stop.told() => return,
        }
        core.follow_map().await;
        let volumes = core.volumes_held();
        join_all(volumes.iter().map(|volume| tend(&core, volume, turn))).await;
        let sessions: usize = volumes.iter().map(|volume| volume.sessions.len()).sum();
        core.metrics.sessions.set(sessions as f64);
        if stop.is_told() {
            return;
        }
    }
}

/// Looks again and again whether this process stands still, whatever the other tasks wait for.
pub(crate) async fn look(core: Arc<Core>, stop: Arc<Stop>) {
    let tick = Duration::from_millis(core.options.tick_ms);
    loop {
        core.has_heard_for_a_lease();
        tokio::select! {
            biased;
            () = tokio::time::sleep(tick) => {}
            () = stop.told() => return,
        }
    }
}

/// Ends sessions that are over, and stores the counts.
async fn tend(core: &Arc<Core>, volume: &Arc<Volume>, turn: u64) {
    let tended = async {
        lost_sessions::end_all(core, volume).await?;
        let due = turn.is_multiple_of(STORE_TURNS) && volume.counts.is_exact();
        if due && volume.counts.take_dirty() {
            store_counts(volume, false).await?;
        }
        Ok::<_, strake_types::Error>(())
    };
    if let Err(error) = tended.await {
        tracing::warn!("volume {}: {error}; trying again", volume.id);
    }
}

/// Stores the counts; `clean` says that nothing changes any more. Where too much waits to be counted on targets all inodes are
/// looked through for that at the next start, as after an unclean end.
pub(crate) async fn store_counts(volume: &Volume, clean: bool) -> Result<()> {
    let (inodes, bytes) = volume.counts.get();
    let uncounted = clean.then(|| volume.uncounted.all()).flatten();
    let (clean, uncounted) = (uncounted.is_some(), uncounted.unwrap_or_default());
    let stat = Stat { inodes, bytes, clean, uncounted, ..Stat::default() };
    volume.put(keys::volume_stat(volume.id), records::encode(&stat)).await
}
