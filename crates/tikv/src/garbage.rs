//! Versions that nobody looks at any more: TiKV keeps all of them until it is told up to when it need not.
//!
//! Where TiDB uses the cluster too, it says so, and we leave it to it. Where nobody but Strake has keys, nobody
//! would, so we do.

use crate::cluster::{Cluster, past};
use crate::keys::{AFTER_ROOT, ROOT};
use std::ops::Bound;
use std::sync::Weak;
use std::time::Duration;
use strake_engine::kv::Result;
use tikv_client::{BoundRange, Key, TimestampExt};
use tokio::time::{Instant, timeout_at};

/// Versions are kept for so long, at least.
pub const KEEP: Duration = Duration::from_secs(60 * 60);
/// Pause before the first round, and between two.
const FIRST_SECONDS: u64 = 60;
const ROUND_SECONDS: u64 = 600;
/// Longest that a round may take: it looks for locks in every region.
const ROUND_SECONDS_MAX: u64 = 300;

/// Lets old versions be collected as long as the store is open.
pub async fn collect(cluster: Weak<Cluster>) {
    let mut pause = FIRST_SECONDS;
    loop {
        tokio::time::sleep(Duration::from_secs(pause)).await;
        pause = ROUND_SECONDS;
        let Some(cluster) = cluster.upgrade() else { return };
        match round(&cluster, KEEP).await {
            Ok(true) => {}
            Ok(false) => tracing::debug!("others use {} too: they collect", cluster.shown()),
            Err(error) => tracing::warn!("old versions are kept for now: {error}"),
        }
    }
}

/// Lets what was replaced longer ago than `keep` be collected. False: that is left to others who use the cluster.
pub async fn round(cluster: &Cluster, keep: Duration) -> Result<bool> {
    let deadline = Instant::now() + Duration::from_secs(ROUND_SECONDS_MAX);
    let mut now = cluster.now(deadline).await?;
    let before: BoundRange = (..Key::from(ROOT.to_owned())).into();
    let after = Bound::Included(Key::from(AFTER_ROOT.to_owned()));
    let after = BoundRange::new(after, Bound::Unbounded);
    let mut is_alone = true;
    for range in [before, after] {
        let found = cluster.ask(deadline, |client| {
            let (mut past, range) = (past(&client, &now), range.clone());
            async move { Ok(past.scan_keys(range, 1).await?.next().is_some()) }
        });
        is_alone &= !found.await?;
    }
    cluster.note_alone(is_alone);
    if !is_alone {
        return Ok(false);
    }
    now.physical -= i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
    let safe = now.version();
    let told = cluster.ask(deadline, |client| async move {
        Ok(client.gc(TimestampExt::from_version(safe)).await?)
    });
    // Another of ours may have said a later time.
    let _is_the_latest = timeout_at(deadline, told)
        .await
        .map_err(|_| cluster.unreachable("looking for old locks took too long"))??;
    Ok(true)
}
