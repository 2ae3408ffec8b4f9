//! The targets of this server, as its cluster hears of them.

use super::list::TargetList;
use super::patrol::Patrol;
use std::sync::Arc;
use strake_storage::{Disks, Scrubbed};
use strake_types::{TargetId, VolumeId};
use strake_wire::message::manager::TargetSpec;
use strake_wire::message::scrubs::ScrubTally;

impl Disks for TargetList {
    fn specs(&self) -> Vec<TargetSpec> {
        self.all().iter().map(|target| target.spec()).collect()
    }

    fn drop_volume(&self, target: TargetId, volume: VolumeId) -> bool {
        let Some(target) = self.of(target) else { return true };
        let Some(store) = &target.store else { return true };
        let dropped = store.drop_volume(volume);
        if let Err(error) = &dropped {
            tracing::warn!("{volume} stays on {}: {error}", target.path.display());
        }
        dropped.is_ok()
    }
}

/// The targets of this server, as jobs have them verified.
pub struct Verified {
    /// Themselves.
    pub targets: TargetList,
    /// Whose rounds a scrub counts as.
    pub patrol: Arc<Patrol>,
}

impl Scrubbed for Verified {
    fn has(&self, target: TargetId) -> bool {
        self.targets.of(target).is_some()
    }

    fn note_verified(&self, target: TargetId, tally: ScrubTally) {
        if let Some(target) = self.targets.of(target) {
            self.patrol.note_ended(&target, tally.bytes, tally.repaired, tally.left);
        }
    }
}
