//! Counts what a volume holds, by all of its inodes.
//!
//! A volume carries its counts along; they are wrong after its server has ended uncleanly, or has lost its database before it
//! heard what became of a change, and then it is counted once, in the background. A server that takes over the volumes of another has many to count, and each count needs a snapshot, of
//! which a database gives a server few: so they take turns, and each takes its snapshot when it is its turn.

use crate::keys::{self, Kind};
use crate::records::{self, Inode};
use crate::stored::{scan, store_error};
use crate::volume::Volume;
use std::sync::Arc;
use std::time::Duration;
use strake_base::task;
use strake_engine::kv::Snapshot;
use strake_types::{Error, ErrorKind, Result, VolumeId};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Volumes that a server counts at once.
pub(crate) const AT_ONCE: usize = 2;

/// How often it is begun anew where the store could not be read to the end, and how long after.
const TRIES_MAX: u32 = 100;
const PAUSE: Duration = Duration::from_secs(10);
/// How long changes are kept waiting for a snapshot, how long they have until that is tried again, and how often it is.
const SNAPSHOT_WAIT: Duration = Duration::from_secs(2);
const SNAPSHOT_TRIES_MAX: u32 = 5;

/// Whose turn it is to be counted.
#[derive(Clone)]
pub(crate) struct Recounts(Arc<Semaphore>);

impl Default for Recounts {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl Recounts {
    /// Counts a volume in the background, and sets its counts right; once at a time.
    pub fn begin(&self, volume: Arc<Volume>) {
        if !volume.counts.begin_counting() {
            return;
        }
        let turns = self.0.clone();
        task::spawn(async move {
            for _ in 0..TRIES_MAX {
                let turn = turns.acquire().await;
                let doubts = volume.counts.doubts();
                let error = match recount(&volume).await {
                    Ok(()) if volume.counts.is_counted(doubts) => return,
                    Ok(()) => continue,
                    Err(error) => error,
                };
                tracing::warn!("counting volume {}: {error}", volume.id);
                if !error.is_passing() || volume.kv.is_taken_over() {
                    return volume.counts.give_up_counting();
                }
                // A database that was away, or has forgotten a snapshot that became too old.
                drop(turn);
                tokio::time::sleep(PAUSE).await;
            }
            volume.counts.give_up_counting();
            tracing::error!(
                "volume {} could not be counted; until its server is restarted df may show it wrongly",
                volume.id
            );
        });
    }
}

async fn recount(volume: &Volume) -> Result<()> {
    let (told, snapshot) = moment(volume).await?;
    // What waits to be counted on its targets only an orderly end leaves to be known.
    let note = |inode: &Inode| {
        if inode.is_sparse() {
            volume.uncounted.note(inode.id());
        }
    };
    let counted = count(volume.id, &*snapshot, note).await?;
    // What has changed since is counted as it changes.
    volume.counts.add(counted.0 - told.0, counted.1 - told.1);
    Ok(())
}

/// The counts of a volume and its store, of one moment in which no change is half counted.
pub(crate) async fn moment(volume: &Volume) -> Result<((i64, i64), Arc<dyn Snapshot>)> {
    for _ in 0..SNAPSHOT_TRIES_MAX {
        let still = volume.counts.gate.write().await;
        let Ok(snapshot) = timeout(SNAPSHOT_WAIT, volume.kv.snapshot()).await else {
            // Changes that wait for the gate may hold all snapshots that there are.
            drop(still);
            tokio::time::sleep(SNAPSHOT_WAIT).await;
            continue;
        };
        let snapshot = snapshot.map_err(store_error)?;
        let (inodes, bytes) = volume.counts.raw();
        let lent = volume.loans.uncounted(volume.id, &*snapshot).await?;
        return Ok(((inodes + lent.0, bytes + lent.1), snapshot));
    }
    Err(Error::with(ErrorKind::Unavailable, "the store gives no snapshot to count by"))
}

/// Inodes and bytes of contents; shows each. A record that cannot be read counts as an inode without contents.
pub(crate) async fn count(
    volume: VolumeId,
    snapshot: &dyn Snapshot,
    mut show: impl FnMut(&Inode) + Send,
) -> Result<(i64, i64)> {
    let (mut inodes, mut bytes) = (0, 0);
    scan(snapshot, &keys::prefix(Kind::Inode, volume), |key, value| {
        inodes += 1;
        if let Ok(inode) = records::decode::<Inode>(key, value) {
            bytes += inode.occupied as i64;
            show(&inode);
        }
        Ok(())
    })
    .await?;
    Ok((inodes, bytes))
}
