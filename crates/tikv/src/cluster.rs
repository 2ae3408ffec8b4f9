//! The way to the cluster: every request has a limit, and is made again while that may help.

use crate::address::Address;
use crate::failure::{failure, is_of_network};
use crate::keys::Keys;
use crate::records;
use bytes::Bytes;
use std::collections::HashMap;
use std::future::Future;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strake_engine::kv::{KvError, Pair, Pause, Result};
use tikv_client::transaction::HeartbeatOption;
use tikv_client::{
    Backoff, CheckLevel, Error, RetryOptions, Snapshot, Timestamp, TimestampExt, Transaction,
    TransactionClient, TransactionOptions,
};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

/// How long one request to one server may take.
const REQUEST_SECONDS_MAX: u64 = 5;
/// Keys, and pairs, asked for at a time.
const KEYS_MAX: usize = 1000;
const PAGE: usize = 500;
/// Pauses while another's transaction is in the way. It is rolled back when it has been for three
/// seconds; a large one, of `n` MiB, for six times the root of `n` seconds, at most 20.
const LOCKED: Backoff = Backoff::no_jitter_backoff(2, 200, 30);
/// Pauses while a region moves.
const MOVED: Backoff = Backoff::no_jitter_backoff(2, 500, 10);

/// What ends a request.
pub enum Fault {
    /// We see what is wrong.
    Ours(KvError),
    /// The client does.
    Theirs(Error),
}

impl From<KvError> for Fault {
    fn from(error: KvError) -> Self {
        Self::Ours(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Theirs(error)
    }
}

/// A client, and how many there were before it.
#[derive(Default)]
struct Link {
    client: Option<TransactionClient>,
    number: u64,
}

/// Shared by all parts of one open store.
pub struct Cluster {
    address: Address,
    keys: Keys,
    /// How long to wait for a cluster that is away.
    pub wait: Duration,
    pub runtime: tokio::runtime::Handle,
    link: Mutex<Link>,
    /// Nobody but Strake has keys in the cluster, so we say what versions are kept.
    pub is_alone: AtomicBool,
}

impl Cluster {
    pub fn new(address: Address, wait: Duration, runtime: tokio::runtime::Handle) -> Self {
        let keys = Keys::new(&address.name);
        let (link, is_alone) = Default::default();
        Self { address, keys, wait, runtime, link, is_alone }
    }

    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Notes whether others than Strake have keys in the cluster.
    pub fn note_alone(&self, is_alone: bool) {
        self.is_alone.store(is_alone, Ordering::Relaxed);
    }

    pub fn shown(&self) -> &str {
        &self.address.shown
    }

    pub fn deadline(&self) -> Instant {
        Instant::now() + self.wait
    }

    pub fn unreachable(&self, cause: &str) -> KvError {
        KvError::Unreachable { store: self.shown().to_owned(), cause: cause.into() }
    }

    pub fn closed(&self) -> KvError {
        self.unreachable("the store is being closed")
    }

    pub fn corrupt(&self, cause: &str) -> KvError {
        KvError::Corrupt { store: self.shown().to_owned(), cause: cause.into() }
    }

    /// Makes a request, and makes it again until the deadline as long as waiting may help: it does the same
    /// when it is made twice.
    pub async fn ask<T, F>(
        &self,
        deadline: Instant,
        request: impl Fn(TransactionClient) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let mut pause = Pause::default();
        loop {
            match self.ask_once(deadline, &request).await {
                Ok(answer) => return Ok(answer),
                Err(error) => pause.after(error, deadline).await?,
            }
        }
    }

