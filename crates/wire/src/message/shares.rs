//! The volumes of a map, and their shares.

use super::manager::{ClusterMap, Volume};
use strake_types::{Shares, VolumeId};

impl ClusterMap {
    /// The volumes that people know: each once, however many shares it has, and none that is being deleted.
    pub fn living(&self) -> impl Iterator<Item = &Volume> {
        self.volumes.iter().filter(|volume| !volume.deleting && volume.share == 0)
    }

    /// The volume of which this id names a share, unless it is being deleted.
    pub fn living_with(&self, share: VolumeId) -> Option<&Volume> {
        let share = self.volumes.iter().find(|volume| volume.id == share.0)?;
        self.living().find(|volume| volume.id == share.shares().first.0)
    }
}

impl Volume {
    /// The shares of the volume of which this is one.
    pub fn shares(&self) -> Shares {
        let first = VolumeId(self.id.saturating_sub(self.share));
        Shares { first, count: self.spec.shares.unwrap_or(1).max(1) }
    }
}
