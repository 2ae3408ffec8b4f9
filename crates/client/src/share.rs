//! The client's side of one share of the volume: most volumes have but one.

use crate::leases::Leases;
use crate::session::Session;
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
        let share =
            |id| Self { id, session: Session::new(), leases: Leases::new(leases, shares, id) };
        shares.all().map(share).collect()
    }
}
