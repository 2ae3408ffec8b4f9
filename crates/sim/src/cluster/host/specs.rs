//! What a server says of its targets.

use parking_lot::Mutex;
use std::sync::Arc;
use strake_engine::chunk::ChunkStore;
use strake_storage::{Disks, Scrubbed};
use strake_types::{TargetId, VolumeId};
use strake_wire::message::manager::TargetSpec;
use strake_wire::message::scrubs::ScrubTally;

/// The disks of a server that runs, with what is told of each.
pub(super) type OpenTargets = Arc<Mutex<Vec<(TargetSpec, Arc<ChunkStore>)>>>;

/// The same for the heart of the server.
pub(super) struct Specs(pub OpenTargets);

impl Disks for Specs {
    fn specs(&self) -> Vec<TargetSpec> {
        self.0.lock().iter().map(|(spec, store)| fill(spec, store)).collect()
    }

    fn drop_volume(&self, target: TargetId, volume: VolumeId) -> bool {
        let store = {
            let open = self.0.lock();
            let found = open.iter().find(|(spec, _)| spec.target == target.0);
            found.map(|(_, store)| store.clone())
        };
        store.is_none_or(|store| store.drop_volume(volume).is_ok())
    }
}

/// The same for what verifies them.
impl Scrubbed for Specs {
    fn has(&self, target: TargetId) -> bool {
        self.0.lock().iter().any(|(spec, _)| spec.target == target.0)
    }

    /// What the program tells of it is its own.
    fn note_verified(&self, _: TargetId, _: ScrubTally) {}
}

/// What is told of a target now.
pub(super) fn fill(spec: &TargetSpec, store: &ChunkStore) -> TargetSpec {
    let stat = store.stat();
    TargetSpec {
        total_bytes: stat.total_bytes,
        free_bytes: stat.free_bytes,
        poisoned: stat.poisoned.unwrap_or_default(),
        displaced: stat.place as u32,
        boot: store.boot(),
        ..spec.clone()
    }
}
