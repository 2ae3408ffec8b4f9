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
        let first = self.volume(self.volume(share)?.shares().first)?;
        (!first.deleting && first.share == 0).then_some(first)
    }
}

impl Volume {
    /// The shares of the volume of which this is one.
    pub fn shares(&self) -> Shares {
        let first = VolumeId(self.id.saturating_sub(self.share));
        Shares { first, count: self.spec.shares.unwrap_or(1).max(1) }
    }
}
