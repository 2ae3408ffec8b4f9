//! The address book: whoever wants a server's service asks here and need not know where it runs.
//!
//! A service in the same process is called without a message. What it does on targets has limits all the same, and what it has
//! begun goes on without its caller ([`LocalStorage`], [`LocalMeta`]). Any other is a
//! [`RemoteMeta`], [`RemoteStorage`] or [`RemoteManager`], which send the call over the lanes of a pooled
//! peer. A lane connects when it is first used, so nothing here waits.

use crate::connection::{Call, Counted, LaneKind, Peer, PeerOptions};
use crate::frame::{Draft, ServiceClass};
use crate::hello;
use crate::message::{manager, meta, storage};
use crate::service::{ManagerService, MetaService, Services, StorageService};
use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strake_base::task;
use strake_types::{Error, ErrorKind, GroupId, Result, ServerId};

pub use crate::hello::CallerKind;
pub use crate::options::CallerOptions;
pub use crate::service::Services as LocalServices;

/// Calls that move at least this many bytes go by a bulk lane.
const BULK_BYTES_MIN: u64 = 16 << 10;
/// How many times longer than a common call one may take that has to work through a whole target, or a whole directory.
const LONG_CALL_FACTOR: u32 = 6;

/// The services of one address.
struct Remote {
    peer: Arc<Peer>,
    manager: Arc<RemoteManager>,
    meta: Arc<RemoteMeta>,
    storage: Arc<RemoteStorage>,
}

/// The address book. Cheap to share in an `Arc`.
pub struct Callers {
    options: Arc<PeerOptions>,
    local: RwLock<HashMap<ServerId, LocalServices>>,
    /// Grows with every change of `local`, so that a map view knows when to look services up again.
    generation: AtomicU64,
    remote: Mutex<HashMap<String, Arc<Remote>>>,
}

impl Callers {
    /// An empty address book.
    pub fn new(options: CallerOptions) -> Arc<Self> {
        Arc::new(Self {
            options: Arc::new(PeerOptions::new(options)),
            local: RwLock::default(),
            generation: AtomicU64::new(0),
            remote: Mutex::default(),
        })
    }

