//! TiKV as an engine of the metadata store ([`strake_engine::kv`]).
//!
//! The map is in TiKV's keys below a name, in versions that TiKV keeps by itself: a snapshot is a timestamp of
//! PD, and reads as of it. Whoever opens a part writes its *claim*, a key of its own, and every commit writes
//! that key too: its number as the receipt of what was done, and, because two transactions cannot both write one
//! key, a fence. A commit that comes after another has written the claim never happens. So a part has one
//! writer, and it knows by itself which of its keys were written since a snapshot: commits that wait
//! together go into one transaction of TiKV ([`writer`]), whose timestamp is later than their snapshots.
//!
//! ```text
//! snapshot -> snapshots -> cluster -> PD: a timestamp; TiKV: is the part still ours?
//! get, scan -------------> cluster -> TiKV, as of the timestamp
//! commit   -> writer ----> cluster -> TiKV: claim and keys, prewritten, then committed by the claim
//! ```
//!
//! A commit is acknowledged when TiKV has committed it, which is as durable as it gets: [`Kv::sync`] has nothing to do.
//! docs/design/0066-tikv.md says why things are as they are, and against what they were tested.
//!
//! What this crate never does: wait without a limit, or trust that a request whose answer was lost has not happened.

mod address;
mod claims;
mod cluster;
mod failure;
mod garbage;
mod horizon;
mod keys;
mod lookups;
mod moment;
mod records;
mod snapshots;
mod writer;

use address::Address;
use async_trait::async_trait;
use bytes::Bytes;
use cluster::Cluster;
use horizon::Horizon;
use snapshots::{TikvSnapshot, Waiting};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strake_engine::kv::{
    Background, DatabaseOptions, Kv, KvError, Outcome, Part, Result, Room, Snapshot, Store, Writes,
};
use tokio::sync::{RwLock, mpsc, oneshot};
use writer::{Ask, Commit, Writer};

/// The engine's name.
pub const NAME: &str = "tikv";

/// Opens a store in TiKV, and makes it where there is none. Blocks, for not much longer than `wait_ms_max`. The URL is
/// `tikv://HOST[:PORT][,HOST[:PORT]...]/NAME`, where the hosts are those of PD.
pub fn open_tikv(options: &DatabaseOptions) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(TikvStore::open(options)?))
}

/// Where a store is, as it is shown to others.
pub fn tikv_shown(url: &str) -> Result<String> {
    Ok(Address::parse(url)?.shown)
}

/// An open store.
struct TikvStore {
    cluster: Arc<Cluster>,
    /// Its id.
    id: String,
    host: String,
    background: Arc<Background>,
}

/// Shared by reader and writer of one part.
struct Hub {
    cluster: Arc<Cluster>,
    /// The key that every commit of the part writes.
    claim: Vec<u8>,
    /// The key that says who writes the part, and that nobody writes but who opens it.
    owner: Vec<u8>,
    /// Our number among those that have opened a part of the store.
    writer: u64,
    host: String,
    horizon: Horizon,
    /// There may be a commit of which it is not known whether it happened, or whether all of it did.
    in_doubt: AtomicBool,
    /// Held alone while a commit is under way, until it is known whether it is in doubt; held by who fetches a
    /// timestamp, so that none is given out that lies between the two.
    calm: RwLock<()>,
    /// Whether the disks of the cluster have room.
    room: Room,
    taken_over: AtomicBool,
}

impl Hub {
    fn new(cluster: Arc<Cluster>, part: Part, writer: u64, host: &str) -> Self {
        let (in_doubt, room, taken_over) = Default::default();
        let [claim, owner] = [cluster.keys().claim(part), cluster.keys().owner(part)];
        let (host, horizon) = (host.to_owned(), Horizon::default());
        let calm = RwLock::new(());
        Self { cluster, claim, owner, writer, host, horizon, in_doubt, calm, room, taken_over }
    }

    /// Another, on the host named, writes what we wrote.
    fn taken_over(&self, by: String) -> KvError {
        self.taken_over.store(true, Ordering::Relaxed);
        KvError::TakenOver { store: self.cluster.shown().to_owned(), by }
    }
}

