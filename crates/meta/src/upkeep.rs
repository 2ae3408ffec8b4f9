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
    let mut full = String::new();
    for volume in ours {
        let Err(error) = core.volume(VolumeId(volume.id)).await else { continue };
        let known = before.get(&volume.id).filter(|(kind, _)| *kind == error.kind);
        let turns = known.map_or(1, |(_, turns)| turns + 1);
        told.failures.insert(volume.id, (error.kind, turns));
        if turns.is_power_of_two() {
            tracing::warn!("volume {}: {error}; trying again", volume.spec.name);
        }
        // All else is for the volume, or for who is asked for it; one that takes no changes any more says that itself.
        if error.kind == ErrorKind::NoSpace {
            full = error.detail.into_owned();
        }
    }
    *core.full_at_open.lock() = full;
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
    use crate::tests::lines::Lines;
    use crate::tests::world::{TestClock, World, options};
    use crate::{MetaOptions, MetaServer};
    use async_trait::async_trait;
    use bytes::Bytes;
    use parking_lot::Mutex;
    use strake_engine::kv::memory::MemoryKv;
    use strake_engine::kv::{Kv, KvError, Part, Result as KvResult, Store};
    use strake_wire::capability::CapabilityKey;
    use strake_wire::lease::Lease;
    use strake_wire::member::MetaRole;

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

    /// A store of which nothing can be opened while it refuses changes: that is one, too.
    struct Refusing {
        kv: MemoryKv,
        refusal: Mutex<Option<KvError>>,
    }

    #[async_trait]
    impl Store for Refusing {
        fn name(&self) -> &'static str {
            "refusing"
        }

        fn is_shared(&self) -> bool {
            false
        }

        async fn open(&self, _: Part) -> KvResult<Arc<dyn Kv>> {
            match self.refusal.lock().clone() {
                None => Ok(Arc::new(self.kv.clone())),
                Some(refusal) => Err(refusal),
            }
        }

        async fn look(&self, _: &[Vec<u8>]) -> KvResult<Vec<Option<Bytes>>> {
            Ok(Vec::new())
        }

        fn full(&self) -> Option<KvError> {
            let refusal = self.refusal.lock().clone();
            refusal.filter(|refusal| matches!(refusal, KvError::Poisoned { .. }))
        }
    }

    /// A server of the only volume, with a store that refuses to open it.
    async fn serve(world: &World, refusal: KvError) -> (Arc<Refusing>, Arc<MetaServer>) {
        let store = Refusing { kv: MemoryKv::new(), refusal: Mutex::new(Some(refusal)) };
        let store = Arc::new(store);
        let tenure = Arc::new(Lease::new(Arc::new(TestClock::default())));
        let options = MetaOptions { tenure: Some(tenure.clone()), ..options() };
        let (map, key) = (world.map.clone(), CapabilityKey::new([7; 32]));
        let server = MetaServer::start(store.clone(), map, key, world.clock.clone(), options);
        let server = server.await.unwrap();
        server.renew(tenure.now(), 1_000_000_000, 0);
        (store, server)
    }

    /// No volume was in use after a restart, so none said that it had no room: the cluster was fine.
    #[tokio::test]
    async fn a_store_too_full_to_open_a_volume_is_said_to_the_manager_until_all_are_open() {
        let full = KvError::Full { store: "full".into(), next: "make room" };
        said_until_all_are_open(full, "no space left; make room").await;
    }

    #[tokio::test]
    async fn a_store_that_has_stopped_before_a_volume_was_open_is_said_to_the_manager() {
        let stopped = KvError::Poisoned { store: "bad".into(), cause: "EIO".into() };
        said_until_all_are_open(stopped, "stopped after an I/O error (EIO)").await;
    }

    /// One block that the disk did not read, or one file too many that was open, passed for a store that takes no changes.
    #[tokio::test]
    async fn a_volume_that_is_not_read_is_no_store_that_takes_no_changes() {
        let lines = Lines::default();
        let _collected = tracing::subscriber::set_default(lines.clone());
        let world = World::new().await;
        let unread = KvError::Io { store: "bad".into(), cause: "EIO".into() };
        let (_store, server) = serve(&world, unread).await;
        world.until(async || lines.count("EIO; trying again") > 0).await;
        assert_eq!(server.full(), "");
    }

    async fn said_until_all_are_open(refusal: KvError, words: &str) {
        let world = World::new().await;
        let (store, server) = serve(&world, refusal).await;
        world.until(async || server.full().contains(words)).await;
        *store.refusal.lock() = None;
        world.until(async || server.full().is_empty() && server.serves() == [1]).await;
    }
}
