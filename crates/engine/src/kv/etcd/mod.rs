//! etcd as an engine.
//!
//! Each key of the map is a key of etcd behind the store's name. A snapshot is a revision of etcd, which keeps all that
//! were, until they are compacted. A commit is one transaction of etcd, on the condition that the part is still ours; as
//! only one writes a part, he finds out by himself which of his commits conflict. docs/design/0065-etcd.md says why.
//!
//! A commit is acknowledged when most members have it on their disks, which is as durable as it gets:
//! [`Kv::sync`] has nothing to do.

mod address;
mod cluster;
mod commits;
mod failure;
mod hub;
mod keys;
mod messages;
mod records;
mod schema;
mod snapshots;
mod tls;
mod writer;

pub use commits::WRITE_BYTES;

use super::background::Background;
use super::{DatabaseOptions, Kv, KvError, Outcome, Part, Result, Snapshot, Store, Writes};
use address::Address;
use async_trait::async_trait;
use bytes::Bytes;
use cluster::Cluster;
use commits::{Ask, Commit};
use failure::Failed;
use hub::Hub;
use keys::Keys;
use messages::RangeRequest;
use schema::Opener;
use snapshots::{EtcdSnapshot, Waiting};
use std::collections::VecDeque;
use std::hash::RandomState;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use writer::Writer;

/// The engine's name.
pub const NAME: &str = "etcd";
/// Pause between two looks at what can be forgotten.
const COMPACT_PAUSE: Duration = Duration::from_secs(60);
/// How many of them a revision is kept. A snapshot that is older can no longer be read.
const COMPACT_AFTER: usize = 10;

/// Opens a store in etcd, and makes it where there is none. Blocks, for not much longer than `wait_ms_max`.
pub fn open_etcd(options: &DatabaseOptions) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(EtcdStore::open(options)?))
}

/// True if `text` is meant to be the URL of a store in etcd.
pub fn is_etcd(text: &str) -> bool {
    text.starts_with("etcd://") || text.starts_with("etcds://")
}

/// Where a store is, without the password.
pub fn etcd_shown(url: &str) -> Result<String> {
    Ok(Address::parse(url)?.shown)
}

/// How an administrator empties a store that nobody needs.
pub fn how_to_empty(url: &str) -> String {
    let name = Address::parse(url).map_or_else(|_| "NAME".to_owned(), |address| address.name);
    format!("etcdctl del --prefix {name}/")
}

/// An open store.
struct EtcdStore {
    cluster: Arc<Cluster>,
    opener: Arc<Opener>,
    background: Arc<Background>,
}

/// A part of it that we write.
struct EtcdKv {
    hub: Arc<Hub>,
    hasher: RandomState,
    snapshots: mpsc::UnboundedSender<Waiting>,
    writer: mpsc::Sender<Ask>,
    background: Arc<Background>,
}

impl EtcdStore {
    fn open(options: &DatabaseOptions) -> Result<Self> {
        let address = Address::parse(&options.url)?;
        let background = Background::new("strake-etcd", &address.shown)?;
        let handle = background.handle().clone();
        let opener = Arc::new(Opener {
            keys: Keys::new(&address.name),
            id: options.store.clone(),
            host: options.host.clone(),
        });
        let wait = Duration::from_millis(options.wait_ms_max);
        let cluster = Arc::new(Cluster::new(address, wait, handle.clone())?);
        let (shared, who, wanted) = (cluster.clone(), opener.clone(), options.clone());
        // Every step of it has its time limit.
        let prepared = async move { schema::open(&shared, &who, &wanted, shared.deadline()).await };
        background.carry_out(cluster.shown(), prepared)??;
        handle.spawn(compact(Arc::downgrade(&cluster), opener.keys.clone()));
        Ok(Self { cluster, opener, background })
    }
}

#[async_trait]
impl Store for EtcdStore {
    fn name(&self) -> &'static str {
        NAME
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn spans_parts(&self) -> bool {
        true
    }