/// A part that we write.
struct TikvKv {
    hub: Arc<Hub>,
    snapshots: mpsc::UnboundedSender<Waiting>,
    writer: mpsc::Sender<Ask>,
    background: Arc<Background>,
}

impl TikvStore {
    fn open(options: &DatabaseOptions) -> Result<Self> {
        let address = Address::parse(&options.url)?;
        let background = Background::new("strake-tikv", &address.shown)?;
        let handle = background.handle().clone();
        let wait = Duration::from_millis(options.wait_ms_max);
        let cluster = Arc::new(Cluster::new(address, wait, handle.clone()));
        let (opened, options) = (cluster.clone(), options.clone());
        let (id, host) = (options.store.clone(), options.host.clone());
        // Every step of it has its time limit.
        let claimed = async move { claims::open(&opened, &options, opened.deadline()).await };
        background.carry_out(cluster.shown(), claimed)??;
        handle.spawn(garbage::collect(Arc::downgrade(&cluster)));
        Ok(Self { cluster, id, host, background })
    }
}

#[async_trait]
impl Store for TikvStore {
    fn name(&self) -> &'static str {
        NAME
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn open(&self, part: Part) -> Result<Arc<dyn Kv>> {
        let (cluster, id, host) = (self.cluster.clone(), self.id.clone(), self.host.clone());
        // The connections live on threads of their own.
        let claimed = self.cluster.runtime.spawn(async move {
            claims::claim(&cluster, &id, &host, part, cluster.deadline()).await
        });
        let number = claimed.await.map_err(|_| self.cluster.closed())??;
        let hub = Arc::new(Hub::new(self.cluster.clone(), part, number, &self.host));
        let (snapshots, waiting) = mpsc::unbounded_channel();
        let (writer, asked) = mpsc::channel(writer::WAITING_MAX);
        let runtime = &self.cluster.runtime;
        runtime.spawn(snapshots::begin_for_all(hub.clone(), waiting, writer.clone()));
        runtime.spawn(Writer::new(hub.clone()).run(asked));
        Ok(Arc::new(TikvKv { hub, snapshots, writer, background: self.background.clone() }))
    }

    async fn look(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        let (cluster, keys) = (self.cluster.clone(), keys.to_vec());
        let looked = self.cluster.runtime.spawn(async move {
            let now = cluster.now(cluster.deadline()).await?;
            cluster.multi_get(now, &keys).await
        });
        looked.await.map_err(|_| self.cluster.closed())?
    }
}

#[async_trait]
impl Kv for TikvKv {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        let (tell, told) = oneshot::channel();
        let closed = || self.hub.cluster.closed();
        self.snapshots.send(tell).map_err(|_| closed())?;
        let moment = told.await.map_err(|_| closed())??;
        Ok(Arc::new(TikvSnapshot::new(moment, self.background.clone())))
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> Result<Outcome> {
        let moment = snapshot
            .as_any()
            .downcast_ref::<TikvSnapshot>()
            .expect("a snapshot is committed to the engine that gave it: a caller's bug otherwise")
            .moment();
        if writes.is_empty() {
            return Ok(Outcome::Committed);
        }
        if moment.is_too_old_to_commit() {
            return Ok(Outcome::Conflict);
        }
        let (answer, answered) = oneshot::channel();
        let commit = Commit { writes, moment, answer };
        let asked = self.writer.send(Ask::Commit(commit)).await;
        asked.map_err(|_| self.hub.cluster.closed())?;
        answered.await.unwrap_or(Ok(Outcome::Unknown))
    }

    fn check_room(&self) -> Result<()> {
        match self.hub.room.refuses() {
            true => Err(failure::full(self.hub.cluster.shown())),
            false => Ok(()),
        }
    }

    fn full(&self) -> Option<KvError> {
        self.hub.room.is_full().then(|| failure::full(self.hub.cluster.shown()))
    }

    fn is_taken_over(&self) -> bool {
        self.hub.taken_over.load(Ordering::Relaxed)
    }

    async fn sync(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
/// By the path by which the suite of the contract names it.
#[cfg(test)]
pub(crate) use strake_engine::kv;