    async fn ask_once<T, F>(
        &self,
        deadline: Instant,
        request: &impl Fn(TransactionClient) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let (client, number) = self.client(deadline).await?;
        match timeout_at(deadline, request(client)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Fault::Ours(error))) => Err(error),
            Ok(Err(Fault::Theirs(error))) => {
                if is_of_network(&error) {
                    self.forget(number).await;
                }
                Err(failure(self.shown(), &error))
            }
            Err(_) => {
                self.forget(number).await;
                Err(self.unreachable(&self.no_answer()))
            }
        }
    }

    fn no_answer(&self) -> String {
        format!("no answer in {} s", self.wait.as_secs_f32())
    }

    /// The client that all use, or a new one.
    async fn client(&self, deadline: Instant) -> Result<(TransactionClient, u64)> {
        let connected = async {
            let mut link = self.link.lock().await;
            if let Some(client) = &link.client {
                return Ok((client.clone(), link.number));
            }
            let config = self.address.config(Duration::from_secs(REQUEST_SECONDS_MAX));
            let hosts = self.address.hosts.clone();
            let client = TransactionClient::new_with_config(hosts, config).await?;
            link.client = Some(client.clone());
            link.number += 1;
            Ok((client, link.number))
        };
        match timeout_at(deadline, connected).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(failure(self.shown(), &error)),
            Err(_) => Err(self.unreachable(&self.no_answer())),
        }
    }

    /// The client of this number is of no use: it may hold on to a connection or a leader that is gone.
    async fn forget(&self, number: u64) {
        let mut link = self.link.lock().await;
        if link.number == number {
            link.client = None;
        }
    }

    /// What time it is in the cluster: everything committed before this call is before it.
    pub async fn now(&self, deadline: Instant) -> Result<Timestamp> {
        self.ask(deadline, async |client| Ok(client.current_timestamp().await?)).await
    }

    /// The value of a key of any kind as it was at a time.
    pub async fn get(
        &self,
        at: Timestamp,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>> {
        self.ask(deadline, |client| {
            let (mut past, key) = (past(&client, &at), key.to_vec());
            async move { Ok(past.get(key).await?) }
        })
        .await
    }

    /// The values of keys of the map as they were at a time, in their order.
    pub async fn multi_get(&self, at: Timestamp, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        let mut found: HashMap<Vec<u8>, Bytes> = HashMap::with_capacity(keys.len());
        for some in keys.chunks(KEYS_MAX) {
            let some: Vec<_> = some.iter().map(|key| self.keys.data(key)).collect();
            let pairs = self.ask(self.deadline(), |client| {
                let (mut past, some) = (past(&client, &at), some.clone());
                async move { Ok(past.batch_get(some).await?.collect::<Vec<_>>()) }
            });
            for pair in pairs.await? {
                let (key, value) = self.plain(pair)?;
                found.insert(key.to_vec(), value);
            }
        }
        Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
    }

    /// At most `limit` pairs of the map as it was at a time, ascending. Each page has the whole time.
    pub async fn scan(
        &self,
        at: Timestamp,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Pair>> {
        let (mut first, end) = self.keys.range(from, to);
        let mut pairs = Vec::new();
        while pairs.len() < limit && first < end {
            let page = PAGE.min(limit - pairs.len());
            let scanned = self.ask(self.deadline(), |client| {
                let (mut past, range) = (past(&client, &at), first.clone()..end.clone());
                async move { Ok(past.scan(range, page as u32).await?.collect::<Vec<_>>()) }
            });
            let scanned = scanned.await?;
            let is_last = scanned.len() < page;
            for pair in scanned {
                pairs.push(self.plain(pair)?);
            }
            match pairs.last() {
                Some((last, _)) if !is_last => first = self.keys.range(Bound::Excluded(last), to).0,
                _ => break,
            }
        }
        Ok(pairs)
    }

    fn plain(&self, pair: tikv_client::KvPair) -> Result<Pair> {
        let (key, value) = pair.into();
        let key: Vec<u8> = key.into();
        let value = records::unwrap(value)
            .ok_or_else(|| self.corrupt("a value does not begin as this release writes them"))?;
        Ok((Bytes::copy_from_slice(self.keys.plain(&key)), value))
    }
}

/// For reading as of a time.
pub fn past(client: &TransactionClient, at: &Timestamp) -> Snapshot {
    client.snapshot(Timestamp::from_version(at.version()), options())
}

/// A transaction of now.
pub async fn begin(client: &TransactionClient) -> tikv_client::Result<Transaction> {
    client.begin_with_options(options()).await
}

/// Frees the keys of a transaction that may have locked some and certainly was not committed, without waiting for it.
/// Of one that may have been, TiKV would roll back what is still locked: each region does as it is told and asks nobody
/// whether the primary key is committed.
pub fn give_up(mut transaction: Transaction) {
    tokio::spawn(async move {
        let freed = timeout(Duration::from_secs(REQUEST_SECONDS_MAX), transaction.rollback());
        if !matches!(freed.await, Ok(Ok(()))) {
            tracing::debug!("keys of a transaction stay locked for some seconds");
        }
    });
}

fn options() -> TransactionOptions {
    TransactionOptions::new_optimistic()
        // What was given up is to become free.
        .heartbeat_option(HeartbeatOption::NoHeartbeat)
        .drop_check(CheckLevel::None)
        .retry_options(RetryOptions::new(MOVED, LOCKED))
}
