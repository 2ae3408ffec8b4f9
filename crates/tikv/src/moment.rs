//! Times to read as of.

use crate::Hub;
use crate::cluster::Cluster;
use crate::horizon::{COMMIT_AGE_MAX, Hold};
use std::sync::Arc;
use std::time::{Duration, Instant};
use strake_engine::kv::Result;
use tikv_client::{Timestamp, TimestampExt};

/// A timestamp of PD. As long as it lives, the writer remembers what has been written since.
pub struct Moment {
    hub: Arc<Hub>,
    at: u64,
    began: Instant,
    hold: Hold,
}

impl Drop for Moment {
    fn drop(&mut self) {
        self.hub.horizon.release(self.hold);
    }
}

impl Moment {
    /// The present.
    pub async fn now(hub: &Arc<Hub>, deadline: tokio::time::Instant) -> Result<Self> {
        // Before it has its timestamp, so that nothing that is later is forgotten.
        let (hold, began) = (hub.horizon.hold(), Instant::now());
        let mut moment = Self { hub: hub.clone(), at: 0, began, hold };
        moment.at = hub.cluster.now(deadline).await?.version();
        Ok(moment)
    }

    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.hub.cluster
    }

    pub fn at(&self) -> u64 {
        self.at
    }

    pub fn timestamp(&self) -> Timestamp {
        Timestamp::from_version(self.at)
    }

    pub fn age(&self) -> Duration {
        self.began.elapsed()
    }

    pub fn is_too_old_to_commit(&self) -> bool {
        self.age() > COMMIT_AGE_MAX
    }
}
