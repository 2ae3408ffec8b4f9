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
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use strake_types::{ErrorKind, Result, VolumeId};

/// Turns after which changed counts are stored.
const STORE_TURNS: u64 = 10;

/// The background task.
pub(crate) async fn run(core: Arc<Core>, stop: Arc<Stop>) {
    let tick = Duration::from_millis(core.options.tick_ms);
    let mut epochs = core.map.watch();
    let mut told = Told::default();
    for turn in 1u64.. {
        tokio::select! {
            biased;
            () = core.attention.notified() => {}
            () = tokio::time::sleep(tick) => {}
            // One that ends with the map is over with this, too.
            _ = epochs.changed() => {}
            () = stop.told() => return,
        }
        follow_map(&core, &mut told).await;
        let volumes = core.volumes_held();
        join_all(volumes.iter().map(|volume| tend(&core, volume, turn))).await;
        let sessions: usize = volumes.iter().map(|volume| volume.sessions.len()).sum();
        core.metrics.sessions.set(sessions as f64);
        if stop.is_told() {
            return;
        }
    }
}

/// Looks again and again whether this process stands still, and whether the store has room, whatever the other tasks wait for.
pub(crate) async fn look(core: Arc<Core>, stop: Arc<Stop>) {
    let tick = Duration::from_millis(core.options.tick_ms);
    loop {
        core.has_heard_for_a_lease();
        // Else nobody but who writes hears that it has none.
        let full = core.volumes().iter().find_map(|volume| volume.kv.full());
        *core.store_full.lock() = full.map(|full| full.to_string()).unwrap_or_default();
        tokio::select! {
            biased;
            () = tokio::time::sleep(tick) => {}
            () = stop.told() => return,
        }
    }
}

/// What was said of volumes that are not served: there is a turn each second, and there may be many volumes.
#[derive(Default)]
struct Told {
    /// The tenure is over.
    no_tenure: bool,
    /// Why each volume was not taken into use, and in how many turns, one after the other.
    failures: HashMap<u32, (ErrorKind, u64)>,
}

impl Told {
    /// True while the tenure holds. When it begins or ends that is said, once for all volumes.
    fn has_tenure(&mut self, core: &Core) -> bool {
        let tenure = core.check_tenure();
        let was_over = std::mem::replace(&mut self.no_tenure, tenure.is_err());
        match &tenure {
            Err(error) if !was_over => tracing::warn!("no volume is served: {}", error.detail),
            Ok(()) if was_over => tracing::info!("volumes are served again"),
            _ => {}
        }
        tenure.is_ok()
    }
}

/// Takes out of use what another server serves now, and into use what is ours. It may be in vain.
async fn follow_map(core: &Arc<Core>, told: &mut Told) {
    core.let_others_go();
    let map = core.map.current();
    let before = std::mem::take(&mut told.failures);
    let ours: Vec<_> = map.volumes.iter().filter(|v| !v.deleting && core.serves(v)).collect();
    // Who serves none is not told that it may not; that it may again is.
    if (!ours.is_empty() || told.no_tenure) && !told.has_tenure(core) {
        return;
    }
    for volume in ours {
        let Err(error) = core.volume(VolumeId(volume.id)).await else { continue };
        let known = before.get(&volume.id).filter(|(kind, _)| *kind == error.kind);
        let turns = known.map_or(1, |(_, turns)| turns + 1);
        told.failures.insert(volume.id, (error.kind, turns));
        if turns.is_power_of_two() {
            tracing::warn!("volume {}: {error}; trying again", volume.spec.name);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MetaOptions;
    use crate::tests::world::{TestClock, World, options};
    use parking_lot::Mutex;
    use std::fmt::Debug;
    use strake_engine::kv::memory::MemoryKv;
    use strake_wire::lease::Lease;
    use strake_wire::member::MetaRole;
    use tracing::field::{Field, Visit};
    use tracing::{Event, Metadata, Subscriber, span};

    /// What is logged.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    impl Lines {
        fn count(&self, text: &str) -> usize {
            self.0.lock().iter().filter(|line| line.contains(text)).count()
        }
    }

    impl Visit for Lines {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            if field.name() == "message" {
                self.0.lock().push(format!("{value:?}"));
            }
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, event: &Event<'_>) {
            event.record(&mut self.clone());
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    /// While no manager answered, each volume and share was named once a second.
    #[tokio::test(start_paused = true)]
    async fn a_tenure_that_is_over_is_told_once_for_all_volumes() {
        let lines = Lines::default();
        let _collected = tracing::subscriber::set_default(lines.clone());
        let tenure = Arc::new(Lease::new(Arc::new(TestClock::default())));
        tenure.renew(tenure.now(), 1_000_000_000);
        let options = MetaOptions { tenure: Some(tenure.clone()), ..options() };
        let world = World::of_shares(Arc::new(MemoryKv::new()), options, 3).await;
        for times in 1..=2 {
            tenure.end();
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(lines.count("has not heard of the manager"), times);
            world.server.renew(tenure.now(), 1_000_000_000, 0);
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(lines.count("volumes are served again"), times);
        }
    }
}