    /// Calls to this server go to these services directly. Roles left out are called over the wire.
    pub fn register_local(&self, server: ServerId, mut local: LocalServices) {
        let bounded = |service| -> Arc<dyn StorageService> {
            Arc::new(LocalStorage { service, options: self.options.clone() })
        };
        local.storage = local.storage.map(bounded);
        local.meta =
            local.meta.map(|service| -> Arc<dyn MetaService> { Arc::new(LocalMeta { service }) });
        self.local.write().insert(server, local);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Changes whenever services are registered.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// From now on only servers of this cluster are talked to.
    pub fn set_cluster(&self, cluster: &str) {
        self.options.set_cluster(cluster);
    }

    /// A manager by its address (`host:port` or `unix:/path`), before a map is known.
    pub fn manager_at(&self, address: &str) -> Arc<dyn ManagerService> {
        self.remote(address).manager.clone()
    }

    /// Fails unless somebody of this cluster answers at an address, whatever that is: there is no target 0.
    pub async fn reach(&self, address: &str) -> Result<()> {
        use ErrorKind::{Malformed, TimedOut, Unavailable, WrongPeer};
        let op = Some(storage::StorageOp::Stat(storage::TargetStatRequest {}));
        let request = storage::StorageRequest { op, ..storage::StorageRequest::default() };
        let mut call = Call::new(ServiceClass::Storage, Draft::message(&request)?);
        call.lane = LaneKind::Vital;
        match self.remote(address).peer.call(call).await {
            Err(error) if hello::is_told_there(&error) => Ok(()),
            Err(error) if matches!(error.kind, Malformed | TimedOut | Unavailable | WrongPeer) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// The manager on this server.
    pub fn manager(&self, server: &manager::Server) -> Arc<dyn ManagerService> {
        let local = self.local(server).and_then(|s| s.manager);
        local.unwrap_or_else(|| self.remote(&server.address).manager.clone())
    }

    /// The metadata service on this server.
    pub fn meta(&self, server: &manager::Server) -> Arc<dyn MetaService> {
        let local = self.local(server).and_then(|s| s.meta);
        local.unwrap_or_else(|| self.remote(&server.address).meta.clone())
    }

    /// The storage service on this server.
    pub fn storage(&self, server: &manager::Server) -> Arc<dyn StorageService> {
        let local = self.local(server).and_then(|s| s.storage);
        local.unwrap_or_else(|| self.remote(&server.address).storage.clone())
    }

    fn local(&self, server: &manager::Server) -> Option<Services> {
        self.local.read().get(&ServerId(server.id)).cloned()
    }

    fn remote(&self, address: &str) -> Arc<Remote> {
        let mut remotes = self.remote.lock();
        if let Some(known) = remotes.get(address) {
            return known.clone();
        }
        let peer = Arc::new(Peer::new(address, self.options.clone()));
        let remote = Arc::new(Remote {
            manager: Arc::new(RemoteManager { peer: peer.clone() }),
            meta: Arc::new(RemoteMeta { peer: peer.clone() }),
            storage: Arc::new(RemoteStorage { peer: peer.clone() }),
            peer,
        });
        remotes.insert(address.to_owned(), remote.clone());
        remote
    }

    /// Closes every connection; calls in flight fail as [`ErrorKind::Unavailable`].
    pub fn close(&self) {
        for (_, remote) in self.remote.lock().drain() {
            remote.peer.close();
        }
    }
}

fn decode<M: Message + Default>(peer: &Peer, body: Bytes) -> Result<M> {
    M::decode(body).map_err(|e| {
        let detail = format!("answer of {}: {e}", peer.address());
        Error::with(ErrorKind::Malformed, detail)
    })
}

/// A manager in another process.
pub struct RemoteManager {
    peer: Arc<Peer>,
}

#[async_trait]
impl ManagerService for RemoteManager {
    async fn call(&self, request: manager::ManagerRequest) -> Result<manager::ManagerReply> {
        let mut call = Call::new(ServiceClass::Manager, Draft::message(&request)?);
        if request.op.as_ref().is_some_and(manager::ManagerOp::is_vital) {
            call.lane = LaneKind::Vital;
        }
        let (body, _) = self.peer.call(call).await?;
        decode(&self.peer, body)
    }
}

/// A metadata server in another process.
pub struct RemoteMeta {
    peer: Arc<Peer>,
}

#[async_trait]
impl MetaService for RemoteMeta {
    async fn call(&self, request: meta::MetaRequest) -> Result<meta::MetaReply> {
        let mut call = Call::new(ServiceClass::Meta, Draft::message(&request)?);
        call.lane = match &request.op {
            // What others wait for.
            Some(meta::MetaOp::Recalls(_) | meta::MetaOp::Behind(_)) => LaneKind::Forward,
            Some(meta::MetaOp::Told(told)) if told.exclusive != 0 => LaneKind::Forward,
            Some(op) if op.waits_for_others() => LaneKind::Waiting,
            _ => LaneKind::Control,
        };
        call.timeout_factor = meta_timeout_factor(&request);
        let (body, _) = self.peer.call(call).await?;
        decode(&self.peer, body)
    }
}

/// How many times the common limit a call may take.
pub fn timeout_factor(request: &storage::StorageRequest) -> u32 {
    use storage::StorageOp as Op;
    match &request.op {
        Some(Op::Sync(_) | Op::Copy(_) | Op::Scrub(_) | Op::DropVolume(_) | Op::AddTarget(_)) => {
            LONG_CALL_FACTOR
        }
        _ => 1,
    }
}

/// The same of a metadata server.
pub fn meta_timeout_factor(request: &meta::MetaRequest) -> u32 {
    match &request.op {
        Some(meta::MetaOp::Check(_)) => LONG_CALL_FACTOR,
        _ => 1,
    }
}

/// The metadata server of this process. For whom nobody waits any more it goes on, as it would on another server: a change
/// that is dropped half-way lets its locks go, and may be made all the same by a store that is asked already.
struct LocalMeta {
    service: Arc<dyn MetaService>,
}

#[async_trait]
impl MetaService for LocalMeta {
    async fn call(&self, request: meta::MetaRequest) -> Result<meta::MetaReply> {
        let service = self.service.clone();
        task::to_the_end(async move { service.call(request).await }).await
    }
}

/// The storage server of this process. Its calls have the limits of those that go over the network: a disk may hang,
/// and who waits for it may hold what others need. Reads are handed through as they are: small ones are done in
/// microseconds, and nobody waits for who reads.
struct LocalStorage {
    service: Arc<dyn StorageService>,
    options: Arc<PeerOptions>,
}

// As `async_trait` writes it, by hand: a read needs no future of its own here.
impl StorageService for LocalStorage {
    fn call<'life0, 'async_trait>(
        &'life0 self,
        request: storage::StorageRequest,
        payload: Bytes,
    ) -> BoxFuture<'async_trait, Result<(storage::StorageReply, Bytes)>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        if let Some(storage::StorageOp::Read(_)) = &request.op {
            return self.service.call(request, payload);
        }
        let limit = self.options.call_timeout() * timeout_factor(&request);
        Box::pin(call_within(limit, self.service.clone(), request, payload))
    }
}

/// Calls a service of this process. One that is late, or for which nobody waits any more, goes on without its caller, as it
/// would on another server: the next attempt at the same change must find it under way.
async fn call_within(
    limit: Duration,
    service: Arc<dyn StorageService>,
    request: storage::StorageRequest,
    payload: Bytes,
) -> Result<(storage::StorageReply, Bytes)> {
    let target = request.target;
    let called = task::to_the_end(async move { service.call(request, payload).await });
    let late = |_| {
        let detail = format!("target {target}: no answer within {} ms", limit.as_millis());
        Error::with(ErrorKind::Unavailable, detail)
    };
    tokio::time::timeout(limit, called).await.map_err(late)?
}

/// A storage server in another process.
pub struct RemoteStorage {
    peer: Arc<Peer>,
}

#[async_trait]
impl StorageService for RemoteStorage {
    async fn call(
        &self,
        request: storage::StorageRequest,
        payload: Bytes,
    ) -> Result<(storage::StorageReply, Bytes)> {
        use storage::StorageOp as Op;
        let group = GroupId(request.group);
        let moved = match &request.op {
            Some(Op::Read(read)) => read.len,
            Some(Op::Write(_) | Op::WriteMany(_)) => payload.len() as u64,
            _ => 0,
        };
        let is_write = matches!(request.op, Some(Op::Write(_) | Op::WriteMany(_)));
        let is_look = matches!(&request.op, Some(Op::Settle(look)) if look.parts.is_empty());
        let draft = Draft::message(&request)?.with_payload(payload)?;
        let mut call = Call::new(ServiceClass::Storage, draft);
        call.lane = match request.forward {
            // Whether a member is there is not asked behind changes that it does not take.
            Some(_) if is_look => LaneKind::Vital,
            Some(_) => LaneKind::Forward,
            None if moved < BULK_BYTES_MIN => LaneKind::Control,
            // The primary forwards what it has in full: two writes that share its link would both come
            // late, and its own way out would be idle meanwhile.
            None if is_write && group.copies() > 1 => LaneKind::BulkInTurn(group.ordinal()),
            None => LaneKind::Bulk,
        };
        call.timeout_factor = timeout_factor(&request);
        call.counted = match &request.op {
            Some(Op::Copy(_)) => Counted::Copy,
            _ if request.is_sync() => Counted::Sync,
            _ => Counted::Call,
        };
        let (body, payload) = self.peer.call(call).await?;
        Ok((decode(&self.peer, body)?, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Limits;
    use crate::tests::{Running, callers, server_at};
    use tokio::sync::Notify;

    /// Does what it is asked for when it is told to go on.
    #[derive(Default)]
    struct Hanging {
        go_on: Notify,
        done: Notify,
    }

    #[async_trait]
    impl StorageService for Hanging {
        async fn call(
            &self,
            _: storage::StorageRequest,
            _: Bytes,
        ) -> Result<(storage::StorageReply, Bytes)> {
            self.go_on.notified().await;
            self.done.notify_one();
            Ok((storage::StorageReply::default(), Bytes::new()))
        }
    }

    /// Each attempt at a directory that took longer ended at the common limit, and the next began anew.
    #[test]
    fn a_page_of_a_check_may_take_longer_than_other_calls() {
        let request = |op| meta::MetaRequest { op: Some(op), ..meta::MetaRequest::default() };
        let check = request(meta::MetaOp::Check(meta::Check::default()));
        assert_eq!(meta_timeout_factor(&check), LONG_CALL_FACTOR);
        let other = request(meta::MetaOp::VolumeStat(meta::Nothing {}));
        assert_eq!(meta_timeout_factor(&other), 1);
    }

    #[tokio::test]
    async fn who_answers_at_an_address_is_reached_if_it_is_of_this_cluster() {
        let callers = callers(10_000);
        callers.set_cluster("abc");
        let reach = async |address: &str| callers.reach(address).await.map_err(|error| error.kind);
        let server = Running::start("127.0.0.1:0", "abc").await;
        let address = server.address.clone();
        assert_eq!(reach(&address).await, Ok(()));
        server.stop().await;
        assert_eq!(reach(&address).await, Err(ErrorKind::Unavailable));
        let other = Running::start("127.0.0.1:0", "another").await;
        assert_eq!(reach(&other.address).await, Err(ErrorKind::WrongPeer));
        other.stop().await;
    }

    /// A server that serves all whose connections it has was taken for unreached.
    #[tokio::test]
    async fn a_server_that_takes_no_more_connections_is_reached() {
        let limits = Limits { connections: 1, ..Limits::default() };
        let server = Running::start_with("127.0.0.1:0", "abc", limits).await;
        let first = callers(10_000);
        first.meta(&server.entry()).call(meta::MetaRequest::default()).await.unwrap();
        let second = callers(10_000);
        let refused = second.meta(&server.entry()).call(meta::MetaRequest::default()).await;
        assert_eq!(refused.unwrap_err().kind, ErrorKind::Unavailable);
        assert_eq!(second.reach(&server.address).await, Ok(()));
    }

    /// It was waited for without a limit, by who held the lock of a file meanwhile.
    #[tokio::test(start_paused = true)]
    async fn a_change_in_this_process_is_waited_for_only_so_long_and_goes_on() {
        let (callers, hanging) = (callers(60_000), Arc::new(Hanging::default()));
        let services = Services { storage: Some(hanging.clone()), ..Services::default() };
        callers.register_local(ServerId(1), services);
        let service = callers.storage(&server_at("127.0.0.1:1"));
        let op = Some(storage::StorageOp::Truncate(storage::Truncate::default()));
        let request = storage::StorageRequest { op, ..storage::StorageRequest::default() };
        let hour = Duration::from_secs(3_600);
        let called = service.call(request.clone(), Bytes::new());
        let called = tokio::time::timeout(hour, called).await.expect("it is given up");
        assert_eq!(called.unwrap_err().kind, ErrorKind::Unavailable);
        hanging.go_on.notify_one();
        tokio::time::timeout(hour, hanging.done.notified()).await.expect("it goes on");
        // Whoever gave it up before its limit ended it half-way: what its disk did on was begun once more.
        let called = service.call(request, Bytes::new());
        assert!(tokio::time::timeout(Duration::from_secs(1), called).await.is_err());
        hanging.go_on.notify_one();
        tokio::time::timeout(hour, hanging.done.notified()).await.expect("it goes on");
    }
}
