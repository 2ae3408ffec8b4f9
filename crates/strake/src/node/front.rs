//! What others reach of a server: its listeners, and the services behind them.
//!
//! A manager that comes back must be heard before its own server has joined: whether that one's
//! members of groups are still in sync depends on who else lives, and they say so to this manager.
//! So its listeners serve first, and the other roles answer `Unavailable` until they are there.

use async_trait::async_trait;
use bytes::Bytes;
use std::sync::{Arc, OnceLock};
use strake_manager::Candidate;
use strake_types::{Error, ErrorKind, Result, ServerId};
use strake_wire::hello::starting;
use strake_wire::map::MapView;
use strake_wire::message::manager::{self, ClusterMap};
use strake_wire::message::{meta, storage};
use strake_wire::server::{self, Identity, Listener};
use strake_wire::service::{ManagerService, MetaService, Services, StorageService};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A service that is being started, and then is there, or is none of this server's roles.
struct Opening<S: ?Sized>(OnceLock<Option<Arc<S>>>);

impl<S: ?Sized> Opening<S> {
    fn get(&self) -> Result<&Arc<S>> {
        let none = || Error::with(ErrorKind::StaleMap, "this server has no such role");
        self.0.get().ok_or_else(starting)?.as_ref().ok_or_else(none)
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

/// Stands where a server has no manager, and says who has one.
struct Elsewhere {
    server: ServerId,
    map: Arc<MapView>,
}

#[async_trait]
impl ManagerService for Elsewhere {
    async fn call(&self, _request: manager::ManagerRequest) -> Result<manager::ManagerReply> {
        Err(elsewhere(&self.map.current(), self.server))
    }
}

fn elsewhere(map: &ClusterMap, server: ServerId) -> Error {
    let here = map.servers.iter().find(|one| one.id == server.0);
    let here = here.map_or_else(String::new, |one| format!(" {} ({})", one.name, one.address));
    let managers = map.servers.iter().filter(|one| one.manager).map(|one| one.address.as_str());
    let managers = managers.collect::<Vec<_>>().join(",");
    let detail = format!("server{here} has no manager; name that of its cluster: {managers}");
    Error::with(ErrorKind::NoManager, detail)
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

    /// Serves with all there is; the managers of the `map` are named where this server has none.
    pub fn open_whole(
        listeners: Vec<Listener>,
        who: Identity,
        mut services: Services,
        server: ServerId,
        map: &Arc<MapView>,
    ) -> Front {
        let mut front = Self::new();
        services.manager.get_or_insert_with(|| Arc::new(Elsewhere { server, map: map.clone() }));
        front.serve(listeners, who, &services);
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

    /// The other roles are there, as far as the server has them.
    pub fn complete(&self, services: &Services) {
        self.meta.0.get_or_init(|| services.meta.clone());
        self.storage.0.get_or_init(|| services.storage.clone());
    }

    /// Stops, after the calls that are under way.
    pub async fn stop(self) {
        self.shutdown.send_replace(true);
        for serving in self.serving {
            let _ended = serving.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::no_manager;
    use strake_wire::message::manager::Server;

    /// It was being started for ever, and so counted as one that nobody reaches.
    #[tokio::test]
    async fn a_role_that_a_server_does_not_have_is_not_being_started() {
        let front = Front::new();
        let stat = || front.storage.call(storage::StorageRequest::default(), Bytes::new());
        assert_eq!(stat().await.unwrap_err().kind, ErrorKind::Unavailable);
        front.complete(&Services::default());
        assert_eq!(stat().await.unwrap_err().kind, ErrorKind::StaleMap);
    }

    /// Its map was said to be out of date, and a manager to be started there.
    #[test]
    fn a_server_without_a_manager_names_the_one_that_there_is() {
        let server = |id, name: &str, manager| Server {
            id,
            name: name.into(),
            address: format!("{name}:7370"),
            manager,
            ..Server::default()
        };
        let servers = vec![server(1, "head", true), server(2, "disks", false)];
        let map = ClusterMap { servers, ..ClusterMap::default() };
        let error = elsewhere(&map, ServerId(2));
        let told = no_manager(&["disks:7370".into()], &error, "start one");
        assert_eq!(told.cause, "server disks (disks:7370) has no manager");
        assert_eq!(told.next.unwrap(), "name that of its cluster: head:7370");
    }
}
