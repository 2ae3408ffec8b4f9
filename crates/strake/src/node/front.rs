//! What others reach of a server: its listeners, and the services behind them.
//!
//! A manager that comes back must be heard before its own server has joined: whether that one's
//! members of groups are still in sync depends on who else lives, and they say so to this manager.
//! So its listeners serve first, and the other roles answer `Unavailable` until they are there.

use async_trait::async_trait;
use bytes::Bytes;
use std::sync::{Arc, OnceLock};
use strake_manager::Candidate;
use strake_types::{Error, ErrorKind, Result};
use strake_wire::message::{meta, storage};
use strake_wire::server::{self, Identity, Listener};
use strake_wire::service::{MetaService, Services, StorageService};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A service that is being started.
struct Opening<S: ?Sized>(OnceLock<Arc<S>>);

impl<S: ?Sized> Opening<S> {
    fn get(&self) -> Result<&Arc<S>> {
        let starting = || Error::with(ErrorKind::Unavailable, "this server is being started");
        self.0.get().ok_or_else(starting)
    }
}

#[async_trait]
impl MetaService for Opening<dyn MetaService> {
    async fn call(&self, request: meta::MetaRequest) -> Result<meta::MetaReply> {
        self.get()?.call(request).await
    }
}

#[async_trait]
impl StorageService for Opening<dyn StorageService> {
    async fn call(
        &self,
        request: storage::StorageRequest,
        payload: Bytes,
    ) -> Result<(storage::StorageReply, Bytes)> {
        self.get()?.call(request, payload).await
    }
}

/// The listeners of a server. They stop when this is dropped.
pub struct Front {
    shutdown: watch::Sender<bool>,
    serving: Vec<JoinHandle<()>>,
    meta: Arc<Opening<dyn MetaService>>,
    storage: Arc<Opening<dyn StorageService>>,
}

impl Front {
    /// Serves with a manager alone; [`Front::complete`] adds the rest.
    pub fn open(listeners: Vec<Listener>, who: Identity, manager: Arc<Candidate>) -> Front {
        let mut front = Self::new();
        let services = Services {
            manager: Some(manager),
            meta: Some(front.meta.clone()),
            storage: Some(front.storage.clone()),
        };
        front.serve(listeners, who, &services);
        front
    }

    /// Serves with all there is.
    pub fn open_whole(listeners: Vec<Listener>, who: Identity, services: &Services) -> Front {
        let mut front = Self::new();
        front.serve(listeners, who, services);
        front
    }

    fn new() -> Front {
        Front {
            shutdown: watch::channel(false).0,
            serving: Vec::new(),
            meta: Arc::new(Opening(OnceLock::new())),
            storage: Arc::new(Opening(OnceLock::new())),
        }
    }

    fn serve(&mut self, listeners: Vec<Listener>, who: Identity, services: &Services) {
        let stopped = self.shutdown.subscribe();
        let serve = |listener| {
            let (services, who, stopped) = (services.clone(), who.clone(), stopped.clone());
            tokio::spawn(server::serve(listener, services, who, stopped))
        };
        self.serving.extend(listeners.into_iter().map(serve));
    }

    /// The other roles are there.
    pub fn complete(&self, services: &Services) {
        if let Some(meta) = &services.meta {
            self.meta.0.get_or_init(|| meta.clone());
        }
        if let Some(storage) = &services.storage {
            self.storage.0.get_or_init(|| storage.clone());
        }
    }

    /// Stops, after the calls that are under way.
    pub async fn stop(self) {
        self.shutdown.send_replace(true);
        for serving in self.serving {
            let _ended = serving.await;
        }
    }
}
