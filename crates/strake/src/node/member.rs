//! The targets of this server, as its cluster hears of them.

use super::stores::Target;
use std::sync::Arc;
use strake_storage::Disks;
use strake_types::VolumeId;
use strake_wire::message::manager::TargetSpec;

/// All targets of the server.
pub struct Targets(pub Arc<Vec<Target>>);

impl Disks for Targets {
    fn specs(&self) -> Vec<TargetSpec> {
        self.0.iter().map(Target::spec).collect()
    }

    fn drop_volume(&self, volume: VolumeId) -> bool {
        let mut all = true;
        for target in self.0.iter() {
            let Some(store) = &target.store else { continue };
            if let Err(error) = store.drop_volume(volume) {
                tracing::warn!("{volume} stays on {}: {error}", target.path.display());
                all = false;
            }
        }
        all
    }
}