    async fn open(&self, part: Part) -> Result<Arc<dyn Kv>> {
        let (cluster, opener) = (self.cluster.clone(), self.opener.clone());
        // Before the claim: what another part meets meanwhile may have come after that.
        let gone_back_before = cluster.gone_back.times();
        // The connections live on threads of their own.
        let claimed = self
            .cluster
            .runtime
            .spawn(async move { schema::claim(&cluster, &opener, part, cluster.deadline()).await });
        let closed = |_| self.cluster.unreachable("the store is being closed");
        let claim = claimed.await.map_err(closed)??;
        let (cluster, runtime) = (self.cluster.clone(), &self.cluster.runtime);
        let hub = Hub::new(cluster, self.opener.keys.clone(), claim, gone_back_before);
        let hub = Arc::new(hub);
        let (snapshots, waiting) = mpsc::unbounded_channel();
        let (writer, asked) = mpsc::channel(commits::WAITING_MAX);
        runtime.spawn(snapshots::take_for_all(hub.clone(), waiting, writer.clone()));
        let writes = Writer::new(hub.clone());
        let hasher = writes.hasher();
        runtime.spawn(writes.run(asked));
        let background = self.background.clone();
        Ok(Arc::new(EtcdKv { hub, hasher, snapshots, writer, background }))
    }

    async fn look(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        let (cluster, opener, keys) = (self.cluster.clone(), self.opener.clone(), keys.to_vec());
        let look = async move { snapshots::look(&cluster, &opener.keys, &keys).await };
        let looked = self.cluster.runtime.spawn(look);
        looked.await.map_err(|_| self.cluster.unreachable("the store is being closed"))?
    }

    fn times_gone_back(&self) -> u64 {
        self.cluster.gone_back.times()
    }
}

/// Has etcd forget what was long ago, as long as the store is open; by itself it keeps everything. Each server does so:
/// of their revisions the oldest is old enough for all.
async fn compact(cluster: Weak<Cluster>, keys: Keys) {
    let mut revisions: VecDeque<i64> = VecDeque::new();
    loop {
        tokio::time::sleep(COMPACT_PAUSE).await;
        let Some(cluster) = cluster.upgrade() else { return };
        let deadline = Instant::now() + cluster.wait;
        match cluster.range(&RangeRequest::one(keys.store()), deadline).await {
            Ok(now) => {
                // Of a history that is gone: the same numbers are of what comes now.
                revisions.retain(|known| *known <= now.revision());
                revisions.push_back(now.revision());
            }
            Err(failed) => tracing::debug!("nothing is compacted for now: {failed:?}"),
        }
        if revisions.len() <= COMPACT_AFTER {
            continue;
        }
        let Some(revision) = revisions.pop_front() else { continue };
        match cluster.compact(revision).await {
            // Another has forgotten more.
            Ok(_) | Err(Failed::Compacted(_)) => {}
            Err(failed) => tracing::warn!(
                "old revisions may be kept, which fills it: {}",
                failed.into_error(cluster.shown())
            ),
        }
    }
}

impl EtcdKv {
    fn closed(&self) -> KvError {
        self.hub.cluster.unreachable("the store is being closed")
    }
}

#[async_trait]
impl Kv for EtcdKv {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        let (tell, told) = oneshot::channel();
        self.snapshots.send(tell).map_err(|_| self.closed())?;
        let moment = told.await.map_err(|_| self.closed())??;
        Ok(Arc::new(EtcdSnapshot::new(moment, self.background.clone())))
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> Result<Outcome> {
        self.commit_contended(snapshot, writes, &[]).await
    }

    async fn commit_contended(
        &self,
        snapshot: Arc<dyn Snapshot>,
        writes: Writes,
        contended: &[Vec<u8>],
    ) -> Result<Outcome> {
        let since = snapshot
            .as_any()
            .downcast_ref::<EtcdSnapshot>()
            .expect("a snapshot is committed to the engine that gave it: a caller's bug otherwise")
            .version();
        if writes.is_empty() {
            return Ok(Outcome::Committed);
        }
        let (answer, answered) = oneshot::channel();
        let contended = contended.iter().map(|key| self.hub.keys.map(key)).collect();
        let commit = Commit::new(since, writes, contended, &self.hasher, answer);
        self.writer.send(Ask::Commit(commit)).await.map_err(|_| self.closed())?;
        answered.await.unwrap_or(Ok(Outcome::Unknown))
    }

    async fn drain(&self) -> Result<()> {
        commits::drain(&self.hub, &self.writer).await
    }

    fn check_room(&self) -> Result<()> {
        match self.hub.is_full() {
            true => Err(Failed::Full.into_error(self.hub.cluster.shown())),
            false => Ok(()),
        }
    }

    fn is_taken_over(&self) -> bool {
        self.hub.is_taken_over()
    }

    async fn sync(&self) -> Result<()> {
        Ok(())
    }
}
