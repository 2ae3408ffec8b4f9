//! What a server with targets does as a member of its cluster.

use crate::scrubs::Scrubs;
use crate::server::StorageServer;
use std::sync::Arc;
use std::time::Duration;
use strake_types::{TargetId, VolumeId};
use strake_wire::lease::Lease;
use strake_wire::member::Member;
use strake_wire::message::jobs::{Held, Order, Progress};
use strake_wire::message::manager::{Doubt, Missed, Resign, TargetSpec};
use strake_wire::message::scrubs::{ScrubOrder, ScrubProgress};

/// The disks of a server, which only it knows.
pub trait Disks: Send + Sync + 'static {
    /// The targets as they are now.
    fn specs(&self) -> Vec<TargetSpec>;
    /// Drops what one of them holds of a volume; may wait for its disk. False: not yet.
    fn drop_volume(&self, target: TargetId, volume: VolumeId) -> bool;
}

/// A server with its disks.
pub struct Here<D> {
    /// Where its targets lie.
    pub disks: D,
    /// What verifies them for jobs.
    pub scrubs: Arc<Scrubs>,
    /// Whose replicas are to do their part; `None`: it has no targets.
    pub storage: Option<Arc<StorageServer>>,
    /// What an answer to a heartbeat renews.
    pub lease: Arc<Lease>,
}

impl<D: Disks> Member for Here<D> {
    fn targets(&self) -> Vec<TargetSpec> {
        let mut specs = self.disks.specs();
        if let Some(storage) = &self.storage {
            for spec in &mut specs {
                let target = TargetId(spec.target);
                spec.silent_ms = storage.silent_ms(target);
                spec.hands_over = true;
                spec.uncounted = !storage.has_counted(target);
                spec.unwalked = !storage.has_walked(target);
            }
        }
        specs
    }

    fn held(&self) -> Vec<Held> {
        self.storage.iter().flat_map(|storage| storage.held()).collect()
    }

    fn progress(&self) -> Vec<Progress> {
        self.storage.iter().flat_map(|storage| storage.progress()).collect()
    }

    fn obey(&self, orders: &[Order]) {
        self.storage.iter().for_each(|storage| storage.obey(orders));
    }

    fn missed(&self) -> Vec<Missed> {
        self.storage.iter().flat_map(|storage| storage.missed()).collect()
    }

    fn resign(&self, asked: &[Resign]) {
        self.storage.iter().for_each(|storage| storage.ask_to_resign(asked));
    }

    fn doubt(&self, doubts: &[Doubt]) {
        self.storage.iter().for_each(|storage| storage.doubt(doubts));
    }

    fn scrubs(&self) -> Vec<ScrubProgress> {
        self.scrubs.progress()
    }

    fn obey_scrubs(&self, orders: &[ScrubOrder]) {
        self.scrubs.obey(orders);
    }

    fn wake(&self) {
        if let Some(storage) = &self.storage {
            storage.watch_disks();
            storage.wake_replicas();
            storage.wake_census();
        }
    }

    fn now(&self) -> Duration {
        self.lease.now()
    }

    fn renew(&self, sent: Duration, lease_ms: u64, lead: u64) {
        self.lease.renew_led(sent, lease_ms, lead);
    }

    fn drop_volume(&self, target: TargetId, volume: VolumeId) -> bool {
        self.disks.drop_volume(target, volume)
    }
}
