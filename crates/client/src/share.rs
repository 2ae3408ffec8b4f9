//! The client's side of one share of the volume: most volumes have but one.

use crate::leases::Leases;
use crate::session::Session;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use strake_types::{Shares, VolumeId};
use tokio::sync::Semaphore;

/// See [`Share::tellers`].
const TELLERS: usize = 64;

/// What there is of each share.
pub(crate) struct Share {
    /// Its id: requests, chunks and fences name it.
    pub id: VolumeId,
    /// Our session with its metadata server.
    pub session: Session,
    /// What is leased to us there.
    pub leases: Leases,
    /// Files of which the background task tells at the same time: however many are busy, others wait for few messages.
    pub tellers: Semaphore,
}

impl Share {
    /// All shares of a volume, of this client. `leases`: the mount keeps leases.
    pub fn all(shares: Shares, leases: bool, client: u64) -> Vec<Self> {
        let number = Arc::new(AtomicU64::new(1));
        let share = |id| {
            let leases = Leases::new(leases, shares, id, number.clone());
            Self { id, session: Session::new(client), leases, tellers: Semaphore::new(TELLERS) }
        };
        shares.all().map(share).collect()
    }
}
