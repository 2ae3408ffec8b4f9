//! Snapshots: timestamps of PD. All who ask for one while one is being fetched share the next.

use crate::Hub;
use crate::cluster::Cluster;
use crate::moment::Moment;
use crate::records::Claim;
use crate::writer::{self, Ask};
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strake_engine::kv::group::share;
use strake_engine::kv::{Background, KvError, Pair, Result, Snapshot};
use tikv_client::Timestamp;
use tokio::sync::{mpsc, oneshot};

/// How long one may read as of a timestamp: what is older may have been collected. Where we collect it is
/// an hour; where others do, ten minutes are usual.
const READ_AGE_MAX: Duration = Duration::from_secs(50 * 60);
const READ_AGE_MAX_OF_OTHERS: Duration = Duration::from_secs(8 * 60);

/// Who waits for a snapshot.
pub type Waiting = oneshot::Sender<Result<Arc<Moment>>>;

/// Fetches timestamps for those who wait, until nobody can ask any more.
pub async fn begin_for_all(
    hub: Arc<Hub>,
    waiting: mpsc::UnboundedReceiver<Waiting>,
    writer: mpsc::Sender<Ask>,
) {
    share(waiting, || begin(&hub, &writer)).await;
}

async fn begin(hub: &Arc<Hub>, writer: &mpsc::Sender<Ask>) -> Result<Moment> {
    let (moment, deadline) = loop {
        // What a read has shown must not change by a commit that was given up long ago.
        if hub.in_doubt.load(Ordering::SeqCst) {
            writer::settle(hub, writer).await?;
        }
        // No commit takes longer than its limit.
        let _calm = hub.calm.read().await;
        if hub.in_doubt.load(Ordering::SeqCst) {
            continue;
        }
        // The commit may have taken all of the time that there was.
        let deadline = hub.cluster.deadline();
        break (Moment::now(hub, deadline).await?, deadline);
    };
    let found = hub.cluster.get(moment.timestamp(), &hub.owner, deadline).await?;
    hub.check(found)?;
    Ok(moment)
}

impl Hub {
    /// What the key says that tells who writes the part; an error if it is not us.
    pub fn check(&self, found: Option<Vec<u8>>) -> Result<Claim> {
        let claim = found.as_deref().and_then(Claim::parse);
        let claim = claim
            .ok_or_else(|| self.cluster.corrupt("the key that says who writes it is damaged"))?;
        if claim.writer != self.writer {
            return Err(self.taken_over(claim.host));
        }
        Ok(claim)
    }
}

/// A snapshot as it is handed out.
pub struct TikvSnapshot {
    moment: Arc<Moment>,
    _background: Arc<Background>,
}

impl TikvSnapshot {
    pub fn new(moment: Arc<Moment>, background: Arc<Background>) -> Self {
        Self { moment, _background: background }
    }

    pub fn moment(&self) -> Arc<Moment> {
        self.moment.clone()
    }

    /// Reads on the threads that carry the connections.
    async fn read<T: Send + 'static, F>(
        &self,
        read: impl FnOnce(Arc<Cluster>, Timestamp) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let cluster = self.moment.cluster();
        let is_alone = cluster.is_alone.load(Ordering::Relaxed);
        let max = if is_alone { READ_AGE_MAX } else { READ_AGE_MAX_OF_OTHERS };
        check_age(cluster.shown(), self.moment.age(), max)?;
        let reading = cluster.runtime.spawn(read(cluster.clone(), self.moment.timestamp()));
        reading.await.map_err(|_| cluster.closed())?
    }
}

fn check_age(store: &str, age: Duration, max: Duration) -> Result<()> {
    match age > max {
        true => Err(KvError::Refused {
            store: store.into(),
            cause: format!(
                "a snapshot of it is {} minutes old, and what was then may have been collected",
                age.as_secs() / 60
            ),
            next: format!("begin again, and be done in {} minutes", max.as_secs() / 60),
        }),
        false => Ok(()),
    }
}

#[async_trait]
impl Snapshot for TikvSnapshot {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let mut values = self.multi_get(&[key.to_vec()]).await?;
        Ok(values.pop().flatten())
    }

    async fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        let keys = keys.to_vec();
        self.read(|cluster, at| async move { cluster.multi_get(at, &keys).await }).await
    }

    async fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Vec<Pair>> {
        let own = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
        let (from, to) = (own(from), own(to));
        self.read(move |cluster, at| async move {
            let (from, to) = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
            cluster.scan(at, from, to, limit).await
        })
        .await
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_that_is_too_old_is_told_so() {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        check_age("", minutes(8), READ_AGE_MAX_OF_OTHERS).unwrap();
        let error = check_age("tikv://pd/x", minutes(9), READ_AGE_MAX_OF_OTHERS).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("9 minutes old") && said.contains("in 8 minutes"), "{said}");
    }
}
