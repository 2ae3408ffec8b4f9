//! Snapshots: the map at one revision.
//!
//! One read that sees all acknowledged changes tells which revision is the newest, and whether the part is still ours.
//! All who ask for a snapshot while one is being taken share the next. From then on any member that has come as far may
//! answer: what a revision holds does not change.

use super::super::background::Background;
use super::super::group::share;
use super::super::{Pair, Result, Snapshot, is_empty_range};
use super::cluster::Cluster;
use super::commits::{self, Ask};
use super::failure::Failed;
use super::hub::{Hub, version};
use super::keys::Keys;
use super::messages::RangeRequest;
use async_trait::async_trait;
use bytes::Bytes;
use futures::future::try_join_all;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Pairs in the first page of a range, about which nothing is known, and in a later one.
const FIRST_PAGE: usize = 256;
const PAGE_MAX: usize = 4096;
/// One that does not come is not made smaller than this.
const PAGE_MIN: usize = 16;
/// Bytes that a page is to have. One value may have more.
const PAGE_BYTES: usize = 1 << 20;
/// Keys that are read at the same time for one caller.
const KEYS_MAX: usize = 100;

/// Who waits for a snapshot.
pub type Waiting = oneshot::Sender<Result<Arc<Moment>>>;

/// A revision that is looked at.
pub struct Moment {
    hub: Arc<Hub>,
    pub revision: i64,
    /// Since when the part's writes have to be remembered for it.
    held: u64,
}

impl Drop for Moment {
    fn drop(&mut self) {
        self.hub.horizon.release(self.held);
    }
}

/// Takes snapshots for those who wait, until nobody can ask any more.
pub async fn take_for_all(
    hub: Arc<Hub>,
    waiting: mpsc::UnboundedReceiver<Waiting>,
    writer: mpsc::Sender<Ask>,
) {
    share(waiting, || take(&hub, &writer)).await;
}

async fn take(hub: &Arc<Hub>, writer: &mpsc::Sender<Ask>) -> Result<Moment> {
    hub.check_history()?;
    // What a read has shown must not change by a commit that was given up long ago.
    if hub.in_doubt.load(Ordering::SeqCst) {
        commits::settle(hub, writer).await?;
    }
    // Held before it is known, so that no write after it is forgotten.
    let held = hub.horizon.hold();
    let mut moment = Moment { hub: hub.clone(), revision: 0, held };
    let mut found = newest(hub).await?;
    if found.1.is_err() {
        // Is it one member, or all of them? What they agree upon says it.
        commits::confirm(hub, writer).await?;
        found = newest(hub).await?;
    }
    found.1?;
    moment.revision = found.0;
    Ok(moment)
}

/// The newest revision, at which the part is ours; and whether it can be the newest.
async fn newest(hub: &Hub) -> Result<(i64, Result<()>)> {
    let least = hub.met();
    let asked = RangeRequest::one(hub.claim.key.clone());
    let found = match hub.cluster.range(&asked, hub.cluster.deadline()).await {
        Ok(found) => found,
        Err(failed) => return Err(hub.cluster.error(failed).await),
    };
    let is_newest = hub.meet_read(found.revision(), least);
    if is_newest.is_ok() {
        hub.check_claim(found.kvs.first())?;
    }
    Ok((found.revision(), is_newest))
}

/// The values of keys now, whoever writes them.
pub async fn look(
    cluster: &Cluster,
    keys: &Keys,
    wanted: &[Vec<u8>],
) -> Result<Vec<Option<Bytes>>> {
    let store = RangeRequest::one(keys.store());
    match cluster.range(&store, cluster.deadline()).await {
        Ok(now) => values(cluster, keys, now.revision(), wanted).await,
        Err(failed) => Err(cluster.error(failed).await),
    }
}

/// The values of keys at a revision, in their order.
async fn values(
    cluster: &Cluster,
    keys: &Keys,
    revision: i64,
    wanted: &[Vec<u8>],
) -> Result<Vec<Option<Bytes>>> {
    let mut values = Vec::with_capacity(wanted.len());
    for some in wanted.chunks(KEYS_MAX) {
        let found = try_join_all(some.iter().map(|key| value(cluster, keys, revision, key)));
        match found.await {
            Ok(found) => values.extend(found),
            Err(failed) => return Err(cluster.error(failed).await),
        }
    }
    Ok(values)
}

/// By a request of its own. A transaction could read many keys, but members before 3.4.23 and 3.5.7 die when one that
/// only reads is given up.
async fn value(
    cluster: &Cluster,
    keys: &Keys,
    revision: i64,
    key: &[u8],
) -> Result<Option<Bytes>, Failed> {
    let range = RangeRequest::one(keys.map(key)).at(revision);
    let found = cluster.range(&range, cluster.deadline()).await?;
    Ok(found.kvs.into_iter().next().map(|found| found.value))
}

/// What a caller holds.
pub struct EtcdSnapshot {
    moment: Arc<Moment>,
    /// The connections live on it.
    _background: Arc<Background>,
}

impl EtcdSnapshot {
    pub fn new(moment: Arc<Moment>, background: Arc<Background>) -> Self {
        Self { moment, _background: background }
    }

    /// What the map's writes are compared with.
    pub fn version(&self) -> u64 {
        version(self.moment.revision)
    }
}

#[async_trait]
impl Snapshot for EtcdSnapshot {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.multi_get(&[key.to_vec()]).await?.pop().flatten())
    }

    async fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        let hub = &self.moment.hub;
        hub.check_history()?;
        values(&hub.cluster, &hub.keys, self.moment.revision, keys).await
    }

    async fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Vec<Pair>> {
        if is_empty_range(from, to) {
            return Ok(Vec::new());
        }
        self.moment.hub.check_history()?;
        let (cluster, keys) = (&self.moment.hub.cluster, &self.moment.hub.keys);
        let (mut key, range_end) = keys.range(from, to);
        let (mut pairs, mut page, mut most) = (Vec::new(), FIRST_PAGE, PAGE_MAX);
        let mut deadline = cluster.deadline();
        while pairs.len() < limit {
            let wanted = page.min(limit - pairs.len());
            let range = RangeRequest { limit: wanted as i64, ..RangeRequest::one(key) };
            let range =
                RangeRequest { range_end: range_end.clone(), ..range.at(self.moment.revision) };
            // There is to be time for a smaller one.
            let first = Instant::now() + cluster.wait / 4;
            let limit = if wanted > PAGE_MIN { deadline.min(first) } else { deadline };
            let found = match cluster.range(&range, limit).await {
                Ok(found) => found.kvs,
                // It may have been more than comes through in time.
                Err(Failed::Unsure(_)) if wanted > PAGE_MIN => {
                    most = (wanted / 8).max(PAGE_MIN);
                    (key, page) = (range.key, most);
                    continue;
                }
                Err(failed) => return Err(cluster.error(failed).await),
            };
            let is_last = found.len() < wanted;
            let bytes: usize = found.iter().map(|kv| kv.key.len() + kv.value.len()).sum();
            let Some(last) = found.last() else { break };
            key = [&last.key[..], &[0]].concat().into();
            page = (PAGE_BYTES / (bytes / found.len()).max(1)).clamp(1, most.min(2 * page));
            deadline = cluster.deadline();
            pairs.extend(found.into_iter().map(|kv| (keys.of_map(&kv.key), kv.value)));
            if is_last {
                break;
            }
        }
        Ok(pairs)
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
