//! PostgreSQL, and what speaks its protocol, as an engine.
//!
//! One table holds the map, a row a key, with the version that wrote it. What is deleted stays for a while as a
//! row without a value, so that a commit can tell "never there" from "there and gone". A snapshot is a
//! transaction that reads; a commit is one statement that writes all of its keys if each still has the
//! version of the snapshot. So nothing depends on what a database does about conflicts between
//! transactions, where PostgreSQL, CockroachDB and YugabyteDB differ. docs/design/0060-postgresql.md says why.
//!
//! A commit is acknowledged when the database has committed it, which is as durable as it gets:
//! [`Kv::sync`] has nothing to do.

mod address;
mod answer;
mod connection;
mod failure;
mod hub;
mod primary;
mod readers;
mod schema;
mod sweep;
mod tls;
mod writer;

use super::background::Background;
use super::pause::Pause;
use super::{DatabaseOptions, Kv, KvError, Outcome, Part, Result, Snapshot, Store, Writes};
use address::Address;
use async_trait::async_trait;
use bytes::Bytes;
use hub::{Hub, Pool};
use readers::{PostgresSnapshot, Waiting};
use schema::Opening;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use writer::{Ask, Commit, Write, Writer};

/// The engine's name.
pub const NAME: &str = "postgres";

/// Opens a store in a database, and makes it where there is none. Blocks, for not much longer than
/// `wait_ms_max`.
pub fn open_postgres(options: &DatabaseOptions) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(PostgresStore::open(options)?))
}

/// True if `text` is meant to be the URL of such a database.
pub fn is_postgres(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// Where a database is, without the password.
pub fn postgres_shown(url: &str) -> Result<String> {
    Ok(Address::parse(url)?.shown)
}

/// An open store.
struct PostgresStore {
    pool: Arc<Pool>,
    /// Its id.
    id: String,
    host: String,
    background: Arc<Background>,
}

/// A part of it that we write.
struct PostgresKv {
    hub: Arc<Hub>,
    snapshots: mpsc::UnboundedSender<Waiting>,
    writer: mpsc::Sender<Ask>,
    background: Arc<Background>,
}

impl PostgresStore {
    fn open(options: &DatabaseOptions) -> Result<Self> {
        let address = Address::parse(&options.url)?;
        let background = Background::new("strake-pg", &address.shown)?;
        let handle = background.handle().clone();
        let wait = Duration::from_millis(options.wait_ms_max);
        let (opened, options) = (address.clone(), options.clone());
        let (id, host) = (options.store.clone(), options.host.clone());
        // Every step of it has its time limit.
        let prepared = async move { prepare(&opened, &options, Instant::now() + wait).await };
        background.carry_out(&address.shown, prepared)??;
        let pool = Arc::new(Pool::new(address, wait, handle.clone()));
        handle.spawn(sweep::sweep(Arc::downgrade(&pool)));
        Ok(Self { pool, id, host, background })
    }
}

#[async_trait]
impl Store for PostgresStore {
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
        let (pool, id, host) = (self.pool.clone(), self.id.clone(), self.host.clone());
        // Before the claim: what another part meets meanwhile may have come after that.
        let gone_back_before = pool.gone_back.times();
        // The connections live on threads of their own.
        let claimed = self
            .pool
            .runtime
            .spawn(async move { claim(&pool, &id, &host, part, pool.deadline()).await });
        let closed = |_| self.pool.unreachable("the store is being closed");
        let opening = claimed.await.map_err(closed)??;
        let (pool, runtime) = (self.pool.clone(), &self.pool.runtime);
        let hub = Arc::new(Hub::new(pool, opening.writer, part, gone_back_before));
        let (snapshots, waiting) = mpsc::unbounded_channel();
        let (writer, asked) = mpsc::channel(writer::WAITING_MAX);
        runtime.spawn(readers::begin_for_all(hub.clone(), waiting, writer.clone()));
        runtime.spawn(Writer::new(hub.clone(), opening.seq).run(asked));
        Ok(Arc::new(PostgresKv { hub, snapshots, writer, background: self.background.clone() }))
    }

    async fn look(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        let (pool, keys) = (self.pool.clone(), keys.to_vec());
        let looked = self.pool.runtime.spawn(async move { readers::look(&pool, &keys).await });
        looked.await.map_err(|_| self.pool.unreachable("the store is being closed"))?
    }

    fn times_gone_back(&self) -> u64 {
        self.pool.gone_back.times()
    }
}

