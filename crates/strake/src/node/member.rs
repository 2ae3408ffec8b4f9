//! The targets of this server, as its cluster hears of them.

use super::list::TargetList;
use super::scrubs::Scrubs;
use std::sync::Arc;
use strake_storage::Disks;
use strake_types::VolumeId;
use strake_wire::message::manager::TargetSpec;
use strake_wire::message::scrubs::{ScrubOrder, ScrubProgress};

/// All targets of the server.
pub struct Targets {
    /// Themselves.
    pub all: TargetList,
    /// What verifies them for jobs.
    pub scrubs: Arc<Scrubs>,
}

impl Disks for Targets {
    fn specs(&self) -> Vec<TargetSpec> {
        self.all.all().iter().map(|target| target.spec()).collect()
    }

    fn drop_volume(&self, volume: VolumeId) -> bool {
        let mut all = true;
        for target in self.all.all() {
            let Some(store) = &target.store else { continue };
            if let Err(error) = store.drop_volume(volume) {
                tracing::warn!("{volume} stays on {}: {error}", target.path.display());
                all = false;
            }
        }
        all
    }

    fn scrubs(&self) -> Vec<ScrubProgress> {
        self.scrubs.progress()
    }

    fn obey_scrubs(&self, orders: &[ScrubOrder]) {
        self.scrubs.obey(orders);
    }
}
