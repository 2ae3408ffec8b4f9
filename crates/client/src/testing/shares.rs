//! A volume of several shares over the fake cluster.

use super::{Fake, map};
use crate::{Volume, VolumeOptions};
use std::sync::Arc;
use strake_wire::map::MapView;

impl Fake {
    /// A volume of two shares, both with its only metadata server.
    pub(crate) async fn volume_of_shares(self: &Arc<Self>, options: VolumeOptions) -> Arc<Volume> {
        let mut map = map();
        map.volumes[0].spec.shares = Some(2);
        let mut second = map.volumes[0].clone();
        (second.id, second.share) = (2, 1);
        map.volumes.push(second);
        let view = MapView::fixed(self.callers(), map);
        Volume::connect(view, "main", options).await.expect("the fake map has a volume main")
    }
}
