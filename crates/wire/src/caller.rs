//! The address book: whoever wants a server's service asks here and need not know where it runs.
//!
//! A service in the same process is handed out as it is. Any other is a [`RemoteMeta`],
//! [`RemoteStorage`] or [`RemoteManager`], which send the call over the lanes of a pooled
//! peer. A lane connects when it is first used, so nothing here waits.

use crate::connection::{Call, LaneKind, Peer, PeerOptions};
use crate::frame::{Draft, ServiceClass};
use crate::message::{manager, meta, storage};
use crate::service::{ManagerService, MetaService, Services, StorageService};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strake_types::{Error, ErrorKind, GroupId, Result, ServerId};

pub use crate::options::CallerOptions;
pub use crate::service::Services as LocalServices;

/// Calls that move at least this many bytes go by a bulk lane.
const BULK_BYTES_MIN: u64 = 16 << 10;
/// How many times longer than a common call one may take that has to work through a whole target.
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
    pub fn register_local(&self, server: ServerId, local: LocalServices) {
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

    /// True if calls to this server's storage (or, failing that, metadata) leave the process.
    pub fn is_remote(&self, server: ServerId) -> bool {
        !self.local.read().contains_key(&server)
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
        if matches!(request.op, Some(meta::MetaOp::Recalls(_))) {
            call.lane = LaneKind::Forward;
        }
        let (body, _) = self.peer.call(call).await?;
        decode(&self.peer, body)
    }
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
        let (moved, long) = match &request.op {
            Some(Op::Read(read)) => (read.len, false),
            Some(Op::Write(_) | Op::WriteMany(_)) => (payload.len() as u64, false),
            Some(
                Op::Sync(_) | Op::Copy(_) | Op::Scrub(_) | Op::DropVolume(_) | Op::AddTarget(_),
            ) => (0, true),
            _ => (0, false),
        };
        let is_write = matches!(request.op, Some(Op::Write(_) | Op::WriteMany(_)));
        let draft = Draft::message(&request)?.with_payload(payload)?;
        let mut call = Call::new(ServiceClass::Storage, draft);
        call.lane = match request.forward {
            Some(_) => LaneKind::Forward,
            None if moved < BULK_BYTES_MIN => LaneKind::Control,
            // The primary forwards what it has in full: two writes that share its link would both come
            // late, and its own way out would be idle meanwhile.
            None if is_write && group.copies() > 1 => LaneKind::BulkInTurn(group.ordinal()),
            None => LaneKind::Bulk,
        };
        if long {
            call.timeout_factor = LONG_CALL_FACTOR;
        }
        let (body, payload) = self.peer.call(call).await?;
        Ok((decode(&self.peer, body)?, payload))
    }
}
