//! The client's side of one share of the volume: most volumes have but one.

use crate::leases::Leases;
use crate::session::Session;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use strake_types::{Shares, VolumeId};

/// What there is of each share.
pub(crate) struct Share {
    /// Its id: requests, chunks and fences name it.
    pub id: VolumeId,
    /// Our session with its metadata server.
    pub session: Session,
    /// What is leased to us there.
    pub leases: Leases,
}

impl Share {
    /// All shares of a volume. `leases`: the mount keeps leases.
    pub fn all(shares: Shares, leases: bool) -> Vec<Self> {
        let number = Arc::new(AtomicU64::new(1));
        let share = |id| {
            let leases = Leases::new(leases, shares, id, number.clone());
            Self { id, session: Session::new(), leases }
        };
        shares.all().map(share).collect()
    }
}
