//! Services and servers for the tests of this crate, and what is logged.

#[path = "../../../tests/src/lines.rs"]
pub mod lines;

use crate::caller::{CallerOptions, Callers};
use crate::frame::crc32c;
use crate::message::manager::{
    ClusterMap, Joined, ManagerAnswer, ManagerOp, ManagerReply, ManagerRequest, MapAnswer, Server,
};
use crate::message::meta::{MetaAnswer, MetaReply, MetaRequest};
use crate::message::storage::{Data, StorageAnswer, StorageOp, StorageReply, StorageRequest};
use crate::server::{Identity, Limits, Listener, serve_within};
use crate::service::{ManagerService, MetaService, Services, StorageService};
use crate::tls::Tls;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use strake_types::{Error, ErrorKind, Result};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Answers every kind of call in a way that tests can foretell.
#[derive(Default)]
pub struct Fake {
    pub map: Mutex<ClusterMap>,
    pub map_calls: AtomicUsize,
    /// What those missed who asked for the map.
    pub missed: Mutex<Vec<u32>>,
    pub meta_calls: AtomicUsize,
    pub storage_calls: AtomicUsize,
}

#[async_trait]
impl ManagerService for Fake {
    /// Knows a map, and gives whoever joins a key.
    async fn call(&self, request: ManagerRequest) -> Result<ManagerReply> {
        let get = match request.op {
            Some(ManagerOp::GetMap(get)) => get,
            Some(ManagerOp::Join(_)) => {
                let capability_key = Bytes::from_static(&[7; 32]);
                let joined = Joined { capability_key, ..Joined::default() };
                return Ok(ManagerReply {
                    answer: Some(ManagerAnswer::Joined(joined)),
                    ..ManagerReply::default()
                });
            }
            Some(ManagerOp::Heartbeat(_)) => return Ok(ManagerAnswer::Epoch(0).into()),
            _ => return Err(ErrorKind::NotSupported.into()),
        };
        self.map_calls.fetch_add(1, Ordering::SeqCst);
        self.missed.lock().extend(get.missed);
        let map = self.map.lock().clone();
        let is_newer = map.epoch > get.known_epoch;
        let answer = if is_newer { MapAnswer::of(&map) } else { MapAnswer::default() };
        Ok(ManagerAnswer::Map(answer).into())
    }
}

#[async_trait]
impl MetaService for Fake {
    /// Session 0 answers at once, 1 fails, 2 never answers, 3 panics, others answer later.
    async fn call(&self, request: MetaRequest) -> Result<MetaReply> {
        self.meta_calls.fetch_add(1, Ordering::SeqCst);
        match request.session {
            0 => {}
            1 => return Err(Error::with(ErrorKind::NotFound, "as the test wishes")),
            2 => std::future::pending().await,
            3 => panic!("as the test wishes"),
            ms => tokio::time::sleep(Duration::from_millis(ms)).await,
        }
        let bytes = Bytes::from(request.seq.to_le_bytes().to_vec());
        Ok(MetaReply { answer: Some(MetaAnswer::Bytes(bytes)), fenced: 0 })
    }
}

#[async_trait]
impl StorageService for Fake {
    /// A read answers a pattern, a write the checksum of what came; the sync of inode 2 never ends, nor does
    /// the copy from target 2.
    async fn call(&self, request: StorageRequest, payload: Bytes) -> Result<(StorageReply, Bytes)> {
        self.storage_calls.fetch_add(1, Ordering::SeqCst);
        let (crc, answer) = match request.op {
            Some(StorageOp::Read(read)) => {
                tokio::task::yield_now().await;
                let data = pattern(read.offset, read.len);
                (crc32c(&data), data)
            }
            Some(StorageOp::Sync(file)) if file.ino == 2 => std::future::pending().await,
            Some(StorageOp::Copy(copy)) if copy.from_target == 2 => std::future::pending().await,
            Some(StorageOp::Write(write)) if crc32c(&payload) != write.crc => {
                return Err(ErrorKind::Corrupt.into());
            }
            _ => (crc32c(&payload), Bytes::new()),
        };
        Ok((StorageReply { answer: Some(StorageAnswer::Data(Data { crc })) }, answer))
    }
}

/// Bytes that tell where they come from.
pub fn pattern(seed: u64, len: u64) -> Bytes {
    (0..len).map(|i| (seed.wrapping_mul(31).wrapping_add(i * 7) >> 2) as u8).collect()
}

/// A server that runs until it is stopped.
pub struct Running {
    pub address: String,
    pub fake: Arc<Fake>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    pub async fn start(address: &str, cluster: &str) -> Self {
        Self::start_with(address, cluster, Limits::default()).await
    }

    pub async fn start_with(address: &str, cluster: &str, limits: Limits) -> Self {
        Self::start_secured(address, cluster, limits, None).await
    }

    pub async fn start_secured(
        address: &str,
        cluster: &str,
        limits: Limits,
        tls: Option<Arc<Tls>>,
    ) -> Self {
        let listener = Listener::bind(address).await.unwrap().secured_by(tls);
        let address = listener.address();
        let fake = Arc::new(Fake::default());
        let services = Services {
            manager: Some(fake.clone()),
            meta: Some(fake.clone()),
            storage: Some(fake.clone()),
        };
        let (stop, stopped) = watch::channel(false);
        let identity = Identity { cluster: cluster.into(), name: "test server".into() };
        let task = tokio::spawn(serve_within(limits, listener, services, identity, stopped));
        Self { address, fake, stop, task }
    }

    pub async fn stop(self) {
        self.stop.send(true).unwrap();
        self.task.await.unwrap();
    }

    /// What a map says of this server.
    pub fn entry(&self) -> Server {
        server_at(&self.address)
    }
}

pub fn server_at(address: &str) -> Server {
    Server { id: 1, address: address.into(), manager: true, up: true, ..Server::default() }
}

pub fn callers(call_timeout_ms: u64) -> Arc<Callers> {
    Callers::new(CallerOptions { call_timeout_ms, ..options() })
}

/// Those of a caller that connects to whom it calls, however slow the machine is.
pub fn options() -> CallerOptions {
    CallerOptions { connect_timeout_ms: 60_000, ..CallerOptions::default() }
}