impl PostgresKv {
    fn closed(&self) -> KvError {
        self.hub.pool.unreachable("the store is being closed")
    }
}

/// Opens the tables, and tries again while the database is on its way up.
async fn prepare(address: &Address, options: &DatabaseOptions, deadline: Instant) -> Result<()> {
    let mut pause = Pause::default();
    loop {
        let prepared = async {
            let (client, _) = primary::connect(address).await?;
            schema::open(&client, address, options).await
        };
        match prepared.await {
            Ok(()) => return Ok(()),
            Err(error) => pause.after(error, deadline).await?,
        }
    }
}

/// Becomes the writer of a part; a number that was taken and whose answer was lost is never used.
async fn claim(
    pool: &Pool,
    store: &str,
    host: &str,
    part: Part,
    deadline: Instant,
) -> Result<Opening> {
    let mut pause = Pause::default();
    loop {
        let claimed = async {
            let (client, _) = primary::connect(&pool.address).await?;
            schema::claim(&client, &pool.address, store, host, part).await
        };
        match claimed.await {
            Ok(opening) => return Ok(opening),
            Err(error) => pause.after(error, deadline).await?,
        }
    }
}

#[async_trait]
impl Kv for PostgresKv {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        let (tell, told) = oneshot::channel();
        self.snapshots.send(tell).map_err(|_| self.closed())?;
        let reader = told.await.map_err(|_| self.closed())??;
        Ok(Arc::new(PostgresSnapshot::new(reader, self.background.clone())))
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> Result<Outcome> {
        let seen = snapshot
            .as_any()
            .downcast_ref::<PostgresSnapshot>()
            .expect("a snapshot is committed to the engine that gave it: a caller's bug otherwise");
        if writes.is_empty() {
            return Ok(Outcome::Committed);
        }
        if seen.is_too_old() {
            return Ok(Outcome::Conflict);
        }
        let keys: Vec<&[u8]> = writes.keys().map(Vec::as_slice).collect();
        let deadline = self.hub.pool.deadline();
        let versions = match seen.versions(&keys).await {
            Ok(versions) => versions,
            // The snapshot is gone, maybe with its connection; nothing has been written, so begin again.
            Err(KvError::Unreachable { .. } | KvError::Expired { .. })
                if Instant::now() < deadline =>
            {
                return Ok(Outcome::Conflict);
            }
            Err(error) => return Err(error),
        };
        // The versions are all that a commit needs of it. Who locks a table (VACUUM FULL) waits until its transaction has
        // ended, and our statement waits behind him.
        drop(snapshot);
        let writes = writes.into_iter().zip(versions);
        let writes = writes.map(|((key, value), replaced)| Write { key, value, replaced });
        let (answer, answered) = oneshot::channel();
        let commit = Commit { writes: writes.collect(), answer };
        self.writer.send(Ask::Commit(commit)).await.map_err(|_| self.closed())?;
        answered.await.unwrap_or(Ok(Outcome::Unknown))
    }

    fn check_room(&self) -> Result<()> {
        match self.hub.room.refuses() {
            true => Err(failure::full(&self.hub.pool.address.shown)),
            false => Ok(()),
        }
    }

    fn full(&self) -> Option<KvError> {
        self.hub.room.is_full().then(|| failure::full(&self.hub.pool.address.shown))
    }

    fn is_taken_over(&self) -> bool {
        self.hub.is_taken_over()
    }

    async fn sync(&self) -> Result<()> {
        Ok(())
    }
}
